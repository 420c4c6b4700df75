"""Policies of packing: what each likes, against plain arithmetic where there is a formula."""

import math
import random
from typing import Any

import numpy as np
import pytest

from borgish.cell.model import Cell, Machine
from borgish.resources import Resources
from borgish.scheduler.feasibility import feasible
from borgish.scheduler.fleet import CPU, DISK, RAM, Fleet
from borgish.scheduler.policies import POLICIES, Demand, Policy
from borgish.scheduler.policies.fragmentation import States, TypicalShapes, most_frequent
from borgish.scheduler.policies.policy import Shape
from borgish.scheduler.queue import Classes
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from borgish.scheduler.task_class import TaskClass
from borgish.spec.constraints import matches
from borgish.spec.job import Constraint, JobSpec, Override
from tests.profiles import seeds
from tests.unit.scheduler.cells import GIB, NOW, carry_out, cell_of, machine, observed_of, spec

MODELS = ("T4", "G2")
PARTS = (0, 100, 300, 470, 500, 810, 1000, 2000, 4000)


def gpus(
    name: str,
    count: int,
    cpu: int = 16_000,
    ram: int = 64 * GIB,
    disk: int = 100 * GIB,
    licences: int = 0,
    **attributes: str,
) -> Machine:
    devices = {"gpu": 1000 * count} if count else {}
    named = {"licence": licences} if licences else {}
    return machine(name, capacity=Resources(cpu, ram, disk, named, devices), attributes=attributes)


def asks(
    key: str,
    millis: int = 0,
    tasks: int = 1,
    cpu: int = 1000,
    ram: int = GIB,
    disk: int = 0,
    licences: int = 0,
    **more: Any,
) -> JobSpec:
    devices = {"gpu": millis} if millis else {}
    named = {"licence": licences} if licences else {}
    return spec(key, tasks, resources=Resources(cpu, ram, disk, named, devices), **more)


def random_cell(seed: int, machines: int = 30, jobs: int = 25) -> Cell:
    """Return a cell with devices that is about half full."""
    chance = random.Random(seed)
    made = [
        gpus(
            f"m{n}",
            chance.choice((0, 1, 2, 4)),
            1000 * chance.randint(4, 32),
            disk=GIB * chance.choice((0, 50, 200)),
            licences=chance.choice((0, 0, 3)),
            model=chance.choice(MODELS),
        )
        for n in range(machines)
    ]
    specs = [
        asks(
            f"ann/j{n}",
            chance.choice(PARTS),
            chance.randint(1, 3),
            500 * chance.randint(1, 12),
            GIB * chance.randint(1, 9),
            GIB * chance.choice((0, 0, 5, 40)),
            chance.choice((0, 0, 0, 1)),
            constraints=(Constraint("model", "==", (chance.choice(MODELS),)),)
            if chance.random() < 0.2
            else (),
        )
        for n in range(jobs)
    ]
    cell = cell_of(made, specs)
    carry_out(cell, Scheduler(seed).schedule(cell, observed_of(cell), NOW))
    return cell


class Looked:
    """A cell's rows, and a policy that has learned from them."""

    def __init__(self, cell: Cell, policy: str) -> None:
        self.cell = cell
        self.fleet = Fleet.of(cell, observed_of(cell), 1, NOW.mono)
        self.classes = Classes()
        self.demand = Demand(cell, self.fleet, self.classes, [])
        self.policy: Policy = POLICIES[policy](1)
        self.policy.learn(self.fleet, self.demand)

    def kinds(self) -> list[TaskClass]:
        return [self.classes.of(self.cell, job, -1, self.fleet) for job in self.cell.jobs.values()]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "random"])
@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=5))
def test_costs_are_the_same_for_one_machine_and_for_all(policy: str, seed: int) -> None:
    looked = Looked(random_cell(seed, machines=130), policy)  # so many that those alike are looked at once
    for kind in looked.kinds():
        costs = looked.policy.costs(looked.fleet, kind, slice(None))
        for row in np.flatnonzero(feasible(looked.fleet, kind)).tolist():
            assert looked.policy.cost(looked.fleet, kind, row) == costs[row]
            assert looked.policy.costs(looked.fleet, kind, np.array([row]))[0] == costs[row]


