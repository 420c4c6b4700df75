"""On random cells: a plan changes nothing, comes true when it is asked for at once, and never half."""

import pickle
from typing import Any

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    KillTasks,
    ScaleJob,
    SubmitJob,
    UncordonMachine,
)
from borgish.cell.events import AnyEvent, Entry, PlacesPromised, TasksEvicted, TasksPlaced
from borgish.cell.invariants import violations
from borgish.cell.model import Job, Machine
from borgish.cell.observed import leaving_attempts
from borgish.errors import Conflict, Refused
from borgish.master.core import Core, evict_command, place_command, promise_command
from borgish.master.planning import DryRun
from borgish.master.step import CommandRequest, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.scheduler.plan import Plan
from borgish.spec.job import JobSpec
from borgish.vocabulary import JobKind, State
from borgish.wire.api import Accepted
from tests.profiles import examples
from tests.property.scheduler.test_random_rules import PLACES
from tests.property.scheduler.test_random_rules import SPECS as RULED
from tests.unit.scheduler.cells import GIB, NOW, cell_of, machine, spec

NEW = "ann/new"  # the job that is planned
ROOM = spec("ann/room", 2, 500, kind=JobKind.ALLOC_SET)
MORE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "gang": st.sampled_from([False, False, True]),
        "ports": st.sampled_from([(), ("http",)]),
        "gpu": st.sampled_from([0, 0, 0, 500, 2000]),
        "fixed": st.sampled_from([0, 0, 20003]),
        "inside": st.sampled_from(["", "", ROOM.key]),
    }
)


@st.composite
def specs(draw: st.DrawFn, key: str) -> JobSpec:
    more, facts = draw(MORE), draw(RULED)
    if draw(st.integers(0, 2)):  # rules often leave no place at all
        facts |= {"near": (), "apart": (), "spread": ()}
    wanted = spec(key, **facts)
    needs = Resources(facts["cpu"], GIB, 0, {}, {"gpu": more["gpu"]} if more["gpu"] else {})
    fixed = {"http": more["fixed"]} if more["ports"] and more["fixed"] else {}
    return msgspec.structs.replace(
        wanted,
        resources=needs,
        gang=more["gang"],
        ports=more["ports"],
        fixed_ports=fixed,
        inside=more["inside"] if key == NEW else "",
    )


@st.composite
def cores(draw: st.DrawFn) -> Core:
    """A master that has placed what there is, some of it in machines that are cordoned now."""
    machines = [drawn_machine(draw, f"m{n}") for n in range(draw(st.integers(1, 6)))]
    jobs = [draw(specs(f"ann/j{n}")) for n in range(draw(st.integers(0, 3)))]
    filling = spec("zoe/filling", draw(st.sampled_from([1, 9, 9])), 1000)
    cell = cell_of(machines, [*jobs, ROOM, filling])
    core = Core(cell, ReconcileSettings(), NOW, draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, 2))):
        ask(core, draw(st.sampled_from([*changes(core)])))
    return core


def drawn_machine(draw: st.DrawFn, name: str) -> Machine:
    capacity = Resources(
        draw(st.sampled_from([1000, 3000])), 8 * GIB, 0, {}, {"gpu": draw(st.sampled_from([0, 2000]))}
    )
    return machine(name, attributes=draw(PLACES), capacity=capacity)


def changes(core: Core) -> list[Command]:
    """Return what may be asked of a cell."""
    jobs, machines = sorted(core.cell.jobs), sorted(core.cell.machines)
    return [
        *(KillTasks(job) for job in jobs),
        *(ScaleJob(job, tasks) for job in jobs for tasks in (1, 5)),
        *(CordonMachine(name) for name in machines),
        *(UncordonMachine(name) for name in machines),
        SubmitJob(spec("zoe/new", 3, 500)),
    ]


def ask(core: Core, command: Command) -> Step:
    return core.step([CommandRequest(1, command, "ann")], NOW)


def settled(core: Core) -> None:
    """Let the master place what it can, as it does within a step or two."""
    while core.step([], NOW).more:
        pass


def plan(core: Core, wanted: JobSpec) -> DryRun | None:
    """Return a plan; None where it is refused, as the alloc set it is to run in was killed."""
    try:
        return core.dry_run(wanted, "ann", NOW)
    except Refused:
        return None


