"""What of the cell a machine is told: what to run, and what to stop, and within which time."""

import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    EvictTasks,
    JoinMachine,
    KillTasks,
    PlaceTasks,
    RemoveCron,
    RunCron,
    ScaleJob,
    SeenAttempt,
    SetCron,
    SubmitJob,
)
from borgish.cell.crons.model import output_seconds
from borgish.cell.observed import ORPHAN_SECONDS, SeenMachine
from borgish.link.conversation import Outgoing, attempt_spec, seen_attempt, stop_orders
from borgish.resources import Resources
from borgish.spec.cron import CronSpec
from borgish.spec.job import Program, Stop, Update
from borgish.vocabulary import Eviction, JobKind, Phase
from borgish.wire.link import AttemptReport, ProgramReport, StopOrder
from tests.unit.cell.crons import cron
from tests.unit.cell.test_app_crons import applied, of_app, stage
from tests.unit.cell.test_decide import NOW, Desk, machine, spec


@pytest.fixture
def desk() -> Desk:
    """Two machines; the task of ann/web is on m1, which has said so."""
    desk = Desk()
    desk.do(JoinMachine(machine("m2"), "i2", known=False))
    desk.do(SubmitJob(spec(tasks=1)))
    place(desk, "m1")
    return desk


def place(desk: Desk, on: str) -> int:
    """Place the task and return its attempt, seen there."""
    desk.do(PlaceTasks("ann/web", (0,), (on,)))
    attempt = desk.cell.jobs["ann/web"].tasks[0].attempt
    seen = desk.observed.machines.setdefault(on, SeenMachine())
    seen.put(SeenAttempt("ann/web/0", attempt, Phase.UP))
    return attempt


def orders(desk: Desk, on: str = "m1") -> list[StopOrder]:
    return list(stop_orders(desk.cell, desk.observed, on, NOW))


def evict(desk: Desk, notice_seconds: float) -> None:
    desk.do(EvictTasks("ann/web", (0,), Eviction.DRAIN, "make room", notice_seconds))


def test_what_is_evicted_gets_its_own_grace(desk: Desk) -> None:
    evict(desk, -1.0)
    assert [(order.reason, order.grace_seconds) for order in orders(desk)] == [("make room", None)]


def test_what_is_evicted_in_a_hurry_gets_no_more_than_the_notice(desk: Desk) -> None:
    evict(desk, 2.0)
    assert [order.grace_seconds for order in orders(desk)] == [2.0]


def test_the_notice_holds_when_the_task_is_elsewhere_already(desk: Desk) -> None:
    evict(desk, 2.0)
    place(desk, "m2")
    assert [order.grace_seconds for order in orders(desk)] == [2.0]
    assert orders(desk, "m2") == []


def test_the_notice_is_not_that_of_a_later_attempt(desk: Desk) -> None:
    evict(desk, 2.0)
    later = place(desk, "m2")
    desk.do(KillTasks("ann/web"))
    assert [(order.attempt, order.grace_seconds) for order in orders(desk, "m2")] == [(later, None)]


def test_a_kill_while_it_waits_leaves_the_notice_as_it_was(desk: Desk) -> None:
    evict(desk, 2.0)
    desk.do(KillTasks("ann/web"))
    assert [order.grace_seconds for order in orders(desk)] == [2.0]


def deregistering(seconds: float | None, *, handover: bool = False, tasks: int = 1) -> SubmitJob:
    return SubmitJob(
        spec(tasks=tasks, stop=Stop(deregister_seconds=seconds), update=Update(handover=handover))
    )


@pytest.mark.parametrize(
    "away",
    [
        KillTasks("ann/web"),
        EvictTasks("ann/web", (0,), Eviction.RESTART),
        EvictTasks("ann/web", (0,), Eviction.DRAIN),
        EvictTasks("ann/web", (0,), Eviction.TAINTED),
    ],
)
def test_what_is_ended_on_purpose_has_its_clients_leave_it_first(desk: Desk, away: Command) -> None:
    desk.do(deregistering(3.0))
    desk.do(away)
    assert [order.deregister_seconds for order in orders(desk)] == [3.0]


@pytest.mark.parametrize(
    ("seconds", "handover", "expected"),
    [(None, False, 0.0), (None, True, 5.0), (0.0, True, 0.0), (7.0, True, 7.0), (7.0, False, 7.0)],
)
def test_how_long_that_takes_is_as_the_job_has_it_now(
    desk: Desk, seconds: float | None, handover: bool, expected: float
) -> None:
    desk.do(deregistering(60.0))
    evict(desk, -1.0)
    desk.do(deregistering(seconds, handover=handover))
    assert [order.deregister_seconds for order in orders(desk)] == [expected]


def test_a_notice_goes_with_it(desk: Desk) -> None:
    desk.do(deregistering(3.0))
    evict(desk, 2.0)
    assert [(order.grace_seconds, order.deregister_seconds) for order in orders(desk)] == [(2.0, 3.0)]


def test_a_task_that_its_job_no_longer_has_is_given_time(desk: Desk) -> None:
    desk.do(deregistering(3.0, tasks=2))
    desk.do(PlaceTasks("ann/web", (1,), ("m1",)))
    gone = desk.cell.jobs["ann/web"].tasks[1].attempt
    seen = desk.observed.machines["m1"]
    seen.put(SeenAttempt("ann/web/1", gone, Phase.UP))
    desk.do(ScaleJob("ann/web", 1))
    assert [(order.task, order.deregister_seconds) for order in orders(desk)] == [("ann/web/1", 3.0)]


