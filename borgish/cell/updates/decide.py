"""A job that runs gets another specification: what that means for each task, and what is decided.

Section 2.3 of the Borg paper. The job is at once what it is to be. Tasks of which nothing changed that needs
a stop are of the new version from then on, those that wait will be placed as such, and the others are what a
rollout has to reach (``rollout.py``). An update under way is replaced by the next from where it is.
"""

from collections.abc import Iterator, Mapping

import msgspec

from borgish.cell.apps.order import check_order, order_notes
from borgish.cell.commands import (
    Decision,
    FailUpdate,
    PauseUpdate,
    ResumeUpdate,
    UndoUpdate,
)
from borgish.cell.events import (
    JobChanged,
    RolloutBegan,
    RolloutPaused,
    RolloutResumed,
    TasksResubmitted,
)
from borgish.cell.lifecycle import TaskEvent, check_row
from borgish.cell.limits.admission import admit_change, job_warnings
from borgish.cell.limits.affected import check_fewer
from borgish.cell.lookup import find_job
from borgish.cell.machines.room import Room
from borgish.cell.model import Cell, Job, Rollout, Task, task_count
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import check_inside, evicted_with
from borgish.cell.tasks.failing import forgotten
from borgish.cell.updates.rollback import same_version
from borgish.cell.updates.rollback_checks import check_kept
from borgish.cell.updates.rollout import Changes
from borgish.clock import Now
from borgish.errors import Conflict, NotFound, Refused
from borgish.spec.changes import FIELDS, Fixed, SpecChange, TaskChange, changed_fields
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Hold, OnFailure, RolloutKind, State


class UpdatePlan(msgspec.Struct, frozen=True):
    """What a specification means for the tasks of a job: indexes of those that run, by what becomes of them;
    of those that are dead and are to run again; and of those that wait."""

    changes: dict[TaskChange, tuple[int, ...]]
    again: tuple[int, ...]
    waiting: tuple[int, ...]

    @property
    def stopped(self) -> tuple[int, ...]:
        """Those that are stopped for it."""
        return tuple(
            sorted((*self.changes.get(TaskChange.RESTART, ()), *self.changes.get(TaskChange.MOVE, ())))
        )


def update_plan(cell: Cell, job: Job, spec: JobSpec) -> UpdatePlan:
    """Return what a specification means for each task that stays. Walks the tasks of the job."""
    changes: dict[TaskChange, list[int]] = {}
    again, waiting, means = [], [], Changes(cell, job, spec)
    to_run = set(tasks_to_run(job))
    becomes_service = spec.is_service and not job.spec.is_service  # of which no task is ever over
    for task in job.tasks[: spec.tasks]:
        if task.state is State.PENDING:
            waiting.append(task.index)
        elif task.state is State.RUNNING:
            changes.setdefault(means.of(task), []).append(task.index)
        elif task.index in to_run and (becomes_service or _runs_again(task, means)):
            again.append(task.index)
    return UpdatePlan(
        {change: tuple(indexes) for change, indexes in sorted(changes.items())}, tuple(again), tuple(waiting)
    )


def _runs_again(task: Task, means: Changes) -> bool:
    """Return whether a task that is dead gets another try: what was killed does, and what failed or was lost
    where the program is another. What has finished has its result."""
    if task.ending is Ending.KILL:
        return True
    return task.ending is not Ending.FINISH and means.of_program(task) >= TaskChange.RESTART


def tasks_to_run(job: Job) -> list[int]:
    """Return the tasks of a job without those that a rollback has ended for good, or is about to end."""
    rollout = job.rollout
    ending = {index for index in rollout.attempts if rollout.ends(index)} if rollout is not None else ()
    return [index for index in range(job.tasks_wanted) if index not in ending]


def decide_update(
    cell: Cell,
    job: Job,
    spec: JobSpec,
    now: Now,
    *,
    reason: str = "",
    undoes: bool = False,
    beside: Mapping[str, JobSpec] | None = None,
    admitted: bool = False,
) -> Decision:
    """Return what gives a live job another specification. Raises a ``Refused``.

    ``undoes``: it is one of before, which needs no canaries, and is not undone in its turn. ``beside``: jobs
    that are submitted with it. ``admitted``: whether its user may ask for so much is decided for all of them.
    """
    check_kept(job)
    _check_same_job(job, spec)
    check_inside(cell, spec, beside)
    if beside is None:  # else all of them are checked together
        check_order(cell, {spec.key: spec})
    found = update_plan(cell, job, spec)
    check_fewer(cell, job, spec.tasks, allowed=len(job.tasks))
    fewer = range(spec.tasks, len(job.tasks))
    grown = range(len(job.tasks), spec.tasks)
    if not admitted:
        admit_change(cell, job, spec, [*found.again, *grown], now.wall)
    is_new = not same_version(job.spec, spec)
    version = job.version + 1 if is_new else 0
    if is_new:
        reason = reason or f"updated to version {version}"
    else:
        reason = f"scaled from {job.tasks_wanted} to {task_count(spec.tasks)}"
    rollout = _rollout_of(cell, job, spec, found, reason, now, undoes=undoes) if is_new else None
    moved = evicted_with(cell, job, fewer, reason)
    again = (TasksResubmitted(job.key, found.again, in_order=True),) * bool(found.again)
    tried = forgotten(cell, job, range(spec.tasks)) if is_new else ()  # of another program nothing is known
    in_order = [] if spec.after == job.spec.after and not found.again else order_notes(cell, spec, beside)
    notes = [*in_order, *job_warnings(cell, spec), *_no_room(cell, job, spec, found, now)]
    changed = JobChanged(job.key, spec, version, rollout)
    text = f"{job.key} is {reason}{_in_words(job, spec, found, rollout) if is_new else ''}"
    return Decision((changed, *moved, *again, *tried), job.key, text, tuple(notes))


