"""Gangs: all waiting tasks of a job get places, or none does."""

from typing import Any

import pytest

from borgish.cell.events import JobChanged, MachineJoined
from borgish.cell.observed import SeenMachine
from borgish.resources import Resources
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.plan import Refusal
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import JobSpec, Override, Spread
from tests.unit.scheduler.cells import (
    GIB,
    NOW,
    cell_of,
    happen,
    machine,
    observed_of,
    spec,
    touched,
    where,
)
from tests.unit.scheduler.cluster import Cluster


def gang(tasks: int, **more: Any) -> JobSpec:
    return spec("ann/gang", tasks, gang=True, **more)


def differing(cpu: int, other: int, **more: Any) -> JobSpec:
    """Return a gang of two, of which the second needs more."""
    return gang(2, cpu=cpu, overrides={1: Override(resources=Resources(other, GIB))}, **more)


def test_tasks_of_different_needs_are_tried_again_when_one_of_them_may_fit() -> None:
    """The machine that comes has room for the large task only: the small one fits as it did before."""
    small = Resources(500, GIB, devices={"gpu": 500})
    wanted = gang(2, resources=small, overrides={1: Override(resources=Resources(3000, GIB))})
    with_gpu = machine("m1", capacity=Resources(1000, 4 * GIB, 0, {}, {"gpu": 1000}))
    cell = cell_of([with_gpu], [wanted])
    scheduler, observed = Scheduler(), observed_of(cell)
    plan = scheduler.schedule(cell, observed, NOW)
    assert not plan.placements
    assert sorted(i for refusal in plan.refusals["ann/gang"] for i in refusal.indexes) == [0, 1]
    happen(cell, MachineJoined(machine("m2")))
    observed.machines["m2"] = SeenMachine()
    scheduler.refresh(cell, observed, touched(cell))
    assert where(scheduler.schedule(cell, observed, NOW)) == {"ann/gang/0": "m1", "ann/gang/1": "m2"}


def test_tasks_of_different_needs_preempt_for_all() -> None:
    cluster = Cluster(2, spec("bob/low", 2, cpu=3000))
    cluster.submit(differing(2000, 2500, priority=200))
    plan = cluster.run()
    assert {index for each in plan.promises for index in each.indexes} == {0, 1}
    assert sorted(index for each in plan.preemptions for index in each.indexes) == [0, 1]
    assert set(where(cluster.run())) == {"ann/gang/0", "ann/gang/1"}


def test_tasks_of_different_needs_preempt_for_none_when_one_finds_no_room() -> None:
    cluster = Cluster(2, spec("bob/low", 2, cpu=3000, fixed_ports={"f": 20001}, ports=("f",)))
    cluster.submit(differing(2000, 5000, priority=200, fixed_ports={"f": 20001}, ports=("f",)))
    plan = cluster.run()
    assert not plan.promises
    assert not plan.preemptions
    assert cluster.scheduler._memory is not None
    kept = cluster.scheduler._memory.fleet
    fresh = Fleet.of(cluster.cell, cluster.observed, 0, NOW.mono)
    assert kept.free[:, :2].tolist() == fresh.free[:, :2].tolist()
    assert [ports.taken for ports in kept.ports[:2]] == [{20001}, {20001}]
    assert kept.fixed_ports.taken(20001)[:2].all()


def test_places_are_kept_though_one_of_them_was_free_from_the_start() -> None:
    cluster = Cluster(2, spec("bob/low", 1, cpu=3000))
    cluster.see("bob/low")
    cluster.submit(gang(2, cpu=3000, priority=200))
    plan = cluster.run()
    assert len(plan.preemptions) == 1
    for _ in range(3):  # as long as the victim has not left
        plan = cluster.run()
        assert (plan.placements, plan.promises, plan.preemptions) == ((), (), ())
    cluster.part()
    assert set(where(cluster.run()).values()) == {"m1", "m2"}


