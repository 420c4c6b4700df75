"""Who may be preempted, how many at once, and what is chosen of several ways to make room."""

import msgspec
import pytest

from borgish.cell.commands import SeenAttempt
from borgish.cell.limits.disruption import Limit
from borgish.cell.model import Rollout
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import Constraint
from borgish.vocabulary import Phase, State, task_name
from tests.unit.scheduler.cells import NOW, machine, spec
from tests.unit.scheduler.cluster import Cluster

HIGH = 200
MIDDLE = 150
BATCH = 100


def victims(plan: Plan) -> list[tuple[str, int]]:
    return sorted((each.job, index) for each in plan.preemptions for index in each.indexes)


def promised(plan: Plan) -> list[str]:
    return sorted(name for each in plan.promises for name in each.machines)


class AtMost:
    """A budget that lets so many tasks of some jobs be taken down, and all of the others."""

    def __init__(self, **allowed: int) -> None:
        self.allowed = {f"bob/{name}": count for name, count in allowed.items()}

    def limits(self, job: str, _index: int) -> list[Limit]:
        return [Limit("max_unavailable", job)]

    def room(self, limit: Limit) -> int:
        return self.allowed.get(limit.name, 1000)


# Budgets


@pytest.mark.parametrize(("allowed", "leave"), [(0, 0), (1, 1), (3, 3), (9, 4)])
def test_no_more_tasks_of_a_job_leave_than_its_budget_allows(allowed: int, leave: int) -> None:
    cluster = Cluster(4, spec("bob/low", 4, cpu=4000))
    cluster.scheduler = Scheduler(budget=AtMost(low=allowed))
    cluster.submit(spec("ann/high", 4, cpu=4000, priority=MIDDLE))
    assert len(victims(cluster.run())) == leave


def test_a_budget_counts_what_different_preemptors_take_in_one_pass() -> None:
    cluster = Cluster(4, spec("bob/low", 4, cpu=4000))
    cluster.scheduler = Scheduler(budget=AtMost(low=3))
    cluster.submit(spec("ann/one", 2, cpu=4000, priority=MIDDLE))
    cluster.submit(spec("ann/other", 2, cpu=3900, priority=MIDDLE))
    assert len(victims(cluster.run())) == 3


def test_a_budget_bounds_what_leaves_one_machine_together() -> None:
    cluster = Cluster(1, spec("bob/low", 4, cpu=1000))
    cluster.scheduler = Scheduler(budget=AtMost(low=2))
    cluster.submit(spec("ann/high", cpu=3000, priority=MIDDLE))
    assert victims(cluster.run()) == []  # two are not enough, so none leaves
    cluster.submit(spec("ann/less", cpu=2000, priority=MIDDLE))
    assert len(victims(cluster.run())) == 2


def test_whose_budget_is_used_up_is_passed_over_for_others() -> None:
    cluster = Cluster(1, spec("bob/low", 2, cpu=1000), spec("bob/other", 2, cpu=1000, priority=BATCH))
    cluster.scheduler = Scheduler(budget=AtMost(low=1))
    cluster.submit(spec("ann/high", cpu=2000, priority=MIDDLE))
    jobs = [job for job, _ in victims(cluster.run())]
    assert jobs == ["bob/low", "bob/other"]


def test_a_gang_within_the_budgets_is_placed_and_one_beyond_them_preempts_nobody() -> None:
    for allowed, leave in ((2, 0), (3, 3)):
        cluster = Cluster(3, spec("bob/low", 3, cpu=4000))
        cluster.scheduler = Scheduler(budget=AtMost(low=allowed))
        cluster.submit(spec("ann/gang", 3, cpu=4000, priority=MIDDLE, gang=True))
        assert len(victims(cluster.run())) == leave


def test_what_a_gang_did_not_take_is_left_to_the_next_in_the_same_pass() -> None:
    cluster = Cluster(2, spec("bob/low", 2, cpu=4000))
    cluster.scheduler = Scheduler(budget=AtMost(low=1))
    cluster.submit(spec("ann/gang", 2, cpu=4000, priority=MIDDLE + 1, gang=True))
    cluster.submit(spec("ann/high", cpu=4000, priority=MIDDLE))
    plan = cluster.run()
    assert len(victims(plan)) == 1
    assert [each.job for each in plan.promises] == ["ann/high"]


