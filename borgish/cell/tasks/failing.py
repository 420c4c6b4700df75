"""Services whose tasks fail where they are: when a task moves, which machines it avoids then, and when its
whole job is held. Pure.

Restarts are local first (``attempts.failures``). A service's task leaves its machine when its borglet gave it
up (``restart.attempts`` exceeded, or it cannot be started there), or when so many starts in a row ended early
that another one here is of no use: after half a minute by the default back-off, as with Nomad's defaults;
Kubernetes restarts a pod on its node for ever. It goes back to pending, and that task::machine pairing is
avoided for a growing time (section 4 of the Borg paper). Where no other machine fits, that time is its
back-off.

When tasks fail wherever they are, the cause goes with them: the job is *held*. What failed of it then has one
*trial* a minute in all, preferably where it has not failed yet, and what still runs is restarted where it is.
A trial that runs well, another version or a restart ends it. So the cell never churns: until its job is held
a task moves at most ``HELD_AFTER`` times, and after that one of the job's does once a minute.

Avoided pairings and held jobs are in the cell, so that a new master goes on with them; a rollback leaves them
unless it brings another version, of which nobody knows yet how it does. Times are in seconds since 1970; one
that is further away than any may be is of a clock that was set back, and over.
"""

from collections.abc import Iterable, Sequence

from borgish.cell.commands import (
    Decision,
    ForgetFailures,
    HoldJob,
    ReleaseJob,
    SeenAttempt,
)
from borgish.cell.events import FailuresForgotten, JobHeld, JobReleased, TasksEvicted
from borgish.cell.lookup import find_job
from borgish.cell.model import Cell, FailedOn, Held, Job, Task, exit_text, task_count
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.vocabulary import HELD_BACK, Ending, Eviction, State

MOVED_AFTER_STARTS = 7
"""A service's task moves after so many starts in a row that ended early, or ``restart.attempts`` if more."""
AVOIDED_SECONDS = 60.0
AVOIDED_SECONDS_MAX = 3600.0
AVOIDED_MAX = 8
"""Of one task, so many machines are remembered."""
HELD_AFTER = 3
"""Failures of one task, or machines on which it or half of its job failed; all machines, where there are
fewer."""
TRIAL_SECONDS = 60.0
_FAILED_ON = "failed on "


# Moving


def why_moved(job: Job, task: Task, seen: SeenAttempt) -> str:
    """Return why the current attempt of a service's task is to leave its machine, by what is reported of it;
    "" where it is not."""
    restart = job.spec_of(task).restart
    if not job.spec_of(task).is_service:
        return ""
    if seen.ended is not None:
        is_given_up = seen.ended is Ending.FAIL and seen.gave_up
        return (seen.reason or seen.exit_reason or "it was given up") if is_given_up else ""
    if is_trial(job, task):
        leaves = seen.early_ends > 0
    else:
        enough = seen.early_ends >= max(MOVED_AFTER_STARTS, restart.attempts)
        leaves = enough and seen.phase in HELD_BACK and job.held is None
    how = seen.exit_reason or exit_text(seen.exit_code, seen.signal)
    times = "its start" if seen.early_ends == 1 else f"{seen.early_ends} starts in a row"
    return f"{how}; {times} ended early".removeprefix("; ") if leaves else ""


def moved(job: Job, task: Task, seen: SeenAttempt, why: str, at: float) -> TasksEvicted:
    """Return the eviction of a service's task that failed where it is. What ran another version than the
    present one says nothing of the present one."""
    return TasksEvicted(
        job.key,
        (task.index,),
        Eviction.FAILED,
        f"{_FAILED_ON}{task.machine}: {why}" if why else f"{_FAILED_ON}{task.machine}",
        failed=(failed_on(task, at),) if task.version == job.version else (),
        exit_codes=(seen.exit_code,),
        signals=(seen.signal,),
    )


def last_failure(task: Task) -> str:
    """Return how a task that has failed did so last, and on which machine. It may have been taken from
    another one since, for another reason: then only the machine is known."""
    return task.reason if task.reason.startswith(_FAILED_ON) else f"{_FAILED_ON}{task.failed[-1].machine}"


def failed_on(task: Task, at: float) -> FailedOn:
    """Return the record of a task's failure on the machine that it is on."""
    before = next((each for each in task.failed if each.machine == task.machine), None)
    times = before.times + 1 if before is not None else 1
    seconds = min(AVOIDED_SECONDS * 2.0 ** (times - 1), AVOIDED_SECONDS_MAX)
    return FailedOn(task.machine, at + seconds, times)


def with_failure(failed: tuple[FailedOn, ...], fresh: FailedOn) -> tuple[FailedOn, ...]:
    """Return records with one that is new, the latest last."""
    return (*(each for each in failed if each.machine != fresh.machine), fresh)[-AVOIDED_MAX:]


