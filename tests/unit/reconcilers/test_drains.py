"""Machines that are drained become empty within the budgets, and say what they wait for."""

from collections.abc import Iterator
from typing import Any

import pytest

from borgish.cell.commands import (
    CordonMachine,
    DrainMachines,
    FreezeCell,
    JoinMachine,
    KillTasks,
    MaintainMachines,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndrainMachines,
    UnfreezeCell,
)
from borgish.cell.events import TasksEvicted
from borgish.cell.machines.drains import NO_ROOM, Drains, is_drained
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import NOT_HEARD
from borgish.master.core import Core
from borgish.reconcilers import drains
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.constraints import parse_constraint
from borgish.spec.job import Disruption, JobSpec, Override, Restart
from borgish.spec.shares import Share
from borgish.vocabulary import Ending, JobKind, RestartPolicy, State
from tests.unit.cell.lived import GIB, Lived, machine, spec

SETTINGS = ReconcileSettings()


@pytest.fixture
def three() -> Lived:
    return Lived(("m1", "m2", "m3"))


def run(lived: Lived, *jobs: JobSpec) -> None:
    for job in jobs:
        lived.do(SubmitJob(job))
    lived.settle()


def on(lived: Lived, name: str) -> int:
    return len(lived.cell.placed[name])


def whys(lived: Lived, name: str) -> dict[str, str]:
    """Return why tasks of a machine stay."""
    found = Drains(lived.cell, lived.core.observed, lived.now).leaving(lived.cell.machines[name])
    return {f"{each.job}/{each.index}": each.why for each in found}


def least_up(lived: Lived, job: str, steps: int) -> int:
    """Step on; return how few of a job's tasks ran at once."""
    running = []
    for _ in range(steps):
        lived.step()
        running.append(lived.cell.jobs[job].running)
    return min(running)


def once(name: str, tasks: int = 1, **changes: Any) -> JobSpec:
    return spec(name, tasks, restart=Restart(RestartPolicy.ON_FAILURE), **changes)


def test_what_runs_there_moves_within_the_budget(three: Lived) -> None:
    run(three, spec(tasks=12, disruption=Disruption(Share(2))))
    there = on(three, "m1")
    assert there >= 3
    three.do(DrainMachines(("m1",)))
    assert least_up(three, "ann/web", 30) >= 10
    assert (on(three, "m1"), three.cell.jobs["ann/web"].running) == (0, 12)
    assert is_drained(three.cell, three.core.observed, three.cell.machines["m1"])
    assert list(drains.reconcile(three.cell, three.core.observed, SETTINGS, three.now)) == []


def test_the_reason_is_told_with_each_task(three: Lived) -> None:
    run(three, spec(tasks=3))
    three.do(DrainMachines(("m1",), reason="new disk"))
    evicted = [each for entry in three.entries for each in entry.events if isinstance(each, TasksEvicted)]
    assert [each.reason for each in evicted] == ["m1 is to be empty: drained by ann: new disk"]


def test_batch_may_finish_until_the_deadline_and_moves_then(three: Lived) -> None:
    run(three, once("sum", 3), spec(tasks=3))
    three.do(DrainMachines(("m1",), deadline_seconds=60.0))
    left = set(whys(three, "m1"))
    three.settle()
    assert whys(three, "m1") == dict.fromkeys(left, "it may finish until 1970-01-01 00:17 UTC") != {}
    done = three.cell.jobs["ann/sum"].tasks[int(next(iter(left)).rpartition("/")[2])]
    assert done.state is State.RUNNING
    for _ in range(60):
        three.step()
    assert on(three, "m1") == 0
    assert three.cell.jobs["ann/sum"].running == 3


def test_batch_that_finishes_meanwhile_does_not_run_again(three: Lived) -> None:
    run(three, once("sum", 3))
    three.do(DrainMachines(("m1",)))
    (task,) = [each for each in three.cell.jobs["ann/sum"].tasks if each.machine == "m1"]
    three.ended("ann/sum", task.index, Ending.FINISH)
    three.settle()
    assert (on(three, "m1"), three.cell.jobs["ann/sum"].finished) == (0, 1)


def test_without_a_deadline_to_wait_for_batch_moves_at_once(three: Lived) -> None:
    run(three, once("sum", 3))
    three.do(DrainMachines(("m1",), deadline_seconds=0.0))
    three.settle()
    assert on(three, "m1") == 0


