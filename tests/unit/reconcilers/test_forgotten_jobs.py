"""When jobs that are dead are let go of."""

from borgish.cell.command import Command
from borgish.cell.commands import (
    ForgetJob,
    KillTasks,
    SubmitJob,
)
from borgish.clock import Now
from borgish.reconcilers import jobs
from borgish.reconcilers.settings import ReconcileSettings
from tests.unit.cell.test_decide import NOW, Desk, spec

SETTINGS = ReconcileSettings(led_since=NOW.mono, led_since_wall=NOW.wall)


def forgotten(desk: Desk, now: Now) -> list[Command]:
    return list(jobs.reconcile(desk.cell, desk.observed, SETTINGS, now))


def test_a_dead_job_is_kept_for_a_day() -> None:
    desk = Desk()
    for name in ("dead", "lives"):
        desk.do(SubmitJob(spec(name)))
    desk.do(KillTasks("ann/dead"))
    day = SETTINGS.dead_jobs_seconds
    assert forgotten(desk, NOW.later(day - 0.1)) == []
    assert forgotten(desk, NOW.later(day + 0.1)) == [ForgetJob("ann/dead")]


def test_a_wall_clock_that_is_set_on_ages_nothing() -> None:
    desk = Desk()
    desk.do(SubmitJob(spec()))
    desk.do(KillTasks("ann/web"))
    assert forgotten(desk, Now(NOW.wall + 1e9, NOW.mono + 1.0)) == []
