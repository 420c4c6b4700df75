"""Connects to SQLite: one connection, durable at each commit; and replaces one database file by another.

SQLite before 3.51.3 can damage a WAL database when two connections write to it. So the one
connection comes with a lock; whoever reads from outside opens the file with ``mode=ro``.

A database is its file and the write-ahead log beside it, which SQLite would apply to whatever file it finds
there. So a replacement is first complete under a name of its own; from the moment that it has the name
``.rebuilt`` it is what will be opened, whoever opens next.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, StaticPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from borgish.clock import SystemClock
from borgish.durable import open_private, sync
from borgish.errors import StoreDamaged, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store.base import read_failed
from borgish.store.leadership import FileLock

BUSY_SECONDS_MAX = 5.0
_LOG_SUFFIXES = ("-wal", "-shm")
FREE_BYTES_MAX = 64 * 2**20
"""So much may lie free in a file, for what comes next. To find a free page at its beginning SQLite goes
through the list of all: that takes some microseconds with this much, and milliseconds with gigabytes."""
GIVING_BACK_SECONDS = 0.01
PADDED_BYTES_MAX = 64 * 2**20
"""Beside eight times the file's size. A header that states more than that is damaged itself."""
_PRAGMAS = (
    "synchronous = FULL",  # NORMAL does not sync at commit
    "cache_size = -32768",  # KiB; holds the hot pages of 200,000 tasks
    "wal_autocheckpoint = 4000",  # pages
    "journal_size_limit = 67108864",  # bytes; a large WAL is cut again
)


def connect(
    url: URL, lock_path: Path | None, on_locked: Callable[[], None] = lambda: None
) -> tuple[Connection, Callable[[], None]]:
    """Return a connection, and what releases its locks.

    Locks ``lock_path`` and the file beside the database (``cell.lock`` for ``cell.db``), so that
    two masters with different settings do not both get in; ``on_locked`` is called when both are ours and
    nothing was opened. Raises UnsafeConfiguration, as InUse when another master has it.
    """
    path = path_of(url)
    with locked(path, lock_path) as held:
        reach("open.locked")
        on_locked()
        finish_rebuild(path)
        _make_private(path)
        return open_file(path), held.pop_all().close


def locked(path: Path, lock_path: Path | None) -> ExitStack:
    """Return the locks on a database, held until they are closed. Raises UnsafeConfiguration."""
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


class OpenFiles:
    """The files of a database that is open: itself and its log. SQLite goes on writing to what was deleted or
    replaced, and nobody would find that again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        files = (path, Path(f"{path}{_LOG_SUFFIXES[0]}"))
        self._seen: dict[Path, tuple[int, int] | None] = dict.fromkeys(files)  # device and inode, once there

    def check(self) -> None:
        """Raise StoreDamaged when one was deleted, replaced or emptied since an earlier check. A log may be
        empty, but is not made anew while the database is open; what has tables is never empty."""
        for path, before in self._seen.items():
            try:
                there = path.stat()
            except FileNotFoundError:
                there = None
            except OSError:  # a folder that nobody may look into, say: the next commit shows what is wrong
                continue
            now = None if there is None else (there.st_dev, there.st_ino)
            if before is None:
                self._seen[path] = now
                continue
            what = "deleted" if there is None else "replaced" if now != before else ""
            if there is not None and not there.st_size and path == self._path:
                what = what or "emptied"
            if what:
                raise StoreDamaged(
                    f"{path} was {what} while this borgmaster had it open: nothing more can be kept",
                    "See what did that. The next start says what is good, and how to go on from there",
                )


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


def open_read_only(path: Path) -> Connection:
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
    try:
        # Of a new file only, and before the log makes it one: see ``give_back``.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _use_wal(connection)
    except UnicodeDecodeError as error:  # SQLite names what it cannot read, and that is no text
        raise sqlite3.DatabaseError(f"malformed database schema: {error}") from error
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Where there can be no WAL SQLite reports so and goes on without. Raises UnsafeConfiguration: with these
    pragmas a commit would not outlive a power cut then."""
    [(mode,)] = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise UnsafeConfiguration(
            f"SQLite cannot keep a write-ahead log beside the database; its journal stays in mode '{mode}'",
            "Put the database on a local disk with room, or use Postgres",
        )


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def give_back(connection: Connection) -> int:
    """Shorten the file a moment long, in the transaction that is open; return by how many bytes.

    SQLite keeps pages of which everything was deleted, for what is written next. Where these are many, pages
    of the end take the place of free ones, and the end is cut off. A database of a version before this knows
    no such pages (``auto_vacuum`` is 0), and stays as long as it is.
    """
    free, pages, page_bytes, mode = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("freelist_count", "page_count", "page_size", "auto_vacuum")
    )
    if free * page_bytes <= FREE_BYTES_MAX or mode == 0:
        return 0
    clock = SystemClock()
    until = clock.now().mono + GIVING_BACK_SECONDS
    while True:
        # A page at a time: further steps of one such statement are beyond the reach of Python's driver.
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        if clock.now().mono >= until:
            break
    left = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int((pages - left) * page_bytes)