def plain_measures(looked: Looked, shapes: list[Shape], row: int) -> tuple[float, float]:
    """Return fragments and what is stranded on one machine, from the definitions."""
    fleet, name = looked.fleet, looked.fleet.names[row]
    attributes = looked.cell.machines[name].attributes
    free = [amount for amount in fleet.device("gpu").free[:, row].tolist() if amount > 0]
    there = fleet.free[:, row].tolist()
    wanted = (CPU, RAM, DISK, fleet.kind("licence"))
    tasks = sum(shape.tasks for shape in shapes)
    fragments = stranded = 0.0
    for kind, count in shapes:
        millis = dict(kind.devices).get("gpu", 0)
        part, wholes = min(millis, 1000), max(1, millis // 1000)
        copies = sum(int(amount // part) for amount in free) // wholes if millis else 0
        needs = [(number, amount) for number, amount in kind.needs if number in wanted]
        fits = copies and all(amount <= there[number] for number, amount in needs)
        fits = fits and all(matches(each, attributes) for each in kind.wanted.constraints)
        small = sum(amount for amount in free if amount < part)
        fragments += count / tasks * (small if fits else sum(free))
        together = min(copies, *(there[number] / amount for number, amount in needs)) if fits else 0.0
        stranded += count / tasks * (sum(free) - together * millis)
    return fragments, stranded


@pytest.mark.parametrize("seed", range(4))
def test_both_measures_are_as_they_are_defined(seed: int) -> None:
    looked = Looked(random_cell(seed), "hybrid")
    shapes = most_frequent(looked.demand.shapes())
    rows = np.array(sorted(looked.fleet.row.values()))
    licence = looked.fleet.kind("licence")
    typical = TypicalShapes(shapes, "gpu", with_ram=True, others=(DISK, licence))
    assert typical.others == [DISK, licence]
    free, devices = looked.fleet.free[:, rows], np.maximum(looked.fleet.device("gpu").free[:, rows], 0.0)
    states = States(free[CPU], free[RAM], free[typical.others], devices, rows)
    fits = typical.fits(looked.fleet, states)
    expected = [plain_measures(looked, shapes, row) for row in rows.tolist()]
    assert typical.fragments(fits).tolist() == pytest.approx([pair[0] for pair in expected])
    assert typical.stranded(fits, states).tolist() == pytest.approx([pair[1] for pair in expected])


def test_shapes_are_those_of_tasks_that_run_or_wait() -> None:
    cell = cell_of(
        [gpus("m0", 2)],
        [
            asks("ann/a", 500, 3),
            asks("ann/b", 500, 2, priority=200),
            asks("ann/c", 0, 4, overrides={1: Override(resources=Resources(9000, GIB))}),
            asks("ann/d", 500, 2, disk=GIB),
        ],
    )
    looked = Looked(cell, "fgd")
    found = [(shape.kind.cpu, shape.kind.devices, shape.tasks) for shape in looked.demand.shapes()]
    gpu = (("gpu", 500),)
    assert found == [(1000.0, gpu, 5), (1000.0, (), 3), (1000.0, gpu, 2), (9000.0, (), 1)]
    assert looked.demand.size() == 4


def test_shapes_are_learned_again_when_there_are_twice_as_many_jobs() -> None:
    looked = Looked(cell_of([gpus("m0", 2)], [asks("ann/a", 500)]), "hybrid")
    versions = []
    for count in (5, 10, 60, 70):
        more = cell_of([gpus("m0", 2)], [asks(f"ann/j{n}", 500) for n in range(count)])
        looked.policy.learn(looked.fleet, Demand(more, looked.fleet, looked.classes, []))
        versions.append(looked.policy.version)
    assert versions[0] == versions[1] < versions[2] == versions[3]


def where(cell: Cell, policy: str, wanted: str, seed: int = 1) -> tuple[str, tuple[str, ...]]:
    """Return where the scheduler puts a job's only task, and on which devices."""
    plan = Scheduler(seed, SchedulerSettings(policy=policy)).schedule(cell, observed_of(cell), NOW)
    placement = next(each for each in plan.placements if each.job == wanted)
    return placement.machines[0], placement.devices[0] if placement.devices else ()


@pytest.mark.parametrize("policy", ["hybrid", "fgd"])
def test_a_part_goes_where_what_is_left_is_of_use(policy: str) -> None:
    # gpu:0 has 600 free, gpu:1 has 700. Others want 400, for which a part of 300 leaves room on gpu:1 alone.
    cell = cell_of([gpus("m0", 2)], [asks("ann/a", 400), asks("ann/b", 300), asks("ann/usual", 400, 20)])
    for key, device in (("ann/a", "gpu:0"), ("ann/b", "gpu:1")):
        task = cell.jobs[key].tasks[0]
        task.state, task.machine, task.devices = task.state.RUNNING, "m0", (device,)
        cell.jobs[key].running, cell.jobs[key].pending = 1, 0
    cell.jobs |= cell_of([], [asks("ann/new", 300, priority=10)]).jobs
    cell.reindex()
    assert where(cell, policy, "ann/new") == ("m0", ("gpu:1",))
    assert where(cell, "best_fit", "ann/new") == ("m0", ("gpu:0",))


@pytest.mark.parametrize("policy", ["hybrid", "fgd"])
def test_who_needs_no_device_leaves_them_to_others(policy: str) -> None:
    cell = cell_of(
        [gpus("accelerated", 2, 4000), gpus("plain", 0, 16_000)], [asks("ann/plain"), asks("ann/a", 1000)]
    )
    assert where(cell, policy, "ann/plain") == ("plain", ())


def test_hybrid_sees_that_cpu_for_one_is_not_cpu_for_all() -> None:
    # Every task wants a device and 4 cores: a task of 4 cores and no device strands a device on "tight".
    machines = [gpus("tight", 4, 16_000), gpus("roomy", 2, 16_000)]
    cell = cell_of(machines, [asks("ann/usual", 1000, 50, 4000), asks("ann/cpu", 0, 1, 4000, priority=10)])
    assert where(cell, "hybrid", "ann/cpu")[0] == "roomy"


TB = 1000 * GIB
SCARCE: dict[str, tuple[dict[str, Any], ...]] = {  # what machines have, rich and poor; what tasks need
    "disk": ({"disk": 8 * TB}, {"disk": TB}, {"disk": 400 * GIB}, {"disk": 20 * GIB}),
    "named": ({"licences": 16}, {}, {"licences": 1}, {}),
}


@pytest.mark.parametrize("scarce", SCARCE)
def test_hybrid_leaves_what_is_scarce_to_those_who_need_it(scarce: str) -> None:
    rich, poor, much, little = SCARCE[scarce]
    # "rich" is the fuller one, if cpu alone is looked at.
    machines = [gpus("rich", 0, 15_000, **rich), gpus("poor", 0, 16_000, **poor)]
    cell = cell_of(machines, [asks("ann/usual", tasks=10, **much), asks("ann/new", priority=10, **little)])
    assert where(cell, "hybrid", "ann/new")[0] == "poor"
    assert where(cell, "best_fit", "ann/new")[0] == "rich"


@pytest.mark.parametrize("scarce", SCARCE)
@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=10))
def test_hybrid_finds_room_for_all_that_sums_have_room_for(scarce: str, seed: int) -> None:
    rich, poor, much, little = SCARCE[scarce]
    machines = [gpus(f"m{n}", 0, **(rich if n % 2 else poor)) for n in range(10)]
    specs = [asks(f"ann/j{n}", ram=4 * GIB, **(much if n < 77 else little)) for n in range(156)]
    random.Random(seed).shuffle(specs)
    cell = cell_of(machines, specs)
    plan = Scheduler(seed).schedule(cell, observed_of(cell), NOW)
    assert sum(len(each.indexes) for each in plan.placements) == len(specs)


def test_what_nobody_asks_for_counts_for_nothing() -> None:
    machines = [(f"m{n}", 1000 * n) for n in range(4, 20)]
    with_all = [gpus(name, 0, cpu, disk=cpu * GIB, licences=cpu % 3) for name, cpu in machines]
    without = [gpus(name, 0, cpu, disk=0) for name, cpu in machines]
    specs = [asks("ann/a", tasks=3, cpu=700), asks("ann/b", tasks=20, ram=9 * GIB)]
    first, second = (Looked(cell_of(each, specs), "hybrid") for each in (with_all, without))
    for kind, same in zip(first.kinds(), second.kinds(), strict=True):
        costs = first.policy.costs(first.fleet, kind, slice(None))
        assert costs.tolist() == second.policy.costs(second.fleet, same, slice(None)).tolist()


def test_hybrid_sees_that_devices_without_disk_are_of_no_use_to_most() -> None:
    machines = [gpus("rich", 4, disk=4 * TB), gpus("poor", 4, disk=GIB)]
    specs = [asks("ann/usual", 1000, 20, disk=900 * GIB), asks("ann/new", 1000, priority=10)]
    chosen = {where(cell_of(machines, specs), "hybrid", "ann/new", seed)[0] for seed in range(6)}
    assert chosen == {"poor"}


def test_worst_fit_spreads_and_best_fit_fills() -> None:
    machines = [machine(f"m{n}") for n in range(4)]
    for policy, used in (("worst_fit", 4), ("best_fit", 1), ("hybrid", 1)):
        cell = cell_of(machines, [spec(f"ann/j{n}", cpu=500) for n in range(4)])
        plan = Scheduler(1, SchedulerSettings(policy=policy)).schedule(cell, observed_of(cell), NOW)
        assert len({each.machines for each in plan.placements}) == used


def test_nearly_alike_counts_as_alike() -> None:
    # One core in 64 makes no difference that matters: the seeded order decides, and not which has less left.
    machines = [gpus(f"m{n}", 8, 64_000 + n) for n in range(20)]
    chosen = set()
    for seed in range(12):
        cell = cell_of(machines, [asks("ann/job", 500)])
        plan = Scheduler(seed, SchedulerSettings(policy="hybrid")).schedule(cell, observed_of(cell), NOW)
        chosen.add(plan.placements[0].machines[0])
    assert len(chosen) > 3


def test_random_is_any_machine_and_any_device() -> None:
    cell = cell_of([gpus(f"m{n}", 2) for n in range(3)], [asks(f"ann/j{n}", 100) for n in range(60)])
    plan = Scheduler(1, SchedulerSettings(policy="random")).schedule(cell, observed_of(cell), NOW)
    found = {(each.machines[0], each.devices[0]) for each in plan.placements}
    assert len(found) == 6


def test_the_largest_machine_is_the_unit() -> None:
    looked = Looked(cell_of([gpus("m0", 2, 4000), gpus("m1", 0, 8000, 32 * GIB)], []), "best_fit")
    units = looked.policy.units(looked.fleet)
    assert units == (8000.0, 64.0 * GIB, 2000.0)
    assert not math.isnan(sum(units))
