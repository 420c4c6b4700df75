"""Replicas of a service over machines, then over failure domains."""

from collections import Counter
from typing import Any

import pytest

from borgish.cell.events import TasksEvicted
from borgish.cell.model import Cell, Machine
from borgish.resources import Resources
from borgish.scheduler.schedule import Scheduler, SchedulerSettings
from borgish.spec.job import Affinity, Constraint, JobSpec, Preference, Restart, Spread
from borgish.vocabulary import Eviction, JobKind, RestartPolicy
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

OTHERS = (Constraint("app", "==", ("nobody",)),)
OWN = (Constraint("app", "==", ("web",)),)
POLICIES = ("hybrid", "best_fit", "worst_fit", "fgd")


def in_rack(name: str, rack: str, gpus: int = 0, **more: Any) -> Machine:
    there = Resources(8000, 16 * GIB, 100 * GIB, {}, {"gpu": gpus * 1000} if gpus else {})
    attributes = {"rack": rack, **more.pop("attributes", {})}
    return machine(name, capacity=there, attributes=attributes, **more)


def with_devices() -> list[Machine]:
    """Return four equal machines in two racks; those of one rack have devices."""
    return [in_rack(f"m{n}", f"r{n % 2}", gpus=2 * (n % 2)) for n in range(4)]


