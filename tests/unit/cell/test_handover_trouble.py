"""What goes wrong while tasks are replaced: with machines, masters, clocks, room and what takes over."""

import contextlib
import random

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    DrainMachines,
    FreezeCell,
    JoinMachine,
    Observe,
    PauseUpdate,
    RestartTasks,
    ResumeUpdate,
    SeenAttempt,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndoUpdate,
    UndrainMachines,
    UnfreezeCell,
    UntaintMachine,
)
from borgish.cell.events import RolloutWentOn, TasksEvicted, TasksHandedOver
from borgish.cell.model import Cell, Handover, Snapshot
from borgish.errors import Refused
from borgish.link.conversation import stop_orders
from borgish.master.core import Core
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.constraints import parse_constraint
from borgish.spec.job import Affinity, Constraint, Disruption, JobSpec
from borgish.spec.shares import Share
from borgish.vocabulary import Ending, Hold, OnFailure, Phase, TaintEffect
from tests.unit.cell.lived import CRASHES, GIB, LOOPS, Lived, machine, spec
from tests.unit.cell.test_handover import (
    JOB,
    NEW,
    began,
    down,
    full,
    handover,
    handovers,
    until,
    web,
)


def moving_one(lived: Lived) -> Handover:
    """Let the only task be replaced for an update, and its incoming attempt have a machine."""
    lived.do(SubmitJob(web(tasks=1, run=NEW)))
    until(lived, "placed")
    return handover(lived)


def events_since(lived: Lived, entries: int, kind: type) -> list[object]:
    return [event for entry in lived.entries[entries:] for event in entry.events if isinstance(event, kind)]


def new_master(lived: Lived) -> None:
    """Let another master lead, that has heard of no machine yet."""
    cell = Cell(msgspec.json.decode(msgspec.json.encode(lived.cell.snapshot()), type=Snapshot))
    lived.core = Core(cell, ReconcileSettings(), lived.now)
    lived.entries += lived.core.begin(2, "me2", lived.now).entries


def slow(job: JobSpec, settle_seconds: float = 30.0) -> JobSpec:
    return msgspec.structs.replace(
        job, update=msgspec.structs.replace(job.update, settle_seconds=settle_seconds)
    )


# Reports


def test_a_reboot_of_the_machine_of_both_ends_nobody_else() -> None:
    lived = began(web(tasks=1), ("m1",))
    found = moving_one(lived)
    task = lived.cell.jobs[JOB].tasks[0]
    current = SeenAttempt(f"{JOB}/0", task.attempt, Phase.STARTING, exit_reason="machine was rebooted")
    incoming = SeenAttempt(f"{JOB}/0", found.attempt, Phase.STOPPING, ended=Ending.FAIL, exit_reason="x")
    lived.step(Observe("m1", "b2", "m1", (current, incoming)), actor="m1")
    assert task.machine == "m1"


@pytest.mark.parametrize("ending", [Ending.KILL, Ending.LOST, Ending.FAIL, Ending.FINISH, None])
@pytest.mark.parametrize(
    "current",
    [
        SeenAttempt(f"{JOB}/0", 0, Phase.STOPPING, ended=Ending.KILL),
        SeenAttempt(f"{JOB}/0", 0, Phase.STARTING, port_in_use=3),
        SeenAttempt(f"{JOB}/0", 0, Phase.CRASH_LOOPING, early_ends=9, restarts=9, exit_code=1),
    ],
    ids=["vanished", "port", "failed"],
)
def test_both_end_in_one_report(current: SeenAttempt, ending: Ending | None) -> None:
    lived = began(web(tasks=1), ("m1",))
    found = moving_one(lived)
    current = msgspec.structs.replace(current, attempt=lived.cell.jobs[JOB].tasks[0].attempt)
    port = 0 if ending else 5
    incoming = SeenAttempt(f"{JOB}/0", found.attempt, Phase.STOPPING, ended=ending, port_in_use=port)
    lived.step(Observe("m1", "b1", "m1", (current, incoming)), actor="m1")
    lived.settle(400)
    assert not handovers(lived)


def test_restarts_of_the_incoming_attempt_are_told_when_they_were() -> None:
    lived = began(web(tasks=1), ("m1",))
    found = moving_one(lived)
    lived.report("m1", SeenAttempt(f"{JOB}/0", found.attempt, Phase.UP, restarts=1, exit_code=1))
    until(lived, "over")
    assert lived.cell.jobs[JOB].tasks[0].restarts == 1


