"""How a rollback goes: on which timeline, at what pace, and when it is refused."""

import pytest

from borgish.cell.commands import (
    CordonMachine,
    EvictTasks,
    KillTasks,
    RollBack,
    SubmitJob,
)
from borgish.cell.events import RolledBack
from borgish.errors import Conflict, Invalid, NotFound
from borgish.spec.job import Restart
from borgish.vocabulary import Ending, Eviction, JobKind, RestartPolicy, State
from tests.unit.cell.lived import Lived, deploy, spec, wanted_of

RUNS, DEAD = State.RUNNING, State.DEAD
BATCH = Restart(RestartPolicy.ON_FAILURE)


# One event, on a new timeline


def test_it_is_one_event_that_names_what_differs(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late")))
    lived.roll_back(good)
    entry = next(entry for entry in lived.entries if entry.cause == "RollBack")
    (event,) = entry.events
    assert isinstance(event, RolledBack)
    assert [one.job for one in event.jobs] == ["ann/late"]
    assert (entry.timeline, lived.cell.timeline, event.to) == (2, 2, good)
    assert [entry.timeline for entry in lived.entries] == sorted(entry.timeline for entry in lived.entries)


def test_everyone_hears_of_the_new_timeline(lived: Lived) -> None:
    good = lived.position
    lived.do(CordonMachine("m1"))
    step = lived.step(RollBack(good, 0.0))
    assert step.assignments == {"m1", "m2"}


def test_a_rollback_is_rolled_back(lived: Lived) -> None:
    good = lived.position
    deploy(lived, run=("false",))
    lived.do(SubmitJob(spec("late")))
    lived.do(CordonMachine("m2"))
    bad, before = lived.position, wanted_of(lived.cell)
    lived.roll_back(good)
    lived.settle()
    lived.roll_back(bad)
    lived.settle()
    assert wanted_of(lived.cell) == before
    assert lived.cell.timeline == 3


def test_back_to_the_middle_of_a_rollback_is_back_to_what_it_was_to_come_to(lived: Lived) -> None:
    good = lived.position
    deploy(lived, run=("false",))
    lived.do(SubmitJob(spec("late")))
    lived.roll_back(good)
    middle = lived.position
    assert lived.then(middle).rolling == {"ann/web", "ann/late"}
    lived.settle()
    wanted = wanted_of(lived.cell)
    deploy(lived, run=("true",))
    lived.roll_back(middle)
    lived.settle()
    assert wanted_of(lived.cell) == wanted


def test_only_what_is_named_is_rolled_back(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late")))
    deploy(lived, run=("false",))
    lived.do(CordonMachine("m1"))
    text = lived.roll_back(good, only=frozenset({"ann/web"}))
    lived.settle()
    assert lived.cell.jobs["ann/web"].spec == spec()
    assert lived.states("ann/late") == [RUNS] * 3
    assert lived.cell.machines["m1"].cordoned
    assert text.startswith("ann/web is rolled back")


# At what pace


def big(tasks: int) -> Lived:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=tasks)))
    return lived


def test_a_job_is_not_down_all_at_once() -> None:
    lived = big(20)
    good = lived.position
    deploy(lived, tasks=20, run=("false",))
    bad = lived.attempts()[0]
    left = {20}
    lived.roll_back(good)
    while lived.cell.rolling:
        left.add(lived.attempts().count(bad))
        lived.step()
    assert left | {lived.attempts().count(bad)} == set(range(0, 21, 2))


def test_a_job_that_goes_goes_little_by_little() -> None:
    lived = big(20)
    good = lived.position
    lived.do(SubmitJob(spec("late", 20)))
    lived.roll_back(good)
    assert lived.cell.jobs["ann/late"].running >= 18
    assert lived.settle() >= 9
    assert "ann/late" not in lived.cell.jobs


def test_in_a_hurry_all_is_done_at_once() -> None:
    lived = big(20)
    good = lived.position
    deploy(lived, tasks=20, run=("false",))
    lived.do(SubmitJob(spec("late", 20)))
    lived.roll_back(good, hurried=True)
    assert lived.cell.rolling == set()
    assert set(lived.cell.jobs) == {"ann/web"}
    assert lived.states() == [RUNS] * 20


def test_who_lags_behind_counts_by_what_it_runs(lived: Lived) -> None:
    good = lived.position
    deploy(lived, ports=("a", "b"))
    lived.roll_back(good)
    job = lived.cell.jobs["ann/web"]
    behind = [task for task in job.tasks if task.index in job.rollout.attempts] if job.rollout else []
    assert behind
    assert {job.spec_of(task).ports for task in behind} == {("a", "b")}
    assert job.spec.ports == ()


def test_what_ends_by_itself_meanwhile_runs_anew(lived: Lived) -> None:
    good = lived.position
    deploy(lived, run=("false",), restart=BATCH)
    lived.roll_back(good)
    rollout = lived.cell.jobs["ann/web"].rollout
    assert rollout is not None
    behind = max(rollout.attempts)
    lived.ended("ann/web", behind, Ending.FAIL, 1)
    lived.settle()
    assert lived.states() == [RUNS] * 3


