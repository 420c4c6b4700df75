"""Follows a job until it is as wanted, cannot become so any more, or the time is over.

``verdict`` is pure and says which; ``follow`` looks, shows one line of progress, and waits for changes.
What is missing in the end is said by ``missing``.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from borgish.cli.changes import Changes, Deadline
from borgish.cli.failing import DONE, FAILED, NOT_ALLOWED, NOT_PLACED, say_error
from borgish.cli.progress import Progress
from borgish.cli.text import outcomes, plural
from borgish.client import quoted
from borgish.errors import Invalid, Unreachable
from borgish.text import safe, span
from borgish.vocabulary import State
from borgish.wire.api import JobDetail, JobView

if TYPE_CHECKING:
    from borgish.client import Client

# A program that is not probed counts as up as soon as it runs. One that ends at once would be
# called up in that moment, so it is looked at twice, this far apart.
SETTLE_SECONDS = 0.3


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
    return FAILED if up + job.dead >= job.tasks else None


def verdict_in_time(job: JobView, goal: Goal) -> int:
    """Return the exit code when the time is over."""
    return NOT_PLACED if job.pending or goal is not Goal.UP else FAILED


def look(client: "Client", job: str) -> JobDetail:
    """Return the job as it is."""
    return client.get(quoted("jobs", *job.split("/")), None, JobDetail)


def follow(client: "Client", job: str, goal: Goal, timeout_seconds: float) -> int:
    """Wait until the job is as wanted and return the exit code; say what is missing when it is not."""
    deadline = Deadline(timeout_seconds)
    changes = Changes(client, "tasks,event", job)
    progress = Progress()
    try:
        detail, code = _until(client, job, goal, deadline, changes, progress)
    finally:
        changes.close()
        progress.end()
    if detail is None:
        say_error(f"{job}: the master did not answer for {span(timeout_seconds)}; the job may well go on")
        return NOT_ALLOWED
    if code is None:
        code = verdict_in_time(detail.job, goal)
    _conclude(client, detail, goal, code, deadline.spent)
    return code


def _until(
    client: "Client", job: str, goal: Goal, deadline: Deadline, changes: Changes, progress: Progress
) -> tuple[JobDetail | None, int | None]:
    """Look until there is a verdict or the time is over. Returns the last look and the verdict."""
    detail: JobDetail | None = None
    settled_at: float | None = None
    while True:
        try:
            detail = look(client, job)
            code = verdict(detail.job, goal)
            if code is None:  # else the last word says it
                progress.show(one_line(detail.job))
        except Unreachable:
            progress.show(f"{job}: the master does not answer; still trying")
            code = None
        if code == DONE and detail is not None and _may_be_a_flash(detail, goal):
            now = deadline.spent
            settled_at = now + SETTLE_SECONDS if settled_at is None else settled_at
            code = None if now < settled_at else code
        elif code is None:
            settled_at = None
        if code is not None or not deadline.left:
            return detail, code
        until_settled = max(0.0, settled_at - deadline.spent) if settled_at is not None else deadline.left
        changes.wait(min(until_settled, deadline.left))


def _may_be_a_flash(detail: JobDetail, goal: Goal) -> bool:
    return goal is Goal.UP and detail.spec.is_service and detail.spec.health is None


def one_line(job: JobView) -> str:
    """Return where a job is, as one line."""
    counts = [f"{job.up} of {plural(job.tasks, 'task')} up"]
    counts += outcomes(job.finished, job.failed, job.killed)
    counts += [f"{job.pending} pending"] if job.pending else []
    reason = f": {safe(job.reason)}" if job.reason else ""
    return f"{job.name}: {', '.join(counts)}{reason}"


def _conclude(client: "Client", detail: JobDetail, goal: Goal, code: int, seconds: float) -> None:
    from borgish.cli.missing import say_missing
    from borgish.cli.screen import data, say

    if code == DONE:
        data(f"{one_line(detail.job)} after {seconds:.1f}s")
        return
    late = "" if verdict(detail.job, goal) is not None else f" after {span(seconds)}"
    say(f"{one_line(detail.job)}{late}")
    say_missing(client, detail)


def refuse_hopeless(detail: JobDetail, goal: Goal) -> None:
    """Raise Invalid for a wait that can never end well."""
    if goal is Goal.FINISHED and detail.spec.is_service:
        raise Invalid(
            f"{detail.job.name} is a service and never finishes",
            "Wait --for dead, or give it restart: {policy: on_failure}",
        )
