"""Space that was pruned goes back to the disk: of SQLite a piece at a time, and nothing else is changed."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from borgish.cell.events import MachineCordoned
from borgish.errors import Fenced
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past.checkpoints import Checkpointer, CheckpointKeeper
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store import sqlite
from borgish.store.sql import SqlStore
from tests.contract.store.places import InDatabase
from tests.contract.store.samples import CELL, Life, body_of
from tests.unit.master.test_keeping_history import NOW, Standing


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InDatabase]:
    monkeypatch.setattr(sqlite, "FREE_BYTES_MAX", 32 * 4096)
    monkeypatch.setattr(sqlite, "GIVING_BACK_SECONDS", 0.0)  # a page each
    with closing(InDatabase(f"sqlite:///{tmp_path}/cell.db")) as made:
        yield made


@pytest.fixture
def life(place: InDatabase) -> Life:
    """A long journal of which all but the last two entries were pruned."""
    life = Life(place.open())
    life.story()
    for number in range(100):
        life.do(MachineCordoned("m1", f"{number}" * 2000))
    base = life.checkpoint().position
    life.do(MachineCordoned("m1", "the last"))
    while life.store.prune_journal(base, 30):
        pass
    return life


def said(life: Life, pragma: str) -> object:
    assert isinstance(life.store, SqlStore)
    [[found]] = life.store.rows(text(f"PRAGMA {pragma}"))
    return found


def pages(life: Life) -> int:
    return int(str(said(life, "page_count")))


def test_piece_by_piece_until_little_is_free(place: InDatabase, life: Life, tmp_path: Path) -> None:
    long, pieces = pages(life), []
    while piece := life.store.give_back():
        pieces.append(piece)
        life.do(MachineCordoned("m1", f"after piece {len(pieces)}"))
    short, cell = pages(life), body_of(life.cell)
    assert set(pieces) == {4096}
    assert sum(pieces) >= (long - short) * 4096 > long * 4096 / 2
    assert said(life, "integrity_check") == "ok"
    assert said(life, "freelist_count") != 0  # what comes next has room

    life.store.close()
    assert (tmp_path / "cell.db").stat().st_size == short * 4096
    assert body_of(place.open().load()) == cell


def test_little_that_is_free_stays(place: InDatabase, life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "FREE_BYTES_MAX", 2**30)
    assert life.store.give_back() == 0


def test_a_database_of_a_version_before_stays_as_long_as_it_is(
    place: InDatabase, life: Life, tmp_path: Path
) -> None:
    life.store.close()
    with closing(sqlite3.connect(tmp_path / "cell.db")) as older:
        older.execute("PRAGMA auto_vacuum = NONE")
        older.execute("VACUUM")
    again = Life(place.open())
    for number in range(100):
        again.do(MachineCordoned("m1", f"{number}" * 2000))
    base, long = again.checkpoint().position, pages(again)
    while again.store.prune_journal(base, 30):
        pass
    assert again.store.give_back() == 0
    assert pages(again) >= long


def test_who_does_not_lead_gives_nothing_back(place: InDatabase, life: Life) -> None:
    place.usurp()
    with pytest.raises(Fenced):
        life.store.give_back()


async def test_a_master_gives_all_of_it_back(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    core, long = Core(life.cell, ReconcileSettings(), NOW), pages(life)
    turn = Turn(core, life.store, Inbox(), Standing(), lambda _: None, lambda _: None)
    keeper = CheckpointKeeper(CELL, life.store, Checkpointer(core, turn, life.store, Standing()))
    with caplog.at_level(logging.INFO, "borgmaster"):
        given = await keeper.give_back()
    turn.close()
    assert given == (long - pages(life)) * 4096 > 0
    assert "the database is shorter by" in caplog.text
    assert await keeper.give_back() == 0
