"""A master whose store has little room, or none: what it refuses, what goes on, what follows by itself."""

import asyncio

import msgspec
import pytest

from borgish.cell.commands import (
    CordonMachine,
    JoinMachine,
    KillTasks,
    Observe,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.free_space import AMPLE, FreeSpace, Level
from borgish.clock import SystemClock
from borgish.errors import StoreFull
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past.checkpoints import Checkpointer
from borgish.master.step import CommandRequest, Input, Step
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.memory import MemoryStore
from borgish.vocabulary import Phase, State
from borgish.wire.api import Accepted
from tests.unit.master.test_core import JOB, Driver, machine

LOW = FreeSpace(Level.LOW, 300, 512)
FULL = FreeSpace(Level.FULL, 20, 512)
PATIENCE_SECONDS = 60.0


class Filled(Driver):
    """A driver whose store has as much room as it is given."""

    def __init__(self) -> None:
        self.free_space = AMPLE
        super().__init__()

    def step(self, *inputs: Input) -> Step:
        step = self.core.step(inputs, self.now, self.free_space)
        self.entries.extend(step.entries)
        return step


@pytest.fixture
def driver() -> Filled:
    made = Filled()
    made.ask(SubmitJob(JOB))
    made.wait(1, "m1", "m2", "m3")
    return made


OTHER = SubmitJob(msgspec.structs.replace(JOB, name="other"))


def test_with_little_room_new_work_is_refused_and_jobs_can_be_killed(driver: Filled) -> None:
    driver.free_space = LOW
    with pytest.raises(StoreFull, match="has 300B free, less than 512B"):
        driver.ask(OTHER, "r1")
    assert driver.ask(KillTasks("ann/web")).text
    assert driver.states() == [State.DEAD] * 3


def test_with_little_room_what_is_lost_is_placed_anew(driver: Filled) -> None:
    task = driver.core.cell.jobs["ann/web"].tasks[0]
    others = {"m1", "m2", "m3"} - {task.machine}
    driver.free_space = LOW
    for _ in range(12):
        driver.wait(1, *others)
    assert driver.states() == [State.RUNNING] * 3
    assert driver.core.cell.jobs["ann/web"].tasks[0].machine in others


def test_with_no_room_nothing_is_written_however_much_there_is_to_do(driver: Filled) -> None:
    driver.free_space = FULL
    written = len(driver.entries)
    for command in (OTHER, KillTasks("ann/web"), CordonMachine("m1"), JoinMachine(machine("m9"), "i", False)):
        with pytest.raises(StoreFull):
            driver.ask(command)
    for _ in range(30):
        driver.wait(1, "m1")  # the others are silent
    assert len(driver.entries) == written


def test_an_answer_that_was_given_before_is_given_again(driver: Filled) -> None:
    given = driver.ask(OTHER, "r1")
    driver.free_space = FULL
    again = driver.ask(OTHER, "r1")
    assert (again.position, again.replayed) == (given.position, True)


def report_of(driver: Filled, phase: Phase, exit_code: int | None = None) -> Observe:
    task = driver.core.cell.jobs["ann/web"].tasks[0]
    ended = driver.now.wall if exit_code is not None else None
    attempt = SeenAttempt(
        "ann/web/0", task.attempt, phase, exit_code=exit_code, restarts=int(ended is not None)
    )
    return Observe(task.machine, "b", task.machine, (attempt,))


def test_a_report_that_changes_nothing_is_ingested_and_another_waits(driver: Filled) -> None:
    driver.free_space = FULL
    [(_, reply)] = driver.step(CommandRequest(1, report_of(driver, Phase.UP), "m1")).replies
    assert isinstance(reply, Accepted)
    task = driver.core.cell.jobs["ann/web"].tasks[0]
    seen = driver.core.observed.attempt(task.machine, "ann/web/0", task.attempt)
    assert seen is not None
    assert seen.phase is Phase.UP

    restarted = report_of(driver, Phase.UP, exit_code=1)
    [(_, reply)] = driver.step(CommandRequest(1, restarted, "m1")).replies
    assert isinstance(reply, StoreFull)
    assert driver.core.observed.attempt(task.machine, "ann/web/0", task.attempt) == seen

    driver.free_space = AMPLE
    [(_, reply)] = driver.step(CommandRequest(1, restarted, "m1")).replies
    assert isinstance(reply, Accepted)
    assert driver.core.cell.jobs["ann/web"].tasks[0].restarts == 1


def test_what_could_not_be_heard_meanwhile_is_not_held_against_a_machine(driver: Filled) -> None:
    """One that came back at another address could not join; it is given the usual time from then on."""
    driver.free_space = FULL
    for _ in range(30):
        driver.wait(1, "m1", "m2")
    driver.free_space = AMPLE
    driver.wait(1, "m1", "m2")
    assert driver.core.cell.machines["m3"].up
    for _ in range(12):
        driver.wait(1, "m1", "m2")
    assert not driver.core.cell.machines["m3"].up


# The turn over a store


class Bench:
    """A turn over a store in memory whose room is said by the test."""

    def __init__(self) -> None:
        self.store = MemoryStore("c")
        self.inbox = Inbox()
        clock = SystemClock()
        cell = self.store.load()
        cell.machines["m1"] = machine("m1")
        cell.reindex()
        core = Core(cell, ReconcileSettings(down_after_seconds=3600.0), clock.now())
        first = core.begin(self.store.lead("me", "here"), "me", clock.now())
        self.turn = Turn(core, self.store, self.inbox, clock, lambda _: None, lambda _: None)
        self.checkpointer = Checkpointer(core, self.turn, self.store, clock)
        self.running = asyncio.create_task(self.turn.run(first))

    async def end(self) -> None:
        self.turn.stop()
        await asyncio.wait_for(self.running, PATIENCE_SECONDS)
        self.turn.close()


async def test_a_master_goes_on_by_itself_when_there_is_room_again() -> None:
    bench = Bench()
    await bench.inbox.ask(CordonMachine("m1"), "ann", "r1")
    bench.store.disk.free_space = FULL
    written = len(bench.store.disk.entries)
    with pytest.raises(StoreFull):
        await bench.inbox.ask(CordonMachine("m1", "again"), "ann", "r2")
    await bench.turn.durable()  # who reads is not held up
    assert len(bench.store.disk.entries) == written
    bench.store.disk.free_space = AMPLE
    assert (await bench.inbox.ask(CordonMachine("m1", "again"), "ann", "r2")).position == written + 1
    await bench.end()


@pytest.mark.parametrize("free_space", [LOW, FULL])
async def test_no_checkpoint_is_made_without_room_to_spare(free_space: FreeSpace) -> None:
    bench = Bench()
    await bench.inbox.ask(CordonMachine("m1"), "ann", "r1")
    assert bench.checkpointer.is_due(1)
    bench.store.disk.free_space = free_space
    with pytest.raises(StoreFull):
        await bench.inbox.ask(OTHER, "ann", "r2")
    assert not bench.checkpointer.is_due(1)
    await bench.checkpointer.make_if_changed("periodic")
    with pytest.raises(StoreFull):
        await bench.checkpointer.make("asked for")
    assert bench.store.checkpoints() == []
    await bench.end()
