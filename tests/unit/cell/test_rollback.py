"""What a rollback restores, and what it leaves alone."""

from typing import Any

import msgspec
import pytest

from borgish.cell.commands import (
    CordonMachine,
    ForgetJob,
    JoinMachine,
    KillTasks,
    RestartTasks,
    RollBack,
    ScaleJob,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UntaintMachine,
)
from borgish.cell.decide import decide
from borgish.cell.events import (
    BudgetRemoved,
    BudgetSet,
    CellFrozen,
    JobChanged,
    JobSubmitted,
    QuotaRemoved,
    QuotaSet,
    RolledBack,
    TasksEvicted,
    TasksPlaced,
)
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.updates.rollback import Change, RollbackTarget, plan
from borgish.resources import Resources
from borgish.spec.job import Constraint, Override, Restart
from borgish.spec.shares import Share
from borgish.vocabulary import Band, Ending, Eviction, JobKind, RestartPolicy, State, TaintEffect
from tests.unit.cell.lived import Lived, deploy, machine, spec, wanted_of

RUNS, DEAD = State.RUNNING, State.DEAD
BATCH = Restart(RestartPolicy.ON_FAILURE)


# What comes back


def test_a_bad_version_is_taken_back(lived: Lived) -> None:
    good, before = lived.position, wanted_of(lived.cell)
    deploy(lived, run=("false",))
    bad = lived.attempts()
    text = lived.roll_back(good)
    lived.settle()
    assert wanted_of(lived.cell) == before
    assert lived.states() == [RUNS] * 3
    assert min(lived.attempts()) > max(bad)
    assert text.startswith(f"cell lived is rolled back to position {good} by ann, on timeline 2: 3 tasks to")


def test_a_killed_job_runs_again(lived: Lived) -> None:
    good = lived.position
    lived.do(KillTasks("ann/web"))
    lived.roll_back(good)
    assert lived.states() == [RUNS] * 3


def test_a_job_no_longer_kept_returns_as_it_was(lived: Lived) -> None:
    lived.do(KillTasks("ann/web", (1,)))
    good, job = lived.position, lived.then(lived.position).jobs["ann/web"]
    lived.do(KillTasks("ann/web"))
    lived.do(ForgetJob("ann/web"))
    lived.roll_back(good)
    found = lived.cell.jobs["ann/web"]
    assert lived.states() == [RUNS, DEAD, RUNS]
    assert (found.uid, found.submitted_at, found.spec) == (job.uid, job.submitted_at, job.spec)
    assert found.tasks[1].ending is Ending.KILL


