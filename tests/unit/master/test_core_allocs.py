"""Allocs as the master keeps them: no machine ever speaks of one, and nobody misses it."""

from borgish.cell.commands import (
    CordonMachine,
    KillTasks,
    Observe,
    SeenAttempt,
    SubmitJob,
    UncordonMachine,
)
from borgish.cell.model import Task
from borgish.link.conversation import Outgoing
from borgish.master.step import CommandRequest
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import JobKind, Phase, State
from tests.unit.master.test_core import Driver

SMALL = Resources(cpu_millis=100)
ROOM = JobSpec("room", "ann", 1, (), resources=Resources(cpu_millis=500), kind=JobKind.ALLOC_SET)
GUEST = JobSpec("guest", "ann", 1, ("sleep", "1"), resources=SMALL, inside="ann/room")


def only_task(driver: Driver, job: str) -> Task:
    (task,) = driver.core.cell.jobs[job].tasks
    return task


def reserved() -> Driver:
    """Three machines, an alloc on m1, and a task in it."""
    driver = Driver()
    for name in ("m2", "m3"):
        driver.ask(CordonMachine(name))
    driver.ask(SubmitJob(ROOM))
    driver.ask(SubmitJob(GUEST))
    only_task(driver, "ann/guest").alloc = 0  # as whoever places it there has said
    for name in ("m2", "m3"):
        driver.ask(UncordonMachine(name))
    return driver


def test_a_machine_that_never_speaks_of_an_alloc_keeps_it() -> None:
    driver = reserved()
    room = only_task(driver, "ann/room")
    before = (room.machine, room.attempt)
    assert room.machine == "m1"
    guest = SeenAttempt("ann/guest/0", only_task(driver, "ann/guest").attempt, Phase.UP)
    for whole in (False, True):
        driver.step(CommandRequest(2, Observe("m1", "b", "m1", (guest,), whole=whole), "m1"))
        driver.wait(2, "m1", "m2", "m3")
    assert (room.state, room.machine, room.attempt) == (State.RUNNING, *before)


def test_an_alloc_leaves_a_machine_that_is_down_with_all_that_is_in_it() -> None:
    driver = reserved()
    driver.wait(1, "m1", "m2", "m3")
    for _ in range(14):
        driver.wait(1, "m2", "m3")
    assert not driver.core.cell.machines["m1"].up
    assert only_task(driver, "ann/room").machine in ("m2", "m3")
    assert driver.core.cell.placed["m1"] == set()


def test_what_runs_in_an_alloc_is_told_to_stop_when_the_alloc_is_killed() -> None:
    driver = reserved()
    guest = only_task(driver, "ann/guest")
    attempt = guest.attempt
    driver.report("m1", SeenAttempt("ann/guest/0", attempt, Phase.UP))
    driver.ask(KillTasks("ann/room"))
    assignment = Outgoing(driver.core.cell, "m1").assignment(driver.core.observed, 1, driver.now)
    assert [order.key for order in assignment.stop] == [f"ann/guest/0@{attempt}"]
