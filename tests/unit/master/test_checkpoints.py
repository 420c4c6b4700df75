"""Looking after checkpoints: what is found in them, and that nobody waits for it."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from borgish.cell.touched import Touched
from borgish.clock import SystemClock
from borgish.errors import BorgishError, Conflict, NotFound
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past import checkpoints
from borgish.master.past.checkpoint_contents import inspect_checkpoint
from borgish.master.past.checkpoints import Checkpointer, CheckpointKeeper
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store import sliced
from borgish.store.memory import MemoryStore
from borgish.store.sliced import SlicedSnapshot
from borgish.wire.checkpoint_file import unpack_checkpoint
from tests.contract.store.samples import CELL, JOB, Life
from tests.unit.master.reading import read_back_here


class Bench:
    """A cell with a story, and a master's parts around its store."""

    def __init__(self) -> None:
        self.store = MemoryStore(CELL)
        self.life = Life(self.store)
        self.life.story()
        clock = SystemClock()
        core = Core(self.life.cell, ReconcileSettings(), clock.now())
        turn = Turn(core, self.store, Inbox(), clock, lambda _: None, lambda _: None)
        self.checkpointer = Checkpointer(core, turn, self.store, clock)
        self.keeper = CheckpointKeeper(CELL, self.store, self.checkpointer)

    def damage(self, position: int) -> None:
        info, stored = self.store.disk.checkpoints[position]
        self.store.disk.checkpoints[position] = (info, stored[:-1])


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    read_back_here(monkeypatch)
    return Bench()


async def test_what_is_in_a_checkpoint(bench: Bench) -> None:
    made = await bench.checkpointer.make("test", "noon")

    detail = await bench.keeper.detail(made.position)

    assert (detail.checkpoint, detail.problem) == (made, "")
    assert detail.contents is not None
    found = detail.contents
    assert (found.machines, found.machines_up, found.jobs, found.tasks) == (1, 1, 1, 3)
    assert (found.pending, found.running, found.dead, found.finished) == (1, 1, 1, 0)
    said = await bench.keeper.verify(made.position)
    assert (said.position, said.name, said.good) == (6, "noon", True)
    assert said.text == "good: machines 1, jobs 1, tasks 3"


async def test_what_is_wrong_with_a_checkpoint(bench: Bench) -> None:
    position = (await bench.checkpointer.make("test")).position
    bench.damage(position)

    said = await bench.keeper.verify(position)

    assert not said.good
    assert "was truncated or altered" in said.text
    assert (await bench.keeper.detail(position)).contents is None


async def test_a_checkpoint_of_another_cell_is_not_good(bench: Bench) -> None:
    position = (await bench.checkpointer.make("test")).position
    said = await CheckpointKeeper("other", bench.store, bench.checkpointer).verify(position)
    assert not said.good
    assert "of cell 'testing', not of 'other'" in said.text


async def test_when_nobody_can_tell_it_is_not_called_bad(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await bench.checkpointer.make("test")
    bench.life.do()
    await bench.checkpointer.make("test")
    monkeypatch.setattr("borgish.master.past.checkpoints.inspect_checkpoint", inspect_checkpoint)
    monkeypatch.setattr("borgish.master.past.checkpoint_contents.sys.executable", "/bin/false")

    for asked in (bench.keeper.verify(first.position), bench.keeper.delete(first.position, "ann")):
        with pytest.raises(BorgishError, match="could not be looked into"):
            await asked
    assert len(bench.store.checkpoints()) == 2


async def test_a_file_has_all_that_is_known(bench: Bench) -> None:
    made = await bench.checkpointer.make("test", "noon")
    header, stored = unpack_checkpoint(await bench.keeper.file(made.position))
    assert (header.cell, header.position, header.name, header.sha256) == (CELL, 6, "noon", made.sha256)
    assert stored == bench.store.checkpoint_body(made.position)[1]


async def test_a_deletion_is_logged_and_known(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    first = await bench.checkpointer.make("test")
    bench.life.do()
    await bench.checkpointer.make("test")
    with caplog.at_level(logging.INFO, "borgmaster"):
        assert await bench.keeper.delete(7, "ann") != first
    assert "ann deleted the checkpoint at 7" in caplog.text
    assert bench.checkpointer.latest == first
    with pytest.raises(Conflict):
        await bench.keeper.delete(first.position, "ann")
    with pytest.raises(NotFound):
        await bench.keeper.verify(7)


async def test_however_many_jobs_there_are_few_are_left_for_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, nearly_done = bench.life.cell.jobs, list[bool]()
    jobs |= {f"ann/{number}": jobs[JOB] for number in range(4 * sliced.ROUNDS_MAX)}

    class Watched(SlicedSnapshot):
        def finish(self) -> Iterator[bytes]:
            nearly_done.append(self.is_nearly_done)
            return super().finish()

    monkeypatch.setattr(checkpoints, "SlicedSnapshot", Watched)
    monkeypatch.setattr(checkpoints, "SLICE_SECONDS", -1.0)  # one at a time
    monkeypatch.setattr(sliced, "LEFT_TASKS_MAX", 0)
    await bench.checkpointer.make("test")
    assert nearly_done == [True]


async def test_a_machine_that_is_touched_all_the_time_does_not_hold_up_a_checkpoint_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Restless(SlicedSnapshot):
        def encode_some(self, has_time: Callable[[], bool]) -> None:
            self.note([], Touched(machines={"m1"}))
            super().encode_some(has_time)

    monkeypatch.setattr(checkpoints, "SlicedSnapshot", Restless)
    monkeypatch.setattr(checkpoints, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(sliced, "LEFT_TASKS_MAX", 0)
    made = await bench.checkpointer.make("test")
    assert (await bench.keeper.verify(made.position)).good


async def test_the_loop_goes_on_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    position = (await bench.checkpointer.make("test")).position
    seen, free = threading.Event(), threading.Event()
    body = bench.store.checkpoint_body

    def slow(wanted: int) -> object:
        seen.set()
        assert free.wait(60)
        return body(wanted)

    monkeypatch.setattr(bench.store, "checkpoint_body", slow)
    asked = asyncio.create_task(bench.keeper.verify(position))
    while not seen.is_set():
        await asyncio.sleep(0.001)  # the loop runs while the store is slow
    assert not asked.done()
    free.set()
    assert (await asked).good