def _no_room(cell: Cell, job: Job, spec: JobSpec, found: UpdatePlan, now: Now) -> Iterator[str]:
    """Say that what has to move finds no room: it would be stopped, and wait."""
    moving = found.changes.get(TaskChange.MOVE, ())
    if moving and not Room(cell, now).take(msgspec.structs.replace(job, spec=spec), moving[0]):
        yield f"task {moving[0]} has to move, and no machine that takes new tasks has room for it now"


def _check_same_job(job: Job, spec: JobSpec) -> None:
    for name in changed_fields(job.spec, spec):
        if FIELDS[name] is Fixed.FIXED:
            raise Conflict(
                f"the {name} of {job.key} cannot be changed while it runs",
                f"end it first with `borgctl job kill {job.key}`, or submit this under another name",
            )


def _rollout_of(
    cell: Cell, job: Job, spec: JobSpec, found: UpdatePlan, reason: str, now: Now, *, undoes: bool
) -> Rollout | None:
    """Return what is left to reach; None where nothing has to be stopped, nor watched."""
    before = job.rollout
    records = {i: record for i, record in before.records.items() if i < spec.tasks} if before else {}
    attempts = {index: job.tasks[index].attempt for index in found.stopped}
    if before is not None:  # what a rollback was to end
        attempts |= {i: a for i, a in before.attempts.items() if i in records and i < spec.tasks}
    change = SpecChange(job.spec, spec)
    own = {index for index in job.spec.overrides if index < spec.tasks} | spec.overrides.keys()
    restarts = any(change.of(index) >= TaskChange.RESTART for index in (0, *own))
    if not attempts and before is None and not restarts:
        return None
    undo_to = job.version
    if before is not None and before.kind is RolloutKind.UPDATE and before.undo_to:
        undo_to = before.undo_to  # what was before the first of several
    if undo_to in job.earlier and same_version(job.earlier[undo_to].spec, spec):
        undoes = True
    return Rollout(
        attempts,
        spec.tasks,
        records,
        hurried=False,
        reason=reason,
        position=cell.position + 1,
        kind=RolloutKind.UPDATE,
        undo_to=0 if undoes else undo_to,
        promoted=undoes,
        at=now.wall,
        replaces=before.changed_since if before is not None else 0,
    )


def _in_words(job: Job, spec: JobSpec, found: UpdatePlan, rollout: Rollout | None) -> str:
    words = []
    if spec.tasks != job.tasks_wanted:
        words.append(f"{task_count(spec.tasks)} instead of {job.tasks_wanted}")
    if found.stopped:
        way = "replace, each when its incoming attempt is up" if spec.update.handover else "restart"
        words.append(f"{task_count(len(found.stopped))} to {way}, a few at a time")
    elif rollout is None and job.running:
        words.append("nothing has to be restarted for it")
    if found.again:
        words.append(f"{task_count(len(found.again))} pending again")
    return f": {', '.join(words)}" if words else ""


# Undo


def undo(cell: Cell, _o: Observed, command: UndoUpdate, actor: str, now: Now) -> Decision:
    """Give a job an earlier version again, under a new number. Raises NotFound and Conflict."""
    job = find_job(cell, command.job)
    check_row(job.key, job.state, TaskEvent.UPDATE)
    return _undo(cell, job, command.version, f"undone by {actor}", now)


def _undo(cell: Cell, job: Job, version: int, why: str, now: Now) -> Decision:
    rollout = job.rollout
    under_way = rollout.undo_to if rollout is not None and rollout.kind is RolloutKind.UPDATE else 0
    number = version or under_way or max(job.earlier, default=0)
    kept = ", ".join(map(str, job.earlier)) or "none"
    if number == job.version:
        raise Conflict(f"version {number} is what {job.key} is already", f"earlier versions: {kept}")
    if number not in job.earlier:
        missing = (
            f"version {number} of {job.key} is not known" if number else f"{job.key} has no version before"
        )
        raise NotFound(missing, f"earlier versions that are kept: {kept}; `borgctl job history {job.key}`")
    earlier, tasks = job.earlier[number].spec, job.tasks_wanted
    overrides = {index: each for index, each in earlier.overrides.items() if index < tasks}
    spec = msgspec.structs.replace(earlier, tasks=tasks, overrides=overrides)
    if same_version(job.spec, spec):
        others = [str(each) for each, was in job.earlier.items() if not same_version(job.spec, was.spec)]
        raise Conflict(
            f"{job.key} is just what it was in version {number}",
            f"earlier versions that differ: {', '.join(others) or 'none'}",
        )
    reason = f"{why}: version {job.version + 1} is version {number} again"
    return decide_update(cell, job, spec, now, reason=reason, undoes=True)


