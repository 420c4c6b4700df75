"""Alloc sets for the scheduler: which rows there are, what is kept of them, and what is shared."""

from typing import Any

import pytest

from borgish.cell.events import TasksEnded, TasksEvicted
from borgish.cell.invariants import violations
from borgish.cell.model import Task
from borgish.scheduler import alloc_sets
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Eviction, JobKind, State
from tests.unit.scheduler.cells import GIB, NOW, happen, spec, where
from tests.unit.scheduler.cluster import Cluster

INNER = 400


def room(tasks: int = 2, name: str = "room", cpu: int = 1000, **more: Any) -> JobSpec:
    return spec(f"ann/{name}", tasks, cpu, 2 * GIB, kind=JobKind.ALLOC_SET, **more)


def guest(tasks: int = 1, name: str = "guest", cpu: int = INNER, **more: Any) -> JobSpec:
    return spec(f"ann/{name}", tasks, cpu, GIB // 8, **({"inside": "ann/room"} | more))


def tasks_of(cluster: Cluster, key: str) -> list[Task]:
    return cluster.cell.jobs[key].tasks


def test_allocs_and_what_runs_in_them_come_one_after_the_other() -> None:
    cluster = Cluster(2)
    cluster.submit(room())
    cluster.submit(guest(3))
    plan = cluster.run()
    assert plan.more  # there are allocs now
    assert "no alloc of ann/room has a place yet" in plan.refusals["ann/guest"][0].text
    cluster.run()
    assert [task.state for task in tasks_of(cluster, "ann/guest")] == [State.RUNNING] * 3
    assert violations(cluster.cell) == []


def test_what_is_inside_takes_nothing_of_the_machine() -> None:
    cluster = Cluster(1, room(1, cpu=3000), guest(5, cpu=600))
    cluster.submit(spec("bob/other", 1, 1000))
    assert set(where(cluster.run())) == {"bob/other/0"}


def test_a_small_budget_is_for_all_of_them() -> None:
    cluster = Cluster(2, room())
    cluster.submit(spec("bob/other", 3, 100))
    cluster.submit(guest(3, cpu=100))
    plan = cluster.scheduler.schedule(cluster.cell, cluster.observed, NOW, budget=4)
    assert sum(len(each.indexes) for each in plan.placements) == 4
    assert plan.more


def test_rows_of_a_set_that_nobody_asked_for_lately_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alloc_sets, "ALLOC_SETS_KEPT", 2)
    names = ["a", "b", "c"]
    cluster = Cluster(2, *(room(1, name) for name in names))
    for number in range(2):
        for name in names:
            cluster.submit(guest(1, f"g{number}{name}", inside=f"ann/{name}"))
            cluster.run()
    assert cluster.cell.waiting == {}
    assert violations(cluster.cell) == []


def test_room_that_comes_free_in_an_alloc_is_seen_and_other_changes_are_not_looked_at() -> None:
    cluster = Cluster(2, room(1), guest(3))
    assert [task.state for task in tasks_of(cluster, "ann/guest")].count(State.PENDING) == 1
    cluster.submit(spec("bob/other", 1, 100))
    cluster.run()
    gone = next(task.index for task in tasks_of(cluster, "ann/guest") if task.state is State.RUNNING)
    happen(cluster.cell, TasksEnded("ann/guest", (gone,), Ending.FINISH, ("",)))
    assert len(where(cluster.run())) == 1


def test_an_attempt_that_is_leaving_holds_its_part_of_the_alloc() -> None:
    cluster = Cluster(1, room(1), guest(2, cpu=500))
    first, second = tasks_of(cluster, "ann/guest")
    name = f"ann/room/0@{tasks_of(cluster, 'ann/room')[0].attempt}"
    cluster.see("ann/guest", alloc=name)
    happen(cluster.cell, TasksEvicted("ann/guest", (0,), Eviction.RESTART))
    assert where(cluster.run()) == {}
    cluster.part()
    assert where(cluster.run()) == {"ann/guest/0": "m1"}
    assert (first.alloc, second.alloc) == (0, 0)


def test_an_attempt_whose_alloc_has_left_holds_its_part_of_the_machine() -> None:
    cluster = Cluster(1, room(1, cpu=3000), guest(1, cpu=2500))
    cluster.see("ann/guest", alloc=f"ann/room/0@{tasks_of(cluster, 'ann/room')[0].attempt}")
    happen(
        cluster.cell,
        TasksEnded("ann/room", (0,), Ending.KILL, ("killed",)),
        TasksEvicted("ann/guest", (0,), Eviction.ALLOC_MOVED),
    )
    cluster.submit(spec("bob/large", 1, 2000))
    assert where(cluster.run()) == {}
    cluster.part()
    assert where(cluster.run()) == {"bob/large/0": "m1"}


def test_two_allocs_of_one_machine_share_its_ports() -> None:
    cluster = Cluster(2, room(4))
    assert len({task.machine for task in tasks_of(cluster, "ann/room")}) == 2
    cluster.submit(guest(3, ports=("f",), fixed_ports={"f": 9100}))
    cluster.submit(guest(4, "many", ports=tuple("abcdef")))
    cluster.run()
    for key, running in (("ann/guest", 2), ("ann/many", 2)):  # ten ports each, six for one task
        there = [task.machine for task in tasks_of(cluster, key) if task.state is State.RUNNING]
        assert len(there) == len(set(there)) == running
    assert violations(cluster.cell) == []


def test_production_inside_keeps_its_alloc_from_being_preempted() -> None:
    cluster = Cluster(1, room(1, cpu=3000), guest(priority=200))
    cluster.submit(spec("bob/prod", 1, 3000, priority=200))
    assert cluster.run().preemptions == ()
    happen(cluster.cell, TasksEnded("ann/guest", (0,), Ending.FINISH, ("",)))
    assert [each.job for each in cluster.run().preemptions] == ["ann/room"]


def test_nothing_goes_into_an_alloc_that_is_about_to_leave() -> None:
    for allocs in (1, 2):
        cluster = Cluster(allocs, room(allocs, cpu=3000))
        cluster.submit(guest(allocs, cpu=2000, gang=True))  # for one in each
        cluster.submit(spec("bob/prod", 1, 3000, priority=200))
        plan = cluster.run()
        assert [each.job for each in plan.preemptions] == ["ann/room"]
        assert plan.placements == ()
        words = "no alloc of ann/room has a place" if allocs == 1 else "0 of 1 alloc fits"
        assert words in plan.refusals["ann/guest"][0].text
        assert violations(cluster.cell) == []


def test_an_alloc_costs_as_much_as_what_is_in_it() -> None:
    """Of two machines that would lose an alloc each, it is the one whose alloc is empty."""
    cluster = Cluster(2, room(2, cpu=3000), guest(2))
    (busy,) = {task.machine for task in tasks_of(cluster, "ann/guest")[:1]}
    emptied = next(task for task in tasks_of(cluster, "ann/guest") if task.machine != busy)
    happen(cluster.cell, TasksEnded("ann/guest", (emptied.index,), Ending.FINISH, ("",)))
    cluster.submit(spec("bob/prod", 1, 3000, priority=200))
    (promise,) = cluster.run().promises
    assert promise.machines != (busy,)
