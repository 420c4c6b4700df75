"""The migrations give the schema that the code expects, on both engines and from the installed package."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine, inspect, text

from borgish.errors import UnsafeConfiguration
from borgish.store.migrate import VERSION_TABLE, migrations_folder, stored_revision
from borgish.store.open import open_store
from borgish.store.tables import REVISION, metadata
from tests.forked import Ended, call

ROOT = Path(__file__).parents[3]
OPEN = (
    "import sys, borgish.store.open as o, borgish.store.migrate as m; "
    "o.open_store(sys.argv[1], 'c').close(); print(m.migrations_folder(), 'alembic.command' in sys.modules)"
)


@pytest.fixture
def migrated(url: str) -> Iterator[Connection]:
    """A database that all migrations have made, one after another."""
    engine = create_engine(url)
    with engine.connect() as connection:
        with connection.begin():
            command.upgrade(config(connection), REVISION)
        yield connection
    engine.dispose()


def config(connection: Connection | None = None) -> Config:
    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(migrations_folder()))
    return made


def schema(url: str) -> object:
    """What the engine says of all tables."""
    engine = create_engine(url)
    found = inspect(engine)
    names = found.get_table_names()
    tables = {
        name: (
            [{**column, "type": str(column["type"])} for column in found.get_columns(name)],
            found.get_pk_constraint(name),
            found.get_indexes(name),
            found.get_unique_constraints(name),
            found.get_foreign_keys(name),
            found.get_check_constraints(name),
            found.get_table_options(name),
        )
        for name in names
    }
    engine.dispose()
    return tables


def test_an_empty_database_gets_what_all_migrations_make(url: str) -> None:
    open_store(url, "c").close()
    made = schema(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        everything = MetaData()
        everything.reflect(connection)
        everything.drop_all(connection)
        command.upgrade(config(connection), REVISION)
    engine.dispose()

    assert made == schema(url)


def test_migrations_make_all_tables(migrated: Connection) -> None:
    assert set(inspect(migrated).get_table_names()) == {*metadata.tables, VERSION_TABLE}
    assert stored_revision(migrated) == REVISION


def test_the_migrated_schema_is_the_one_in_the_code(migrated: Connection) -> None:
    command.check(config(migrated))  # raises when it would make a migration


def test_keys_and_columns_are_as_in_the_code(migrated: Connection) -> None:
    found = inspect(migrated)
    for name, table in metadata.tables.items():
        constraint = found.get_pk_constraint(name)
        assert constraint["constrained_columns"] == [column.name for column in table.primary_key]
        columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
        assert columns == {column.name: column.nullable for column in table.columns}
        assert list(columns) == list(table.columns.keys())


def test_the_code_expects_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == REVISION


def test_opening_what_is_empty_or_up_to_date_loads_no_alembic(url: str) -> None:
    for _ in range(2):
        said = subprocess.run(
            [sys.executable, "-c", OPEN, url], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

        assert said.split()[-1] == "False"


def test_a_store_of_a_newer_version_is_refused(migrated: Connection, url: str) -> None:
    migrated.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    migrated.commit()
    migrated.close()

    with pytest.raises(UnsafeConfiguration, match="revision 9999") as caught:
        open_store(url, "c")

    assert "newer borgish" in caught.value.hint


def test_a_store_of_another_cell_is_refused(url: str) -> None:
    open_store(url, "c").close()

    with pytest.raises(UnsafeConfiguration, match="belongs to cell 'c', not to 'd'"):
        open_store(url, "d")

    open_store(url, "c").close()  # and no lock was left behind


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE jobs (title TEXT)")
    connection.close()

    with pytest.raises(UnsafeConfiguration, match="tables of another program: jobs"):
        open_store(f"sqlite:///{file}", "c")

    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("jobs",)]
    connection.close()


def test_the_installed_package_has_its_own_migrations(tmp_path: Path) -> None:
    """As the wheel lays them out: the folder ``migrations`` of the checkout, inside the package."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert '"migrations" = "borgish/store/migrations"' in pyproject
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "borgish", tmp_path / "site" / "borgish", ignore=unwanted)
    packaged = tmp_path / "site" / "borgish" / "store" / "migrations"
    shutil.copytree(ROOT / "migrations", packaged, ignore=unwanted)
    engine = create_engine(f"sqlite:///{tmp_path}/cell.db")
    with engine.begin() as connection:
        command.upgrade(config(connection), "0001")
    engine.dispose()

    said = subprocess.run(
        [sys.executable, "-c", OPEN, f"sqlite:///{tmp_path}/cell.db"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said.split() == [str(packaged), "True"]


def test_sqlite_keeps_the_journal_in_the_order_of_its_positions(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/cell.db", "c").close()

    connection = sqlite3.connect(tmp_path / "cell.db")
    indexed = connection.execute("SELECT tbl_name FROM sqlite_master WHERE type = 'index'").fetchall()
    connection.close()

    assert not {("journal",), ("checkpoints",), ("tasks",)} & set(indexed)


def test_checkpoints_from_before_names_have_none(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        command.upgrade(config(connection), "0001")
        connection.execute(
            text(
                "INSERT INTO checkpoints (position, at, reason, sha256, bytes, body)"
                " VALUES (7, 1, 'r', 's', 1, :body)"
            ),
            {"body": b"b"},
        )
        connection.execute(text("INSERT INTO leadership VALUES ('c', 1, 3, 'h', 'a', CURRENT_TIMESTAMP)"))
    engine.dispose()

    store = open_store(url, "c")

    assert [(info.position, info.name) for info in store.checkpoints()] == [(7, "")]
    store.close()


def alembic(*arguments: str) -> Ended:
    return call("alembic.config", arguments, cwd=ROOT)


def test_alembic_works_from_the_command_line(url: str) -> None:
    as_people_do = [sys.executable, "-m", "alembic", "-x", f"url={url}", "upgrade", "head"]
    raised = subprocess.run(as_people_do, cwd=ROOT, capture_output=True, text=True, check=False)
    assert raised.returncode == 0, raised.stderr
    current = alembic("-x", f"url={url}", "current")
    assert current.out == f"{REVISION} (head)\n", current.err
    assert f"-> {REVISION} (head)" in alembic("history").out
    assert alembic("-x", f"url={url}", "check").code == 0

    open_store(url, "c").close()  # a borgmaster takes over what was migrated by hand


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("current",), "alembic -x url="),
        (("-x", "url=mysql://host/db", "current"), "'mysql' cannot hold a cell"),
        (("-x", "url=sqlite:////dev/null/cell.db", "current"), "/dev/null"),
        (("-x", "url=sqlite:////dev/null/cell.db", "upgrade", "head", "--sql"), "--sql is not supported"),
    ],
)
def test_what_alembic_cannot_use_is_reported_in_one_line(arguments: tuple[str, ...], expected: str) -> None:
    failed = alembic(*arguments)
    assert failed.code != 0
    said = failed.out + failed.err
    assert expected in said
    assert said.count("Write it like") <= 1, "a hint is printed once"
    assert "Traceback" not in failed.err


def test_alembic_leaves_a_database_alone_that_a_master_has_open(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/cell.db", "c")
    failed = alembic("-x", f"url=sqlite:///{tmp_path}/cell.db", "upgrade", "head")
    store.close()
    assert failed.code != 0
    assert f"process {os.getpid()} holds" in failed.out + failed.err
