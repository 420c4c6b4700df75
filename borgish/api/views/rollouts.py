"""Updates, restarts and rollbacks of jobs as the API shows them: how far they are, and what to type."""

from collections import Counter
from collections.abc import Iterator

from borgish.cell.model import Cell, Job, Rollout, task_count
from borgish.cell.observed import Observed
from borgish.cell.updates.decide import UpdatePlan
from borgish.cell.updates.rollout import changed_tasks, max_at_a_time, not_ready
from borgish.clock import Now
from borgish.spec.changes import TaskChange
from borgish.spec.job import JobSpec
from borgish.text import instant, show_indexes
from borgish.vocabulary import Hold, RolloutKind, State
from borgish.wire.api import LastRolloutView, RolloutView


def rollout_view(cell: Cell, observed: Observed, job: Job, now: Now) -> RolloutView | None:
    """Return the rollout of a job that is under way, with what it waits for just now."""
    if (rollout := job.rollout) is None:
        return None
    waits = rollout.paused
    if rollout.hold is None and observed.known and (found := not_ready(cell, observed, job, now)):
        waits = found.reason
    return RolloutView(
        rollout.kind,
        rollout.reason,
        instant(rollout.at),
        len(rollout.attempts),
        changed_tasks(job),
        max_at_a_time(job),
        waits,
        rollout.hold,
        tuple(ways_out(job, rollout)),
    )


def last_rollout_view(job: Job) -> LastRolloutView | None:
    """Return how the last one came out."""
    if (last := job.last_rollout) is None:
        return None
    at = instant(last.at)
    return LastRolloutView(last.kind, last.version, last.outcome, at, show_indexes(last.skipped), last.reason)


def running_versions(job: Job) -> dict[int, int]:
    """Return how many of a job's running tasks are of which version."""
    counts = Counter(task.version for task in job.tasks if task.state is State.RUNNING)
    return dict(sorted(counts.items()))


def rollout_line(job: Job, rollout: Rollout) -> str:
    """Return how far the rollout of a job is, in one line."""
    behind = len(rollout.attempts)
    done = "replaced" if job.spec.update.handover else _DONE[rollout.kind]
    left = f"{task_count(behind)} still to be {done}"
    if not behind:
        left = "what it changed has yet to settle"
    words = {None: "waits", Hold.CANARY: "canary"}.get(rollout.hold, "paused")
    if rollout.kind is RolloutKind.ROLLBACK:
        words = "paused"
    if rollout.hold is Hold.PAUSED:
        return f"{rollout.reason}: {left}; {rollout.paused}"  # paused by ann
    return f"{rollout.reason}: {left}{f'; {words}: {rollout.paused}' if rollout.paused else ''}"


_DONE = {
    RolloutKind.UPDATE: "restarted",
    RolloutKind.RESTART: "restarted",
    RolloutKind.ROLLBACK: "stopped",
}


_BECOMES = {
    TaskChange.NONE: "stay as they are",
    TaskChange.IN_PLACE: "change in place",
    TaskChange.RESTART: "restart where they are",
    TaskChange.MOVE: "move",
}
_STOPS = (_BECOMES[TaskChange.RESTART], _BECOMES[TaskChange.MOVE])


def update_words(spec: JobSpec, update: UpdatePlan) -> dict[str, str]:
    """Return what becomes of which tasks of a job that runs, by their indexes."""
    parts = {_BECOMES[change]: indexes for change, indexes in update.changes.items()}
    if spec.update.handover and update.stopped:
        parts = {words: indexes for words, indexes in parts.items() if words not in _STOPS}
        parts["are replaced: each is stopped when its incoming attempt is up"] = update.stopped
    parts |= {"are placed anew": update.waiting, "run again": update.again}
    return {words: show_indexes(indexes) for words, indexes in parts.items() if indexes}


def ways_out(job: Job, rollout: Rollout) -> Iterator[str]:
    """Yield the commands for who is not content with how a rollout goes, each with what it does."""
    update, key = "borgctl job update", job.key
    if rollout.kind is RolloutKind.ROLLBACK:
        if rollout.paused and rollout.to:
            yield f"`borgctl rollback {rollout.position - 1} --only {key}` undoes it"
            yield f"`borgctl rollback {rollout.to} --only {key} --now` goes on regardless"
        return
    match rollout.hold:
        case Hold.CANARY:
            yield f"`{update} promote {key}` goes on with the other tasks"
        case Hold.FAILED:
            yield f"`{update} resume {key}` tries on"
        case Hold.PAUSED:
            yield f"`{update} resume {key}` goes on"
        case None:
            yield f"`{update} pause {key}` pauses it"
    if rollout.undo_to:
        yield f"`{update} undo {key}` goes back to version {rollout.undo_to}"
    if rollout.hold is Hold.FAILED:
        yield "`borgctl job submit FILE` goes on with a mended version"