def test_what_somebody_kills_meanwhile_stays_dead(lived: Lived) -> None:
    good = lived.position
    deploy(lived, run=("false",))
    lived.roll_back(good)
    lived.do(KillTasks("ann/web", (2,)))
    lived.settle()
    assert lived.states() == [RUNS, RUNS, DEAD]


def test_what_is_to_end_is_not_placed_again_when_its_machine_is_lost(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late", 8)))
    lived.roll_back(good)
    rollout = lived.cell.jobs["ann/late"].rollout
    assert rollout is not None
    lived.do(EvictTasks("ann/late", tuple(rollout.attempts), Eviction.MACHINE_LOST))
    assert set(lived.cell.jobs) == {"ann/web"}


def test_a_task_on_a_machine_that_is_down_is_decided_on_when_it_is_back(lived: Lived) -> None:
    good = lived.position
    deploy(lived, tasks=1, run=("false",))
    on = lived.cell.jobs["ann/web"].tasks[0].machine
    lived.silent = {"m1", "m2"}  # all of them: more likely our own fault, so nothing is moved
    for _ in range(12):
        lived.step()
    assert not any(machine.up for machine in lived.cell.machines.values())
    lived.roll_back(good, hurried=True)
    lived.settle()
    assert lived.cell.jobs["ann/web"].tasks[0].machine == on
    assert lived.cell.rolling == {"ann/web"}
    lived.silent = set()
    lived.settle()
    assert lived.cell.rolling == set()
    assert lived.states() == [RUNS] * 3


# Refusals


def test_nothing_to_do_is_said(lived: Lived) -> None:
    for position in (lived.position, lived.position - 1):
        with pytest.raises(Conflict, match="nothing differs: cell lived is as it was to be at position"):
            lived.roll_back(position)


def test_the_same_again_while_a_job_goes_is_under_way(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late", 8)))
    lived.roll_back(good)
    left = lived.cell.jobs["ann/late"].running
    with pytest.raises(Conflict, match=f"a rollback to that is under way: {left} tasks still to be stopped"):
        lived.roll_back(good)
    lived.roll_back(good, hurried=True)
    assert set(lived.cell.jobs) == {"ann/web"}


def test_many_stops_must_be_asked_for() -> None:
    lived = big(20)
    good = lived.position
    lived.do(SubmitJob(spec("late", 11)))
    with pytest.raises(
        Conflict, match=r"this would stop 11 of 31 running tasks, which is more than 20 %"
    ) as no:
        lived.roll_back(good, max_affected=None)
    assert "`--max-affected 11` allows it" in no.value.hint
    with pytest.raises(Conflict, match=r"stop 11 of 31 running tasks, and --max-affected allows 1"):
        lived.roll_back(good, max_affected=1)
    lived.roll_back(good, max_affected=11)


def test_few_stops_need_no_word(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late", 2)))
    lived.roll_back(good, max_affected=None)


def test_jobs_that_never_were_are_not_found(lived: Lived) -> None:
    good = lived.position
    lived.do(CordonMachine("m1"))
    with pytest.raises(NotFound, match="there is no job ann/wab"):
        lived.roll_back(good, only=frozenset({"ann/wab"}))


def test_a_cell_of_another_name_or_of_a_later_time_is_refused(lived: Lived) -> None:
    then = lived.then(lived.position)
    then.position += 1
    with pytest.raises(Invalid, match="is not in the history of cell lived"):
        lived.do(RollBack(then.position, 0.0), then=then)
    with pytest.raises(Invalid, match="is not in the history of cell lived"):
        lived.do(RollBack(lived.position, 0.0), then=then)
    with pytest.raises(Invalid, match="position 0 of"):
        lived.do(RollBack(0, 0.0))
    then = lived.then(lived.position)
    then.name = "other"
    with pytest.raises(Invalid, match="of cell other"):
        lived.do(RollBack(then.position, 0.0), then=then)


@pytest.mark.parametrize("before", ["", "ann/room"])
def test_what_ran_in_another_alloc_set_or_in_none_goes_back_there(lived: Lived, before: str) -> None:
    lived.do(SubmitJob(spec("room", 3, run=(), kind=JobKind.ALLOC_SET)))
    lived.settle()
    lived.do(SubmitJob(spec("guest", inside=before)))
    lived.settle()
    good = lived.position
    lived.do(KillTasks("ann/guest"))
    lived.settle()
    lived.do(SubmitJob(spec("guest", inside="" if before else "ann/room")))
    lived.settle()
    lived.roll_back(good)
    lived.settle()
    assert lived.states("ann/guest") == [RUNS] * 3
    assert [task.alloc >= 0 for task in lived.cell.jobs["ann/guest"].tasks] == [bool(before)] * 3