# Machines and masters


def test_nobody_takes_over_on_a_machine_that_does_not_answer() -> None:
    job = slow(web(tasks=1))
    lived = began(job, tuple(f"m{number}" for number in range(1, 9)))
    here = lived.cell.jobs[JOB].tasks[0].machine
    lived.do(CordonMachine(here))
    lived.do(SubmitJob(spec("other", tasks=24)))
    lived.settle()
    lived.do(SubmitJob(msgspec.structs.replace(job, run=NEW)))
    until(lived, "placed")
    lived.step()
    lived.silent.update(lived.cell.machines.keys() - {here})  # a mass failure: nobody is given up
    for _ in range(60):
        lived.step()
        assert lived.cell.jobs[JOB].tasks[0].machine == here


@pytest.mark.parametrize("at_a_time", [1, 3, 6])
@pytest.mark.parametrize("unavailable", [1, 3])
def test_a_new_master_stops_nobody_that_it_has_not_heard_of(at_a_time: int, unavailable: int) -> None:
    disruption = Disruption(max_unavailable=Share(unavailable))
    job = web(tasks=6, update={"at_a_time": Share(at_a_time)}, disruption=disruption)
    lived = began(job, ("m1", "m2", "m3"))
    lived.do(SubmitJob(msgspec.structs.replace(job, run=NEW)))
    until(lived, "placed")
    new_master(lived)
    lived.silent.add("m1")
    lived.do(TaintMachine("m1", "bad", effect=TaintEffect.EVICT))
    entries = len(lived.entries)
    for _ in range(6):
        lived.step()
    assert events_since(lived, entries, TasksEvicted) == []
    went_on = [e for e in events_since(lived, entries, RolloutWentOn) if isinstance(e, RolloutWentOn)]
    assert [event.pending for event in went_on if event.pending] == []


def test_an_incoming_attempt_does_not_take_over_where_it_may_not_stay() -> None:
    lived = began(web(tasks=1), ("m1",))
    moving_one(lived)
    lived.do(JoinMachine(machine("m2"), "m2", known=False))
    entries = len(lived.entries)
    lived.do(TaintMachine("m1", "bad", effect=TaintEffect.EVICT))
    lived.settle()
    assert len(events_since(lived, entries, TasksHandedOver)) == 1
    assert lived.cell.jobs[JOB].tasks[0].machine == "m2"


def test_a_forced_drain_of_the_machine_of_both_evicts_once() -> None:
    lived = began(web(tasks=1), ("m1",))
    found = moving_one(lived)
    lived.stuck.add(found.attempt)
    lived.do(JoinMachine(machine("m2"), "m2", known=False))
    entries = len(lived.entries)
    lived.do(DrainMachines(("m1",), force=True, max_affected=9))
    lived.settle()
    assert len(events_since(lived, entries, TasksEvicted)) == 1


# Room


def test_lost_after_it_waited_long_it_is_looked_for_anew() -> None:
    lived = full()
    lived.do(SubmitJob(web(run=NEW)))
    for _ in range(54):
        lived.step()
    lived.do(JoinMachine(machine("m2"), "m2", known=False))
    until(lived, "placed")
    assert handover(lived).machine == "m2"
    lived.stuck.add(handover(lived).attempt)
    lived.do(JoinMachine(machine("m3"), "m3", known=False))
    lived.silent.add("m2")
    for _ in range(60):
        lived.step()
        assert down(lived) == 0


def test_a_clock_that_leaps_makes_nobody_late() -> None:
    lived = full()
    lived.do(SubmitJob(web(run=NEW)))
    lived.step()
    lived.now = msgspec.structs.replace(lived.now, wall=lived.now.wall + 3600)
    for _ in range(10):
        lived.step()
        assert down(lived) == 0


@pytest.mark.parametrize(
    "version",
    [
        web(tasks=1, run=NEW, resources=Resources(100, 1000 * GIB, 0)),
        web(tasks=1, run=NEW, constraints=(parse_constraint("arch == arm64"),)),
    ],
    ids=["limits", "constraint"],
)
def test_what_no_machine_could_run_takes_nobody_down(version: JobSpec) -> None:
    lived = began(web(tasks=1))
    lived.do(SubmitJob(version))
    for _ in range(200):
        lived.step()
        assert down(lived) == 0
    rollout = lived.cell.jobs[JOB].rollout
    assert rollout is not None
    assert rollout.hold is Hold.FAILED
    assert rollout.paused.endswith("for more than 60s")


