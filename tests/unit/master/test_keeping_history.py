"""Checkpoints taken in, listed with what is wrong with them, made as the journal grows, and pruned behind."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from borgish.api.views.history import HistoryFilter
from borgish.cell.events import MachineUp
from borgish.clock import Now
from borgish.errors import Conflict, Gone, Invalid, TooLarge
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past.checkpoints import Checkpointer, CheckpointKeeper
from borgish.master.past.history import History
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoint_files import NOT_REPLAYED, CheckpointFiles
from borgish.store.codec import unpack_entries
from borgish.store.memory import MemoryStore
from borgish.wire.checkpoint_file import pack_checkpoint, unpack_checkpoint, unpack_with_journal
from tests.contract.store.samples import CELL, Life
from tests.unit.master.reading import read_back_here

NOW = Now(1000.0, 1000.0)
FIRST_AT = 101.25
"""When the first entry was written; each following one is a second later."""


class Standing:
    def now(self) -> Now:
        return NOW


class Bench:
    """A cell with twenty entries and a checkpoint at each fourth, and a master's parts around its store."""

    def __init__(self) -> None:
        self.store = MemoryStore(CELL)
        self.life = Life(self.store)
        self.life.story()
        self.core = Core(self.life.cell, ReconcileSettings(), NOW)
        self.turn = Turn(self.core, self.store, Inbox(), Standing(), lambda _: None, lambda _: None)
        while self.head < 20:
            self.life.do(MachineUp("m1"))
            if self.head % 4 == 0:
                self.life.checkpoint()
        self.checkpointer = Checkpointer(self.core, self.turn, self.store, Standing())
        self.keeper = CheckpointKeeper(CELL, self.store, self.checkpointer)
        self.past = History(self.turn, self.store, Standing())

    @property
    def head(self) -> int:
        return self.life.cell.position

    @property
    def begins(self) -> int:
        return next(iter(self.store.entries(0))).position

    def damage(self, position: int) -> None:
        info, stored = self.store.disk.checkpoints[position]
        self.store.disk.checkpoints[position] = (info, stored[:-1])

    def positions(self) -> list[int]:
        return [info.position for info in self.store.checkpoints()]


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    read_back_here(monkeypatch)
    made = Bench()
    yield made
    made.turn.close()


# Listed


async def test_a_list_says_which_are_damaged_and_the_log_names_them_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.damage(12)
    with caplog.at_level(logging.WARNING, "borgmaster"):
        for _ in range(2):
            listed = await bench.keeper.listed()
    assert [(view.position, bool(view.problem)) for view in listed] == [
        (20, False),
        (16, False),
        (12, True),
        (8, False),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "the checkpoint at 12 cannot be used: its SHA-256 does not match: it was torn or altered"
    ]
    assert not (await bench.keeper.verify(12)).good


# Taken in


async def test_what_was_exported_comes_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    before = bench.store.checkpoint_body(12)
    file = await bench.keeper.file(12)
    await bench.keeper.delete(12, "ann")

    with caplog.at_level(logging.INFO, "borgmaster"):
        taken = await bench.keeper.take_in(file, "", bench.head, "ann")

    assert (taken.checkpoint.position, taken.checkpoint.name, taken.text) == (12, "imported-12", "")
    assert taken.checkpoint.reason == "imported: test"
    assert bench.store.checkpoint_body(12)[1] == before[1]
    assert "ann imported the checkpoint at 12" in caplog.text
    assert bench.checkpointer.latest is not None
    assert bench.checkpointer.latest.position == 20


async def test_the_journal_after_it_goes_with_it(bench: Bench) -> None:
    file = await bench.keeper.file(12, until=bench.head)
    header, stored, journal = unpack_with_journal(file)
    assert stored == bench.store.checkpoint_body(12)[1]
    assert header.journal is not None
    assert (header.journal.entries, header.journal.last) == (bench.head - 12, bench.head)
    assert unpack_entries(journal) == list(bench.store.entries(12))
    await bench.keeper.delete(12, "ann")
    assert (await bench.keeper.take_in(file, "", bench.head, "ann")).text == ""


