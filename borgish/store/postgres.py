"""Connects to Postgres by psycopg 3, with a limit on how long anything may hang.

Several masters may be connected; the epoch in ``leadership`` tells which of them may write.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, Connection, StaticPool, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from borgish.errors import BorgishError, Unreachable, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store import faults
from borgish.store.lock import FileLock

_CONNECT = {
    "connect_timeout": 5,  # seconds
    "tcp_user_timeout": 4000,  # milliseconds without an acknowledgement
    "keepalives_idle": 5,  # seconds
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "application_name": "borgmaster",
}
_SETTINGS = (
    "synchronous_commit = on",  # whatever the server's default: an answer means durable
    "statement_timeout = '30s'",
    "lock_timeout = '5s'",
    "idle_in_transaction_session_timeout = '5s'",  # a frozen master does not hold up the next one
    "client_encoding = 'UTF8'",
)
_REFUSALS = ("authentication failed", "pg_hba.conf", "does not exist", "not permitted", "no password")


class _Cursor(Protocol):
    def execute(self, statement: str) -> object: ...


class _DriverConnection(Protocol):
    autocommit: bool

    def cursor(self) -> _Cursor: ...


def connect(url: URL, lock_path: Path | None, *, wait: bool) -> tuple[Connection, Callable[[], None]]:
    """Return a connection, and what lets go of the lock on the master's own folder.

    Raises UnsafeConfiguration when the driver is missing or the server refuses, Unreachable when
    nobody answers.
    """
    _expect_driver()
    with ExitStack() as held:
        if lock_path is not None:
            held.callback(FileLock(lock_path, wait=wait).release)
        reach("open.locked")
        return _connection(url.set(drivername="postgresql+psycopg")), held.pop_all().close


def write_nothing(connection: Connection) -> None:
    """Have the server refuse every write of this connection from now on."""
    with connection.begin():
        connection.exec_driver_sql("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")


def _expect_driver() -> None:
    try:
        import psycopg  # noqa: F401 - an extra: only who uses Postgres has it
    except ImportError as error:
        raise UnsafeConfiguration(
            f"Postgres needs psycopg 3, which does not load here: {error}",
            "Install it with: pip install 'borgish[postgres]'",
        ) from error


def _connection(url: URL) -> Connection:
    # Positional parameters, so that rows are tuples as for SQLite.
    engine = create_engine(url, poolclass=StaticPool, paramstyle="format", connect_args=_CONNECT)
    event.listen(engine, "connect", _prepare)
    try:
        return engine.connect()
    except SQLAlchemyError as error:
        raise _not_connected(url, error) from error


def _prepare(connection: _DriverConnection, _record: object) -> None:
    connection.autocommit = True
    cursor = connection.cursor()
    for setting in _SETTINGS:
        cursor.execute(f"SET {setting}")
    connection.autocommit = False


def _not_connected(url: URL, error: SQLAlchemyError) -> BorgishError:
    shown = url.render_as_string(hide_password=True)
    reason = faults.reason_of(error)
    if isinstance(error, DBAPIError) and any(mark in reason for mark in _REFUSALS):
        return UnsafeConfiguration(
            f"Postgres at {shown} refuses: {reason}", "Check user, password and database in the URL"
        )
    return Unreachable(
        f"Postgres at {shown} does not answer: {reason}", "Check that it runs, and host and port in the URL"
    )
