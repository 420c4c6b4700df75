"""The power is cut at any moment: SQLite's file then holds what was acknowledged, and nothing by half."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, JobChanged, JobForgotten, JobSubmitted, TasksEnded, TasksPlaced
from borgish.cell.model import Cell, Snapshot
from borgish.store import sqlite
from borgish.store.base import Records
from borgish.store.checkpoints import Retention, is_good
from borgish.store.codec import sha256_of
from borgish.store.open import open_store
from borgish.store.sql import SqlStore
from borgish.store.tables import differences
from borgish.vocabulary import Ending
from tests.contract.store.samples import CELL, Life, body_of, job
from tests.faults.power import chosen_cuts, images, written
from tests.faults.vfs import Watched, watched
from tests.profiles import seeds

WAL_PAGES = 60  # what is in the WAL is carried over into the file often, so that this is seen as well


class Known(msgspec.Struct, frozen=True):
    """What somebody was told, after so many changes of files: the journal's head, the kept checkpoints."""

    changes: int
    position: int
    checkpoints: tuple[int, ...]


class Witness:
    """Lives on a store, twice, and notes after each commit how it is."""

    def __init__(self, file: Path, disk: Watched, chance: random.Random) -> None:
        self.told: list[Known] = []
        self.bodies: dict[int, str] = {}  # sha256 of the cell, by position
        self._url = f"sqlite:///{file}"
        self._disk = disk
        self._chance = chance

    def live(self) -> None:
        for _ in range(2):
            store = self._watched(
                open_store(self._url, CELL, retention=Retention(latest=3, hourly=0, daily=0))
            )
            life = Life(store)
            if life.cell.position == 1:
                life.story()
            for n in range(12):
                self._chance.choice(WHAT_HAPPENS)(life, life.cell.position + n)
            store.close()
        self._replay()

    def _watched(self, store: SqlStore) -> SqlStore:
        append, save, position = store.append, store.save_checkpoint, 0

        def appended(entries: Sequence[Entry], records: Records) -> None:
            nonlocal position
            append(entries, records)
            position = entries[-1].position
            self._note(store, position)

        def saved(*given: object) -> object:
            made = save(*given)  # type: ignore[arg-type]  # passed on as they came
            self._note(store, position)
            return made

        store.append, store.save_checkpoint = appended, saved  # type: ignore[method-assign,assignment]
        return store

    def _note(self, store: SqlStore, position: int) -> None:
        kept = tuple(info.position for info in store.checkpoints())
        self.told.append(Known(len(self._disk.done), position, kept))

    def _replay(self) -> None:
        store, cell = open_store(self._url, CELL), Cell(Snapshot(CELL))
        self.bodies[0] = sha256_of(body_of(cell))
        for entry in store.entries(0):
            apply_entry(cell, entry)
            self.bodies[entry.position] = sha256_of(body_of(cell))
        store.close()

    def may_be(self, cut: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return how the store may be after so many changes: as it was told last, or one commit further."""
        before = [known for known in self.told if known.changes <= cut]
        allowed = [*before[-1:], *self.told[len(before) : len(before) + 1]]
        return [*([] if before else [(0, ())]), *((known.position, known.checkpoints) for known in allowed)]


Do = Callable[[Life, int], object]
WHAT_HAPPENS: tuple[Do, ...] = (
    lambda life, n: life.do(JobSubmitted(job(f"job{n}", tasks=n % 7 + 1))),
    lambda life, n: life.do(JobSubmitted(job(f"large{n}", tasks=150))),
    lambda life, _: life.checkpoint(),
    lambda life, n: life.do(JobChanged("ann/web", job(tasks=n % 9 + 1))),
    lambda life, n: _place_and_end(life, f"ann/placed{n}"),
)


def _place_and_end(life: Life, key: str) -> None:
    submitted = life.entry(JobSubmitted(job(key.removeprefix("ann/"), tasks=2)))
    placed = life.entry(TasksPlaced(key, (0, 1), ("m1", "m1"), ((20000,), (20001,))))
    ended = life.entry(TasksEnded(key, (0, 1), Ending.FAIL, ("", "")))
    life.write(submitted, placed, ended, life.entry(JobForgotten(key)))


def problem_of(folder: Path, witness: Witness, cut: int) -> str:
    """Open what the disk holds; return what is wrong with it, "" when nothing is."""
    store = open_store(f"sqlite:///{folder}/cell.db", CELL)
    try:
        cell = store.load()
        found = cell.position, kept(store)
        if found not in witness.may_be(cut):
            return f"it is {found} and should be one of {witness.may_be(cut)}"
        if sha256_of(body_of(cell)) != witness.bodies[cell.position]:
            return f"the cell at {cell.position} is not what it was"
        wrong = store.warnings or differences(cell, store.table_rows)
        Life(store).do()  # and it goes on
        return "; ".join(wrong)
    finally:
        store.close()


def kept(store: SqlStore) -> tuple[int, ...]:
    """Return the positions of the checkpoints, all of which must be good."""
    found = store.checkpoints()
    assert all(is_good(CELL, *store.checkpoint_body(info.position)) for info in found)
    return tuple(info.position for info in found)


def problems(folder: Path, seed: int, others: int) -> Iterator[str]:
    chance = random.Random(seed)
    (folder / "live").mkdir()
    with watched() as disk:
        witness = Witness(folder / "live" / "cell.db", disk, chance)
        witness.live()
    done, seen = disk.done, None
    assert any(change.what == "write" and change.path.endswith("cell.db") for change in done)
    with pytest.MonkeyPatch.context() as patch:
        hasty = tuple(pragma.replace("synchronous = FULL", "synchronous = OFF") for pragma in sqlite._PRAGMAS)
        patch.setattr(sqlite, "_PRAGMAS", hasty)  # to look needs no sync
        for cut, kind, image in images(done, chosen_cuts(done, chance, others), chance):
            if image != seen:
                written(image, folder / "cut")
                if problem := problem_of(folder / "cut", witness, cut):
                    yield f"seed {seed}, cut after {cut} of {len(done)} changes, {kind}: {problem}"
            seen = image


@pytest.fixture(autouse=True)
def small_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    pragmas = [pragma for pragma in sqlite._PRAGMAS if "wal_autocheckpoint" not in pragma]
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*pragmas, f"wal_autocheckpoint = {WAL_PAGES}"))


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    assert list(problems(tmp_path, seed, others=20)) == []


def test_what_is_not_synced_at_each_commit_would_be_found_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lax = tuple(pragma.replace("synchronous = FULL", "synchronous = NORMAL") for pragma in sqlite._PRAGMAS)
    assert lax != sqlite._PRAGMAS
    monkeypatch.setattr(sqlite, "_PRAGMAS", lax)
    assert "should be one of" in next(problems(tmp_path, 0, others=20))
