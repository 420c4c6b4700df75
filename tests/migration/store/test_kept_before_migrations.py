"""What an older database holds is kept as a checkpoint before its schema is migrated."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import msgspec
import pytest
from alembic import command
from sqlalchemy import Connection, create_engine, inspect, text

from borgish.cell.events import MachineUp
from borgish.errors import StoreDamaged, UnsafeConfiguration
from borgish.store.checkpoints import verified_snapshot
from borgish.store.codec import compress, decode_snapshot, sha256_of
from borgish.store.memory import MemoryStore
from borgish.store.migrate import stored_revision
from borgish.store.open import open_store
from borgish.store.tables import REVISION, entry_row, journal
from tests.contract.store.samples import CELL, Life, body_of
from tests.migration.store.test_migrations import config

WITHOUT_NAMES, WITH_NAMES, WITHOUT_COMMANDS = "0001", "0002", "0004"
NAME = f"before-{REVISION}"
HEAD = 7
_KEEP = "INSERT INTO checkpoints (position, at, reason, sha256, bytes, body) VALUES (:p, 1, 'r', :s, 1, :b)"


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def lived() -> Life:
    life = Life(MemoryStore(CELL))
    life.story()
    life.do(MachineUp("m1"))
    assert life.cell.position == HEAD
    return life


def left_behind(url: str, revision: str, cell: str = CELL) -> Life:
    """Make the database as an older version left it; return the life in its journal."""
    life = lived()
    with connected(url) as connection:
        command.upgrade(config(connection), revision)
        led = text("INSERT INTO leadership VALUES (:cell, 1, 1, 'h', 'a', CURRENT_TIMESTAMP)")
        connection.execute(led, {"cell": cell})
        there = {column["name"] for column in inspect(connection).get_columns("journal")}
        for entry in life.store.entries(0):
            row = dict(zip(journal.c.keys(), entry_row(entry), strict=True))
            row |= {"events": json.loads(row["events"])}
            connection.execute(journal.insert(), {name: row[name] for name in row if name in there})
    return life


def keep(url: str, position: int, body: bytes, *, torn: bool = False) -> None:
    stored = compress(body)
    row = {"p": position, "s": sha256_of(stored), "b": stored[:-1] if torn else stored}
    with connected(url) as connection:
        connection.execute(text(_KEEP), row)


def kept(url: str) -> list[tuple[int, str]]:
    store = open_store(url, CELL)
    try:
        return [(info.position, info.name) for info in store.checkpoints()]
    finally:
        store.close()


@pytest.mark.parametrize("revision", [WITHOUT_NAMES, WITH_NAMES])
def test_an_older_store_is_kept_as_it_was(url: str, revision: str) -> None:
    life = left_behind(url, revision)

    store = open_store(url, CELL)

    (info,) = store.checkpoints()
    assert (info.position, info.reason) == (HEAD, f"before the migration from {revision} to {REVISION}")
    assert info.name == (NAME if revision == WITH_NAMES else "")
    assert verified_snapshot(CELL, *store.checkpoint_body(HEAD)) == decode_snapshot(life.body(), CELL)
    assert body_of(store.load()) == life.body()
    store.close()
    assert len(kept(url)) == 1


def test_commands_of_older_entries_are_not_recorded(url: str) -> None:
    old = [
        msgspec.structs.replace(entry, command=None)
        for entry in left_behind(url, WITHOUT_COMMANDS).store.entries(0)
    ]

    life = Life(open_store(url, CELL))
    life.do(MachineUp("m1"))
    life.store.close()
    store = open_store(url, CELL)
    *before, elected, up = store.entries(0)
    store.close()
    assert before == old
    assert [each.command is not None for each in (elected, up)] == [False, True]


def test_a_good_checkpoint_at_the_end_is_marked_as_this_one(url: str) -> None:
    life = left_behind(url, WITH_NAMES)
    keep(url, HEAD, life.body())
    assert kept(url) == [(HEAD, NAME)]


def test_a_torn_one_there_is_replaced(url: str) -> None:
    life = left_behind(url, WITH_NAMES)
    keep(url, HEAD, life.body(), torn=True)
    assert kept(url) == [(HEAD, NAME)]


def test_a_name_that_is_taken_is_not_given_again(url: str) -> None:
    left_behind(url, WITH_NAMES)
    keep(url, 3, b"of before")
    with connected(url) as connection:
        connection.execute(text("UPDATE checkpoints SET name = :name"), {"name": NAME})
    assert kept(url) == [(HEAD, ""), (3, NAME)]


def test_an_empty_journal_is_not_worth_keeping(url: str) -> None:
    with connected(url) as connection:
        command.upgrade(config(connection), WITH_NAMES)
    assert kept(url) == []


def test_it_stays_when_the_migration_fails(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(url, WITH_NAMES)

    def fail(*_: object) -> NoReturn:
        raise RuntimeError("the power went")

    monkeypatch.setattr(command, "upgrade", fail)
    with pytest.raises(RuntimeError, match="the power went"):
        open_store(url, CELL)

    with connected(url) as connection:
        assert stored_revision(connection) == WITH_NAMES
        assert connection.execute(text("SELECT position, name FROM checkpoints")).all() == [(HEAD, NAME)]
    monkeypatch.undo()
    assert kept(url) == [(HEAD, NAME)]


def test_a_store_from_which_nothing_can_be_read_is_not_migrated(url: str) -> None:
    left_behind(url, WITH_NAMES)
    with connected(url) as connection:
        connection.execute(text("DELETE FROM journal WHERE position = 4"))

    with pytest.raises(StoreDamaged, match="lost entry 4"):
        open_store(url, CELL)

    with connected(url) as connection:
        assert stored_revision(connection) == WITH_NAMES


def test_the_store_of_another_cell_is_not_kept(url: str) -> None:
    left_behind(url, WITH_NAMES, cell="other")

    with pytest.raises(UnsafeConfiguration, match="belongs to cell 'other'"):
        open_store(url, CELL)

    with connected(url) as connection:
        assert connection.execute(text("SELECT count(*) FROM checkpoints")).scalar_one() == 0
        assert stored_revision(connection) == WITH_NAMES
