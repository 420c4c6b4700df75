"""What ``restart.attempts`` counts of a task that runs to completion, on whatever machines it runs."""

import pytest

from borgish.borglet.attempts.attempt import Attempt
from borgish.borglet.runtimes.base import RunState
from borgish.cell.command import Command
from borgish.cell.commands import (
    EvictTasks,
    JoinMachine,
    LoseMachine,
    Observe,
    PlaceTasks,
    RestartTasks,
    SetMachineDown,
)
from borgish.link.conversation import attempt_spec, seen_attempt
from borgish.spec.file.read import read_job
from borgish.spec.file.write import write_job
from borgish.spec.job import WITHIN_SECONDS_MAX, JobSpec, Restart
from borgish.vocabulary import Ending, Eviction, RestartPolicy
from borgish.wire.link import AttemptSpec, Exit
from tests.unit.cell.test_decide import NOW, Desk, machine, spec

FOR_LIFE = Restart(RestartPolicy.ON_FAILURE, 3, WITHIN_SECONDS_MAX)


class Course(Desk):
    """A job of one task on one machine after the other, with what its borglets make of its ends."""

    def __init__(self, restart: Restart = FOR_LIFE) -> None:
        super().__init__()
        self.do(JoinMachine(machine("m2"), "i2", known=False))
        self.submit_and_place(self.job(restart))
        self.begin()

    @staticmethod
    def job(restart: Restart) -> JobSpec:
        return spec(tasks=1, restart=restart)

    def wanted(self) -> AttemptSpec:
        job = self.cell.jobs["ann/web"]
        return attempt_spec(self.cell, job, job.tasks[0])

    def begin(self) -> None:
        """A borglet gets the attempt, and starts it."""
        wanted = self.wanted()
        self.attempt = Attempt(task=wanted.task, attempt=wanted.attempt, spec=wanted)
        self.run(1)

    def run(self, number: int) -> None:
        self.attempt.advance(NOW.later(1e6))
        self.attempt.ran(RunState(self.attempt.key, number, 7, NOW.wall), NOW)
        self.tell()

    def fail(self, run: int) -> None:
        """It fails, and begins again where it may."""
        self.attempt.ran(RunState(self.attempt.key, run, 7, NOW.wall, Exit(code=1, at=NOW.wall)), NOW)
        if self.attempt.ended is None:
            self.attempt.due = NOW
            self.run(run + 1)
        else:
            self.tell()

    def tell(self) -> None:
        machine = self.cell.jobs["ann/web"].tasks[0].machine
        self.do(Observe(machine, "b1", "i1", (seen_attempt(self.attempt.report()),)), machine)

    def goes_to_m2(self, *commands: Command) -> None:
        for command in commands:
            self.do(command)
        self.do(PlaceTasks("ann/web", (0,), ("m2",)))
        self.begin()

    @property
    def ending(self) -> Ending | None:
        return self.cell.jobs["ann/web"].tasks[0].ending


EVICTED = (EvictTasks("ann/web", (0,), Eviction.OUT_OF_RESOURCES),)
LOST = (SetMachineDown("m1", "silent"), LoseMachine("m1", "silent", 1.0))


@pytest.mark.parametrize("how", [EVICTED, LOST])
def test_failures_count_over_machines_and_evictions_do_not(how: tuple[Command, ...]) -> None:
    course = Course()
    course.fail(1)
    course.fail(2)
    course.goes_to_m2(*how)
    assert course.wanted().failures == 2
    assert course.ending is None
    course.fail(1)
    assert course.ending is Ending.FAIL
    reason = course.cell.jobs["ann/web"].tasks[0].reason
    assert reason == "exit code 1; failed 3 times, the limit of its restart.attempts"


def test_with_a_time_of_its_own_each_machine_counts_anew() -> None:
    course = Course(Restart(RestartPolicy.ON_FAILURE, 3, 600.0))
    course.fail(1)
    course.fail(2)
    course.goes_to_m2(*EVICTED)
    assert course.wanted().failures == 0


def test_a_restart_by_its_user_begins_anew() -> None:
    course = Course()
    course.fail(1)
    course.goes_to_m2(RestartTasks("ann/web", hurried=True, max_affected=1))
    assert course.wanted().failures == 0


def test_what_failed_and_is_submitted_again_begins_anew() -> None:
    course = Course()
    for run in (1, 2, 3):
        course.fail(run)
    assert course.ending is Ending.FAIL
    course.goes_to_m2(RestartTasks("ann/web"))
    assert course.wanted().failures == 0


@pytest.mark.parametrize(
    ("restart", "for_life"),
    [
        ("{policy: on_failure, attempts: 3}", True),
        ("{policy: on_failure, attempts: 3, within: 30d}", True),
        ("{policy: on_failure, attempts: 3, within: 10m}", False),
        ("{policy: on_failure}", False),
        ("{attempts: 3}", False),
    ],
)
def test_attempts_count_for_life_unless_a_time_is_given(restart: str, for_life: bool) -> None:
    job = read_job(f"name: web\nrun: [serve]\nrestart: {restart}", "ann")
    assert job.restart.counts_for_life == for_life
    assert read_job(write_job(job), "ann") == job
    assert ("within" in write_job(job)) == ("within: 10m" in restart)
