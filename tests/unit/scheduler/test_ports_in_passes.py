"""Ports in one pass and between passes: no number twice, and none missing that was counted as free."""

from borgish.cell.invariants import violations
from borgish.cell.model import Task
from borgish.spec.job import Affinity, Constraint, JobSpec
from borgish.vocabulary import JobKind, State
from tests.unit.scheduler.cells import spec, where
from tests.unit.scheduler.cluster import Cluster

SMALL = 100


def task(cluster: Cluster, key: str, index: int = 0) -> Task:
    return cluster.cell.jobs[key].tasks[index]


def test_a_port_that_was_just_chosen_is_not_given_as_a_fixed_one() -> None:
    cluster = Cluster(1)
    cluster.submit(spec("cid/large", 1, 9000, ports=("f",), fixed_ports={"f": 20000}))
    cluster.run()
    cluster.submit(spec("ann/any", 1, SMALL, ports=("a",), priority=10))
    cluster.submit(spec("bob/wants", 1, SMALL, ports=("f",), fixed_ports={"f": 20000}))
    cluster.run()
    cluster.run()
    assert task(cluster, "ann/any").ports == (20000,)
    assert task(cluster, "bob/wants").state is State.PENDING
    assert violations(cluster.cell) == []


def test_a_fixed_port_is_one_less_of_any_number() -> None:
    """Of two ports that are free one is the fixed one: it cannot be the other as well."""
    cluster = Cluster(1, spec("ann/any", 1, SMALL, ports=tuple("abcdefghi")), ports_high=20010)
    cluster.submit(spec("bob/both", 2, SMALL, ports=("a", "f"), fixed_ports={"f": 20009}))
    plan = cluster.run()
    assert where(plan) == {"bob/both/0": "m1"}
    assert task(cluster, "bob/both").ports == (20010, 20009)
    assert "port 20009 taken" in plan.refusals["bob/both"][0].text


def test_too_few_ports_beside_a_fixed_one_is_told() -> None:
    cluster = Cluster(1, spec("ann/any", 1, SMALL, ports=tuple("abcdefghi")))
    cluster.submit(spec("bob/both", 1, SMALL, ports=("a", "f"), fixed_ports={"f": 20009}))
    plan = cluster.run()
    assert where(plan) == {}
    assert "too few ports free beside" in plan.refusals["bob/both"][0].text


def waiting_for(wanted: JobSpec) -> Cluster:
    """Return two machines; from one a low task is told to leave for a gang of two, the other is free."""
    cluster = Cluster(2, spec("low/low", 1, 3950))
    cluster.see("low/low")
    cluster.submit(wanted)
    assert len(cluster.run().preemptions) == 1
    return cluster


def test_ports_are_kept_with_the_place() -> None:
    cluster = waiting_for(spec("ann/high", 2, 2500, priority=200, ports=("a", "b"), gang=True))
    cluster.submit(spec("bob/many", 1, 50, ports=tuple("abcdefghi")))
    assert where(cluster.run()) == {}  # one too many
    cluster.submit(spec("bob/some", 1, 50, ports=tuple("abcdefgh")))
    assert set(where(cluster.run())) == {"bob/some/0"}
    cluster.part()
    assert set(where(cluster.run())) == {"ann/high/0", "ann/high/1"}
    assert violations(cluster.cell) == []


def test_a_fixed_port_is_kept_with_the_place() -> None:
    high = spec("ann/high", 2, 2500, priority=200, ports=("f",), fixed_ports={"f": 20000}, gang=True)
    cluster = waiting_for(high)
    cluster.submit(spec("bob/any", 1, 50, ports=("a",), priority=300))
    cluster.submit(spec("cid/wants", 1, 50, ports=("f",), fixed_ports={"f": 20000}, priority=300))
    cluster.run()
    assert task(cluster, "bob/any").ports == (20001,)
    assert task(cluster, "cid/wants").state is State.PENDING
    cluster.part()
    assert set(where(cluster.run())) == {"ann/high/0", "ann/high/1"}


def test_who_is_placed_in_an_alloc_is_apart_from_whom_the_same_pass_placed_outside() -> None:
    """What is counted for a rule may be asked for only after some of it was placed."""
    room = spec("ann/room", 1, 2000, kind=JobKind.ALLOC_SET)
    cluster = Cluster(1, room)
    apart = (Affinity((Constraint("app", "==", ("b",)),)),)
    cluster.submit(spec("ann/a", 1, SMALL, apart=apart))
    cluster.submit(spec("ann/b", 1, SMALL, inside="ann/room", labels={"app": "b"}))
    assert set(where(cluster.run())) == {"ann/a/0"}
    cluster.submit(spec("bob/b", 1, SMALL, labels={"app": "b"}))
    assert where(cluster.run()) == {}
