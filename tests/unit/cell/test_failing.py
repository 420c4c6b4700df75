"""When a service's task moves, what it avoids then, and when its job is held."""

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    ForgetFailures,
    HoldJob,
    JoinMachine,
    KillTasks,
    Observe,
    PlaceTasks,
    ReleaseJob,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry, TasksEvicted
from borgish.cell.invariants import violations
from borgish.cell.model import FailedOn, Job
from borgish.cell.tasks.failing import (
    AVOIDED_SECONDS,
    AVOIDED_SECONDS_MAX,
    MOVED_AFTER_STARTS,
    TRIAL_SECONDS,
    avoided,
    may_be_placed,
    why_held,
)
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import Ending, Eviction, Phase, RestartPolicy, State
from tests.unit.cell.test_decide import NOW, Desk, machine, spec

JOB = "ann/web"
MACHINES = ("m1", "m2", "m3", "m4")


class Failing(Desk):
    """A cell of four machines, with tasks that fail."""

    def __init__(self, job: JobSpec) -> None:
        super().__init__()
        for name in MACHINES[1:]:
            self.do(JoinMachine(machine(name), name, known=False))
        self.do(SubmitJob(job))

    @property
    def job(self) -> Job:
        return self.cell.jobs[JOB]

    def place(self, index: int, on: str) -> None:
        self.do(PlaceTasks(JOB, (index,), (on,)))

    def report_of(self, index: int, **seen: object) -> Observe:
        task = self.job.tasks[index]
        attempt = SeenAttempt(f"{JOB}/{index}", task.attempt, Phase.STARTING, exit_code=3)
        return Observe(task.machine, "b1", "i1", (msgspec.structs.replace(attempt, **seen),))

    def give_up(self, index: int, on: str) -> None:
        self.place(index, on)
        self.do(self.report_of(index, ended=Ending.FAIL, gave_up=True, reason="exit code 3"))


def service(tasks: int = 1, attempts: int = 0) -> JobSpec:
    return spec(tasks=tasks, restart=Restart(attempts=attempts))


def test_what_its_borglet_gave_up_goes_back_to_pending_and_avoids_the_machine() -> None:
    desk = Failing(service())
    desk.give_up(0, "m1")
    task = desk.job.tasks[0]
    assert (task.state, task.reason, task.exit_code) == (State.PENDING, "failed on m1: exit code 3", 3)
    assert task.failed == (FailedOn("m1", NOW.wall + AVOIDED_SECONDS, 1),)
    assert avoided(task, NOW.wall) == ("m1",)
    assert avoided(task, NOW.wall + AVOIDED_SECONDS) == ()
    assert avoided(task, NOW.wall - 10 * AVOIDED_SECONDS_MAX) == ()  # the clock was set back


def test_what_runs_to_completion_or_was_told_to_end_is_dead() -> None:
    for job, seen in (
        (spec(tasks=1, restart=Restart(RestartPolicy.ON_FAILURE, 3)), {"gave_up": True}),
        (service(), {}),  # its max_runtime, or the borglet is a release older
    ):
        desk = Failing(job)
        desk.place(0, "m1")
        desk.do(desk.report_of(0, ended=Ending.FAIL, **seen))
        assert desk.job.tasks[0].ending is Ending.FAIL


@pytest.mark.parametrize(
    ("attempts", "early_ends", "phase", "state"),
    [
        (0, MOVED_AFTER_STARTS - 1, Phase.CRASH_LOOPING, State.RUNNING),
        (0, MOVED_AFTER_STARTS, Phase.CRASH_LOOPING, State.PENDING),
        (0, MOVED_AFTER_STARTS, Phase.UP, State.RUNNING),  # it runs now, and perhaps well
        (9, MOVED_AFTER_STARTS, Phase.CRASH_LOOPING, State.RUNNING),
        (9, 9, Phase.CRASH_LOOPING, State.PENDING),
    ],
)
def test_a_crash_loop_ends_elsewhere(attempts: int, early_ends: int, phase: Phase, state: State) -> None:
    desk = Failing(service(attempts=attempts))
    desk.place(0, "m1")
    desk.do(desk.report_of(0, early_ends=early_ends, phase=phase))
    assert desk.job.tasks[0].state is state
    if state is State.PENDING:
        why = f"failed on m1: exit code 3; {early_ends} starts in a row ended early"
        assert desk.job.tasks[0].reason == why


def test_the_time_doubles_up_to_an_hour() -> None:
    desk, found = Failing(service()), []
    for _ in range(8):
        desk.give_up(0, "m1")
        found.append(desk.job.tasks[0].failed[0].until - NOW.wall)
    assert found == [60, 120, 240, 480, 960, 1920, 3600, AVOIDED_SECONDS_MAX]


