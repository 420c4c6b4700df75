"""Follows jobs until each is as wanted and stays so, cannot become so any more, or the time is over.

``verdict`` is pure and says what one look at a job means; ``Course`` is one job on its way; ``follow`` looks,
shows one line of progress, and waits for changes. What is missing in the end is printed by ``missing``.

A submission ends when what came up has stayed up: being up for an instant says little of a program that is
not probed. A program that ended is given its restart in place; when it ends again, back-off holds it back,
and the submission fails. While an update reaches the tasks it is what is followed: it knows itself what has
settled, and what has failed.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from borgish.cli.changes import Changes, Deadline
from borgish.cli.errors import (
    DONE,
    FAILED,
    GONE,
    KILLED,
    NOT_ALLOWED,
    NOT_PLACED,
    print_error,
    print_hint,
)
from borgish.cli.render import Progress, outcomes
from borgish.cli.rollouts import last_words, rollout_line
from borgish.cli.screen import print_err, print_out
from borgish.client import quoted
from borgish.errors import Invalid, NotFound, Unreachable
from borgish.text import local_times, plural, safe, span
from borgish.vocabulary import HELD_BACK, Hold, State
from borgish.wire.api import JobDetail, JobView, RolloutView, TaskView

if TYPE_CHECKING:
    from borgish.client import Client

# A program that cannot work mostly ends within its first seconds. A probe that answers knows more of it
# than that its process exists, so less time is enough.
SETTLE_SECONDS = 3.0
SETTLE_PROBED_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0


class Goal(StrEnum):
    """What a job is waited for."""

    UP = "up"
    DEAD = "dead"
    FINISHED = "finished"


def verdict(job: JobView, goal: Goal, rollout: RolloutView | None = None) -> int | None:
    """Return the exit code when the wait is over; None when it may still come.

    A job is not up while a ``rollout`` has tasks of it to reach. That somebody has to promote canaries is
    what was asked for, and ends the wait well.
    """
    if goal is Goal.DEAD:
        return DONE if job.state is State.DEAD else None
    if goal is Goal.FINISHED:
        if job.state is not State.DEAD:
            return None
        return DONE if job.finished == job.tasks else FAILED if job.failed else KILLED
    if rollout is not None and job.state is not State.DEAD:
        if rollout.hold is None:
            return None
        return DONE if rollout.hold is Hold.CANARY else FAILED
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
    timeout_seconds: float | None = None,
    settle_seconds: float | None = None,
    *,
    submitted: bool = False,
) -> list[int]:
    """Wait until each job is as wanted and return the exit codes; say what is missing where it is not.

    Without ``timeout_seconds`` an update has all its time, and the rest a minute. What is up has to stay so
    for ``settle_seconds`` (None: as long as fits the job). When it was just ``submitted`` it is over for a
    job as soon as a program of it died, was restarted and died again; Ctrl-C says how to go on. It is over
    for all when one of them came out badly and the others wait for other jobs: most likely for that one.
    """
    changes = Changes(client, "tasks,event", jobs[0] if len(jobs) == 1 else "")
    progress = Progress()
    courses = [
        Course(client, job, goal, timeout_seconds, settle_seconds, submitted=submitted) for job in jobs
    ]
    codes: list[int] = []
    try:
        while courses:
            for course in list(courses):
                code = course.look(progress)
                is_stuck = set(codes) - {DONE} and all(each.is_waiting for each in courses)
                if code is None and (not course.left or is_stuck):
                    code = course.time_is_over()
                if code is not None:
                    progress.end()
                    course.conclude(code)
                    courses.remove(course)
                    codes.append(code)
            if courses:
                progress.show(courses[0].line)
                changes.wait(min(course.wait_seconds for course in courses))
    except KeyboardInterrupt:
        if submitted:
            progress.end()
            for course in courses:
                course.detach()
        raise  # nobody knows yet how it comes out: a script is not to go on as if it had come out well
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
        timeout_seconds: float | None,
        settle_seconds: float | None,
        *,
        submitted: bool,
    ) -> None:
        self.line = ""
        self._client = client
        self._job = job
        self._goal = goal
        self._timeout_seconds = TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        self._is_patient = timeout_seconds is None
        self._clock = Deadline(float("inf"))
        self._rolled_at: float | None = None  # when a rollout was last seen under way
        self._waited_until = 0.0  # when it was last seen to wait for other jobs
        self._version = 0  # that was to come, when it was first looked at
        self._is_lost = False  # the master did not answer when it was last asked
        self._is_gone = False  # there is no such job any more
        self._settle_seconds = settle_seconds
        self._submitted = submitted
        self._detail: JobDetail | None = None
        self._settled_at: float | None = None  # when it will have been up for long enough
        self._programs: dict[int, tuple[int, int]] = {}  # by task: attempt and restarts when it came up
        self._died: list[TaskView] = []  # tasks whose programs ended although they were up
        self._announced = ""

    @property
    def left(self) -> float:
        """Seconds until it is given up. A rollout has its own deadline, and ends by itself."""
        if not self._is_patient:
            return max(0.0, self._timeout_seconds - self._clock.spent)
        if (self._is_rolling or self._may_begin) and not self._is_lost:
            return float("inf")
        counted_from = max(self._rolled_at or 0.0, self._waited_until)
        return max(0.0, counted_from + self._timeout_seconds - self._clock.spent)

    @property
    def is_waiting(self) -> bool:
        """Whether tasks of it wait for other jobs."""
        return self._detail is not None and bool(self._detail.job.waiting)

    @property
    def _may_begin(self) -> bool:
        """Whether it waits for other jobs that may be there some time without anybody's doing."""
        detail = self._detail
        if detail is None or not self.is_waiting:
            return False
        return not any(each.in_order and each.impossible for each in detail.refusals)

    @property
    def wait_seconds(self) -> float:
        """How long until it should be read again, whether or not anything changes."""
        if self._settled_at is None:
            return self.left
        return min(self.left, max(0.0, self._settled_at - self._clock.spent))

    def look(self, progress: Progress) -> int | None:
        """Look at the job; return the exit code when its wait is over."""
        asked_at = self._clock.spent  # what is seen is no older
        try:
            detail = self._detail = look(self._client, self._job)
            self._is_lost = False
            self._version = self._version or detail.job.version
            if detail.rollout is not None:
                self._rolled_at, self._settled_at = asked_at, None
            if self._may_begin:  # the time that it waits for other jobs is none in which it finds no place
                self._waited_until = asked_at
            self.line = self._words(detail)
            code = verdict(detail.job, self._goal, detail.rollout)
            if self._goal is not Goal.UP:
                return code
            if self._is_replaced:
                return FAILED
            if detail.rollout is not None:
                return code
            if code == DONE:
                return self._settled(detail, asked_at, progress)
            self._settled_at = None
            return FAILED if code is None and self._submitted and self._is_dying(detail) else code
        except NotFound:  # it was dead, and is forgotten; or the cell was rolled back to before it
            if self._goal is Goal.UP:
                raise
            self._is_gone, self.line = True, f"{self._job} is gone"
            return DONE if self._goal is Goal.DEAD else GONE
        except Unreachable:
            self.line = f"{self._job}: the master does not answer; still trying"
            self._settled_at, self._is_lost = None, True
            return None

    def time_is_over(self) -> int:
        """Return the exit code when there is no more time."""
        if self._detail is None:
            return NOT_ALLOWED
        if self._settled_at is not None:  # it is up; but for how long?
            self._died = self._restarted(self._running())
            return FAILED if self._died else DONE
        return NOT_PLACED if self._is_rolling else verdict_in_time(self._detail.job, self._goal)

    def conclude(self, code: int) -> None:
        """Say how it came out."""
        from borgish.cli.problems import print_problems

        detail = self._detail
        if self._is_gone:
            if code == DONE:
                print_out(self.line)
            else:
                print_error(f"{self.line}: it was forgotten, or rolled back, before its outcome was seen")
                print_hint(f"`borgctl events --job {self._job}` may tell how it came out")
            return
        if detail is None:
            waited = span(self._timeout_seconds)
            print_error(f"{self._job}: the master did not answer for {waited}; the job may continue")
            return
        text = self._words(detail)
        if code == DONE:
            if text != self._announced:
                # Canaries that have come up are not the end of it.
                after = "" if self._is_rolling else f" after {self._clock.spent:.1f}s"
                print_out(f"{text}{after}")
            last = detail.last_rollout if self._rolled_at is not None else None
            if last is not None and last.skipped and not self._is_rolling:
                print_hint(f"`borgctl job restart {self._job} {last.skipped}` changes those that were left")
        else:
            late = verdict(detail.job, self._goal, detail.rollout) is None and not self._died
            late = late and not self._is_replaced
            print_err(f"{text}{f' after {span(self._clock.spent)}' if late else ''}")
            print_problems(self._client, detail, self._died)
        if self._is_rolling and detail.rollout is not None:
            follow_on = f"`borgctl job wait {self._job}` follows it"
            for way in (follow_on,) if self._is_replaced else detail.rollout.ways_out:
                print_hint(way)

    def detach(self) -> None:
        """Say how to go on following it, and how to stop it."""
        follow_it = f"{self._job} goes on. Follow: borgctl job wait {self._job}"
        if self._is_rolling:
            update = "borgctl job update"
            print_err(f"{follow_it}   Look: {update} status {self._job}   Back: {update} undo {self._job}")
        else:
            print_err(f"{follow_it}   End it: borgctl job kill {self._job}")

    @property
    def _is_replaced(self) -> bool:
        """Whether the job has another version than the one whose update was followed."""
        return (
            self._rolled_at is not None
            and self._detail is not None
            and self._detail.job.version != self._version
        )

    @property
    def _is_rolling(self) -> bool:
        detail = self._detail
        if self._goal is not Goal.UP or detail is None:
            return False
        return detail.rollout is not None and detail.job.state is not State.DEAD

    def _words(self, detail: JobDetail) -> str:
        """Return where the job is, as one line."""
        job, rollout, last = detail.job, detail.rollout, detail.last_rollout
        if self._goal is not Goal.UP or job.state is State.DEAD:
            return one_line(job)
        if self._is_replaced:
            why = f": {safe(rollout.reason)}" if rollout is not None else ""
            return f"{job.name}: version {job.version} replaces version {self._version}{why}"
        if rollout is not None:
            return rollout_line(detail, rollout)
        if self._rolled_at is not None and last is not None:
            return f"{last_words(detail, last)}; {one_line(job).removeprefix(f'{job.name}: ')}"
        return one_line(job)

    def _settled(self, detail: JobDetail, asked_at: float, progress: Progress) -> int | None:
        """Return DONE when what is up stayed so for long enough; say at once that it is up."""
        settle_seconds = self._settle_seconds
        if settle_seconds is None:
            settle_seconds = SETTLE_PROBED_SECONDS if detail.spec.health else SETTLE_SECONDS
        if not detail.job.running or not settle_seconds or self._rolled_at is not None:
            return DONE  # what an update has changed was watched by it
        if not self._announced:
            self._announced = self.line
            progress.end()
            print_out(f"{self.line} after {self._clock.spent:.1f}s")
            sys.stdout.flush()
        self.line = f"{self.line}; watching for {settle_seconds:g}s whether it stays so"
        if self._settled_at is not None and asked_at < self._settled_at:
            return None
        running = self._running()
        if self._settled_at is not None and not self._restarted(running):
            return DONE
        self._programs = {task.index: _program(task) for task in running}
        self._settled_at = self._clock.spent + settle_seconds
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
        # What runs to completion waits before its second start, too.
        self._died = [task for task in self._running() if died(task) and task.restarts]
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
    placed = job.pending - job.waiting
    counts += [f"{placed} pending"] if placed else []
    counts += [f"{job.waiting} waiting"] if job.waiting else []
    reason = f": {safe(local_times(job.reason))}" if job.reason else ""
    return f"{job.name}: {', '.join(counts)}{reason}"


def refuse_unreachable_goal(detail: JobDetail, goal: Goal) -> None:
    """Raise Invalid for a wait that can never end well."""
    if goal is Goal.FINISHED and detail.spec.is_service:
        raise Invalid(
            f"{detail.job.name} is a service and never finishes",
            "Wait --for dead, or give it restart: {policy: on_failure}",
        )