def test_a_job_that_was_not_there_goes(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late", 2)))
    lived.roll_back(good)
    lived.settle()
    assert set(lived.cell.jobs) == {"ann/web"}
    assert lived.states() == [RUNS] * 3


def test_a_dead_job_that_was_not_there_goes_at_once(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late", 2)))
    lived.do(KillTasks("ann/late"))
    lived.do(RollBack(good, 0.0))
    assert set(lived.cell.jobs) == {"ann/web"}
    assert lived.cell.rolling == set()


def test_the_number_of_tasks_comes_back_up_and_down(lived: Lived) -> None:
    three = lived.position
    lived.do(ScaleJob("ann/web", 5))
    five, kept = lived.position, lived.attempts()[:3]
    lived.roll_back(three)
    lived.settle()
    assert lived.attempts() == kept
    lived.roll_back(five)
    lived.settle()
    assert lived.states() == [RUNS] * 5
    assert lived.attempts()[:3] == kept


def test_cordons_come_back_and_go(lived: Lived) -> None:
    lived.do(CordonMachine("m1", "disk makes noises"))
    good = lived.position
    lived.do(UncordonMachine("m1"))
    lived.do(CordonMachine("m2"))
    lived.roll_back(good)
    machines = lived.cell.machines
    assert (machines["m1"].cordoned, machines["m1"].reason) == (True, "disk makes noises")
    assert (machines["m2"].cordoned, machines["m2"].reason) == (False, "")


def test_taints_come_back_and_go() -> None:
    lived = Lived()
    lived.do(TaintMachine("m1", "disk", "slow"))
    lived.do(TaintMachine("m2", "gone", effect=TaintEffect.EVICT))
    good, since = lived.position, lived.cell.machines["m1"].taints[0].since
    lived.do(UntaintMachine("m2", "gone"))
    lived.do(TaintMachine("m1", "new"))
    lived.roll_back(good)
    assert [(taint.key, taint.since) for taint in lived.cell.machines["m1"].taints] == [("disk", since)]
    # Who tolerates it for a while need not leave at once.
    assert [(taint.key, taint.since) for taint in lived.cell.machines["m2"].taints] == [
        ("gone", lived.now.wall)
    ]


def test_quotas_come_back_and_go() -> None:
    lived = Lived()
    quota = Quota("ann", Band.BATCH, Resources(1000))
    lived.happen(QuotaSet(quota))
    good = lived.position
    for other in (Quota("ann", Band.BATCH, Resources(1)), Quota("bob", Band.FREE, Resources(1))):
        lived.happen(QuotaSet(other))
    lived.roll_back(good)
    assert lived.cell.quotas == {quota.key: msgspec.structs.replace(quota, generation=lived.position)}
    assert lived.cell.take_touched().quotas == set()
    lived.happen(QuotaRemoved(quota.key))
    lived.roll_back(good)
    assert lived.cell.quotas == {quota.key: msgspec.structs.replace(quota, generation=lived.position)}


def test_budgets_come_back_and_go_and_a_freeze_stays() -> None:
    lived = Lived()
    budget = Budget("web", (Constraint("app", "==", ("web",)),), Share())
    lived.happen(BudgetSet(budget))
    good = lived.position
    for other in (msgspec.structs.replace(budget, max_unavailable=Share(9)), Budget("db", (), Share())):
        lived.happen(BudgetSet(other))
    lived.happen(CellFrozen("holidays"))
    lived.roll_back(good)
    assert [each.terms for each in lived.cell.budgets.values()] == [budget.terms]
    assert lived.cell.freeze is not None
    lived.happen(BudgetRemoved("web"))
    lived.roll_back(good)
    assert [each.terms for each in lived.cell.budgets.values()] == [budget.terms]


def test_tasks_too_many_that_do_not_run_are_gone_at_once(lived: Lived) -> None:
    good = lived.position
    for name in ("m1", "m2"):
        lived.do(CordonMachine(name))
    lived.do(ScaleJob("ann/web", 6))
    assert lived.cell.jobs["ann/web"].pending == 3
    lived.roll_back(good)
    assert lived.states() == [RUNS] * 3
    assert lived.cell.waiting == {}


@pytest.mark.parametrize("was_there", [True, False])
def test_tasks_too_many_that_wait_are_dead_while_others_are_stopped(lived: Lived, was_there: bool) -> None:
    """Else they would be placed, in a job that is to have fewer, or to go."""
    lived.do(SubmitJob(spec("late", 1))) if was_there else None
    good = lived.position
    lived.do(ScaleJob("ann/late", 3) if was_there else SubmitJob(spec("late", 3)))
    for name in ("m1", "m2"):
        lived.do(CordonMachine(name))
    lived.do(RestartTasks("ann/late", (1,), hurried=True))
    command = RollBack(good, 0.0, only=frozenset({"ann/late"}), max_affected=9)
    found = decide(
        lived.cell, lived.core.observed, command, "ann", lived.now, RollbackTarget(lived.then(good))
    )
    (event,) = (each for each in found.events if isinstance(each, RolledBack))
    (job,) = event.jobs
    assert [(task.index, task.state, task.ending) for task in job.dead] == [(1, DEAD, Ending.KILL)]
    assert job.dead[0].reason.startswith("rolled back")


def test_where_some_jobs_go_back_quotas_stay(lived: Lived) -> None:
    older, quota = Quota("bob", Band.BATCH, Resources(1000)), Quota("ann", Band.BATCH, Resources(9000))
    lived.happen(QuotaSet(older))
    good = lived.position
    lived.happen(QuotaSet(quota))
    lived.happen(QuotaRemoved(older.key))
    lived.do(SubmitJob(spec("late")))
    lived.roll_back(good, only=frozenset({"ann/late"}))
    assert [it.terms for it in lived.cell.quotas.values()] == [quota.terms]


def test_the_plan_says_what_becomes_of_each_job(lived: Lived) -> None:
    lived.do(SubmitJob(spec("gone")))
    good = lived.position
    deploy(lived, run=("false",))
    lived.do(KillTasks("ann/web", (2,)))
    lived.do(KillTasks("ann/gone"))
    lived.do(ForgetJob("ann/gone"))
    lived.do(SubmitJob(spec("late", 2)))
    found = plan(lived.cell, RollbackTarget(lived.then(good)), frozenset(), 0.0, hurried=False, reason="why")
    assert [(one.job, one.change, one.stopped, one.started, one.kept) for one in found.jobs] == [
        ("ann/gone", Change.RETURNS, 0, 3, 0),
        ("ann/late", Change.VANISHES, 2, 0, 0),
        ("ann/web", Change.CHANGES, 2, 3, 0),
    ]
    (web,) = (one.restored for one in found.jobs if one.job == "ann/web")
    assert web is not None
    assert web.rollout is not None
    assert (found.running, found.stopped, found.started) == (4, 4, 6)


@pytest.mark.parametrize("inner_changes", [False, True])
def test_with_an_alloc_leaves_what_runs_in_it(inner_changes: bool) -> None:
    lived = Lived(("m1",))
    outer, inner = spec("set", 2, kind=JobKind.ALLOC_SET), spec("web", 2, inside="ann/set")
    lived.do(SubmitJob(outer))
    lived.happen(JobSubmitted(inner))
    lived.happen(TasksPlaced("ann/web", (0, 1), ("m1", "m1"), allocs=(0, 1)))
    good = lived.position
    lived.happen(JobChanged("ann/set", msgspec.structs.replace(outer, run=("x",))))
    if inner_changes:
        lived.happen(JobChanged("ann/web", msgspec.structs.replace(inner, run=("x",))))
    assert "4 tasks to stop, 4 to start, 0 continue" in lived.roll_back(good, hurried=True)
    evicted = [e for entry in lived.entries for e in entry.events if isinstance(e, TasksEvicted)]
    reason = f"its alloc of ann/set left: rolled back to position {good}"
    assert evicted == [TasksEvicted("ann/web", (0, 1), Eviction.ALLOC_MOVED, reason)] * (not inner_changes)
    assert min(lived.attempts("ann/set")) > good


def test_a_task_killed_then_ends_again_and_is_known_as_before(lived: Lived) -> None:
    lived.do(KillTasks("ann/web", (1,)))
    good = lived.position
    lived.do(RestartTasks("ann/web", (1,), hurried=True))
    assert lived.states() == [RUNS] * 3
    lived.roll_back(good)
    lived.settle()
    assert lived.states() == [RUNS, DEAD, RUNS]
    assert lived.cell.jobs["ann/web"].tasks[1].reason == "killed by ann"


# What is left alone


def test_what_runs_as_it_should_keeps_its_attempt_and_its_place(lived: Lived) -> None:
    good = lived.position
    lived.do(
        RestartTasks("ann/web", (2,), hurried=True)
    )  # since then it runs elsewhere, or as another attempt
    lived.do(SubmitJob(spec("other")))
    now = [(task.attempt, task.machine) for task in lived.cell.jobs["ann/web"].tasks]
    lived.roll_back(good)
    lived.settle()
    assert [(task.attempt, task.machine) for task in lived.cell.jobs["ann/web"].tasks] == now


def test_a_job_killed_and_submitted_alike_goes_on(lived: Lived) -> None:
    good, uid = lived.position, lived.cell.jobs["ann/web"].uid
    deploy(lived)
    now = lived.attempts()
    lived.roll_back(good, max_affected=0)
    lived.settle()
    assert lived.attempts() == now
    assert lived.cell.jobs["ann/web"].uid == uid


def test_machines_are_those_there_are_now(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("other")))
    lived.do(JoinMachine(machine("m3"), "m3", known=False))
    lived.do(JoinMachine(machine("m2", port=7999, boot_id="b2"), "m2", known=True))
    lived.roll_back(good)
    assert sorted(lived.cell.machines) == ["m1", "m2", "m3"]
    assert lived.cell.machines["m2"].port == 7999


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 250},
        {"annotations": {"note": "x"}},
        {"constraints": (Constraint("arch", "==", ("amd64",)),)},
        {"overrides": {2: Override(env={"A": "b"})}},
    ],
)
def test_what_a_program_does_not_notice_stops_nothing(lived: Lived, changes: dict[str, Any]) -> None:
    good = lived.position
    deploy(lived, **changes)
    now = lived.attempts()
    lived.roll_back(good)
    lived.settle()
    assert lived.attempts()[:2] == now[:2]
    assert (lived.attempts()[2] == now[2]) is ("overrides" not in changes)
    assert lived.cell.jobs["ann/web"].spec == spec()