def test_an_alloc_moves_with_what_is_in_it(three: Lived) -> None:
    room = spec("room", 2, kind=JobKind.ALLOC_SET, run=(), resources=Resources(500, GIB))
    run(three, room)
    run(three, spec("inner", 2, inside="ann/room"))
    source = three.cell.jobs["ann/room"].tasks[0].machine
    three.do(DrainMachines((source,)))
    three.settle()
    assert on(three, source) == 0
    inner = three.cell.jobs["ann/inner"].tasks
    assert {each.state for each in inner} == {State.RUNNING}


def test_an_alloc_in_which_something_runs_to_completion_waits_for_it(three: Lived) -> None:
    run(three, spec("room", 1, kind=JobKind.ALLOC_SET, run=(), resources=Resources(500, GIB)))
    run(three, once("inner", 1, inside="ann/room"))
    source = three.cell.jobs["ann/room"].tasks[0].machine
    three.do(DrainMachines((source,)))
    three.settle()
    assert "may finish" in whys(three, source)["ann/room/0"]
    three.ended("ann/inner", 0, Ending.FINISH)
    three.settle()
    assert on(three, source) == 0


def test_the_refusal_of_the_gate_is_what_it_waits_for(three: Lived) -> None:
    run(three, spec(tasks=4, overrides={3: Override(resources=Resources(99_000))}))
    three.do(DrainMachines(("m1",)))
    three.settle()
    (why,) = whys(three, "m1").values()
    assert why == (
        "of ann/web at most 1 of 4 tasks may be down (max_unavailable 10%), and down is task 3 (pending)"
    )


def test_a_full_cell_keeps_what_runs_and_says_so() -> None:
    two = Lived(("m1", "m2"))
    run(two, spec(tasks=2, resources=Resources(8000, GIB)))
    two.do(DrainMachines(("m1",)))
    two.settle()
    assert two.cell.jobs["ann/web"].running == 2
    (why,) = whys(two, "m1").values()
    assert why == NO_ROOM
    two.do(JoinMachine(machine("m3"), "m3", known=False))
    two.settle()
    assert on(two, "m1") == 0
    assert two.cell.jobs["ann/web"].running == 2


def test_what_production_may_preempt_is_room_for_it() -> None:
    two = Lived(("m1", "m2"))
    two.do(CordonMachine("m1"))
    run(two, spec("low", 1, resources=Resources(8000, GIB)))
    two.do(CordonMachine("m2"))
    two.do(UncordonMachine("m1"))
    run(two, spec(tasks=1, resources=Resources(8000, GIB), priority=250))
    two.do(UncordonMachine("m2"))
    two.do(DrainMachines(("m1",)))
    two.settle()
    assert [task.machine for task in two.cell.jobs["ann/web"].tasks] == ["m2"]


@pytest.mark.parametrize("way", ["constraint", "taint", "cordon"])
def test_room_on_a_machine_that_is_none_for_it_is_no_room(way: str) -> None:
    two = Lived(("m1", "m2"))
    constraints = (parse_constraint("machine == m1"),) if way == "constraint" else ()
    two.cell.machines["m1"].attributes["machine"] = "m1"
    two.do(CordonMachine("m2"))
    run(two, spec(tasks=2, constraints=constraints))
    if way != "cordon":
        two.do(UncordonMachine("m2"))
    if way == "taint":
        two.do(TaintMachine("m2", "ml"))
    two.do(DrainMachines(("m1",)))
    two.settle()
    assert set(whys(two, "m1").values()) == {NO_ROOM}
    assert two.cell.jobs["ann/web"].running == 2


def test_to_drain_all_machines_moves_nothing_and_harms_nobody(three: Lived) -> None:
    run(three, spec(tasks=9, disruption=Disruption(Share(3))), spec("single", 1), once("sum", 2))
    three.do(DrainMachines(where="arch == amd64", deadline_seconds=0.0))
    assert least_up(three, "ann/web", 30) == 9
    assert sum(len(whys(three, name)) for name in ("m1", "m2", "m3")) == 12
    three.do(UndrainMachines(where="arch == amd64"))
    assert three.cell.jobs["ann/single"].running == 1


