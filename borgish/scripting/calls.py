"""What clients for scripts ask of a borgmaster, without asking it.

Each function is a course of calls: a generator that yields what to ask and is sent the answer, and returns
what it was for. Who carries it out, waiting or asyncio, decides nothing.
"""

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from borgish.client import Params, quoted
from borgish.clock import SystemClock
from borgish.errors import BorgishError, Invalid
from borgish.vocabulary import JOB_PATTERN, split_task_name
from borgish.wire.api import (
    Accepted,
    EventList,
    EventView,
    JobDetail,
    JobList,
    JobView,
    KillRequest,
    MachineList,
    MachineView,
    RestartRequest,
    ScaleRequest,
    StatusView,
    TaskList,
    TaskView,
)

T = TypeVar("T")

LOOK_SECONDS, LOOK_SECONDS_MAX = 0.1, 1.0


class Call(msgspec.Struct, frozen=True):
    """One request. ``body``: bytes are sent as they are, a struct as JSON."""

    method: str
    path: str
    answer: type[Any]
    params: Params | None = None
    body: object = None
    content_type: str = "application/json"


class Pause(msgspec.Struct, frozen=True):
    """Wait for so long before the next call."""

    seconds: float


Course = Generator[Call | Pause, Any, T]


def status() -> Course[StatusView]:
    """Return the cell at one glance."""
    view: StatusView = yield Call("GET", "/v1/status", StatusView)
    return view


def jobs() -> Course[list[JobView]]:
    """Return all jobs, by name."""
    return _every("/v1/jobs", {}, JobList)


def job(name: str) -> Course[JobDetail]:
    """Return one job."""
    view: JobDetail = yield Call("GET", job_path(name), JobDetail)
    return view


def tasks(job: str, machine: str, state: str) -> Course[list[TaskView]]:
    """Return all tasks, or those of a job, on a machine, in a state."""
    return _every("/v1/tasks", {"job": job, "machine": machine, "state": state}, TaskList)


def task(name: str) -> Course[TaskView]:
    """Return one task."""
    view: TaskView = yield Call("GET", task_path(name), TaskView)
    return view


def machines() -> Course[list[MachineView]]:
    """Return all machines, by name."""
    return _every("/v1/machines", {}, MachineList)


def events(job: str, task: str, after: int, limit: int) -> Course[list[EventView]]:
    """Return the latest events, the latest last."""
    params: Params = {"job": job, "task": task, "after": after, "limit": limit}
    found: EventList = yield Call("GET", "/v1/events", EventList, params)
    return list(found.items)


def submit(text: str | bytes, user: str) -> Course[Accepted]:
    """Submit a job file."""
    body = text if isinstance(text, bytes) else text.encode()
    done: Accepted = yield Call("POST", "/v1/jobs", Accepted, {"user": user}, body, "application/yaml")
    return done


def kill(job: str, indexes: tuple[int, ...] | None, max_affected: int | None) -> Course[Accepted]:
    """End tasks of a job for good; None: all."""
    asked = KillRequest(indexes, max_affected)
    done: Accepted = yield Call("POST", f"{job_path(job)}/kill", Accepted, None, asked)
    return done


def restart(job: str, indexes: tuple[int, ...] | None) -> Course[Accepted]:
    """Give tasks of a job a fresh attempt, a few at a time; None: all."""
    done: Accepted = yield Call("POST", f"{job_path(job)}/restart", Accepted, None, RestartRequest(indexes))
    return done


def scale(job: str, count: int, max_affected: int | None) -> Course[Accepted]:
    """Give a job so many tasks."""
    asked = ScaleRequest(count, False, max_affected)
    done: Accepted = yield Call("POST", f"{job_path(job)}/scale", Accepted, None, asked)
    return done


def wait(name: str, goal: str, timeout_seconds: float) -> Course[JobDetail]:
    """Return a job once it is ``up``, ``dead`` or ``finished``. Raises TimeoutError, and BorgishError where
    it cannot become so any more."""
    from borgish.cli.errors import DONE
    from borgish.cli.follow import Goal, one_line, refuse_unreachable_goal, verdict

    if goal not in set(Goal):
        raise Invalid(f"'{goal}' is nothing that a job is waited for", f"Give one of {', '.join(Goal)}")
    clock, pause = SystemClock(), LOOK_SECONDS
    until = clock.now().mono + timeout_seconds
    while True:
        detail = yield from job(name)
        refuse_unreachable_goal(detail, Goal(goal))
        code = verdict(detail.job, Goal(goal), detail.rollout)
        if code == DONE:
            return detail
        if code is not None:
            raise BorgishError(
                f"{one_line(detail.job)}; it is not {goal}, and will not be", "See `borgctl why`"
            )
        if clock.now().mono + pause > until:
            raise TimeoutError(f"{one_line(detail.job)}; not {goal} after {timeout_seconds:g} s")
        yield Pause(pause)
        pause = min(1.5 * pause, LOOK_SECONDS_MAX)


def job_path(name: str) -> str:
    """Return where the API has a job. Raises Invalid for what is no user/job."""
    import re

    if not re.fullmatch(JOB_PATTERN, name):
        raise Invalid(f"'{name}' is not the full name of a job", "Write it as user/job")
    return quoted("jobs", *name.split("/"))


def task_path(name: str) -> str:
    """Return where the API has a task. Raises Invalid for what is no user/job/index."""
    try:
        key, index = split_task_name(name)
    except ValueError:
        key, index = "", 0
    if key.count("/") != 1:
        raise Invalid(f"'{name}' is not the full name of a task", "Write it as user/job/index")
    return quoted("tasks", *key.split("/"), index)


def _every(path: str, params: Params, page_type: type[Any]) -> Course[list[Any]]:
    found: list[Any] = []
    after = ""
    while True:
        page = yield Call("GET", path, page_type, {**params, "after": after})
        found += page.items
        after = page.page.next
        if not after:
            return found
