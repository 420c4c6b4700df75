"""Connects to SQLite: one connection, durable at each commit, files that only their owner reads.

SQLite before 3.51.3 can damage a WAL database when two connections write to it. So the one
connection comes with a lock; whoever looks from outside opens the file with ``mode=ro``.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, StaticPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from borgish.errors import UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store.base import read_failed
from borgish.store.files import finish_rebuild
from borgish.store.leadership import FileLock

BUSY_SECONDS_MAX = 5.0
_PRAGMAS = (
    "synchronous = FULL",  # NORMAL does not sync at commit
    "cache_size = -32768",  # KiB; holds the hot pages of 200,000 tasks
    "wal_autocheckpoint = 4000",  # pages
    "journal_size_limit = 67108864",  # bytes; a large WAL is cut again
)


def connect(
    url: URL, lock_path: Path | None, locked_now: Callable[[], None] = lambda: None
) -> tuple[Connection, Callable[[], None]]:
    """Return a connection, and what lets go of its locks.

    Locks ``lock_path`` and the file beside the database (``cell.lock`` for ``cell.db``), so that
    two masters with different settings do not both get in; ``locked_now`` is called when both are ours and
    nothing was opened. Raises UnsafeConfiguration, as InUse when another master has it.
    """
    path = path_of(url)
    with locked(path, lock_path) as held:
        reach("open.locked")
        locked_now()
        finish_rebuild(path)
        _make_private(path)
        return open_file(path), held.pop_all().close


def locked(path: Path, lock_path: Path | None) -> ExitStack:
    """Return the locks on a database, held until they are let go of. Raises UnsafeConfiguration."""
    with ExitStack() as held:
        for lock in dict.fromkeys([path.with_suffix(".lock"), *([lock_path.resolve()] if lock_path else [])]):
            held.callback(FileLock(lock).release)
        return held.pop_all()


def path_of(url: URL) -> Path:
    """Return the file that a URL names. Raises UnsafeConfiguration when it names none."""
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise UnsafeConfiguration(
            f"The database {url} is not a file; a cell must outlive its master",
            "Write it like sqlite:////var/lib/borgish/cell.db",
        )
    if url.query or url.host:
        raise UnsafeConfiguration(
            f"The database {url} has a host or options; SQLite takes only a path",
            "Write it like sqlite:////var/lib/borgish/cell.db",
        )
    # Resolved, so that two names of one file have one lock.
    return Path(url.database).resolve()


def _make_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise UnsafeConfiguration(
            f"The database {path} cannot be opened: {error.strerror}",
            "Give a file that this user owns, in a folder that it may write to",
        ) from error


def open_file(path: Path) -> Connection:
    """Return a connection to a file whose lock is held. Raises what ``faults.unread`` returns."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS_MAX},
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    try:
        return engine.connect()
    except SQLAlchemyError as error:
        raise read_failed(error) from error


def open_to_read(path: Path) -> Connection:
    """Return a connection that cannot write, to a file that another process may write to."""
    engine = create_engine(
        URL.create("sqlite", database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"}),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS_MAX},
    )
    try:
        return engine.connect()
    except SQLAlchemyError as error:
        raise read_failed(error) from error


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver begins no transactions of its own
    _use_wal(connection)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Where there can be no WAL SQLite says so and goes on without. Raises UnsafeConfiguration: as it is
    used here, a commit would not outlive a power cut then."""
    [(mode,)] = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise UnsafeConfiguration(
            f"SQLite cannot keep a write-ahead log beside the database; its journal stays in mode '{mode}'",
            "Put the database on a local disk with room, or use Postgres",
        )


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
