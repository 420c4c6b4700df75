"""When a job is ended since too many of its tasks failed, and what that means for the rest of it."""

import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    EndFailedJob,
    FreezeCell,
    KillTasks,
    RestartTasks,
    SubmitJob,
)
from borgish.cell.model import Cell, Job
from borgish.reconcilers import max_failures
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import JobSpec, Restart
from borgish.spec.shares import Share
from borgish.vocabulary import Ending, RestartPolicy, State
from tests.unit.cell.test_decide import NOW, Desk, seen, spec

SETTINGS = ReconcileSettings(led_since=NOW.mono, led_since_wall=NOW.wall)


def sweep(limit: Share | None, tasks: int = 4) -> JobSpec:
    return spec(tasks=tasks, restart=Restart(RestartPolicy.ON_FAILURE), max_failures=limit)


class Sweep(Desk):
    """A cell that runs such a job, and whose reconciler runs after each report."""

    def __init__(self, limit: Share | None, tasks: int = 4) -> None:
        super().__init__()
        self.submit_and_place(sweep(limit, tasks))

    @property
    def job(self) -> Job:
        return self.cell.jobs["ann/web"]

    def fail(self, *indexes: int, ending: Ending = Ending.FAIL) -> None:
        self.report(*(seen(self, index, ended=ending, exit_code=1) for index in indexes))
        self.reconcile()

    def reconcile(self) -> list[Command]:
        asked = list(max_failures.reconcile(self.cell, self.observed, SETTINGS, NOW))
        for command in asked:
            self.do(command, "borgish")
        assert list(max_failures.reconcile(self.cell, self.observed, SETTINGS, NOW)) == []
        return asked

    def endings(self) -> list[Ending | None]:
        return [task.ending for task in self.job.tasks]


@pytest.mark.parametrize(
    ("limit", "failures"), [(Share(0), 1), (Share(1), 2), (Share(0, 25), 2), (Share(0, 24), 1)]
)
def test_one_more_than_may_fail_ends_the_rest(limit: Share, failures: int) -> None:
    desk = Sweep(limit)
    for index in range(failures - 1):
        desk.fail(index)
    assert desk.job.state is State.RUNNING
    desk.fail(failures - 1)
    assert desk.endings() == [Ending.FAIL] * failures + [Ending.KILL] * (4 - failures)
    tasks = "1 task" if failures == 1 else f"{failures} tasks"
    assert desk.job.tasks[3].reason == f"{tasks} of ann/web failed, more than its max_failures: {limit}"


def test_without_a_limit_all_may_fail() -> None:
    desk = Sweep(None)
    desk.fail(0, 1, 2)
    assert desk.job.running == 1


def test_what_waits_is_ended_too_and_neither_a_freeze_nor_a_share_holds_it() -> None:
    desk = Sweep(Share(0), tasks=5)
    desk.do(RestartTasks("ann/web", (4,), hurried=True, max_affected=5))
    desk.do(FreezeCell("a holiday"))
    desk.fail(1)
    assert desk.endings() == [Ending.KILL, Ending.FAIL, *[Ending.KILL] * 3]


def test_what_finished_keeps_its_outcome() -> None:
    desk = Sweep(Share(0))
    desk.report(seen(desk, 0, ended=Ending.FINISH, exit_code=0))
    desk.fail(1)
    assert desk.endings() == [Ending.FINISH, Ending.FAIL, Ending.KILL, Ending.KILL]
    assert (desk.job.finished, desk.job.failed, desk.job.dead) == (1, 1, 4)


def test_what_was_killed_counts_for_nothing() -> None:
    desk = Sweep(Share(0))
    desk.do(KillTasks("ann/web", (0, 1), 4))
    assert desk.reconcile() == []
    assert desk.job.running == 2


def test_a_job_that_is_submitted_again_counts_anew() -> None:
    desk = Sweep(Share(0))
    desk.fail(0)
    desk.do(SubmitJob(sweep(Share(0))))
    assert (desk.job.failed, desk.reconcile()) == (0, [])
    assert desk.job.pending == 4


def test_restarted_by_name_it_counts_anew() -> None:
    desk = Sweep(Share(1))
    desk.fail(0, 1)
    desk.do(RestartTasks("ann/web"))
    assert (desk.job.failed, desk.reconcile()) == (0, [])
    assert desk.job.pending == 4


def test_a_lower_limit_counts_at_once() -> None:
    desk = Sweep(Share(2))
    desk.fail(0, 1)
    desk.do(SubmitJob(sweep(Share(1))))
    assert desk.reconcile() == [EndFailedJob("ann/web")]


def test_only_jobs_that_failed_too_often_are_looked_at() -> None:
    desk = Sweep(Share(1))
    desk.fail(0)
    assert desk.cell.swept.over_max_failures == set()
    desk.report(seen(desk, 1, ended=Ending.FAIL, exit_code=1))
    assert desk.cell.swept.over_max_failures == {"ann/web"}
    assert Cell(desk.cell.snapshot()).swept.over_max_failures == {"ann/web"}
    desk.reconcile()
    assert desk.cell.swept.over_max_failures == set()


def test_checkpoints_of_before_have_no_count_of_failures() -> None:
    desk = Sweep(Share(1))
    desk.fail(0)
    desk.job.failed = 0
    assert Cell(desk.cell.snapshot()).jobs["ann/web"].failed == 1


def test_a_command_that_is_late_ends_nothing() -> None:
    desk = Sweep(Share(1))
    assert desk.do(EndFailedJob("ann/web")) == ("nothing of ann/web is to be ended", 0)