def events_of(plan: Plan) -> list[AnyEvent]:
    """Return the events by which a plan is carried out, without the numbers of ports."""
    return [
        *(TasksEvicted(*_fields(evict_command(each))) for each in plan.preemptions),
        *(PlacesPromised(*_fields(promise_command(each))) for each in plan.promises),
        *(without_ports(TasksPlaced(*_fields(place_command(each)))) for each in plan.placements),
    ]


def _fields(command: Command) -> tuple[Any, ...]:
    return tuple(getattr(command, name) for name in command.__struct_fields__)


def without_ports(placed: TasksPlaced) -> TasksPlaced:
    return msgspec.structs.replace(placed, ports=())


def carried_out(entries: tuple[Entry, ...], plan: Plan) -> list[AnyEvent]:
    """Return what the entries behind the submission say, as many as the plan has kinds of them."""
    kinds = bool(plan.preemptions) + bool(plan.promises) + bool(plan.placements)
    found = [event for entry in entries[1 : 1 + kinds] for event in entry.events]
    return [without_ports(event) if isinstance(event, TasksPlaced) else event for event in found]


def submit(core: Core, wanted: JobSpec, planned: DryRun) -> Accepted | Refused:
    """Submit as planned; when it is accepted it must go just so."""
    step = ask(core, SubmitJob(wanted, planned.token))
    assert violations(core.cell) == []
    ((_, reply),) = step.replies
    if isinstance(reply, Accepted):
        assert step.entries[0].cause == "SubmitJob"
        assert carried_out(step.entries, planned.plan) == events_of(planned.plan)
    else:
        assert all(entry.cause != "SubmitJob" for entry in step.entries)
    return reply


@settings(max_examples=examples(60))
@given(cores(), specs(NEW), st.booleans())
def test_a_plan_changes_nothing_and_comes_true(core: Core, wanted: JobSpec, settle: bool) -> None:
    if settle:
        settled(core)
    core.observed.availability = None  # what is kept is no change
    for name, seen in core.observed.machines.items():
        leaving_attempts(core.cell, name, seen)
    before = pickle.dumps(core)
    planned = plan(core, wanted)
    assert pickle.dumps(core) == before
    if planned is None:
        assert isinstance(ask(core, SubmitJob(wanted)).replies[0][1], Refused)
        return
    assert core.dry_run(wanted, "ann", NOW) == planned
    check_complete(planned)
    event(f"places {min(2, len(planned.plan.placements))}, promises {min(2, len(planned.plan.promises))}")
    assert isinstance(submit(core, wanted, planned), Accepted)


def check_complete(planned: DryRun) -> None:
    """Every task has a place at once, one that is kept, or a refusal."""
    plan = planned.plan
    refusals = plan.refusals.get(planned.spec.key, ())
    parts = [each.indexes for some in (plan.placements, plan.promises, refusals) for each in some]
    indexes = [index for part in parts for index in part]
    assert sorted(indexes) == list(range(planned.spec.tasks))


@settings(max_examples=examples(60))
@given(cores(), specs(NEW), st.data())
def test_after_a_change_it_comes_out_the_same_or_is_refused(
    core: Core, wanted: JobSpec, data: st.DataObject
) -> None:
    settled(core)
    planned = plan(core, wanted)
    if planned is None:
        return
    ask(core, data.draw(st.sampled_from(changes(core))))
    reply = submit(core, wanted, planned)
    event("accepted" if isinstance(reply, Accepted) else "refused")
    assert isinstance(reply, Accepted | Conflict)


@settings(max_examples=examples(40))
@given(cores(), specs(NEW), st.data())
def test_without_a_machine_that_it_needs_it_is_refused(
    core: Core, wanted: JobSpec, data: st.DataObject
) -> None:
    settled(core)
    planned = plan(core, wanted)
    if planned is None:
        return
    needed = sorted({name for each in planned.plan.placements for name in each.machines})
    if not needed:
        return
    ask(core, CordonMachine(data.draw(st.sampled_from(needed))))
    assert isinstance(submit(core, wanted, planned), Conflict)
    assert running(core.cell.jobs.get(wanted.key)) == 0


def running(job: Job | None) -> int:
    return sum(task.state is State.RUNNING for task in job.tasks) if job else 0