def test_a_task_that_failed_three_times_holds_its_job() -> None:
    desk = Failing(service(tasks=4))
    desk.give_up(0, "m1")
    desk.give_up(0, "m2")
    assert why_held(desk.cell, desk.job, NOW.wall) == ""
    desk.give_up(0, "m3")
    why = "task 0 failed 3 times on 3 machines: failed on m3: exit code 3"
    assert why_held(desk.cell, desk.job, NOW.wall) == why


def test_half_of_the_tasks_on_three_machines_hold_their_job() -> None:
    desk = Failing(service(tasks=6))
    desk.give_up(0, "m1")
    desk.give_up(1, "m2")
    assert why_held(desk.cell, desk.job, NOW.wall) == ""
    desk.give_up(2, "m3")
    why = "3 tasks of 6 failed on 3 machines: failed on m1: exit code 3"
    assert why_held(desk.cell, desk.job, NOW.wall) == why


def test_one_bad_machine_holds_nobody() -> None:
    desk = Failing(service(tasks=4))
    for index in range(4):
        desk.give_up(index, "m1")
    assert why_held(desk.cell, desk.job, NOW.wall) == ""


def held(tasks: int = 4, failed: int = 3) -> Failing:
    desk = Failing(service(tasks=tasks))
    for index in range(failed):
        desk.give_up(index, MACHINES[index])
    desk.do(HoldJob(JOB, "it crashes"))
    return desk


def test_a_held_job_has_one_trial_a_minute_in_turn() -> None:
    desk = held()
    first = NOW.wall + TRIAL_SECONDS
    assert may_be_placed(desk.cell, desk.job, [0, 1, 2, 3], NOW.wall) == [3]
    assert may_be_placed(desk.cell, desk.job, [0, 1, 2, 3], first) == [0, 3]
    desk.place(0, "m4")
    assert may_be_placed(desk.cell, desk.job, [1, 2, 3], first) == [3]  # that one is under way
    desk.do(desk.report_of(0, early_ends=1))  # once is enough
    assert desk.job.tasks[0].state is State.PENDING
    assert may_be_placed(desk.cell, desk.job, [0, 1, 2, 3], first) == [1, 3]


def test_what_runs_of_a_held_job_is_restarted_where_it_is() -> None:
    desk = held()
    desk.place(3, "m4")
    desk.do(desk.report_of(3, early_ends=50, phase=Phase.CRASH_LOOPING))
    assert desk.job.tasks[3].state is State.RUNNING


def test_a_gang_is_tried_as_a_whole() -> None:
    desk = held()
    job = msgspec.structs.replace(desk.job, spec=msgspec.structs.replace(desk.job.spec, gang=True))
    assert may_be_placed(desk.cell, job, [0, 1, 3], NOW.wall) == []
    assert may_be_placed(desk.cell, job, [0, 1, 3], NOW.wall + TRIAL_SECONDS) == [0, 1, 3]


def test_after_its_release_all_is_tried_and_one_that_fails_again_holds_it() -> None:
    desk = Failing(service())
    for name in MACHINES[:3]:
        desk.give_up(0, name)
    desk.do(HoldJob(JOB, "it crashes"))
    desk.do(ReleaseJob(JOB))
    assert (avoided(desk.job.tasks[0], NOW.wall), why_held(desk.cell, desk.job, NOW.wall)) == ((), "")
    desk.give_up(0, "m1")
    assert why_held(desk.cell, desk.job, NOW.wall)


@pytest.mark.parametrize(
    "command",
    [
        RestartTasks(JOB),
        SubmitJob(service(tasks=4)),
        KillTasks(JOB),
        ForgetFailures(JOB, (0, 1, 2)),
    ],
)
def test_what_ends_it(command: SubmitJob) -> None:
    desk = held()
    desk.do(command)
    assert (desk.job.held, desk.cell.failing, [task.failed for task in desk.job.tasks]) == (
        None,
        {},
        [()] * 4,
    )


def test_fewer_tasks_that_failed_hold_it_no_longer_when_none_is_left() -> None:
    desk = Failing(service(tasks=4))
    for name in MACHINES[:3]:
        desk.give_up(3, name)
    desk.do(HoldJob(JOB, "it crashes"))
    desk.do(ScaleJob(JOB, 3))
    assert (desk.job.held, desk.cell.failing) == (None, {})


def test_what_an_earlier_version_does_says_nothing_of_the_present_one() -> None:
    desk = Failing(service())
    desk.place(0, "m1")
    desk.job.version = 2
    decision = decide(desk.cell, desk.observed, desk.report_of(0, ended=Ending.FAIL, gave_up=True), "m1", NOW)
    (event,) = decision.events
    assert isinstance(event, TasksEvicted)
    assert (event.cause, event.failed) == (Eviction.FAILED, ())
    apply_entry(desk.cell, Entry(desk.cell.position + 1, NOW.wall, 1, 1, "m1", "test", decision.events))
    assert (desk.cell.failing, violations(desk.cell)) == ({}, [])