# Replacing the file


def finish_rebuild(path: Path) -> None:
    """Put a replacement that is complete, if there is one, into its place. The lock is held."""
    rebuilt = _beside(path, ".rebuilt")
    if not rebuilt.exists():
        return
    for log in _LOG_SUFFIXES:
        _beside(path, log).unlink(missing_ok=True)
    sync_folder(path)
    reach("rebuild.cleared")
    rebuilt.replace(path)
    sync_folder(path)
    reach("rebuild.replaced")


def commit_rebuild(path: Path, built: Path) -> None:
    """Make a complete and closed database the one that will be opened."""
    sync(built)
    built.replace(_beside(path, ".rebuilt"))
    sync_folder(path)
    reach("rebuild.settled")


def back_up(path: Path) -> list[Path]:
    """Copy a database and its log to unused names; return these. Raises OSError, and leaves no half then."""
    backup = next(found for n in count(1) if not (found := _beside(path, f".damaged-{n}")).exists())
    try:
        copies = copy_database(path, backup)
        for copy in copies:
            sync(copy)
        sync_folder(path)
    except OSError:
        remove_database(backup)
        raise
    reach("rebuild.aside")
    return copies


def copy_database(path: Path, to: Path) -> list[Path]:
    """Copy a database that nobody has open, with its log, over any there are; return the copies' paths."""
    remove_database(to)
    copies = []
    for name in ("", "-wal"):
        if _beside(path, name).exists():
            copies.append(_beside(to, name))
            with open(copies[-1], "wb", opener=open_private) as copy, _beside(path, name).open("rb") as file:
                shutil.copyfileobj(file, copy, 2**20)
    return copies


def pad_to_stated_size(path: Path) -> None:
    """Extend an SQLite file that was cut off to the length that its header states, or SQLite refuses it."""
    with path.open("r+b") as file:
        head = file.read(32)
        page_bytes = int.from_bytes(head[16:18], "big")
        pages = int.from_bytes(head[28:32], "big")
        size = pages * (65536 if page_bytes == 1 else page_bytes)
        actual = path.stat().st_size
        if head.startswith(b"SQLite format 3\0") and actual < size <= 8 * actual + PADDED_BYTES_MAX:
            file.truncate(size)


def remove_database(path: Path) -> Path:
    """Remove a database with its log, where there is one, and return its path."""
    for name in ("", "-journal", *_LOG_SUFFIXES):
        _beside(path, name).unlink(missing_ok=True)
    return path


def working_copies(path: Path) -> Iterator[Path]:
    """Yield the names of the files that a rebuild works on; of no use to anybody when it was cut off."""
    yield _beside(path, ".salvage")
    yield _beside(path, ".building")


def sync_folder(path: Path) -> None:
    """Make the names beside a file durable."""
    sync(path.parent)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