def test_what_nobody_knows_of_is_given_none(desk: Desk) -> None:
    """A job that is gone says nothing of its clients, and an orphan may have been somebody else's."""
    desk.do(deregistering(3.0))
    seen = desk.observed.machines["m1"]
    seen.put(SeenAttempt("ann/gone/0", 2, Phase.UP))
    seen.put(SeenAttempt("ann/web/0", 1, Phase.UP))
    seen.orphans["ann/web/0", 1] = NOW.mono - ORPHAN_SECONDS
    assert [(order.task, order.deregister_seconds) for order in orders(desk)] == [
        ("ann/gone/0", 0.0),
        ("ann/web/0", 0.0),
    ]


def test_what_should_run_is_not_told_to_stop(desk: Desk) -> None:
    desk.do(CordonMachine("m1"))
    assert orders(desk) == []


def test_an_alloc_is_in_no_assignment(desk: Desk) -> None:
    room = spec("room", 1, run=(), kind=JobKind.ALLOC_SET)
    desk.do(SubmitJob(room))
    desk.do(PlaceTasks("ann/room", (0,), ("m1",)))
    assignment = Outgoing(desk.cell, "m1").assignment(desk.observed, 1, NOW)
    assert ([attempt.task for attempt in assignment.run], assignment.stop) == (["ann/web/0"], ())


def test_a_task_is_told_the_devices_it_was_given(desk: Desk) -> None:
    desk.cell.machines["m1"].capacity = Resources(4000, 8 * 1024**3, 0, {}, {"gpu": 3000})
    desk.do(SubmitJob(spec("train", 1, resources=Resources(devices={"gpu": 2000}))))
    desk.do(PlaceTasks("ann/train", (0,), ("m1",), devices=(("gpu:1", "gpu:2"),)))
    job = desk.cell.jobs["ann/train"]
    assert attempt_spec(desk.cell, job, job.tasks[0]).env["BORGISH_DEVICES_GPU"] == "1,2"


def test_a_task_has_all_programs_of_its_group(desk: Desk) -> None:
    proxy = Program("proxy", ("proxy",), env={"A": "{{task.index}}"})
    desk.do(SubmitJob(spec("several", 1, group=(proxy,), env={"A": "x", "B": "y"})))
    desk.do(PlaceTasks("ann/several", (0,), ("m1",)))
    job = desk.cell.jobs["ann/several"]
    (beside,) = (main := attempt_spec(desk.cell, job, job.tasks[0])).programs
    assert (beside.name, beside.run, main.env["A"]) == ("proxy", ("proxy",), "x")
    env = main.beside(beside).env
    assert (env["A"], env["B"], env["BORGISH_PROGRAM"]) == ("0", "y", "proxy")
    assert env["BORGISH_TASK"] == "ann/several/0"


@pytest.mark.parametrize(
    ("phase", "held_back", "early_ends", "seen"),
    [
        (Phase.STARTING, False, 0, Phase.STARTING),
        (Phase.STARTING, False, 5, Phase.STARTING),
        (Phase.STARTING, True, 2, Phase.BACKING_OFF),
        (Phase.STARTING, True, 3, Phase.CRASH_LOOPING),
        (Phase.UP, False, 9, Phase.UP),
        (Phase.STOPPING, True, 9, Phase.STOPPING),
    ],
)
def test_what_waits_for_its_next_start_is_told_from_what_starts(
    phase: Phase, held_back: bool, early_ends: int, seen: Phase
) -> None:
    beside = ProgramReport("proxy", phase, held_back=held_back, early_ends=early_ends)
    report = AttemptReport(
        "ann/web/0", 3, phase, programs=(beside,), held_back=held_back, early_ends=early_ends
    )
    attempt = seen_attempt(report)
    assert (attempt.phase, attempt.early_ends, attempt.programs[0].phase) == (seen, early_ends, seen)


WEEKLY = "0 8 * * fri"


def kept_of_run(desk: Desk, spec: CronSpec) -> list[float]:
    """Return for how long the output of each job of a new run is wanted, as its machine is told."""
    desk.do(SetCron(spec))
    desk.do(RunCron(spec.key))
    runs = sorted(job.key for job in desk.cell.jobs.values() if job.cron == spec.key)
    for run in runs:
        desk.do(PlaceTasks(run, (0,), ("m1",)))
    return [kept(desk, run) for run in runs]


def kept(desk: Desk, job: str) -> float:
    there = desk.cell.jobs[job]
    return attempt_spec(desk.cell, there, there.tasks[0]).keep_output_seconds


def test_a_run_of_a_cron_has_its_output_kept(desk: Desk) -> None:
    weekly = cron(schedule=WEEKLY, keep=5)
    seconds = output_seconds(weekly, NOW.wall)
    assert 35 * 86400 < seconds <= 42 * 86400
    assert kept_of_run(desk, weekly) == [seconds]
    assert kept(desk, "ann/web") == 0.0


def test_each_stage_of_an_application_that_a_cron_runs_has_its_output_kept(desk: Desk) -> None:
    desk.do(applied(stage("extract"), stage("load")))
    assert kept_of_run(desk, of_app(keep=7)) == [output_seconds(of_app(keep=7), NOW.wall)] * 2


def test_what_a_cron_that_was_removed_has_begun_is_as_any_other_job(desk: Desk) -> None:
    kept_of_run(desk, cron())
    (run,) = [job.key for job in desk.cell.jobs.values() if job.cron]
    desk.do(RemoveCron("ann/nightly"))
    assert kept(desk, run) == 0.0
