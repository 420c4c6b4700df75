"""Migrates a database to this version's schema, in process, and claims it for its cell.

Alembic is loaded only for an older database: a start on a store that is up to date needs two small reads,
and an empty one gets its tables as the code has them. The cell that an older database holds is kept as a
checkpoint before its schema is migrated.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
)

from borgish.cell.events import Entry
from borgish.clock import SystemClock
from borgish.errors import NotFound, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import is_good
from borgish.store.codec import compress, decode_command, decode_events, encode_snapshot, sha256_of
from borgish.store.replay import restore
from borgish.store.tables import REVISION, checkpoints, columns_as_written, journal, leadership, metadata

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "alembic_version"
_version = Table(  # as Alembic makes it
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_LOCK_KEY = 0x626F7267  # "borg": any number, the same in all masters

BEFORE_MIGRATION = "before the migration"
"""How the reason of such a checkpoint begins."""

_PAGE_ENTRIES = 500


def prepare(connection: Connection, cell: str, *, keep_checkpoint: bool = True) -> None:
    """Migrate to ``REVISION`` and claim the database for the cell, in one transaction.

    The cell in an older store is kept as a checkpoint first, in a transaction of its own: that stays,
    whatever becomes of the migration. Raises UnsafeConfiguration when it is of a newer version, of another
    program or of another cell, and StoreDamaged for an older one from which no cell can be read; nothing was
    changed then.
    ``keep_checkpoint`` is off for salvage, where there may be no cell to read.
    """
    with connection.begin():
        _lock_against_others(connection)
        revision = stored_revision(connection)
        if revision:
            _check_known(connection, revision)
            _claim(connection, cell)
        if revision == REVISION:
            return
        if revision and keep_checkpoint:
            _checkpoint_older_cell(connection, cell, revision, REVISION)
            reach("migrate.kept")
    with connection.begin():
        _lock_against_others(connection)
        reach("migrate.begun")
        revision = stored_revision(connection)
        if revision != REVISION:
            _upgrade(connection, revision)
        reach("migrate.upgraded")
        _claim(connection, cell)
        reach("migrate.claimed")
    reach("migrate.committed")


def check_current(connection: Connection) -> str:
    """Return the name of the cell in a database that is at ``REVISION``. Changes nothing.

    Raises NotFound where there is no cell, and UnsafeConfiguration for one of another version.
    """
    with connection.begin():
        revision = stored_revision(connection)
        if not revision:
            raise NotFound("The database has no cell in it", "Name the one that a borgmaster uses")
        _check_known(connection, revision)
        if revision != REVISION:
            raise UnsafeConfiguration(
                f"The database is at revision {revision}, and this borgish reads {REVISION}",
                "A borgmaster of this version brings it up to date; or open what `checkpoint export` wrote",
            )
        return str(connection.execute(select(leadership.c.cell)).scalar_one())


def _lock_against_others(connection: Connection) -> None:
    """Make a second master that starts at the same time wait here; it finds all done then."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))


def stored_revision(connection: Connection) -> str:
    """Return the revision that the database is at; empty for a database without one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar() or ""  # noqa: S608 - a constant


def migrations_folder() -> Path:
    """Return where the migrations are: inside the installed package, or at the root of a checkout."""
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"


def _upgrade(connection: Connection, revision: str) -> None:
    if not revision:
        _check_empty(connection)
        _create(connection)
        return
    from alembic import command  # takes long to load and is rarely needed

    command.upgrade(_migrations(connection), REVISION)


def _create(connection: Connection) -> None:
    """Make in one go what all migrations would; a test holds the two alike."""
    metadata.create_all(connection)
    _version.create(connection)
    connection.execute(insert(_version).values(version_num=REVISION))


def _migrations(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _check_known(connection: Connection, revision: str) -> None:
    if revision == REVISION:
        return
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_migrations(connection))
    if revision not in {script.revision for script in scripts.walk_revisions()}:
        raise UnsafeConfiguration(
            f"The database is at revision {revision}; this borgish knows it only up to {REVISION}",
            "Use the newer borgish that wrote it, or another database",
        )


def _check_empty(connection: Connection) -> None:
    taken = sorted(metadata.tables.keys() & set(inspect(connection).get_table_names()))
    if taken:
        raise UnsafeConfiguration(
            f"The database has tables of another program: {', '.join(taken)}",
            "Give borgish a database of its own",
        )


def _claim(connection: Connection, cell: str) -> None:
    owner = connection.execute(select(leadership.c.cell)).scalar_one_or_none()
    if owner is None:
        row = {"cell": cell, "timeline": 1, "epoch": 0, "holder": "", "address": ""}
        connection.execute(insert(leadership).values(renewed_at=func.now(), **row))
    else:
        _check_same_cell(owner, cell)


def check_owner(connection: Connection, cell: str) -> None:
    """Raise UnsafeConfiguration unless the database is a cell's own."""
    _check_same_cell(connection.execute(select(leadership.c.cell)).scalar_one(), cell)


