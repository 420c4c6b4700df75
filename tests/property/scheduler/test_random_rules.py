"""Spread and affinity on random cells: every hard rule holds, and nobody waits whom no rule keeps off.

What is right is asked plainly here: by looking at all tasks, without counters, groups or caches.
"""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, note, settings
from hypothesis import strategies as st

from borgish.cell.events import MachineFacts, TasksEvicted
from borgish.cell.model import Cell, Job, Machine
from borgish.resources import Resources
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from borgish.spec.constraints import matches
from borgish.spec.job import MACHINE, Affinity, Constraint, JobSpec, Spread
from borgish.vocabulary import Eviction, State
from tests.profiles import examples
from tests.unit.scheduler.cells import (
    GIB,
    NOW,
    carry_out,
    cell_of,
    happen,
    machine,
    observed_of,
    spec,
    touched,
)

APPS = [(), (("app", "a"),), (("app", "b"),), (("app", "a"), ("tier", "x"))]
SELECTORS = [
    (Constraint("app", "==", ("a",)),),
    (Constraint("app", "in", ("a", "b")),),
    (Constraint("tier", "present"),),
    (Constraint("app", "==", ("nobody",)),),
]
OVER = st.sampled_from([MACHINE, "rack", "zone"])
TERMS = st.lists(
    st.builds(Affinity, st.sampled_from(SELECTORS), OVER, st.sampled_from([0, 0, 50])),
    max_size=2,
    unique=True,
).map(tuple)
SPREADS = st.lists(st.builds(Spread, OVER, st.integers(0, 2)), max_size=2, unique_by=lambda s: s.over).map(
    tuple
)
SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 6),
        "cpu": st.sampled_from([500, 1000]),
        "priority": st.sampled_from([0, 0, 100, 200]),
        "labels": st.sampled_from(APPS).map(dict),
        "spread": SPREADS,
        "near": st.one_of(st.just(()), TERMS),
        "apart": st.one_of(st.just(()), TERMS),
    }
)
PLACES = st.fixed_dictionaries(
    {}, optional={"rack": st.sampled_from(["r1", "r2", "r3"]), "zone": st.sampled_from(["z1", "z2"])}
)


@st.composite
def ruled_cells(draw: st.DrawFn) -> Cell:
    machines = [
        machine(f"m{n}", cpu=draw(st.sampled_from([1000, 3000])), attributes=draw(PLACES))
        for n in range(draw(st.integers(1, 8)))
    ]
    specs = [spec(f"ann/j{n}", **draw(SPECS)) for n in range(draw(st.integers(1, 5)))]
    return cell_of(machines, specs)


def value_of(there: Machine, over: str) -> str | None:
    return there.name if over == MACHINE else there.attributes.get(over)


def at_value(cell: Cell, there: Machine, over: str) -> list[tuple[Job, int]]:
    """Return the running tasks on machines that share a value with one."""
    value = value_of(there, over)
    return [
        (job, task.index)
        for job in cell.jobs.values()
        for task in job.tasks
        if task.state is State.RUNNING and value_of(cell.machines[task.machine], over) == value
    ]


def selected(term: Affinity, wanted: JobSpec) -> bool:
    return all(matches(each, wanted.labels) for each in term.labels)


def may_run(cell: Cell, job: Job, index: int, there: Machine) -> bool:
    """Return whether hard rules let a task be on a machine, beside all other tasks that run."""

    def others(over: str) -> list[Job]:
        found = at_value(cell, there, over)
        return [other for other, n in found if (other.key, n) != (job.key, index)]

    own = job.spec
    for each in own.spread:
        if each.max:
            if value_of(there, each.over) is None:
                return False
            if sum(other.key == job.key for other in others(each.over)) >= each.max:
                return False
    for term in own.apart:
        if not term.weight and any(selected(term, other.spec) for other in others(term.over)):
            return False
    for term in own.near:
        if not term.weight and not near_enough(cell, job, index, there, term):
            return False
    return not any(
        not term.weight and selected(term, own)
        for other in cell.jobs.values()
        for term in other.spec.apart
        if any(near.key == other.key for near in others(term.over))
    )


def near_enough(cell: Cell, job: Job, index: int, there: Machine, term: Affinity) -> bool:
    if value_of(there, term.over) is None:
        return False
    found = at_value(cell, there, term.over)
    if any(selected(term, o.spec) for o, n in found if (o.key, n) != (job.key, index)):
        return True
    return selected(term, job.spec) and not any(
        task.state is State.RUNNING
        and selected(term, other.spec)
        and (other.key, task.index) != (job.key, index)
        for other in cell.jobs.values()
        for task in other.tasks
    )


def has_room(cell: Cell, job: Job, there: Machine) -> bool:
    held = Resources()
    for key, index in cell.placed[there.name] | cell.promised.get(there.name, set()):
        held = held.plus(cell.jobs[key].spec.needs(index))
    return held.cpu_millis + job.spec.resources.cpu_millis <= there.capacity.cpu_millis


def settle(cell: Cell, scheduler: Scheduler) -> None:
    """Let passes follow each other until nothing changes, each placement checked as it comes."""
    observed = observed_of(cell)
    scheduler.refresh(cell, observed, touched(cell) | cell.machines.keys())
    for _ in range(30):
        plan = scheduler.schedule(cell, observed, NOW)
        carry_out(cell, plan)
        if not (plan.placements or plan.promises):
            return
        scheduler.refresh(cell, observed, touched(cell))
    story(cell)
    raise AssertionError(f"passes go on for ever: {plan}")