def test_who_may_not_be_where_it_is_moves() -> None:
    lived = Lived(("m1",))
    lived.do(JoinMachine(machine("m2", attributes={"arch": "arm64"}), "m2", known=False))
    lived.do(SubmitJob(spec(tasks=1, constraints=(Constraint("arch", "==", ("amd64",)),))))
    good = lived.position
    lived.do(CordonMachine("m1"))
    deploy(lived, tasks=1)
    lived.do(UncordonMachine("m1"))
    assert lived.cell.jobs["ann/web"].tasks[0].machine == "m2"
    lived.roll_back(good)
    lived.settle()
    assert lived.cell.jobs["ann/web"].tasks[0].machine == "m1"


# Results


def test_what_has_finished_since_is_not_done_twice() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("sum", 3, restart=BATCH)))
    good = lived.position
    lived.ended("ann/sum", 0, Ending.FINISH)
    lived.ended("ann/sum", 1, Ending.FAIL, 7)
    lived.do(KillTasks("ann/sum", (2,)))
    lived.roll_back(good)
    lived.settle()
    assert lived.states("ann/sum") == [DEAD, DEAD, RUNS]
    assert [task.exit_code for task in lived.cell.jobs["ann/sum"].tasks[:2]] == [0, 7]


def test_the_result_of_another_program_is_none() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("sum", 1, restart=BATCH)))
    good = lived.position
    deploy(lived, "sum", tasks=1, restart=BATCH, run=("other",))
    lived.ended("ann/sum", 0, Ending.FINISH)
    lived.roll_back(good)
    assert lived.states("ann/sum") == [RUNS]


