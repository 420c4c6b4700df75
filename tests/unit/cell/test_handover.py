"""Tasks are replaced by ones that are up before they are stopped, and what goes wrong meanwhile."""

from typing import Any

import msgspec
import pytest

from borgish.cell.commands import (
    CordonMachine,
    DrainMachines,
    FreezeCell,
    JoinMachine,
    KillTasks,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SubmitJob,
    TaintMachine,
    UndoUpdate,
    UndrainMachines,
    UnfreezeCell,
    UntaintMachine,
)
from borgish.cell.events import IncomingEnded, TasksEvicted, TasksHandedOver
from borgish.cell.model import Handover
from borgish.resources import Resources
from borgish.spec.job import Disruption, JobSpec, Update
from borgish.spec.shares import Share
from borgish.vocabulary import Ending, HandoverCause, Hold, OnFailure, Phase, State, TaintEffect
from tests.unit.cell.lived import CRASHES, GIB, LOOPS, Lived, machine, spec

JOB = "ann/web"
NEW = ("new",)
SETTLE_SECONDS = 3.0
DEADLINE_SECONDS = 60.0
THREE = 3


def web(**changes: Any) -> JobSpec:
    update = Update(
        handover=True,
        settle_seconds=SETTLE_SECONDS,
        deadline_seconds=DEADLINE_SECONDS,
        **changes.pop("update", {}),
    )
    return spec(**{"tasks": THREE, "update": update, **changes})


@pytest.fixture
def lived() -> Lived:
    return began(web())


def began(job: JobSpec, machines: tuple[str, ...] = ("m1", "m2")) -> Lived:
    lived = Lived(machines)
    lived.do(SubmitJob(job))
    lived.settle()
    return lived


def handovers(lived: Lived) -> dict[int, Handover]:
    return lived.cell.handovers.get(JOB, {})


def handover(lived: Lived) -> Handover:
    (found,) = handovers(lived).values()
    return found


def down(lived: Lived) -> int:
    """Return how many tasks nobody could use now: those whose current attempt is not up."""
    seen = lived.core.observed
    found = [
        task.state is State.RUNNING and seen.attempt(task.machine, f"{JOB}/{task.index}", task.attempt)
        for task in lived.cell.jobs[JOB].tasks
    ]
    return sum(not (each and each.phase in (Phase.UP, Phase.HEALTHY)) for each in found)


def until(lived: Lived, what: str, steps_max: int = 100) -> None:
    """Step until a handover began, has a machine, or is over."""
    for _ in range(steps_max):
        there = handovers(lived)
        if {"began": bool(there), "placed": any(h.attempt for h in there.values()), "over": not there}[what]:
            return
        lived.step()
    raise AssertionError(f"never {what}")


# An update


def test_an_update_takes_nobody_down(lived: Lived) -> None:
    before = lived.attempts()
    lived.do(SubmitJob(web(run=NEW)))
    most = 0
    while lived.cell.rolling:
        lived.step()
        assert down(lived) == 0
        most = max(most, len(handovers(lived)))
    job = lived.cell.jobs[JOB]
    assert most == 1
    assert [task.version for task in job.tasks] == [2, 2, 2]
    assert all(task.previous_attempt == old for task, old in zip(job.tasks, before, strict=True))
    assert job.last_rollout is not None
    assert job.last_rollout.outcome == "complete"
    assert not any(isinstance(event, TasksEvicted) for entry in lived.entries for event in entry.events)


def test_as_many_at_a_time_as_the_job_says() -> None:
    lived = began(web(update={"at_a_time": Share(2)}))
    lived.do(SubmitJob(web(update={"at_a_time": Share(2)}, run=NEW)))
    most = 0
    while lived.cell.rolling:
        lived.step()
        assert down(lived) == 0
        most = max(most, len(handovers(lived)))
    assert most == 2


def test_it_takes_over_when_it_has_settled_and_not_before(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "placed")
    placed_at = handover(lived).placed_at
    until(lived, "over")
    switched = next(
        entry.at for entry in lived.entries for event in entry.events if isinstance(event, TasksHandedOver)
    )
    assert switched - placed_at >= SETTLE_SECONDS


