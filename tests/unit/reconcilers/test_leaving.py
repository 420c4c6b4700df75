"""Who has to leave a machine for its taints and its attributes, and how many at a time."""

from collections.abc import Iterator

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    EvictTasks,
    JoinMachine,
    Observe,
    PlaceTasks,
    SeenAttempt,
    SubmitJob,
    TaintMachine,
)
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers import RECONCILERS, suitability, taints
from borgish.reconcilers.settings import EVICTIONS_MAX, ReconcileSettings
from borgish.resources import Resources
from borgish.spec.constraints import parse_constraint
from borgish.spec.job import JobSpec, Toleration
from borgish.vocabulary import Eviction, Phase, Recheck, TaintEffect
from tests.unit.cell.test_decide import NOW, Desk, machine, spec

SETTINGS = ReconcileSettings()


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.do(JoinMachine(machine("m2"), "i2", known=False))
    for name in ("m1", "m2"):
        desk.do(Observe(name, "b1", "i1", (), whole=True), name)
    return desk


def place(desk: Desk, job: JobSpec, on: str = "m1") -> None:
    desk.do(SubmitJob(job))
    desk.do(PlaceTasks(job.key, tuple(range(job.tasks)), (on,) * job.tasks))


def asked(desk: Desk, reconcile: object, now: Now = NOW) -> list[tuple[str, tuple[int, ...], Eviction, str]]:
    assert callable(reconcile)
    commands: Iterator[Command] = reconcile(desk.cell, desk.observed, SETTINGS, now)
    return [
        (each.job, each.indexes, each.cause, each.reason) for each in commands if isinstance(each, EvictTasks)
    ]


def tolerating(name: str, *tolerations: Toleration) -> JobSpec:
    return spec(name, 1, tolerations=tolerations)


# Taints


def test_what_does_not_tolerate_an_evicting_taint_leaves(desk: Desk) -> None:
    place(desk, spec(tasks=2))
    place(desk, tolerating("patient", Toleration("repair")))
    place(desk, tolerating("elsewhere"), "m2")
    assert asked(desk, taints.reconcile) == []
    desk.do(TaintMachine("m1", "repair", "disk", TaintEffect.EVICT))
    wanted = [("ann/web", (0, 1), Eviction.TAINTED, "m1 is tainted repair=disk:evict")]
    assert asked(desk, taints.reconcile) == wanted


@pytest.mark.parametrize("effect", [TaintEffect.REFUSE, TaintEffect.AVOID])
def test_other_taints_move_nobody(desk: Desk, effect: TaintEffect) -> None:
    place(desk, spec())
    desk.do(TaintMachine("m1", "repair", "", effect))
    assert asked(desk, taints.reconcile) == []


def test_what_tolerates_it_for_a_while_leaves_after_that(desk: Desk) -> None:
    place(desk, tolerating("brief", Toleration("repair", for_seconds=60.0)))
    desk.do(TaintMachine("m1", "repair", "", TaintEffect.EVICT))
    assert asked(desk, taints.reconcile, now=NOW.later(59.9)) == []
    assert [job for job, *_ in asked(desk, taints.reconcile, now=NOW.later(60.0))] == ["ann/brief"]


def test_what_is_placed_beside_a_taint_may_stay_as_long_as_any_other(desk: Desk) -> None:
    place(desk, tolerating("late", Toleration("repair", for_seconds=60.0)))
    desk.do(TaintMachine("m1", "repair", "", TaintEffect.EVICT))
    desk.cell.jobs["ann/late"].tasks[0].since = NOW.wall + 30.0
    assert asked(desk, taints.reconcile, now=NOW.later(89.9)) == []
    assert [job for job, *_ in asked(desk, taints.reconcile, now=NOW.later(90.0))] == ["ann/late"]


@pytest.mark.parametrize("reconcile", [taints.reconcile, suitability.reconcile])
def test_a_new_master_moves_nobody_before_it_has_heard_of_them(desk: Desk, reconcile: object) -> None:
    """What was not reported counts as down, which is free to move, and may well be up."""
    place(desk, picky("web", Recheck.EVICT))
    change_attributes(desk)
    desk.do(TaintMachine("m1", "repair", "", TaintEffect.EVICT))
    assert [job for job, *_ in asked(desk, reconcile)] == ["ann/web"]
    desk.observed = Observed()
    assert asked(desk, reconcile) == []


