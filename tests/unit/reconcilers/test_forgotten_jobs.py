"""When jobs that are dead are let go of."""

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    ForgetJob,
    KillTasks,
    SubmitJob,
)
from borgish.cell.model import Rules
from borgish.clock import Now
from borgish.reconcilers import jobs
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import After
from borgish.vocabulary import Until
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


def test_of_a_user_with_too_many_the_oldest_go_first_and_nobody_elses() -> None:
    desk = Desk()
    for user, name, tasks in (("ann", "a", 3), ("ann", "b", 4), ("bob", "a", 5), ("ann", "c", 2)):
        desk.do(SubmitJob(spec(name, user=user, tasks=tasks)))
        desk.do(KillTasks(f"{user}/{name}"))

    def oldest(tasks_max: int) -> list[Command]:
        settings = msgspec.structs.replace(SETTINGS, dead_tasks_max=tasks_max)
        return list(jobs.reconcile(desk.cell, desk.observed, settings, NOW))

    assert oldest(9) == []
    assert oldest(8) == [ForgetJob("ann/a")]
    assert oldest(6) == [ForgetJob("ann/a")]
    assert oldest(5) == [ForgetJob("ann/a"), ForgetJob("ann/b")]
    assert oldest(1) == [ForgetJob("ann/a"), ForgetJob("ann/b")], "of each user the latest stays"
    desk.do(ForgetJob("ann/a"))
    assert oldest(6) == []


def test_where_a_user_takes_up_too_much_the_oldest_go_first_but_no_live_one_and_not_the_latest() -> None:
    desk = Desk()
    for user, name in (("ann", "lives"), ("ann", "a"), ("bob", "a"), ("ann", "b"), ("ann", "c")):
        desk.do(SubmitJob(spec(name, user=user, env={"A": "x" * 10_000})))
        if name != "lives":
            desk.do(KillTasks(f"{user}/{name}"))
    size = desk.cell.footprint.of_job("ann/a")
    assert desk.cell.footprint.of_dead("ann") == pytest.approx(3 * size, rel=0.01)

    def oldest(sizes: float) -> list[Command]:
        desk.cell.rules = Rules(footprint_bytes_max=int(sizes * size / jobs.DEAD_SHARE))
        return forgotten(desk, NOW)

    assert oldest(3.1) == []
    assert oldest(2.5) == [ForgetJob("ann/a")]
    assert oldest(1.5) == [ForgetJob("ann/a"), ForgetJob("ann/b")]
    assert oldest(0.5) == [ForgetJob("ann/a"), ForgetJob("ann/b")]
    desk.do(SubmitJob(spec("waits", after=(After("ann/a", Until.FINISHED),))))
    assert oldest(2.5) == [ForgetJob("ann/b")], "another job waits for the first one"


def test_not_all_are_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FORGOTTEN_AT_ONCE", 3)
    desk = Desk()
    for user, name in (("ann", "a"), ("ann", "b"), ("bob", "a"), ("cid", "a"), ("cid", "b")):
        desk.do(SubmitJob(spec(name, user=user)))
        desk.do(KillTasks(f"{user}/{name}"))
    later = NOW.later(SETTINGS.dead_jobs_seconds + 1.0)
    assert forgotten(desk, later) == [ForgetJob("ann/a"), ForgetJob("ann/b"), ForgetJob("bob/a")]


def test_the_oldest_of_all_users_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FORGOTTEN_AT_ONCE", 2)
    desk = Desk()
    for user, name in (("ann", "a"), ("ann", "b"), ("bob", "a"), ("cid", "a")):
        desk.do(SubmitJob(spec(name, user=user)))
        desk.do(KillTasks(f"{user}/{name}"))
    for key, since in (("ann/a", 3.0), ("ann/b", 4.0), ("bob/a", 1.0), ("cid/a", 2.0)):
        for task in desk.cell.jobs[key].tasks:
            task.since = since
    desk.cell.reindex()
    later = NOW.later(SETTINGS.dead_jobs_seconds + 1.0)
    assert forgotten(desk, later) == [ForgetJob("bob/a"), ForgetJob("cid/a")]