def _check_same_cell(owner: str, cell: str) -> None:
    if owner != cell:
        raise UnsafeConfiguration(
            f"The database belongs to cell '{owner}', not to '{cell}'",
            "Name the right cell in cell.toml, or give this cell a database of its own",
        )


def _checkpoint_older_cell(connection: Connection, cell: str, old: str, new: str) -> None:
    """Make a checkpoint of what is stored at schema ``old``, named for the schema ``new`` that follows.

    Only columns that are there are read and written, so that this works on every schema there ever was.
    Nothing is made of an empty journal; a good checkpoint at its end is marked as this one. Within the
    caller's transaction. Raises StoreDamaged for a store from which no cell can be read: it is not migrated.
    """
    found = restore(cell, _stored_checkpoints(connection), lambda after: _entries(connection, after)).cell
    if not found.position:
        return
    name = f"before-{new}"
    if any(row.get("name") == name for row in _checkpoint_rows(connection)):
        name = ""
    existing = {column.name for column in _columns(connection, checkpoints)}
    of_this = checkpoints.c.position == found.position
    values: dict[str, Any] = {"reason": f"{BEFORE_MIGRATION} from {old} to {new}", "name": name}
    for info, stored in _stored_checkpoints(connection):
        if info.position == found.position and is_good(cell, info, stored):
            values["name"] = info.name or name
            marked = {key: value for key, value in values.items() if key in existing}
            connection.execute(checkpoints.update().where(of_this).values(marked))
            return
    stored = compress(encode_snapshot(found.snapshot()))
    values |= {
        "position": found.position,
        "at": SystemClock().now().wall,
        "sha256": sha256_of(stored),
        "bytes": len(stored),
        "body": stored,
    }
    connection.execute(checkpoints.delete().where(of_this))
    connection.execute(insert(checkpoints), {key: value for key, value in values.items() if key in existing})


def _stored_checkpoints(connection: Connection) -> Iterator[tuple[CheckpointInfo, bytes]]:
    """Yield the checkpoints with their bodies, newest first."""
    for row in sorted(_checkpoint_rows(connection), key=lambda row: -row["position"]):
        wanted = select(checkpoints.c.body).where(checkpoints.c.position == row["position"])
        yield CheckpointInfo(**row), bytes(connection.execute(wanted).scalar_one())


def _checkpoint_rows(connection: Connection) -> list[dict[str, Any]]:
    columns = [column for column in _columns(connection, checkpoints) if column.name != "body"]
    return [dict(row) for row in connection.execute(select(*columns)).mappings()]


def _entries(connection: Connection, after: int) -> Iterator[Entry]:
    columns = columns_as_written(_columns(connection, journal))
    while True:
        page = select(*columns).where(journal.c.position > after).order_by(journal.c.position)
        rows = [dict(row) for row in connection.execute(page.limit(_PAGE_ENTRIES)).mappings()]
        for row in rows:
            position = row["position"]
            events = decode_events(row.pop("events"), position)
            command = decode_command(row.pop("command", None), position)
            yield Entry(events=events, command=command, **row)
        if len(rows) < _PAGE_ENTRIES:
            return
        after = rows[-1]["position"]


def _columns(connection: Connection, table: Table) -> list[Column[Any]]:
    existing = {column["name"] for column in inspect(connection).get_columns(table.name)}
    return [column for column in table.c if column.name in existing]