def test_in_a_full_cell_it_ends_with_what_it_may_disrupt() -> None:
    job = web(update={"max_disruptions": 1})
    lived = Lived(())
    small = machine("m1", capacity=Resources(8000, 3 * GIB // 64, 100 * GIB))
    lived.do(JoinMachine(small, "m1", known=False))
    lived.do(SubmitJob(job))
    lived.settle()
    lived.do(SubmitJob(msgspec.structs.replace(job, run=NEW)))
    for _ in range(300):
        lived.step()
    last = lived.cell.jobs[JOB].last_rollout
    assert last is not None
    assert last.outcome == "complete but for 2 tasks: max_disruptions (1) reached"
    assert not handovers(lived)


def test_another_job_stays_apart_from_what_still_runs() -> None:
    lived = began(web(tasks=1, labels={"app": "web"}), ("m1",))
    lived.do(JoinMachine(machine("m2"), "m2", known=False))
    lived.do(CordonMachine("m1"))
    lived.do(SubmitJob(web(tasks=1, run=NEW, labels={"app": "web"})))
    until(lived, "placed")
    assert handover(lived).machine == "m2"
    lived.stuck.add(handover(lived).attempt)
    lived.do(UncordonMachine("m1"))
    apart = (Affinity((Constraint("app", "==", ("web",)),)),)
    lived.do(SubmitJob(spec("beside", tasks=1, apart=apart)))
    lived.step()
    assert lived.cell.jobs["ann/beside"].tasks[0].machine == ""


# People


def test_resumed_it_is_tried_anew_at_once() -> None:
    lived = began(web(tasks=1), ("m1",))
    found = moving_one(lived)
    seen = SeenAttempt(f"{JOB}/0", found.attempt, Phase.STOPPING, ended=Ending.FAIL, exit_code=3)
    lived.report("m1", seen)
    lived.step()
    job = lived.cell.jobs[JOB]
    assert job.rollout is not None
    assert job.rollout.hold is Hold.FAILED
    for _ in range(5):
        lived.step()
        assert handover(lived).attempt == 0  # none is tried while somebody is to decide
    lived.do(ResumeUpdate(JOB))
    until(lived, "placed")
    lived.settle()
    assert job.rollout is None


def test_what_is_stopped_is_told_why() -> None:
    lived = began(web(tasks=1), ("m1",))
    found = moving_one(lived)
    lived.step()
    lived.step(UndoUpdate(JOB))
    (order,) = stop_orders(lived.cell, lived.core.observed, "m1", lived.now)
    assert (order.attempt, order.deregister_seconds) == (found.attempt, 0.0)  # nobody has asked it anything
    assert order.reason == "it was to take over, and is not to any more"


@pytest.mark.parametrize("seed", range(8))
def test_with_room_nobody_is_ever_down(seed: int) -> None:
    """Whatever people ask for in whichever order, as long as they stop nothing at once."""
    chance = random.Random(seed)
    update = {
        "at_a_time": chance.choice([None, Share(1), Share(2), Share(3)]),
        "canaries": chance.choice([0, 0, 1, 2]),
        "on_failure": chance.choice(list(OnFailure)),
    }
    job = web(tasks=5, update=update, disruption=Disruption(max_unavailable=Share(chance.choice([0, 1, 2]))))
    lived = began(job, ("m1", "m2", "m3", "m4", "m5"))
    for number in range(150):
        name = chance.choice(["m1", "m2", "m3"])
        runs = chance.choice([(f"v{number}",), (f"v{number}",), CRASHES, LOOPS])
        asked: list[Command | None] = [
            *(SubmitJob(msgspec.structs.replace(job, run=runs)), UndoUpdate(JOB), RestartTasks(JOB)),
            *(DrainMachines((name,)), UndrainMachines((name,)), FreezeCell(), UnfreezeCell()),
            *(TaintMachine(name, "bad", effect=TaintEffect.EVICT), UntaintMachine(name, "bad")),
            *(PauseUpdate(JOB), ResumeUpdate(JOB), ResumeUpdate(JOB, promote=True), *[None] * 8),
        ]
        command = chance.choice(asked)
        with contextlib.suppress(Refused):
            lived.do(command) if command is not None else lived.step()
        assert down(lived) == 0, command