async def test_a_journal_that_was_pruned_does_not_go_with_it(bench: Bench) -> None:
    bench.store.prune_journal(16, 100)
    with pytest.raises(Gone, match="after the checkpoint at 8 is no longer kept") as caught:
        await bench.keeper.file(8, until=bench.head)
    assert "The earliest position is 16" in caught.value.hint
    assert unpack_checkpoint(await bench.keeper.file(8))[0].journal is None


async def test_a_journal_too_large_for_a_file_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.master.past.checkpoints.CHECKPOINT_FILE_BYTES_MAX", 5000)
    with pytest.raises(TooLarge, match="The journal up to position"):
        await bench.keeper.file(8, until=bench.head)


async def test_it_keeps_its_name_or_gets_another(bench: Bench) -> None:
    named = await bench.checkpointer.make("test", "noon")
    file = await bench.keeper.file(named.position)
    await bench.keeper.delete(named.position, "ann")
    assert (await bench.keeper.take_in(file, "", bench.head, "ann")).checkpoint.name == "noon"
    await bench.keeper.delete(named.position, "ann")
    assert (await bench.keeper.take_in(file, "evening", bench.head, "ann")).checkpoint.name == "evening"


async def test_nothing_is_overwritten(bench: Bench) -> None:
    file = await bench.keeper.file(12)
    with pytest.raises(Conflict, match="at 12 is kept already") as caught:
        await bench.keeper.take_in(file, "again", bench.head, "ann")
    assert "delete it first" in caught.value.hint


async def test_one_from_before_what_is_kept_stands_alone(bench: Bench) -> None:
    file = await bench.keeper.file(8)
    await bench.keeper.delete(8, "ann")
    bench.store.prune_journal(12, 100)
    assert (await bench.keeper.take_in(file, "", bench.head, "ann")).text == NOT_REPLAYED
    assert bench.positions() == [20, 16, 12, 8]


@pytest.mark.parametrize("cut", [0, 10, 60, -1])
async def test_a_torn_or_foreign_file_is_refused(bench: Bench, cut: int) -> None:
    file = await bench.keeper.file(12)
    with pytest.raises(Invalid):
        await bench.keeper.take_in(file[:cut], "", bench.head, "ann")


async def test_an_altered_file_is_refused(bench: Bench) -> None:
    file = await bench.keeper.file(12)
    header, stored = unpack_checkpoint(file)
    await bench.keeper.delete(12, "ann")
    for changed in (
        msgspec.structs.replace(header, position=11),
        msgspec.structs.replace(header, position=-1),
        msgspec.structs.replace(header, at=1e300),
    ):
        with pytest.raises((Invalid, Conflict)):
            await bench.keeper.take_in(pack_checkpoint(changed, stored), "", bench.head, "ann")
    other = msgspec.structs.replace(header, cell="other")
    with pytest.raises(Conflict, match="of cell 'other', not of 'testing'"):
        await bench.keeper.take_in(pack_checkpoint(other, stored), "", bench.head, "ann")
    newer = file.replace(b"borgish checkpoint 1", b"borgish checkpoint 9", 1)
    with pytest.raises(Conflict, match="format 9"):
        await bench.keeper.take_in(newer, "", bench.head, "ann")
    assert 12 not in bench.positions()


async def test_what_it_says_of_itself_is_made_fit(bench: Bench) -> None:
    header, stored = unpack_checkpoint(await bench.keeper.file(12))
    await bench.keeper.delete(12, "ann")
    odd = msgspec.structs.replace(header, name="NO name", reason="x" * 999)
    taken = await bench.keeper.take_in(pack_checkpoint(odd, stored), "", bench.head, "ann")
    assert (taken.checkpoint.name, len(taken.checkpoint.reason)) == ("imported-12", 200)


async def test_a_damaged_journal_is_told_as_a_conflict(bench: Bench) -> None:
    file = await bench.keeper.file(12)
    await bench.keeper.delete(12, "ann")
    bench.store.disk.entries[9] = b"{}"
    with pytest.raises(Conflict, match="cannot be read"):
        await bench.keeper.take_in(file, "", bench.head, "ann")