def test_machines_are_looked_at_by_their_names(desk: Desk) -> None:
    """The limit is of all of them together, so who leaves first must not be chance."""
    place(desk, spec("a", 1), "m2")
    place(desk, spec("b", 1), "m1")
    desk.cell.machines = dict(sorted(desk.cell.machines.items(), reverse=True))
    for name in ("m2", "m1"):
        desk.do(TaintMachine(name, "repair", "", TaintEffect.EVICT))
    assert [job for job, *_ in asked(desk, taints.reconcile)] == ["ann/b", "ann/a"]


# Attributes


def picky(name: str, recheck: Recheck) -> JobSpec:
    return spec(name, 2, constraints=(parse_constraint("arch == amd64"),), recheck=recheck)


def change_attributes(desk: Desk) -> None:
    desk.do(Observe("m1", "b1", "i1", (), attributes={"arch": "arm64"}), "m1")


def test_what_its_machine_no_longer_suits_leaves_where_its_job_says_so(desk: Desk) -> None:
    for name, recheck in (("moves", Recheck.EVICT), ("stays", Recheck.KEEP)):
        place(desk, picky(name, recheck))
    place(desk, picky("elsewhere", Recheck.EVICT), "m2")
    assert asked(desk, suitability.reconcile) == []
    change_attributes(desk)
    reason = "m1 no longer meets arch == amd64"
    wanted = [("ann/moves", (0, 1), Eviction.UNSUITABLE, reason)]
    assert asked(desk, suitability.reconcile) == wanted


# Both


@pytest.mark.parametrize("reconcile", [taints.reconcile, suitability.reconcile])
def test_only_so_many_leave_at_a_time(desk: Desk, reconcile: object) -> None:
    for name in ("a", "b"):
        place(desk, msgspec.structs.replace(picky(name, Recheck.EVICT), tasks=70, resources=Resources(1)))
    change_attributes(desk)
    desk.do(TaintMachine("m1", "repair", "", TaintEffect.EVICT, max_affected=140))
    first = asked(desk, reconcile)
    assert sum(len(indexes) for _, indexes, *_ in first) == EVICTIONS_MAX
    for key, indexes, cause, reason in first:
        desk.do(EvictTasks(key, indexes, cause, reason))
    second = asked(desk, reconcile)
    assert sum(len(indexes) for _, indexes, *_ in second) == 140 - EVICTIONS_MAX


@pytest.mark.parametrize("reconcile", [taints.reconcile, suitability.reconcile])
def test_when_just_so_many_have_left_nobody_else_is_named(desk: Desk, reconcile: object) -> None:
    for name, tasks in (("a", EVICTIONS_MAX), ("b", 1)):
        place(desk, msgspec.structs.replace(picky(name, Recheck.EVICT), tasks=tasks, resources=Resources(1)))
    change_attributes(desk)
    desk.do(TaintMachine("m1", "repair", "", TaintEffect.EVICT, max_affected=101))
    assert [(job, len(indexes)) for job, indexes, *_ in asked(desk, reconcile)] == [("ann/a", EVICTIONS_MAX)]


@pytest.mark.parametrize("reconcile", [taints.reconcile, suitability.reconcile])
def test_what_its_budget_holds_is_not_named(desk: Desk, reconcile: object) -> None:
    place(desk, picky("web", Recheck.EVICT))
    attempt = desk.cell.jobs["ann/web"].tasks[0].attempt
    for phase, named in ((Phase.UP, [(0,)]), (Phase.STOPPING, [(0, 1)])):  # who is down, goes as well
        desk.report(*(SeenAttempt(f"ann/web/{index}", attempt, phase) for index in range(2)))
        change_attributes(desk)
        desk.do(TaintMachine("m1", "repair", "", TaintEffect.EVICT))
        assert [indexes for _, indexes, *_ in asked(desk, reconcile)] == named


def test_both_are_among_the_loops_of_the_master() -> None:
    rows = {each.name: each for each in RECONCILERS}
    assert rows["taints"] == ("taints", taints.reconcile, None)  # between resyncs nobody has to go
    assert rows["suitability"] == ("suitability", suitability.reconcile, None)
