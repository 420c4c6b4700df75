"""Opens the store that a URL names, ready for use: locked, at this version's schema, of this cell."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from borgish.cell.free_space import Floor
from borgish.errors import UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store import migrate, postgres, sqlite
from borgish.store.base import read_failed
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import Retention
from borgish.store.disk_space import DiskSpace
from borgish.store.sql import SqlStore

FORMS = "Write it like sqlite:////var/lib/borgish/cell.db or postgresql://user:password@host/database"

_ON_SERVER = {"sqlite": False, "sqlite+pysqlite": False, "postgresql": True, "postgresql+psycopg": True}


def open_store(
    url: str,
    cell: str,
    *,
    lock_path: Path | None = None,
    retention: Retention | None = None,
    floor: Floor | None = None,
) -> SqlStore:
    """Open, and make where it is not there, the store of a cell.

    ``lock_path`` is locked as long as the store is open (``cell.lock`` of the master's folder); SQLite also
    locks the file beside the database. ``floor`` is how much of an SQLite file's disk is to stay free.

    Raises UnsafeConfiguration for a URL that cannot be used and for a store that is in use (InUse), of
    another cell or of a newer version; Unreachable and StoreDamaged for what is wrong with the database.
    """
    parsed = parse_url(url)
    space = files = open_files = None
    if not _ON_SERVER[parsed.drivername]:
        path = sqlite.path_of(parsed)
        space, files = DiskSpace(path, floor or Floor()), CheckpointFiles(path, cell)
        open_files = sqlite.OpenFiles(path)
    connection, release = connect(url, lock_path, space)
    reach("open.connected")
    store = SqlStore(connection, cell, retention or Retention(), release)
    store.disk_space, store.files, store.open_files = space, files, open_files
    try:
        migrate.prepare(connection, cell)
    except SQLAlchemyError as error:
        store.close()
        raise read_failed(error) from error
    except BaseException:
        store.close()
        raise
    return store


def connect(
    url: str, lock_path: Path | None = None, space: DiskSpace | None = None
) -> tuple[Connection, Callable[[], None]]:
    """Return a connection to a database, locked as a master locks it, and what releases the locks.

    Its schema is not checked. ``space`` is opened as soon as an SQLite file is locked.
    Raises UnsafeConfiguration and Unreachable as ``open_store`` does.
    """
    parsed = parse_url(url)
    if _ON_SERVER[parsed.drivername]:
        return postgres.connect(parsed, lock_path)
    return sqlite.connect(parsed, lock_path, *([space.open] if space else []))


def open_reader(url: str) -> tuple[SqlStore, str]:
    """Open a store on a server to read it only, and return it with the name of its cell. Nothing is made.

    Raises what ``open_store`` raises, and NotFound where there is no cell.
    """
    connection, release = postgres.connect(parse_url(url), None)
    try:
        postgres.set_read_only(connection)
        name = migrate.check_current(connection)
    except SQLAlchemyError as error:
        connection.close()
        raise read_failed(error) from error
    except BaseException:
        connection.close()
        raise
    return SqlStore(connection, name, Retention(), release), name


def parse_url(url: str) -> URL:
    """Return the parts of a store's URL. Raises UnsafeConfiguration."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The text itself may hold a password, so it is not repeated.
        raise UnsafeConfiguration("The database URL cannot be read", FORMS) from None
    if parsed.drivername not in _ON_SERVER:
        raise UnsafeConfiguration(
            f"Databases of the kind '{parsed.drivername}' cannot hold a cell", _hint(parsed)
        )
    return parsed


def _hint(url: URL) -> str:
    kind = url.drivername.partition("+")[0]
    if "+" in url.drivername and kind in _ON_SERVER:
        return f"Leave out the driver: {kind}://..."
    return "Write postgresql:// in full" if kind == "postgres" else FORMS