def test_one_that_is_not_healthy_does_not_take_over() -> None:
    lived = began(web())
    lived.do(SubmitJob(web(run=CRASHES)))
    before = lived.attempts()
    job = lived.cell.jobs[JOB]
    while job.rollout is not None and job.rollout.hold is None:
        lived.step()
        assert down(lived) == 0
    assert job.rollout is not None
    assert job.rollout.hold is Hold.FAILED
    assert lived.attempts() == before
    for _ in range(50):
        lived.step()
    assert lived.attempts() == before


def test_an_update_that_fails_is_undone_and_what_ran_runs_on(lived: Lived) -> None:
    before = lived.attempts()
    lived.do(SubmitJob(web(run=LOOPS, update={"on_failure": OnFailure.UNDO})))
    lived.settle()
    job = lived.cell.jobs[JOB]
    assert job.spec.run == web().run
    assert lived.attempts() == before
    assert not handovers(lived)
    assert [task.version for task in job.tasks] == [3, 3, 3]
    # The logs of what did not come up can still be looked at.
    assert job.tasks[0].previous_attempt > before[0]


def test_canaries_are_replaced_first_and_wait(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW, update={"canaries": 1})))
    lived.settle()
    job = lived.cell.jobs[JOB]
    assert job.rollout is not None
    assert job.rollout.hold is Hold.CANARY
    assert [task.version for task in job.tasks].count(2) == 1
    assert down(lived) == 0


def test_another_version_ends_the_incoming_attempt(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "placed")
    first = handover(lived).attempt
    lived.do(SubmitJob(web(run=("newer",))))
    until(lived, "placed")
    assert handover(lived).attempt > first
    while lived.cell.rolling:
        lived.step()
        assert down(lived) == 0
    assert {task.version for task in lived.cell.jobs[JOB].tasks} == {3}


def test_undo_leaves_what_was_not_reached_alone(lived: Lived) -> None:
    before = lived.attempts()
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "placed")
    lived.do(UndoUpdate(JOB))
    lived.settle()
    assert lived.attempts() == before


def test_a_restart_hands_over_too(lived: Lived) -> None:
    before = lived.attempts()
    lived.do(RestartTasks(JOB))
    while lived.cell.rolling:
        lived.step()
        assert down(lived) == 0
    assert all(now > then for now, then in zip(lived.attempts(), before, strict=True))


# Room


