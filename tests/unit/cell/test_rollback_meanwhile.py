"""While a rollback goes on, others want the room that it frees, and people submit what it ended."""

from borgish.cell.commands import (
    CordonMachine,
    KillTasks,
    RestartTasks,
    ScaleJob,
    SubmitJob,
)
from borgish.resources import Resources
from borgish.vocabulary import State
from tests.unit.cell.lived import FIVE, GIB, Lived, deploy, spec


def full_room(tasks: int, count: int) -> Lived:
    """Return a cell with room for so many tasks of a job that has some more."""
    lived = Lived(("m1",))
    lived.do(SubmitJob(spec(tasks=count, resources=Resources(8000 // tasks, GIB // 64, 0))))
    lived.settle()
    assert lived.cell.jobs["ann/web"].running == tasks
    return lived


def test_what_had_no_place_before_uses_the_budget_up_until_it_is_hurried() -> None:
    lived = full_room(2, 3)
    good = lived.position
    deploy(lived, tasks=3, run=("other",), resources=Resources(4000, GIB // 64, 0))
    lived.settle()
    lived.roll_back(good)
    for _ in range(60):
        lived.step()
        assert lived.cell.jobs["ann/web"].running >= 2
    assert "waits for a machine" in paused(lived)
    lived.roll_back(good, hurried=True)
    lived.settle()
    job = lived.cell.jobs["ann/web"]
    assert (job.rollout, job.running, job.pending) == (None, 2, 1)


def test_what_waits_keeps_the_budget_used_up_until_it_is_hurried() -> None:
    lived = full_room(2, 3)
    good = lived.position
    deploy(lived, tasks=3, run=("other",), resources=Resources(4000, GIB // 64, 0))
    lived.settle()
    lived.do(RestartTasks("ann/web", (0,), hurried=True))
    lived.do(KillTasks("ann/web", (0,)))
    lived.settle()
    lived.do(SubmitJob(spec(tasks=3, run=("other",), resources=Resources(4000, GIB // 64, 0))))
    lived.settle()
    assert lived.states() == [State.PENDING, State.RUNNING, State.RUNNING]
    lived.roll_back(good)
    for _ in range(60):
        lived.step()
        assert lived.cell.jobs["ann/web"].running >= 2
    assert "waits for a machine" in paused(lived)
    lived.roll_back(good, hurried=True)
    lived.settle()
    job = lived.cell.jobs["ann/web"]
    assert (job.rollout, job.running, job.pending) == (None, 2, 1)


def test_what_waits_for_the_room_of_the_next_stop_gets_it_when_it_is_hurried() -> None:
    lived = full_room(4, 4)
    good = lived.position
    deploy(lived, tasks=1, run=("other",), resources=Resources(8000, GIB // 64, 0))
    lived.settle()
    lived.roll_back(good)
    for _ in range(60):
        lived.step()
    assert "waits for a machine" in paused(lived)
    lived.roll_back(good, hurried=True)
    lived.settle()
    job = lived.cell.jobs["ann/web"]
    assert (job.rollout, job.running) == (None, 4)


def test_a_version_that_fits_nowhere_costs_nothing_where_others_wait_already() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=FIVE, resources=Resources(100, 100 * GIB, 0))))  # fits nowhere
    bad = lived.position
    deploy(lived, tasks=FIVE)
    for name in ("m1", "m2"):
        lived.do(CordonMachine(name))
    lived.do(RestartTasks("ann/web", (3, 4), hurried=True))
    lived.settle()
    lived.roll_back(bad, only=frozenset({"ann/web"}))
    for _ in range(120):
        lived.step()
    job = lived.cell.jobs["ann/web"]
    assert (job.running, job.pending) == (3, 2)
    assert "waits for a machine" in paused(lived)


def paused(lived: Lived) -> str:
    rollout = lived.cell.jobs["ann/web"].rollout
    assert rollout is not None
    return rollout.paused


def test_a_submission_brings_back_nothing_that_it_ended() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=FIVE)))
    good = lived.position
    lived.do(ScaleJob("ann/web", 10))
    lived.settle()
    lived.do(KillTasks("ann/web", (5, 6)))
    lived.roll_back(good)
    lived.step()
    assert "ann/web" in lived.cell.rolling
    assert lived.do(SubmitJob(spec(tasks=FIVE))) == "ann/web is there already, exactly like this"
    lived.do(KillTasks("ann/web", (1,)))
    assert "1 task that was killed is pending again" in lived.do(SubmitJob(spec(tasks=FIVE)))
    lived.settle()
    assert lived.states() == [State.RUNNING] * FIVE