# Made as the journal grows


async def test_one_is_due_when_the_journal_has_grown(bench: Bench) -> None:
    assert not bench.checkpointer.is_due(4)
    for _ in range(3):
        bench.life.do(MachineUp("m1"))
    assert not bench.checkpointer.is_due(4)
    bench.life.do(MachineUp("m1"))
    assert bench.checkpointer.is_due(4)
    await bench.checkpointer.make("the journal has grown")
    assert not bench.checkpointer.is_due(4)


async def test_one_that_could_not_be_kept_is_not_tried_at_each_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> CheckpointInfo:
        raise Conflict("no room")

    monkeypatch.setattr(bench.store, "save_checkpoint", full)
    with pytest.raises(Conflict):
        await bench.checkpointer.make("the journal has grown")
    assert not bench.checkpointer.is_due(1)
    bench.life.do(MachineUp("m1"))
    assert bench.checkpointer.is_due(1)


async def test_a_young_cell_is_in_a_file_each_time_that_it_has_doubled(bench: Bench, tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path / "cell.db", CELL)
    maker = Checkpointer(bench.core, bench.turn, bench.store, Standing(), files)
    kept = bench.positions()
    assert maker.is_file_due
    await maker.make_file()
    assert (files.positions(), maker.is_file_due) == ([20], False)
    while bench.head < 39:
        bench.life.do(MachineUp("m1"))
    assert not maker.is_file_due
    bench.life.do(MachineUp("m1"))
    assert maker.is_file_due
    assert not Checkpointer(bench.core, bench.turn, bench.store, Standing()).is_file_due
    await maker.make_file()
    assert [start.position for start in files.good()] == [40, 20]
    assert bench.positions() == kept  # nothing of that is in the database
    assert not Checkpointer(bench.core, bench.turn, bench.store, Standing(), files).is_file_due


