"""How a rollback goes on after it was decided: what it has left to do, what it waits for, and each next part.

It waits before it stops more tasks of a job: all that it changed has to be up, and to stay so. That is read
from what is seen now and not remembered, so a new master comes to the same answer, and a rollback goes on by
itself as soon as the reason is gone.
"""

import msgspec

from borgish.cell.allocs import evicted_with
from borgish.cell.commands import AdvanceRollouts, Decision, PauseRollouts, SeenAttempt
from borgish.cell.events import RolloutPaused, RolloutWentOn, TasksEvicted
from borgish.cell.model import Cell, Job, Rollout, Task, exit_text
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.vocabulary import Ending, JobKind, Phase, State, task_name

STEADY_SECONDS = 5.0
"""A task counts as up when it has been so long without a break: what crashes is up for a moment, too."""

RECOVERED_SECONDS = 30.0
"""Likewise one that had to be restarted, since the pauses between its crashes grow."""

PAUSED_AFTER_SECONDS = 30.0
"""A rollback is paused when what it waits for is not up so long after it was placed or sent back; sooner when
that has failed."""


class Remaining(msgspec.Struct):
    """Tasks of a job that lag behind, by what is to be done about each."""

    to_stop: list[int] = []  # running; some of them at a time
    to_rerun: list[int] = []  # ended by themselves
    to_end: list[int] = []  # pending, and are not to run
    done: list[int] = []  # as they are to be already

    @property
    def stops_nothing(self) -> bool:
        """Whether there is something to do that stops nothing."""
        return bool(self.to_rerun or self.to_end or self.done)


def remaining(job: Job) -> Remaining:
    """Return what a rollback has yet to do about a job."""
    found = Remaining()
    if (rollout := job.rollout) is None:
        return found
    for index, attempt in rollout.attempts.items():
        task, ends = job.tasks[index], rollout.ends(index)
        match task.state:
            case State.RUNNING if ends or task.attempt == attempt:
                found.to_stop.append(index)
            case State.PENDING if ends:
                found.to_end.append(index)
            case State.DEAD if not ends and task.attempt == attempt and task.ending is not Ending.KILL:
                found.to_rerun.append(index)
            case _:
                found.done.append(index)
    return found


def decide_advance(cell: Cell, _o: Observed, command: AdvanceRollouts, _actor: str, _now: Now) -> Decision:
    """Return what follows for each job named: tasks named are stopped, if they still lag behind.

    With an alloc leaves what runs in it.
    """
    stopped: dict[str, list[int]] = {}
    advanced: list[RolloutWentOn] = []
    for key, named in command.stop.items():
        job = cell.jobs.get(key)
        if job is None or job.rollout is None:
            continue
        ends, found = job.rollout.ends, remaining(job)
        stopped[key] = [index for index in found.to_stop if index in set(named)]
        pending = sorted([*found.to_rerun, *(index for index in stopped[key] if not ends(index))])
        ended = sorted([*found.to_end, *(index for index in stopped[key] if ends(index))])
        if reached := sorted([*pending, *ended, *found.done]):
            advanced.append(
                RolloutWentOn(key, tuple(reached), tuple(pending), tuple(ended), kind=job.rollout.kind)
            )
    evicted: list[TasksEvicted] = []
    for key, indexes in stopped.items():
        rollout = cell.jobs[key].rollout
        for event in evicted_with(cell, cell.jobs[key], indexes, rollout.reason if rollout else ""):
            # What runs in an alloc may be stopped itself.
            left = tuple(index for index in event.indexes if index not in stopped.get(event.job, ()))
            if left:
                evicted.append(msgspec.structs.replace(event, indexes=left))
    return Decision((*advanced, *evicted), "", "a rollback went on")


def decide_pause(cell: Cell, _o: Observed, command: PauseRollouts, _actor: str, _now: Now) -> Decision:
    """Return what follows: it is noted once, for history and for those who look at the job, and again only
    after the rollback went on."""
    paused = tuple(
        RolloutPaused(key, reason, kind=rollout.kind)
        for key, reason in command.reasons.items()
        if key in cell.rolling and (rollout := cell.jobs[key].rollout) is not None and not rollout.paused
    )
    return Decision(paused, "", "a rollback is paused")


# What it waits for


class NotReady(msgspec.Struct, frozen=True):
    """What a rollback waits for in one job."""

    reason: str  # task 3 was restarted 2 times on m1 (exit code 1)
    failed: bool  # it has run and failed, rather than not run yet
    since: float  # of the task's state; seconds since 1970
    tasks: int = 1  # how many are not up

    def pauses(self, now: Now) -> bool:
        """Return whether this is worth a report, rather than the time that a start takes."""
        return self.failed or now.wall - self.since >= PAUSED_AFTER_SECONDS