def fail(cell: Cell, _o: Observed, command: FailUpdate, _actor: str, now: Now) -> Decision:
    """Pause or undo an update whose tasks do not come up, as its job says."""
    job = find_job(cell, command.job)
    rollout = job.rollout
    if rollout is None or rollout.hold is not None or rollout.kind is RolloutKind.ROLLBACK:
        return Decision((), job.key, "nothing to pause")
    reason = command.reason
    if job.spec.update.on_failure is OnFailure.UNDO and rollout.undo_to in job.earlier:
        try:
            return _undo(cell, job, rollout.undo_to, f"undone since {reason}", now)
        except Refused as refused:  # a quota was lowered, an alloc set is gone
            reason = f"{reason}; it cannot be undone: {refused.message}"
    event = RolloutPaused(job.key, reason, Hold.FAILED, rollout.kind)
    return Decision((event,), job.key, f"the {rollout.kind} of {job.key} is paused: {reason}")


# Restart


def restart_rollout(cell: Cell, job: Job, running: tuple[int, ...], actor: str, now: Now) -> RolloutBegan:
    """Return the rollout by which running tasks get a fresh attempt; one that is under way has these to
    reach as well."""
    there = job.rollout
    attempts = {index: job.tasks[index].attempt for index in running}
    if there is not None:
        return RolloutBegan(job.key, msgspec.structs.replace(there, attempts=there.attempts | attempts))
    rollout = Rollout(
        attempts,
        job.tasks_wanted,
        {},
        hurried=False,
        reason=f"restarted by {actor}",
        position=cell.position + 1,
        kind=RolloutKind.RESTART,
        promoted=True,
        at=now.wall,
    )
    return RolloutBegan(job.key, rollout)


def waits_for_somebody(job: Job) -> Iterator[str]:
    """Say of what joins a rollout that nothing of it happens before somebody lets it go on."""
    rollout = job.rollout
    if rollout is not None and rollout.hold is not None:
        way = "promote" if rollout.hold is Hold.CANARY else "resume"
        yield f"it waits for `borgctl job update {way} {job.key}`, with the {rollout.kind} that is under way"


# Steering


def pause(cell: Cell, _o: Observed, command: PauseUpdate, actor: str, _now: Now) -> Decision:
    """Hold an update or a restart. Raises Conflict where none is under way."""
    job, rollout = _under_way(cell, command.job)
    if rollout.hold is Hold.PAUSED:
        return Decision((), job.key, f"the {rollout.kind} of {job.key} is paused already")
    event = RolloutPaused(job.key, f"paused by {actor}", Hold.PAUSED, rollout.kind)
    left = f"{task_count(len(rollout.attempts))} left"
    return Decision((event,), job.key, f"the {rollout.kind} of {job.key} is paused, {left}")


def resume(cell: Cell, _o: Observed, command: ResumeUpdate, _actor: str, _now: Now) -> Decision:
    """Let an update or a restart go on. Raises Conflict where none is under way, or it waits for something
    else than what is said."""
    job, rollout = _under_way(cell, command.job)
    if command.promote and rollout.promoted:
        return Decision((), job.key, f"the canaries of {job.key} are promoted already")
    if command.promote and not job.spec.update.canaries:
        raise Conflict(
            f"{job.key} has no canaries", "write update: {canaries: 1} in its job file to have some"
        )
    if not command.promote and rollout.hold is None:
        return Decision((), job.key, f"the {rollout.kind} of {job.key} goes on already")
    if not command.promote and rollout.hold is Hold.CANARY:
        raise Conflict(
            f"the update of {job.key} waits for its canaries to be promoted",
            f"`borgctl job update promote {job.key}` lets it go on, "
            f"`borgctl job update undo {job.key}` takes it back",
        )
    event = RolloutResumed(job.key, command.promote, rollout.kind)
    return Decision((event,), job.key, f"the {rollout.kind} of {job.key} goes on")


def _under_way(cell: Cell, key: str) -> tuple[Job, Rollout]:
    job = find_job(cell, key)
    if job.rollout is None or job.rollout.kind is RolloutKind.ROLLBACK:
        raise Conflict(
            f"no update of {job.key} is under way",
            f"`borgctl job update status {job.key}` shows how the last one came out",
        )
    return job, job.rollout