def test_a_service_that_gave_up_tries_again() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("web", 1)))
    good = lived.position
    lived.ended("ann/web", 0, Ending.FAIL, 1)
    lived.roll_back(good)
    assert lived.states() == [RUNS]


def test_a_result_of_then_is_known_again() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("sum", 2, restart=BATCH)))
    lived.ended("ann/sum", 0, Ending.FINISH)
    good = lived.position
    lived.do(RestartTasks("ann/sum", (0,), hurried=True))
    assert lived.states("ann/sum") == [RUNS, RUNS]
    lived.roll_back(good)
    lived.settle()
    assert lived.states("ann/sum") == [DEAD, RUNS]
    assert lived.cell.jobs["ann/sum"].tasks[0].ending is Ending.FINISH
    assert lived.cell.jobs["ann/sum"].finished == 1


def test_a_result_from_before_does_not_count_for_what_was_to_run_again() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("sum", 2, restart=BATCH)))
    lived.ended("ann/sum", 0, Ending.FINISH)
    finished = lived.position
    lived.do(RestartTasks("ann/sum", (0,), hurried=True))
    again = lived.position
    lived.roll_back(finished)
    lived.settle()
    assert lived.states("ann/sum") == [DEAD, RUNS]
    lived.roll_back(again)
    assert lived.states("ann/sum") == [RUNS, RUNS]


def test_a_job_whose_result_nobody_knows_any_more_runs_again() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("sum", 1, restart=BATCH)))
    good = lived.position
    lived.ended("ann/sum", 0, Ending.FINISH)
    lived.do(ForgetJob("ann/sum"))
    lived.roll_back(good)
    assert lived.states("ann/sum") == [RUNS]