def not_ready(cell: Cell, observed: Observed, job: Job, now: Now) -> NotReady | None:
    """Return what a rollback waits for in a job that lags behind it, None when all that it changed is up.

    Of several tasks the first that failed is reported, or else the first. Walks the tasks of the job.
    """
    rollout = job.rollout
    if rollout is None or rollout.hurried:
        return None
    first: NotReady | None = None
    count = 0
    without_place = _without_place(cell, observed, job, rollout)
    for task in job.tasks:
        if task.index in without_place:
            continue
        found = _task_not_ready(cell, observed, job, rollout, task, now)
        if found is None:
            continue
        count += 1
        if first is None or (found.failed and not first.failed):
            first = found
    if first is None:
        return _all_unreachable(cell, job)
    more = f"; {count - 1} more {'is' if count == 2 else 'are'} not up" if count > 1 else ""
    return msgspec.structs.replace(first, reason=f"{first.reason}{more}", tasks=count)


def stoppable(cell: Cell, job: Job, running: list[int]) -> list[int]:
    """Return those of the tasks still to be stopped that can be stopped: those whose machine is up.

    The others are left to ``reconcilers/stranded.py``, or decided on when their machine is back.
    """
    return [index for index in running if cell.machines[job.tasks[index].machine].up]


def _without_place(cell: Cell, observed: Observed, job: Job, rollout: Rollout) -> frozenset[int]:
    """Return as many of the pending tasks as would be pending without any stop, those that wait longest.

    They may need the very room that the next stop frees: waiting for them would wait for ever. They are
    counted and not named, for one of them may have taken the place of a task that was stopped. Until the
    scheduler has refused them, they may well be placed in a moment, and come up.
    """
    if not observed.refused.get(job.key):
        return frozenset()
    pending = sorted(cell.waiting.get(job.key, ()), key=lambda index: (job.tasks[index].since, index))
    return frozenset(pending[: rollout.waiting])


def _all_unreachable(cell: Cell, job: Job) -> NotReady | None:
    to_stop = remaining(job).to_stop
    if not to_stop or stoppable(cell, job, to_stop):
        return None
    task = job.tasks[to_stop[0]]
    reason = f"task {task.index} is to be stopped, and {task.machine}, where it runs, is down"
    return NotReady(reason, failed=False, since=task.since)


def _task_not_ready(
    cell: Cell, observed: Observed, job: Job, rollout: Rollout, task: Task, now: Now
) -> NotReady | None:
    if rollout.ends(task.index) or rollout.attempts.get(task.index) == task.attempt:
        return None
    if task.state is State.PENDING:
        refused = observed.refused.get(job.key, "")
        reason = f"task {task.index} waits for a machine{refused and f': {refused}'}"
        return NotReady(reason, failed=False, since=task.since)
    if task.attempt <= rollout.position:
        return None  # not changed by this rollback, so nothing is learned from it
    if task.state is State.DEAD:
        if task.ending in (Ending.FINISH, Ending.KILL):
            return None
        how = exit_text(task.exit_code, task.signal) or task.reason
        return NotReady(f"task {task.index} failed{how and f' ({how})'}", failed=True, since=task.since)
    if not cell.machines[task.machine].up:
        reason = f"task {task.index} was placed on {task.machine}, which is down"
        return NotReady(reason, failed=False, since=task.since)
    if job.spec.kind is JobKind.ALLOC_SET:
        return None  # reserved; there is nothing to come up
    seen = observed.attempt(task.machine, task_name(job.key, task.index), task.attempt)
    if seen is not None and _is_steady(job, seen, now):
        return None
    failed = seen is not None and (seen.restarts > 0 or seen.phase is Phase.UNHEALTHY)
    return NotReady(f"task {task.index} {_trouble(job, task, seen)}", failed=failed, since=task.since)


def _is_steady(job: Job, seen: SeenAttempt, now: Now) -> bool:
    """Return whether a program does its work, for a while. One that runs to completion need not be ready for
    anybody: it has only to run."""
    if seen.ended is not None:
        return seen.ended is Ending.FINISH
    is_up = seen.phase is Phase.HEALTHY or (
        seen.phase is Phase.UP and (job.spec.health is None or not job.spec.is_service)
    )
    return is_up and now.mono - seen.since >= (RECOVERED_SECONDS if seen.restarts else STEADY_SECONDS)


def _trouble(job: Job, task: Task, seen: SeenAttempt | None) -> str:
    if seen is None:
        return f"was placed on {task.machine}, which has not reported it yet"
    how = exit_text(seen.exit_code, seen.signal) or seen.exit_reason
    if seen.restarts:
        times = "once" if seen.restarts == 1 else f"{seen.restarts} times"
        return f"was restarted {times} on {task.machine}{how and f' ({how})'}"
    if seen.phase is Phase.UP and job.spec.health is not None:
        return f"runs on {task.machine} and its probe has not answered yet"
    if seen.phase in (Phase.UP, Phase.HEALTHY):
        return f"has only just come up on {task.machine}"
    return f"is {seen.phase} on {task.machine}{seen.reason and f': {seen.reason}'}"
