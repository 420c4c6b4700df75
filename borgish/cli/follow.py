"""Follows jobs until each is as wanted and stays so, cannot become so any more, or the time is over.

``verdict`` is pure and says what one look at a job means; ``Course`` is one job on its way; ``follow`` looks,
shows one line of progress, and waits for changes. What is missing in the end is printed by ``missing``.

A submission ends when what came up has stayed up: being up for an instant says little of a program that is
not probed. A program that ended is given its restart in place; when it ends again, back-off holds it back,
and the submission fails.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from borgish.cli.changes import Changes, Deadline
from borgish.cli.errors import DONE, FAILED, NOT_ALLOWED, NOT_PLACED, print_error
from borgish.cli.render import Progress, outcomes, plural
from borgish.cli.screen import print_err, print_out
from borgish.client import quoted
from borgish.errors import Invalid, Unreachable
from borgish.text import safe, span
from borgish.vocabulary import HELD_BACK, State
from borgish.wire.api import JobDetail, JobView, TaskView

if TYPE_CHECKING:
    from borgish.client import Client

# A program that cannot work mostly ends within its first seconds. A probe that answers knows more of it
# than that its process exists, so less time is enough.
SETTLE_SECONDS = 3.0
SETTLE_PROBED_SECONDS = 1.0


class Goal(StrEnum):
    """What a job is waited for."""

    UP = "up"
    DEAD = "dead"
    FINISHED = "finished"


def verdict(job: JobView, goal: Goal) -> int | None:
    """Return the exit code when the wait is over; None when it may still come."""
    if goal is Goal.DEAD:
        return DONE if job.state is State.DEAD else None
    if goal is Goal.FINISHED:
        return (DONE if job.finished == job.tasks else FAILED) if job.state is State.DEAD else None
    up = job.up or 0
    if up + job.finished >= job.tasks:
        return DONE
    return FAILED if up + job.dead >= job.tasks or job.held else None


def verdict_in_time(job: JobView, goal: Goal) -> int:
    """Return the exit code when the time is over."""
    return NOT_PLACED if job.pending or goal is not Goal.UP else FAILED


def look(client: "Client", job: str) -> JobDetail:
    """Return the job as it is."""
    return client.get(quoted("jobs", *job.split("/")), None, JobDetail)


def follow(
    client: "Client",
    jobs: Sequence[str],
    goal: Goal,
    timeout_seconds: float,
    settle_seconds: float | None = None,
    *,
    until_death: bool = False,
) -> list[int]:
    """Wait until each job is as wanted and return the exit codes; say what is missing where it is not.

    What is up has to stay so for ``settle_seconds`` (None: as long as fits the job). With ``until_death`` it
    is over for a job as soon as a program of it died, was restarted and died again.
    """
    deadline = Deadline(timeout_seconds)
    changes = Changes(client, "tasks,event", jobs[0] if len(jobs) == 1 else "")
    progress = Progress()
    courses = [Course(client, job, goal, deadline, settle_seconds, until_death=until_death) for job in jobs]
    codes: list[int] = []
    try:
        while courses:
            for course in list(courses):
                code = course.look(progress)
                if code is None and not deadline.left:
                    code = course.time_is_over()
                if code is not None:
                    progress.end()
                    course.conclude(code, timeout_seconds)
                    courses.remove(course)
                    codes.append(code)
            if courses:
                progress.show(courses[0].line)
                changes.wait(min(course.wait_seconds for course in courses))
    finally:
        changes.close()
        progress.end()
    return codes


class Course:
    """One job on its way to its goal. ``line`` says where it is."""

    def __init__(
        self,
        client: "Client",
        job: str,
        goal: Goal,
        deadline: Deadline,
        settle_seconds: float | None,
        *,
        until_death: bool,
    ) -> None:
        self.line = ""
        self._client = client
        self._job = job
        self._goal = goal
        self._deadline = deadline
        self._settle_seconds = settle_seconds
        self._until_death = until_death
        self._detail: JobDetail | None = None
        self._settled_at: float | None = None  # when it will have been up for long enough
        self._programs: dict[int, tuple[int, int]] = {}  # by task: attempt and restarts when it came up
        self._died: list[TaskView] = []  # tasks whose programs ended although they were up
        self._announced = ""

    @property
    def wait_seconds(self) -> float:
        """How long until it should be read again, whether or not anything changes."""
        left = self._deadline.left
        return (
            left if self._settled_at is None else min(left, max(0.0, self._settled_at - self._deadline.spent))
        )

    def look(self, progress: Progress) -> int | None:
        """Look at the job; return the exit code when its wait is over."""
        asked_at = self._deadline.spent  # what is seen is no older
        try:
            self._detail = look(self._client, self._job)
            self.line = one_line(self._detail.job)
            code = verdict(self._detail.job, self._goal)
            if self._goal is not Goal.UP:
                return code
            if code == DONE:
                return self._settled(self._detail, asked_at, progress)
            self._settled_at = None
            return FAILED if code is None and self._until_death and self._is_dying(self._detail) else code
        except Unreachable:
            self.line = f"{self._job}: the master does not answer; still trying"
            self._settled_at = None
            return None

    def time_is_over(self) -> int:
        """Return the exit code when there is no more time."""
        if self._detail is None:
            return NOT_ALLOWED
        if self._settled_at is not None:  # it is up; but for how long?
            self._died = self._restarted(self._running())
            return FAILED if self._died else DONE
        return verdict_in_time(self._detail.job, self._goal)

    def conclude(self, code: int, timeout_seconds: float) -> None:
        """Say how it came out."""
        from borgish.cli.problems import print_problems

        if self._detail is None:
            waited = span(timeout_seconds)
            print_error(f"{self._job}: the master did not answer for {waited}; the job may continue")
            return
        text = one_line(self._detail.job)
        if code == DONE:
            if text != self._announced:
                print_out(f"{text} after {self._deadline.spent:.1f}s")
            return
        late = verdict(self._detail.job, self._goal) is None and not self._died
        print_err(f"{text}{f' after {span(self._deadline.spent)}' if late else ''}")
        print_problems(self._client, self._detail, self._died)

    def _settled(self, detail: JobDetail, asked_at: float, progress: Progress) -> int | None:
        """Return DONE when what is up stayed so for long enough; say at once that it is up."""
        settle_seconds = self._settle_seconds
        if settle_seconds is None:
            settle_seconds = SETTLE_PROBED_SECONDS if detail.spec.health else SETTLE_SECONDS
        if not detail.job.running or not settle_seconds:
            return DONE
        if not self._announced:
            self._announced = self.line
            progress.end()
            print_out(f"{self.line} after {self._deadline.spent:.1f}s")
            sys.stdout.flush()
        self.line = f"{self.line}; watching for {settle_seconds:g}s whether it stays so"
        if self._settled_at is not None and asked_at < self._settled_at:
            return None
        running = self._running()
        if self._settled_at is not None and not self._restarted(running):
            return DONE
        self._programs = {task.index: _program(task) for task in running}
        self._settled_at = self._deadline.spent + settle_seconds
        return None

    def _running(self) -> list[TaskView]:
        from borgish.cli.lookup import every_task

        return every_task(self._client, job=self._job, state=State.RUNNING)

    def _restarted(self, running: Sequence[TaskView]) -> list[TaskView]:
        """Return the tasks whose program that was up is another one now: it ended between two looks."""
        return [task for task in running if self._programs.get(task.index) != _program(task)]

    def _is_dying(self, detail: JobDetail) -> bool:
        """Whether programs ended, were started again at once, and ended again."""
        from borgish.cli.problems import died

        if HELD_BACK.isdisjoint(detail.not_up):
            return False
        self._died = [task for task in self._running() if died(task)]
        return bool(self._died)


def _program(task: TaskView) -> tuple[int, int]:
    """Return what differs when a program ended and another began, also between two looks at it."""
    return task.attempt, task.restarts


def one_line(job: JobView) -> str:
    """Return where a job is, as one line."""
    if job.finished == job.tasks:
        return f"{job.name}: {job.finished} of {plural(job.tasks, 'task')} finished"
    counts = [f"{job.up} of {plural(job.tasks, 'task')} up"]
    counts += outcomes(job.finished, job.failed, job.killed)
    counts += [f"{job.pending} pending"] if job.pending else []
    reason = f": {safe(job.reason)}" if job.reason else ""
    return f"{job.name}: {', '.join(counts)}{reason}"


def refuse_unreachable_goal(detail: JobDetail, goal: Goal) -> None:
    """Raise Invalid for a wait that can never end well."""
    if goal is Goal.FINISHED and detail.spec.is_service:
        raise Invalid(
            f"{detail.job.name} is a service and never finishes",
            "Wait --for dead, or give it restart: {policy: on_failure}",
        )