def story(cell: Cell) -> None:
    """Tell what the cell is like, should a test fail."""
    for there in cell.machines.values():
        note(f"{there.name}: {there.capacity.cpu_millis} {there.attributes}")
    for job in cell.jobs.values():
        own = job.spec
        where = [(task.index, task.machine or task.promised) for task in job.tasks]
        note(f"{job.key} {own.priority} {own.resources.cpu_millis} {own.labels}")
        note(f"  spread {own.spread} near {own.near} apart {own.apart}")
        note(f"  {where}")


def check_rules(cell: Cell) -> None:
    """Spread and apart are as they must be; near, for all that did not begin a crowd of its own."""
    for job in cell.jobs.values():
        for task in job.tasks:
            if task.state is State.RUNNING:
                there = cell.machines[task.machine]
                plain = cell_without_near(job)
                assert may_run(cell, plain, task.index, there), f"{job.key}/{task.index} on {there.name}"


def cell_without_near(job: Job) -> Job:
    """Near is judged when a task is placed: those that it was placed beside may go later."""
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, near=()))


def check_waiting(cell: Cell) -> None:
    for key, indexes in cell.waiting.items():
        job = cell.jobs[key]
        for index in indexes:
            if not job.tasks[index].promised:
                fitting = [
                    name
                    for name, there in cell.machines.items()
                    if has_room(cell, job, there) and may_run(cell, job, index, there)
                ]
                assert not fitting, f"{key}/{index} waits and could run on {fitting}"


@settings(max_examples=examples(150))
@given(ruled_cells(), st.booleans())
def test_rules_hold_and_nobody_waits_for_nothing(cell: Cell, shared: bool) -> None:
    settle(cell, Scheduler(1, SchedulerSettings(equivalence_classes=shared)))
    story(cell)
    check_rules(cell)
    check_waiting(cell)


@settings(max_examples=examples(60))
@given(ruled_cells(), st.data())
def test_counters_follow_all_that_happens(cell: Cell, data: st.DataObject) -> None:
    scheduler = Scheduler(1)
    settle(cell, scheduler)
    for _ in range(data.draw(st.integers(1, 3))):
        for job in list(cell.jobs.values()):
            running = [task.index for task in job.tasks if task.state is State.RUNNING]
            gone = data.draw(st.lists(st.sampled_from(running), unique=True)) if running else []
            if gone:
                happen(cell, TasksEvicted(job.key, tuple(gone), Eviction.DRAIN))
        name = data.draw(st.sampled_from(sorted(cell.machines)))
        there = cell.machines[name]
        facts = MachineFacts(name, there.capacity, data.draw(PLACES), there.runtimes, "b")
        if not cell.placed[name]:
            happen(cell, facts)
        settle(cell, scheduler)
        check_rules(cell)
        check_waiting(cell)


@settings(max_examples=examples(60))
@given(st.integers(1, 12), st.lists(st.sampled_from(["z1", "z2", "z3"]), min_size=3, max_size=9))
def test_even_means_even(tasks: int, zones: list[str]) -> None:
    machines = [
        machine(f"m{n}", cpu=100_000, ram=900 * GIB, attributes={"zone": z}) for n, z in enumerate(zones)
    ]
    cell = cell_of(machines, [spec("ann/web", tasks, spread=(Spread("zone"),))])
    settle(cell, Scheduler(1))
    found = Counter(cell.machines[task.machine].attributes["zone"] for task in cell.jobs["ann/web"].tasks)
    counts = [found[zone] for zone in set(zones)]
    assert max(counts) - min(counts) <= 1


@settings(max_examples=examples(100))
@given(st.data())
def test_replicas_go_over_machines_and_then_over_failure_domains(data: st.DataObject) -> None:
    """Zones have equally many racks, and each rack a machine for each of its replicas."""
    zones, racks, tasks = (data.draw(st.integers(low, high)) for low, high in ((1, 3), (1, 3), (2, 14)))
    in_each = -(-tasks // (zones * racks)) + data.draw(st.integers(0, 2))
    count = zones * racks * in_each
    places = [(f"z{n % zones}", f"z{n % zones}-r{n // zones % racks}") for n in range(count)]
    cpus, devices = st.sampled_from([9_000, 30_000]), st.sampled_from([{}, {"gpu": 2000}])
    machines = [
        machine(
            f"m{n}",
            capacity=Resources(data.draw(cpus), 90 * GIB, 0, {}, data.draw(devices)),
            attributes={"zone": zone, "rack": rack},
        )
        for n, (zone, rack) in enumerate(data.draw(st.permutations(places)))
    ]
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=3))
    others = [spec(f"bob/j{n}", size, cpu=700) for n, size in enumerate(sizes)]
    apart = data.draw(st.sampled_from([(), (Affinity(SELECTORS[3]),)]))
    cell = cell_of(machines, [*others, spec("ann/web", tasks, apart=apart, cpu=500)])
    scheduler = Scheduler(data.draw(st.integers(0, 9)))
    settle(cell, scheduler)
    story(cell)
    check_even(cell)
    down = data.draw(st.sampled_from(sorted(cell.machines)))
    gone = tuple(task.index for task in cell.jobs["ann/web"].tasks if task.machine == down)
    if gone:
        happen(cell, TasksEvicted("ann/web", gone, Eviction.DRAIN))
    settle(cell, scheduler)
    check_even(cell)


def check_even(cell: Cell) -> None:
    tasks = cell.jobs["ann/web"].tasks
    for over in (MACHINE, "rack", "zone"):
        found = Counter(value_of(cell.machines[task.machine], over) for task in tasks)
        counts = [found[value] for value in {value_of(there, over) for there in cell.machines.values()}]
        assert max(counts) - min(counts) <= 1, over