def web(tasks: int, **more: Any) -> JobSpec:
    facts: dict[str, Any] = {"priority": 200, "labels": {"app": "web"}}
    return spec("ann/web", tasks, cpu=100, ram=GIB // 8, **(facts | more))


def settled(cell: Cell, policy: str = "hybrid", **settings: Any) -> Cell:
    scheduler, observed = Scheduler(1, SchedulerSettings(policy, **settings)), observed_of(cell)
    for _ in range(5):
        carry_out(cell, scheduler.schedule(cell, observed, NOW))
        scheduler.refresh(cell, observed, touched(cell))
    assert not any(cell.waiting.values())
    return cell


def by_machine(cell: Cell, key: str = "ann/web") -> list[int]:
    found = Counter(task.machine for task in cell.jobs[key].tasks)
    return sorted(found[name] for name in cell.machines)


def by_rack(cell: Cell, key: str = "ann/web", over: str = "rack") -> list[int]:
    found = Counter(cell.machines[task.machine].attributes.get(over) for task in cell.jobs[key].tasks)
    return sorted(found[value] for value in {m.attributes.get(over) for m in cell.machines.values()})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rules", [{}, {"apart": (Affinity(OTHERS),)}, {"image": "web:1"}])
@pytest.mark.parametrize(("tasks", "machines", "racks"), [(3, [0, 1, 1, 1], [1, 2]), (8, [2] * 4, [4, 4])])
def test_keeping_devices_free_puts_no_replicas_together(
    policy: str, rules: dict[str, Any], tasks: int, machines: list[int], racks: list[int]
) -> None:
    cell = settled(cell_of(with_devices(), [web(tasks, **rules)]), policy)
    assert by_machine(cell) == machines
    assert by_rack(cell) == racks


@pytest.mark.parametrize("policy", POLICIES)
def test_without_failure_domains_replicas_go_over_machines_with_devices(policy: str) -> None:
    assert by_machine(settled(cell_of(with_devices(), [web(4)]), policy, failure_domains=())) == [1] * 4


def test_what_runs_to_completion_leaves_devices_free_and_is_not_spread_over_racks() -> None:
    ends = Restart(RestartPolicy.ON_FAILURE)
    assert by_rack(settled(cell_of(with_devices(), [web(2, restart=ends)]))) == [0, 2]


def test_machines_come_before_racks() -> None:
    """One machine is alone in its rack: it gets a second replica when all others have one."""
    machines = [in_rack("alone", "r0"), *(in_rack(f"m{n}", "r1") for n in range(4))]
    assert by_rack(settled(cell_of(machines, [web(5)]))) == [1, 4]
    assert by_rack(settled(cell_of(machines, [web(6)]))) == [2, 4]


def test_domains_count_in_the_order_of_the_settings() -> None:
    """Three racks are in one zone and one in the other."""
    machines = [in_rack(f"m{n}", f"r{n % 4}", attributes={"zone": f"z{n % 4 // 3}"}) for n in range(16)]
    smallest_first = settled(cell_of(machines, [web(4)]))
    assert by_rack(smallest_first) == [1, 1, 1, 1]
    largest_first = settled(cell_of(machines, [web(4)]), failure_domains=("zone", "rack"))
    assert by_rack(largest_first, over="zone") == [2, 2]
    assert by_rack(largest_first) == [0, 1, 1, 2]


def test_within_racks_zones_are_even() -> None:
    machines = [in_rack(f"m{n}", f"r{n % 6}", attributes={"zone": f"z{n % 6 // 3}"}) for n in range(12)]
    for tasks in (2, 4, 8):
        cell = settled(cell_of(machines, [web(tasks)]))
        assert by_rack(cell, over="zone") == [tasks // 2] * 2
        assert max(by_rack(cell)) - min(by_rack(cell)) <= 1


@pytest.mark.parametrize("apart", [(Affinity(OWN),), (Affinity(OTHERS),)])
def test_a_job_with_rules_is_even_over_zones_that_racks_go_across(apart: tuple[Affinity, ...]) -> None:
    machines = [in_rack(f"m{n}", f"r{n // 10}", attributes={"zone": f"z{n % 5}"}) for n in range(100)]
    cell = settled(cell_of(machines, [web(10, apart=apart)]))
    assert by_rack(cell) == [1] * 10
    assert by_rack(cell, over="zone") == [2] * 5


def test_an_evicted_replica_comes_back_where_fewest_are() -> None:
    machines = [in_rack(f"m{n}", f"r{n // 4}") for n in range(12)]
    cell = settled(cell_of(machines, [web(6)]))
    gone = tuple(t.index for t in cell.jobs["ann/web"].tasks if t.machine in {"m0", "m1", "m2", "m3"})
    assert len(gone) == 2
    happen(cell, TasksEvicted("ann/web", gone, Eviction.DRAIN))
    assert by_rack(settled(cell)) == [2, 2, 2]


def test_jobs_that_are_alike_are_each_spread() -> None:
    machines = [in_rack(f"m{n}", f"r{n % 3}") for n in range(9)]
    jobs = [spec(f"ann/web{n}", 1 if n % 2 else 3, cpu=100, ram=GIB // 8) for n in range(6)]
    cell = settled(cell_of(machines, jobs))
    assert [by_rack(cell, f"ann/web{n}") for n in (0, 2, 4)] == [[1, 1, 1]] * 3


def test_a_gang_is_spread() -> None:
    assert by_rack(settled(cell_of(with_devices(), [web(4, gang=True)]))) == [2, 2]


def test_allocs_and_what_runs_in_them_are_spread() -> None:
    machines = [in_rack(f"m{n}", f"r{n // 2}") for n in range(4)]
    allocs = spec("ann/allocs", 4, cpu=1000, kind=JobKind.ALLOC_SET, ports=("p",))
    cell = settled(cell_of(machines, [allocs, web(2, inside="ann/allocs", ports=("http",))]))
    assert by_rack(cell, "ann/allocs") == [2, 2]
    assert by_rack(cell) == [1, 1]


# Where the job says otherwise


def racked() -> list[Machine]:
    disks = {0: {"disk": "ssd"}}
    return [in_rack(f"m{n}", f"r{n // 4}", attributes=disks.get(n // 4, {})) for n in range(12)]


@pytest.mark.parametrize(
    ("asked", "racks"),
    [
        ({"constraints": (Constraint("rack", "==", ("r1",)),)}, [0, 0, 3]),
        ({"near": (Affinity(OWN, "rack"),)}, [0, 0, 3]),
        ({"near": (Affinity(OWN, "rack", 1),)}, [0, 0, 3]),
        ({"prefer": (Preference(Constraint("disk", "==", ("ssd",)), 100),)}, [0, 0, 3]),
        ({"prefer": (Preference(Constraint("disk", "==", ("ssd",)), 10),)}, [1, 1, 1]),
        ({"spread": (Spread(max=1),)}, [1, 1, 1]),
        ({"apart": (Affinity(OWN),)}, [1, 1, 1]),
        ({"spread": (Spread("rack", 2),)}, [1, 1, 1]),
    ],
)
def test_what_a_job_says_itself_comes_first(asked: dict[str, Any], racks: list[int]) -> None:
    assert by_rack(settled(cell_of(racked(), [web(3, **asked)]))) == racks


# What it costs


def test_an_attribute_that_no_machine_has_or_all_share_is_no_failure_domain() -> None:
    for attributes in ({}, {"rack": "r1"}):
        cell = cell_of([machine(f"m{n}", attributes=attributes) for n in range(4)], [web(2)])
        scheduler = Scheduler()
        scheduler.schedule(cell, observed_of(cell), NOW)
        assert scheduler._memory is not None
        assert scheduler._memory.fleet.domains() == {}


def test_a_sample_of_machines_is_enough_only_where_it_is_even() -> None:
    """Relaxed randomisation looks at some machines, of which a rare rack has few."""
    racks = [f"r{0 if n % 500 == 7 else 1 + n % 2}" for n in range(3000)]
    cell = cell_of([in_rack(f"m{n}", rack) for n, rack in enumerate(racks)], [web(18)])
    assert by_rack(settled(cell)) == [6, 6, 6]