def test_production_prefers_victims_within_their_budgets() -> None:
    cluster = Cluster(1, spec("bob/low", 2, cpu=1000), spec("bob/other", 2, cpu=1000, priority=BATCH))
    cluster.scheduler = Scheduler(budget=AtMost(low=1))
    cluster.submit(spec("ann/high", cpu=2000, priority=HIGH))
    plan = cluster.run()
    assert [job for job, _ in victims(plan)] == ["bob/low", "bob/other"]
    assert [each.reason for each in plan.preemptions] == ["preempted for ann/high/0 (production)"] * 2


def test_production_prefers_machines_where_it_passes_no_budget() -> None:
    cluster = Cluster(2, spec("bob/low", cpu=4000), spec("bob/other", cpu=4000, priority=BATCH))
    cluster.scheduler = Scheduler(budget=AtMost(low=0))
    cluster.submit(spec("ann/high", cpu=2000, priority=HIGH))
    assert victims(cluster.run()) == [("bob/other", 0)]


def test_production_passes_a_budget_where_nothing_else_will_do_and_says_so() -> None:
    cluster = Cluster(1, spec("bob/low", 3, cpu=1000), spec("bob/other", cpu=1000, priority=BATCH))
    cluster.scheduler = Scheduler(budget=AtMost(low=1))
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    plan = cluster.run()
    assert {each.job: each.reason for each in plan.preemptions} == {
        "bob/low": "preempted for ann/high/0 (production), beyond its disruption budget",
        "bob/other": "preempted for ann/high/0 (production)",
    }


def test_without_a_budget_of_its_own_a_pass_asks_the_gate() -> None:
    cluster = Cluster(2, spec("bob/low", 2, cpu=4000))
    cluster.run()
    for name, placed in cluster.cell.placed.items():
        for job, index in placed:
            key = task_name(job, index), cluster.cell.jobs[job].tasks[index].attempt
            cluster.observed.machines[name].put(SeenAttempt(*key, Phase.UP))
    cluster.submit(spec("ann/high", 2, cpu=4000, priority=MIDDLE))
    assert len(victims(cluster.run())) == 1


# The limit of a pass


def test_one_pass_preempts_so_many_and_another_follows_at_once() -> None:
    cluster = Cluster(24, spec("bob/low", 24, cpu=3000))
    cluster.submit(spec("ann/high", 24, cpu=3000, priority=HIGH))
    passes = [cluster.run() for _ in range(4)]
    assert [(len(victims(plan)), plan.more) for plan in passes] == [
        (10, True),
        (10, True),
        (4, True),
        (0, False),
    ]


def test_the_limit_grows_with_the_cell() -> None:
    cluster = Cluster(60, spec("bob/low", 240, cpu=1000))
    cluster.submit(spec("ann/high", 60, cpu=1000, priority=HIGH))
    assert len(victims(cluster.run())) == 12  # 5 % of 240


def test_a_single_task_may_cost_more_than_the_limit_when_it_is_the_first() -> None:
    cluster = Cluster(1, spec("bob/low", 20, cpu=200, ram=2**20))
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    assert len(victims(cluster.run())) == 20


def test_a_gang_may_cost_more_than_the_limit_when_it_is_the_first() -> None:
    cluster = Cluster(24, spec("bob/low", 24, cpu=3000))
    cluster.submit(spec("ann/gang", 24, cpu=3000, priority=HIGH, gang=True))
    plan = cluster.run()
    assert len(victims(plan)) == 24
    assert len(promised(plan)) == 24


def test_a_gang_that_costs_too_much_beside_others_waits_for_the_next_pass() -> None:
    cluster = Cluster(24, spec("bob/low", 24, cpu=3000))
    cluster.submit(spec("ann/high", 2, cpu=3000, priority=HIGH + 1))
    cluster.submit(spec("ann/gang", 20, cpu=3000, priority=HIGH, gang=True))
    first = cluster.run()
    assert (len(victims(first)), first.more) == (2, True)
    assert len(victims(cluster.run())) == 20


# Where