async def test_a_young_cell_that_is_large_is_not_in_a_file_for_each_few_entries(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.master.past.checkpoints.RECORDS_PER_ENTRY", 1 / 16)
    files = CheckpointFiles(tmp_path / "cell.db", CELL)
    maker = Checkpointer(bench.core, bench.turn, bench.store, Standing(), files)
    await maker.make_file()
    records = len(bench.core.cell.jobs) + len(bench.core.cell.machines)
    assert records * 16 > 20
    while bench.head < 20 + records * 16 - 1:
        bench.life.do(MachineUp("m1"))
    assert not maker.is_file_due
    bench.life.do(MachineUp("m1"))
    assert maker.is_file_due


async def test_each_checkpoint_is_in_a_file_as_well(bench: Bench, tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path / "cell.db", CELL)
    maker = Checkpointer(bench.core, bench.turn, bench.store, Standing(), files)
    bench.life.do(MachineUp("m1"))
    made = await maker.make("asked for", "noon")
    [start] = files.good()
    assert start.info is not None
    assert (start.position, start.info.name, start.info.sha256) == (21, "noon", made.sha256)


async def test_a_file_that_cannot_be_written_is_logged_and_not_tried_at_each_turn(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = CheckpointFiles(tmp_path / "gone" / "cell.db", CELL)
    maker = Checkpointer(bench.core, bench.turn, bench.store, Standing(), files)
    await maker.make_file()
    assert "the checkpoint at 20 cannot be kept in" in caplog.text
    assert not maker.is_file_due


class HeldFiles(CheckpointFiles):
    """Files of which the first is written only when the test lets it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "cell.db", CELL)
        self.begun, self.free = asyncio.Event(), threading.Event()
        self.at_once = self.at_once_max = 0
        self._loop = asyncio.get_running_loop()

    def write(self, info: CheckpointInfo, stored: bytes) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.free.wait(60)
        super().write(info, stored)
        self.at_once -= 1


async def test_who_asked_for_one_is_told_of_that_one_though_another_was_made_meanwhile(
    bench: Bench, tmp_path: Path
) -> None:
    files = HeldFiles(tmp_path)
    maker = Checkpointer(bench.core, bench.turn, bench.store, Standing(), files)
    asked = asyncio.create_task(maker.make("asked for", "noon"))
    await files.begun.wait()
    bench.life.do(MachineUp("m1"))
    bench.life.checkpoint()
    assert (await maker.kept())[0].position == 21
    files.free.set()
    made = await asked
    assert (made.position, made.name) == (20, "noon")
    assert maker.latest is not None
    assert maker.latest.position == 21


async def test_they_are_made_one_at_a_time_and_one_that_was_made_meanwhile_is_enough(
    bench: Bench, tmp_path: Path
) -> None:
    files = HeldFiles(tmp_path)
    maker = Checkpointer(bench.core, bench.turn, bench.store, Standing(), files)
    first = asyncio.create_task(maker.make("asked for", "noon"))
    await files.begun.wait()
    bench.life.do(MachineUp("m1"))
    second = asyncio.create_task(maker.make("asked for", "later"))
    others = [
        asyncio.create_task(maker.make_if_changed("periodic")),
        asyncio.create_task(maker.make_file()),
    ]
    await asyncio.wait([second, *others], timeout=0.1)  # for those that do not wait their turn
    files.free.set()
    assert [(await first).position, (await second).position] == [20, 21]
    await asyncio.gather(*others)
    assert files.at_once_max == 1
    assert maker.latest is not None
    assert (maker.latest.position, maker.latest.name) == (21, "later")
    assert [(info.position, info.name, info.reason) for info in bench.store.checkpoints()][:2] == [
        (21, "later", "asked for"),
        (20, "noon", "asked for"),
    ]


# Pruned


async def test_the_journal_goes_below_the_newest_checkpoint_from_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("borgish.master.past.checkpoints.PRUNED_AT_ONCE", 5)
    with caplog.at_level(logging.INFO, "borgmaster"):
        assert await bench.keeper.prune(FIRST_AT + 14) == 11  # the fifteenth entry
    assert bench.begins == 12
    assert "the journal begins at 12 now: 11 entries before it were pruned" in caplog.text
    assert await bench.keeper.prune(FIRST_AT + 14) == 0


async def test_nothing_goes_that_is_younger(bench: Bench) -> None:
    assert await bench.keeper.prune(FIRST_AT + 6.9) == 0
    assert bench.begins == 1


async def test_a_damaged_checkpoint_holds_nothing(bench: Bench) -> None:
    bench.damage(12)
    assert await bench.keeper.prune(FIRST_AT + 14) == 7
    assert bench.begins == 8


async def test_when_a_checkpoint_says_it_was_made_does_not_count(bench: Bench) -> None:
    header, stored = unpack_checkpoint(await bench.keeper.file(20))
    await bench.keeper.delete(20, "ann")
    file = pack_checkpoint(msgspec.structs.replace(header, at=1.0), stored)
    await bench.keeper.take_in(file, "", bench.head, "ann")
    assert await bench.keeper.prune(FIRST_AT + 10) == 7


async def test_history_of_before_is_refused_and_what_is_left_says_so(bench: Bench) -> None:
    await bench.keeper.prune(FIRST_AT + 14)
    found = await bench.past.latest(HistoryFilter(), 0, 5)
    assert ([item.position for item in found.items], found.begins) == ([16, 17, 18, 19, 20], "")
    found = await bench.past.latest(HistoryFilter(), 16, 4)
    assert ([item.position for item in found.items], found.page.next) == ([12, 13, 14, 15], "")
    assert found.begins == "1970-01-01T00:01:52.250Z"
    found = await bench.past.latest(HistoryFilter(since=1.0), 0, 100)
    assert (len(found.items), found.begins != "", found.cut_short) == (9, True, False)
    for wanted, before in (
        (HistoryFilter(until=FIRST_AT + 10), 0),
        (HistoryFilter(), 12),
        (HistoryFilter(), 3),
    ):
        with pytest.raises(Gone, match="is no longer kept") as caught:
            await bench.past.latest(wanted, before, 5)
        assert caught.value.hint == "The journal begins then, at position 12"