def test_two_thirds_at_once_stay_within_the_budgets(three: Lived) -> None:
    run(three, spec(tasks=9), spec("single", 1))
    three.do(DrainMachines(("m1", "m2")))
    assert least_up(three, "ann/web", 40) >= 8
    assert (on(three, "m1"), on(three, "m2")) == (0, 0)


def test_of_many_machines_each_has_its_turn(three: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "MACHINES_MAX", 1)
    run(three, spec(tasks=9, disruption=Disruption(Share(9))))
    three.do(DrainMachines(("m1", "m2")))
    assert sorted((on(three, "m1"), on(three, "m2"))) == [0, 3]
    three.step()
    assert (on(three, "m1"), on(three, "m2")) == (0, 0)


def test_force_asks_no_budget(three: Lived) -> None:
    run(three, spec(tasks=9), once("sum", 3))
    there = on(three, "m1")
    three.do(DrainMachines(("m1",), force=True, max_affected=there))
    three.step()
    assert on(three, "m1") == 0


def test_a_freeze_holds_every_drain(three: Lived) -> None:
    run(three, spec(tasks=3), once("sum", 3))
    three.do(FreezeCell("a sale"))
    three.do(DrainMachines(("m1",), deadline_seconds=0.0, force=True, max_affected=9))
    three.settle()
    assert on(three, "m1") == 2
    assert all("the cell is frozen" in why for why in whys(three, "m1").values())
    three.do(UnfreezeCell())
    three.settle()
    assert on(three, "m1") == 0


def test_what_is_on_a_machine_that_is_down_is_left_to_those_who_decide_on_losses(three: Lived) -> None:
    run(three, once("sum", 3))
    three.do(DrainMachines(("m1",), deadline_seconds=0.0))
    three.silent.add("m1")
    three.cell.machines["m1"].up = False
    assert list(drains.reconcile(three.cell, three.core.observed, SETTINGS, three.now)) == []


def test_a_machine_that_is_lost_while_drained_stays_drained(three: Lived) -> None:
    run(three, spec(tasks=9))
    three.do(DrainMachines(("m1",)))
    three.silent.add("m1")
    for _ in range(30):
        three.step()
    assert (three.cell.machines["m1"].up, on(three, "m1")) == (False, 0)
    three.silent.clear()
    three.settle()
    assert three.cell.machines["m1"].up
    assert three.cell.machines["m1"].is_draining
    assert (on(three, "m1"), three.cell.jobs["ann/web"].running) == (0, 9)


def test_a_new_master_goes_on_when_it_has_heard_and_not_before(three: Lived) -> None:
    run(three, spec(tasks=9))
    three.do(DrainMachines(("m1",)))
    assert on(three, "m1") > 0
    before = three.cell.snapshot()
    three.core = Core(Cell(before), SETTINGS, three.now)
    three.entries += three.core.begin(2, "me", three.now).entries
    assert set(whys(three, "m1").values()) == {NOT_HEARD}
    assert list(drains.reconcile(three.cell, Observed(), SETTINGS, three.now)) == []
    assert least_up(three, "ann/web", 30) >= 8
    assert on(three, "m1") == 0


def test_a_window_empties_the_machine_before_it_begins_and_gives_it_back(three: Lived) -> None:
    run(three, spec(tasks=9), once("sum", 3))
    begins = three.now.wall + 60.0
    three.do(MaintainMachines(("m1",), begins=begins, ends=begins + 30.0, lead_seconds=40.0))

    def when(wall: float) -> Iterator[None]:
        while three.now.wall < wall:
            three.step()
            yield

    assert all(on(three, "m1") > 0 for _ in when(begins - 42.0))
    assert min(three.cell.jobs["ann/web"].running for _ in when(begins - 2.0)) >= 8
    assert {three.cell.jobs[key].spec.is_service for key, _ in three.cell.placed["m1"]} == {False}
    list(when(begins + 3.0))
    assert on(three, "m1") == 0
    list(when(begins + 33.0))
    assert three.cell.machines["m1"].drains == ()
    three.do(KillTasks("ann/web"))
    run(three, spec("next", 6))
    assert on(three, "m1") > 0


def test_a_persons_drain_outlives_the_window(three: Lived) -> None:
    begins = three.now.wall + 5.0
    three.do(MaintainMachines(("m1",), begins=begins, ends=begins + 5.0))
    three.do(DrainMachines(("m1",)))
    for _ in range(20):
        three.step()
    assert [each.window for each in three.cell.machines["m1"].drains] == [None]