def test_a_machine_that_does_not_suit_is_no_place_to_make_room() -> None:
    cluster = Cluster(2, attributes={"disk": "slow"})
    cluster.cell.machines["m2"] = machine("m2", attributes={"disk": "fast"})
    cluster.scheduler.refresh(cluster.cell, cluster.observed, ["m2"])
    cluster.submit(spec("bob/low", 2, cpu=4000))
    cluster.run()
    fast = (Constraint("disk", "==", ("fast",)),)
    cluster.submit(spec("ann/high", 2, cpu=4000, priority=HIGH, constraints=fast))
    plan = cluster.run()
    assert promised(plan) == ["m2"]
    assert len(victims(plan)) == 1


def test_a_cordoned_machine_is_no_place_to_make_room() -> None:
    cluster = Cluster(1, spec("bob/low", cpu=4000))
    cluster.cell.machines["m1"] = msgspec.structs.replace(cluster.cell.machines["m1"], cordoned=True)
    cluster.scheduler.refresh(cluster.cell, cluster.observed, ["m1"])
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    assert victims(cluster.run()) == []


def test_of_many_machines_those_with_the_lowest_victims_are_asked_first() -> None:
    cluster = Cluster(41, spec("bob/batch", 40, cpu=4000, priority=BATCH), spec("bob/free", cpu=4000))
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    assert [job for job, _ in victims(cluster.run())] == ["bob/free"]


# Whom


def test_the_lowest_priority_leaves_first() -> None:
    cluster = Cluster(1, spec("bob/batch", 2, cpu=1000, priority=BATCH), spec("bob/free", 2, cpu=1000))
    cluster.submit(spec("ann/high", cpu=1000, priority=HIGH))
    ((job, _),) = victims(cluster.run())
    assert job == "bob/free"


def test_the_machine_whose_victim_is_lower_is_chosen() -> None:
    cluster = Cluster(2, spec("bob/batch", cpu=4000, priority=BATCH), spec("bob/free", cpu=4000))
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    assert [job for job, _ in victims(cluster.run())] == ["bob/free"]


@pytest.mark.parametrize("older", [0, 1])
def test_the_machine_where_less_work_is_lost_is_chosen(older: int) -> None:
    cluster = Cluster(2, spec("bob/low", 2, cpu=4000))
    cluster.cell.jobs["bob/low"].tasks[older].since = NOW.wall - 7200.0
    cluster.cell.jobs["bob/low"].tasks[1 - older].since = NOW.wall - 60.0
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    assert victims(cluster.run()) == [("bob/low", 1 - older)]


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_of_tasks_that_are_alike_the_newest_leaves(newest: int) -> None:
    cluster = Cluster(1, spec("bob/low", 3, cpu=1000))
    for task in cluster.cell.jobs["bob/low"].tasks:
        task.since = NOW.wall - (60.0 if task.index == newest else 7200.0)
    cluster.submit(spec("ann/high", cpu=2000, priority=HIGH))
    assert victims(cluster.run()) == [("bob/low", newest)]


def test_nobody_is_preempted_twice_in_a_pass() -> None:
    cluster = Cluster(1, spec("bob/low", 2, cpu=2000))
    cluster.submit(spec("ann/one", cpu=2000, priority=HIGH + 1))
    cluster.submit(spec("ann/two", cpu=1900, priority=HIGH))
    plan = cluster.run()
    assert victims(plan) == [("bob/low", 0), ("bob/low", 1)]
    assert len(plan.promises) == 2


def test_no_task_leaves_for_one_of_its_own_priority() -> None:
    cluster = Cluster(1, spec("bob/low", cpu=4000, priority=BATCH))
    cluster.submit(spec("ann/same", cpu=4000, priority=BATCH))
    assert victims(cluster.run()) == []
    cluster.submit(spec("ann/above", cpu=4000, priority=BATCH + 1))
    assert victims(cluster.run()) == [("bob/low", 0)]


def test_tasks_of_a_job_that_is_being_rolled_back_stay() -> None:
    cluster = Cluster(1, spec("bob/low", cpu=4000))
    job = cluster.cell.jobs["bob/low"]
    job.rollout = Rollout({0: job.tasks[0].attempt}, 1, {}, hurried=False, reason="")
    cluster.submit(spec("ann/high", cpu=4000, priority=HIGH))
    assert victims(cluster.run()) == []
    assert job.tasks[0].state is State.RUNNING