def avoided(task: Task, at: float) -> tuple[str, ...]:
    """Return the machines that a task avoids at a moment, by name."""
    return tuple(
        sorted(each.machine for each in task.failed if is_ahead(each.until, at, AVOIDED_SECONDS_MAX))
    )


def is_ahead(until: float, at: float, seconds_max: float) -> bool:
    """Return whether a time of at most so many seconds is not over at a moment."""
    return at < until <= at + seconds_max


# Held jobs


def why_held(cell: Cell, job: Job, at: float) -> str:
    """Return why a job is to be held: its tasks fail wherever they are; "" where they do not."""
    failing = [job.tasks[index] for index in sorted(cell.failing.get(job.key, ()))]
    failing = [task for task in failing if avoided(task, at)]
    machines = {machine for task in failing for machine in avoided(task, at)}
    everywhere = min(HELD_AFTER, len(cell.machines))
    often = next((task for task in failing if _is_often(task, everywhere)), None)
    if often is not None:
        times = sum(each.times for each in often.failed)
        text = f"task {often.index} failed {times} time{'s' * (times != 1)} on {_machines(len(often.failed))}"
        return f"{text}: {often.reason}" if often.state is State.PENDING else text
    several = len(failing) >= HELD_AFTER and 2 * len(failing) >= job.tasks_wanted
    if not several or len(machines) < everywhere:
        return ""
    text = f"{task_count(len(failing))} of {len(job.tasks)} failed on {_machines(len(machines))}"
    last = next((task.reason for task in failing if task.state is State.PENDING), "")
    return f"{text}: {last}" if last else text


def _is_often(task: Task, everywhere: int) -> bool:
    return len(task.failed) >= everywhere or sum(each.times for each in task.failed) >= HELD_AFTER


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"


def is_trial(job: Job, task: Task) -> bool:
    """Return whether a task runs as the trial of its held job."""
    held = job.held
    return held is not None and held.index == task.index and held.attempt == task.attempt


def may_be_placed(cell: Cell, job: Job, waiting: Sequence[int], at: float) -> list[int]:
    """Return which of the waiting tasks of a job may be placed now: of a held one what has not failed, and
    what is to be tried next when its time has come. A gang is tried as a whole, since it is placed so."""
    held, failing = job.held, cell.failing.get(job.key, ())
    if held is None:
        return list(waiting)
    failed = [index for index in waiting if index in failing]
    fresh = [index for index in waiting if index not in failing]
    if not failed or not is_trial_due(job, held, at):
        return [] if job.spec.gang and failed else fresh
    if job.spec.gang:
        return sorted([*fresh, *failed])
    # In turn, so that one task that cannot run holds up no other.
    chosen = min((index for index in failed if index > held.index), default=min(failed))
    return sorted([*fresh, chosen])


def is_trial_due(job: Job, held: Held, at: float) -> bool:
    """Return whether the next trial of a held job may begin: none is under way, and a minute has passed."""
    task = job.tasks[held.index] if 0 <= held.index < len(job.tasks) else None
    is_under_way = task is not None and task.state is State.RUNNING and task.attempt == held.attempt
    return not is_under_way and not is_ahead(held.trial_at, at, TRIAL_SECONDS)


# Deciding


def decide_hold(cell: Cell, _o: Observed, command: HoldJob, _actor: str, now: Now) -> Decision:
    """Hold a job of which tasks failed. Raises NotFound."""
    job = find_job(cell, command.job)
    held = JobHeld(job.key, command.reason, now.wall + TRIAL_SECONDS)
    events = (held,) * (job.held is None and job.key in cell.failing)
    return Decision(events, job.key, f"{job.key} is held: {command.reason}")


def decide_release(cell: Cell, _o: Observed, command: ReleaseJob, _actor: str, _now: Now) -> Decision:
    """Hold a job no longer. Raises NotFound."""
    job = find_job(cell, command.job)
    return Decision((JobReleased(job.key),) * (job.held is not None), job.key, f"{job.key} is held no longer")


def decide_forget(cell: Cell, _o: Observed, command: ForgetFailures, _actor: str, _now: Now) -> Decision:
    """Forget that tasks failed. Raises NotFound."""
    job = find_job(cell, command.job)
    text = f"{task_count(len(command.indexes))} of {job.key} avoid no machine any more"
    return Decision(forgotten(cell, job, command.indexes), job.key, text)


def forgotten(cell: Cell, job: Job, indexes: Iterable[int]) -> tuple[FailuresForgotten, ...]:
    """Return the event by which these tasks avoid no machine any more, where any of them does."""
    failing = tuple(sorted(cell.failing.get(job.key, set()).intersection(indexes)))
    return (FailuresForgotten(job.key, failing),) if failing else ()
