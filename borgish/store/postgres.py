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
from borgish.store.base import READ_ONLY_HINT, reason_of
from borgish.store.leadership import FileLock

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


def connect(url: URL, lock_path: Path | None) -> tuple[Connection, Callable[[], None]]:
    """Return a connection, and what releases the lock on the master's own folder.

    Raises UnsafeConfiguration when the driver is missing or the server refuses, Unreachable when
    nobody answers.
    """
    _check_driver()
    with ExitStack() as held:
        if lock_path is not None:
            held.callback(FileLock(lock_path).release)
        reach("open.locked")
        return _connection(url), held.pop_all().close


def connect_unpooled(url: URL) -> Connection:
    """Return a connection whose session is ours alone: settings and advisory locks belong to a session.

    That is checked at the start, rather than found when it matters. Raises what ``connect`` does, and
    UnsafeConfiguration behind a pooler that gives each transaction another session: two of our connections at
    once show it, since one server process serves both.
    """
    _check_driver()
    first = _connection(url)
    try:
        _check_not_pooled(url, first)
        return first
    except SQLAlchemyError as error:
        _close(first)
        raise _not_connected(url, error) from error
    except BaseException:
        _close(first)
        raise


def _check_not_pooled(url: URL, first: Connection) -> None:
    with first.begin():
        before = _backend_pid(first)
    second = _connection(url)
    try:
        with second.begin():
            beside = _backend_pid(second)
            with first.begin():
                after = _backend_pid(first)
    finally:
        _close(second)
    if before != after or beside == before:
        raise UnsafeConfiguration(
            f"Postgres at {_shown(url)} is behind a pooler that gives each transaction another session",
            "Name the server itself, or have the pooler pool sessions: a borgmaster needs one connection",
        )


def check_writable(connection: Connection) -> None:
    """Raise Unreachable for a replica and for a read-only server: to either we may write at any moment."""
    asked = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
    with connection.begin():
        is_replica, is_read_only = connection.exec_driver_sql(asked).one()
    if is_replica:
        raise Unreachable(
            f"Postgres at {_shown(connection.engine.url)} is a replica, which takes no writes",
            "Name the primary, or several hosts with target_session_attrs=read-write",
        )
    if is_read_only:
        raise Unreachable(
            f"Postgres at {_shown(connection.engine.url)} is read-only for this user", READ_ONLY_HINT
        )


def _backend_pid(connection: Connection) -> int:
    """Return which of the server's processes serves this transaction."""
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def _close(connection: Connection) -> None:
    connection.close()
    connection.engine.dispose()


def set_read_only(connection: Connection) -> None:
    """Have the server refuse every write of this connection from now on."""
    with connection.begin():
        connection.exec_driver_sql("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")


def _check_driver() -> None:
    try:
        import psycopg  # noqa: F401 - an extra: only who uses Postgres has it
    except ImportError as error:
        raise UnsafeConfiguration(
            f"Postgres needs psycopg 3, which does not load here: {error}",
            "Install it with: pip install 'borgish[postgres]'",
        ) from error


def _connection(url: URL) -> Connection:
    # Positional parameters, so that rows are tuples as for SQLite.
    url = url.set(drivername="postgresql+psycopg")
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
    shown = _shown(url)
    reason = reason_of(error)
    if isinstance(error, DBAPIError) and any(mark in reason for mark in _REFUSALS):
        return UnsafeConfiguration(
            f"Postgres at {shown} refuses: {reason}", "Check user, password and database in the URL"
        )
    return Unreachable(
        f"Postgres at {shown} does not answer: {reason}", "Check that it runs, and host and port in the URL"
    )


def _shown(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=True)
