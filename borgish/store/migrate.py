"""Brings a database to this version's schema, in process, and names the cell that it belongs to.

Alembic is loaded only when there is something to do: a start on a store that is at home needs two
small reads.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, insert, inspect, select, text

from borgish.errors import NotFound, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store.older import keep_before
from borgish.store.tables import REVISION, leadership, metadata

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "alembic_version"
_LOCK_KEY = 0x626F7267  # "borg": any number, the same in all masters


def prepare(connection: Connection, cell: str, *, keep: bool = True) -> None:
    """Migrate to ``REVISION`` and claim the database for the cell, in one transaction.

    An older store is kept as a checkpoint first, in a transaction of its own: that stays, whatever becomes
    of the migration. Raises UnsafeConfiguration when it is of a newer version, of another program or of
    another cell, and StoreDamaged for an older one from which no cell can be read; nothing was changed then.
    Without ``keep`` no cell is looked for, for who salvages what is left.
    """
    with connection.begin():
        _wait_for_others(connection)
        revision = stored_revision(connection)
        if revision:
            _expect_known(connection, revision)
            _claim(connection, cell)
        if revision == REVISION:
            return
        if revision and keep:
            keep_before(connection, cell, revision, REVISION)
            reach("migrate.kept")
    with connection.begin():
        _wait_for_others(connection)
        reach("migrate.begun")
        revision = stored_revision(connection)
        if revision != REVISION:
            _upgrade(connection, revision)
        reach("migrate.upgraded")
        _claim(connection, cell)
        reach("migrate.claimed")
    reach("migrate.committed")


def expect_current(connection: Connection) -> str:
    """Return the name of the cell in a database that is at ``REVISION``. Changes nothing.

    Raises NotFound where there is no cell, and UnsafeConfiguration for one of another version.
    """
    with connection.begin():
        revision = stored_revision(connection)
        if not revision:
            raise NotFound("The database has no cell in it", "Name the one that a borgmaster uses")
        _expect_known(connection, revision)
        if revision != REVISION:
            raise UnsafeConfiguration(
                f"The database is at revision {revision}, and this borgish reads {REVISION}",
                "A borgmaster of this version brings it up to date; or open what `checkpoint export` wrote",
            )
        return str(connection.execute(select(leadership.c.cell)).scalar_one())


def _wait_for_others(connection: Connection) -> None:
    """Two masters may start at once: the second waits here, and then finds all done."""
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
    from alembic import command  # takes long to load and is rarely needed

    if not revision:
        _expect_empty(connection)
    command.upgrade(_migrations(connection), REVISION)


def _migrations(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _expect_known(connection: Connection, revision: str) -> None:
    if revision == REVISION:
        return
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_migrations(connection))
    if revision not in {script.revision for script in scripts.walk_revisions()}:
        raise UnsafeConfiguration(
            f"The database is at revision {revision}; this borgish knows it only up to {REVISION}",
            "Use the newer borgish that wrote it, or another database",
        )


def _expect_empty(connection: Connection) -> None:
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
        _expect_same(owner, cell)


def expect_owner(connection: Connection, cell: str) -> None:
    """Raise UnsafeConfiguration unless the database is a cell's own."""
    _expect_same(connection.execute(select(leadership.c.cell)).scalar_one(), cell)


def _expect_same(owner: str, cell: str) -> None:
    if owner != cell:
        raise UnsafeConfiguration(
            f"The database belongs to cell '{owner}', not to '{cell}'",
            "Name the right cell in cell.toml, or give this cell a database of its own",
        )