def test_those_that_are_preempted_for_a_spread_gang_are_on_different_machines() -> None:
    """The cheapest offers are all on one machine; by the rule it gives one."""
    cluster = Cluster(2, spec("bob/low", 1, cpu=100), spec("bob/lower", 2, cpu=3600, priority=50))
    cluster.submit(gang(2, cpu=1000, priority=200, spread=(Spread(max=1),)))
    plan = cluster.run()
    assert {name for each in plan.promises for name in each.machines} == {"m1", "m2"}
    assert set(where(cluster.run()).values()) == {"m1", "m2"}


# What a gang that waits is told


def told(cluster: Cluster) -> tuple[Refusal, ...]:
    return cluster.run().refusals["ann/gang"]


@pytest.mark.parametrize("priority", [0, 100, 200])
def test_a_gang_that_the_empty_cell_cannot_hold_never_fits(priority: int) -> None:
    cluster = Cluster(4, capacity=Resources(500, 8 * GIB))
    cluster.submit(gang(5, cpu=400, priority=priority))
    (found,) = told(cluster)
    assert found.text.startswith("4 of 5 tasks fit, and a gang is placed whole")
    assert found.hint.startswith(
        "can never fit: a gang is placed whole, and the 4 machines have room for 4 of its 5 tasks when empty"
    )
    assert found.impossible
    assert not found.waits_for
    assert "preempt" not in found.hint


@pytest.mark.parametrize(
    "asked",
    [
        {"cpu": 100, "fixed_ports": {"f": 20001}, "ports": ("f",)},
        {"cpu": 100, "ports": ("a", "b", "c", "d", "e", "f")},
        {"resources": Resources(100, GIB, devices={"gpu": 700})},
        {"cpu": 100, "spread": (Spread(max=1),)},
    ],
)
def test_a_gang_never_fits_for_ports_devices_and_rules_too(asked: dict[str, Any]) -> None:
    capacity = Resources(4000, 8 * GIB, 0, {}, {"gpu": 1000})
    cluster = Cluster(2, capacity=capacity)
    cluster.submit(gang(2, **asked))
    assert set(where(cluster.run())) == {"ann/gang/0", "ann/gang/1"}
    cluster = Cluster(2, capacity=capacity)
    cluster.submit(gang(3, **asked))
    (found,) = told(cluster)
    assert found.impossible
    assert "room for 2 of its 3 tasks" in found.hint


def test_a_gang_of_different_tasks_never_fits_when_they_ask_for_more_than_there_is() -> None:
    cluster = Cluster(1, capacity=Resources(500, 8 * GIB))
    cluster.submit(differing(300, 400))
    for found in told(cluster):
        assert "preempt" not in found.hint
        assert not found.waits_for
    assert [found.impossible for found in told(cluster)] == [True, True]


def test_a_gang_waits_for_others_to_leave_and_not_for_its_own() -> None:
    """m1 has room for one task of two when the other job has left; m2 has not, whoever leaves."""
    cluster = Cluster(2, spec("bob/low", 1, cpu=3000, priority=200))
    cluster.submit(gang(2, cpu=2500, priority=100))
    (found,) = told(cluster)
    (busy,) = (task.machine for task in cluster.cell.jobs["bob/low"].tasks)
    assert not found.impossible
    assert found.waits_for == f"room on {busy}"
    assert "preempt" not in found.hint


def test_what_runs_of_a_gang_leaves_no_room_either() -> None:
    cluster = Cluster(2, gang(1, cpu=2500, priority=100))
    happen(cluster.cell, JobChanged("ann/gang", gang(3, cpu=2500, priority=100)))
    (found,) = told(cluster)
    assert found.impossible
    assert "the 2 machines have room for 2 of its 3 tasks" in found.hint


def test_lower_tasks_of_others_are_still_told_of() -> None:
    cluster = Cluster(2, spec("bob/same", 1, cpu=3000, priority=100))
    cluster.submit(gang(2, cpu=2500, priority=100))
    (found,) = told(cluster)
    assert "would fit 1 machine if it could preempt batch, by a priority above 100" in found.hint