def full() -> Lived:
    """A machine that three tasks fill."""
    lived = Lived(())
    small = machine("m1", capacity=Resources(8000, 3 * GIB // 64, 100 * GIB))
    lived.do(JoinMachine(small, "m1", known=False))
    lived.do(SubmitJob(web()))
    lived.settle()
    return lived


def test_without_room_it_waits_and_then_goes_within_the_budget() -> None:
    lived = full()
    lived.do(SubmitJob(web(run=NEW)))
    began_at, most_down = lived.now.wall, 0
    while lived.cell.rolling:
        lived.step()
        if lived.now.wall < began_at + DEADLINE_SECONDS:
            assert down(lived) == 0
        most_down = max(most_down, down(lived))
    assert most_down == 1
    assert {task.version for task in lived.cell.jobs[JOB].tasks} == {2}


def test_it_preempts_nobody() -> None:
    lived = Lived(())
    small = machine("m1", capacity=Resources(8000, 4 * GIB // 64, 100 * GIB))
    lived.do(JoinMachine(small, "m1", known=False))
    lived.do(SubmitJob(web(priority=250)))
    lived.do(SubmitJob(spec("low", tasks=1, priority=10)))
    lived.settle()
    lived.do(SubmitJob(web(priority=250, run=NEW)))
    for _ in range(20):
        lived.step()
    assert lived.states("ann/low") == [State.RUNNING]
    assert handover(lived).attempt == 0


def test_what_comes_free_is_taken() -> None:
    lived = full()
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "began")
    assert handover(lived).attempt == 0
    lived.do(JoinMachine(machine("m2"), "m2", known=False))
    until(lived, "placed")
    assert handover(lived).machine == "m2"


# Leaving a machine


def on(lived: Lived, name: str) -> int:
    return len(lived.cell.placed[name])


@pytest.mark.parametrize(
    ("leave", "back"),
    [
        (DrainMachines(("m1",)), UndrainMachines(("m1",))),
        (TaintMachine("m1", "bad", effect=TaintEffect.EVICT), UntaintMachine("m1", "bad")),
    ],
)
def test_a_machine_is_left_without_a_gap(leave: Any, back: Any) -> None:
    lived = began(web(tasks=6))
    assert on(lived, "m1")
    lived.do(leave)
    while on(lived, "m1"):
        lived.step()
        assert down(lived) == 0
        assert len(handovers(lived)) <= 1
    assert not handovers(lived)
    lived.do(back)
    lived.settle()
    assert down(lived) == 0


def test_what_is_taken_back_ends_the_handover() -> None:
    lived = began(web(tasks=6))
    before = lived.attempts()
    lived.do(DrainMachines(("m1",)))
    until(lived, "placed")
    lived.do(UndrainMachines(("m1",)))
    until(lived, "over")
    assert lived.attempts() == before


def test_the_machine_of_an_incoming_attempt_is_drained() -> None:
    lived = began(web(tasks=6), ("m1", "m2", "m3"))
    lived.do(DrainMachines(("m1",)))
    until(lived, "placed")
    there = handover(lived).machine
    lived.do(DrainMachines((there,)))
    until(lived, "over")
    lived.settle()
    assert on(lived, "m1") == on(lived, there) == 0
    assert down(lived) == 0


def test_a_freeze_begins_none_and_ends_none(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "placed")
    lived.do(FreezeCell("sales"))
    until(lived, "over")
    assert [task.version for task in lived.cell.jobs[JOB].tasks].count(2) == 1
    for _ in range(20):
        lived.step()
        assert not handovers(lived)
    job = lived.cell.jobs[JOB]
    assert job.rollout is not None
    assert "frozen" in job.rollout.paused
    lived.do(UnfreezeCell())
    lived.settle()
    assert {task.version for task in job.tasks} == {2}


# What goes wrong meanwhile


def moving(lived: Lived) -> tuple[int, Handover]:
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "placed")
    ((index, found),) = handovers(lived).items()
    return index, found


def lose(lived: Lived, name: str, stuck: Handover) -> None:
    """Let a machine be silent until it is given up, and an incoming attempt not come up meanwhile."""
    lived.silent.add(name)
    lived.stuck.add(stuck.attempt)
    while on(lived, name) or name in lived.cell.arriving:
        lived.step()


def test_the_incoming_attempt_takes_over_from_one_that_is_lost() -> None:
    lived = began(web(), ("m1", "m2", "m3"))
    lived.do(CordonMachine(lived.cell.jobs[JOB].tasks[0].machine))  # or it might be placed beside it
    index, found = moving(lived)
    task = lived.cell.jobs[JOB].tasks[index]
    assert task.machine != found.machine
    lose(lived, task.machine, found)
    assert (task.state, task.attempt, task.machine) == (State.RUNNING, found.attempt, found.machine)
    assert index not in handovers(lived)


def test_the_incoming_attempts_machine_is_lost() -> None:
    lived = began(web(), ("m1", "m2", "m3"))
    there = lived.cell.jobs[JOB].tasks[0].machine
    lived.do(CordonMachine(there))  # or it might be placed beside it
    index, found = moving(lived)
    task = lived.cell.jobs[JOB].tasks[index]
    assert task.machine != found.machine
    lose(lived, found.machine, found)
    assert task.state is State.RUNNING
    assert task.machine != found.machine
    lived.settle()
    assert task.version == 2


def test_both_are_on_a_machine_that_is_lost() -> None:
    lived = began(web(tasks=1), ("m1",))
    lived.do(JoinMachine(machine("m2"), "m2", known=False))
    lived.do(CordonMachine("m2"))
    index, found = moving(lived)
    task = lived.cell.jobs[JOB].tasks[index]
    assert task.machine == found.machine == "m1"
    lose(lived, "m1", found)
    assert task.state is State.PENDING
    assert not handovers(lived)


def test_a_kill_ends_both(lived: Lived) -> None:
    index, _ = moving(lived)
    lived.do(KillTasks(JOB, (index,)))
    assert index not in handovers(lived)
    assert lived.cell.jobs[JOB].tasks[index].state is State.DEAD


def test_a_task_that_is_no_more_has_no_incoming_attempt() -> None:
    lived = began(web(tasks=3))
    lived.do(DrainMachines(("m1", "m2")[:1]))
    until(lived, "began")
    lived.do(ScaleJob(JOB, min(handovers(lived)) or 1))
    assert all(index < lived.cell.jobs[JOB].spec.tasks for index in handovers(lived))


@pytest.mark.parametrize("ending", [Ending.KILL, Ending.LOST, Ending.FAIL])
def test_an_incoming_attempt_that_ends_is_followed_by_another_elsewhere(ending: Ending) -> None:
    lived = began(web(tasks=1), ("m1", "m2", "m3"))
    first = lived.cell.jobs[JOB].tasks[0].machine
    lived.do(DrainMachines((first,)))
    until(lived, "placed")
    found = handover(lived)
    seen = SeenAttempt(f"{JOB}/0", found.attempt, Phase.STOPPING, ended=ending, exit_code=3)
    lived.report(found.machine, seen)
    ends = [event for entry in lived.entries for event in entry.events if isinstance(event, IncomingEnded)]
    assert [end.indexes for end in ends] == [(0,)]
    until(lived, "placed")
    assert handover(lived).machine not in (first, found.machine)
    lived.settle()
    assert on(lived, first) == 0


def test_one_that_does_not_come_up_in_time_is_given_up() -> None:
    lived = began(web(tasks=1), ("m1", "m2", "m3"))
    first = lived.cell.jobs[JOB].tasks[0].machine
    lived.do(DrainMachines((first,)))
    until(lived, "placed")
    stuck = handover(lived)
    lived.stuck.add(stuck.attempt)
    while not handover(lived).failed:
        lived.step()
        assert lived.cell.jobs[JOB].tasks[0].machine == first
    assert [each.machine for each in handover(lived).failed] == [stuck.machine]
    assert lived.now.wall - stuck.placed_at == pytest.approx(DEADLINE_SECONDS, abs=2.0)
    lived.settle()
    assert on(lived, first) == on(lived, stuck.machine) == 0


# Over time


def test_all_of_it_comes_out_of_the_journal(lived: Lived) -> None:
    """At each position the cell of then, and one that begins from its checkpoint, has the same handovers."""
    lived.do(SubmitJob(web(run=NEW)))
    lived.do(DrainMachines(("m1",)))
    lived.settle()
    for position in range(1, lived.position + 1):
        then = lived.then(position)
        kept = msgspec.json.encode(then.snapshot())
        again = type(then)(msgspec.json.decode(kept, type=type(then.snapshot())))
        assert (again.handovers, again.arriving, again.waiting) == (
            then.handovers,
            then.arriving,
            then.waiting,
        )


def test_a_rollback_ends_them_and_comes_to_rest(lived: Lived) -> None:
    before = lived.position
    index, found = moving(lived)
    lived.roll_back(before)
    assert handovers(lived).get(index, found) is found or not handovers(lived)
    lived.settle()
    assert not handovers(lived)
    assert lived.cell.jobs[JOB].spec.run == web().run
    assert down(lived) == 0


def test_a_budget_is_not_used_up(lived: Lived) -> None:
    job = web(disruption=Disruption(max_unavailable=Share(0)))
    lived = began(job)
    lived.do(SubmitJob(msgspec.structs.replace(job, run=NEW)))
    lived.settle()
    assert {task.version for task in lived.cell.jobs[JOB].tasks} == {2}


def test_what_it_is_for(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    until(lived, "began")
    assert handover(lived).cause is HandoverCause.ROLLOUT
