"""May the cell be rolled back? The plan is made here, against the cell as it is when the command is decided,
and judged by what it leaves: checked against the restored state, not against the present one.

What a user asks for after it, band by band, is held against the quota as it is after it: that of then where
the whole cell goes back, that of now where some jobs do. It counts only where more is asked for than now,
since nothing ends for a quota's sake. Likewise the alloc set that a job names must be there after it, alive
and of the same user, and its priority one that the cell has.

Where the whole cell goes back, what was so then may be so again: a user over a quota that had been lowered,
a job that waited for an alloc set that was dead. A quota that has ended meanwhile, or is required only since
then, is another matter: that state was allowed, and would not be any more. So a full rollback is refused only
for what changed outside of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from borgish.cell.apps.order import circle_refusals, descendants
from borgish.cell.commands import (
    Decision,
    RollBack,
)
from borgish.cell.events import RolledBack
from borgish.cell.limits.admission import asked_by, limits_in, show_moment
from borgish.cell.limits.affected import check_affected
from borgish.cell.limits.quotas import Quota, quota_key, split_quota_key
from borgish.cell.model import Cell, Job, task_count
from borgish.cell.tasks.allocs import refused_inside
from borgish.cell.updates.rollback import Plan, RollbackTarget, plan
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound, OverQuota, Refused
from borgish.resources import Kind, by_kind, show_kind, show_number
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, JobKind, State

Kinds = Mapping[Kind, int]  # amounts by resource


def decide_rollback(cell: Cell, target: RollbackTarget, command: RollBack, actor: str, now: Now) -> Decision:
    """Return the one event that takes the cell back to ``target``. Raises a ``Refused``."""
    found = checked_plan(cell, target, command, now)
    event = RolledBack(
        timeline=cell.timeline + 1,
        to=command.to,
        at=command.at,
        reason=reason_of(command),
        jobs=tuple(job.restored for job in found.jobs if job.restored is not None),
        jobs_gone=tuple(job.job for job in found.jobs if job.restored is None),
        machines=found.machines,
        quotas=found.quotas,
        quotas_gone=found.quotas_gone,
        budgets=found.budgets,
        budgets_gone=found.budgets_gone,
        apps=found.apps,
        apps_gone=found.apps_gone,
        crons=found.crons,
        crons_gone=found.crons_gone,
    )
    kept = found.running - found.stopped
    who = f"{_scope(cell, command)}{_with_children(found, command)}"
    text = (
        f"{who} is rolled back to position {command.to} by {actor}, on timeline "
        f"{event.timeline}: {task_count(found.stopped)} to stop, {found.started} to start, "
        f"{kept} continue{'s' * (kept == 1)}"
    )
    return Decision((event,), "", text)


def checked_plan(cell: Cell, target: RollbackTarget, command: RollBack, now: Now) -> Plan:
    """Return what the command changes. Raises the ``Refused`` that it would be refused with."""
    found = plan_rollback(cell, target, command, now)
    check_allowed(cell, target.cell, found, command, now)
    return found


def plan_rollback(cell: Cell, target: RollbackTarget, command: RollBack, now: Now) -> Plan:
    """Return what the command changes, whether or not that may be.

    Raises a ``Refused`` when nothing can be planned.
    """
    then = target.cell
    if not 0 < command.to <= cell.position or (then.position, then.name) != (command.to, cell.name):
        raise Invalid(
            f"position {command.to} of cell {then.name} is not in the history of cell {cell.name}",
            f"Its positions are 1 to {cell.position}",
        )
    for key in sorted(command.only):
        if key not in cell.jobs and key not in then.jobs:
            raise NotFound(
                f"there is no job {key}, and at position {command.to} there was none",
                "Name jobs in full, like ann/web",
            )
    only = rolled_back_with(cell, then, command)
    found = plan(
        cell,
        target,
        only,
        now.wall,
        hurried=command.hurried,
        reason=reason_of(command),
    )
    jobs = (cell.jobs[key] for key in cell.rolling if not only or key in only)
    behind = sum(len(job.rollout.attempts) for job in jobs if job.rollout is not None)
    if found.is_empty and behind:
        raise Conflict(
            f"a rollback to that is under way: {task_count(behind)} still to be stopped",
            "`borgctl status` shows what it waits for; with --now it goes on regardless",
        )
    if found.is_empty:
        raise Conflict(
            f"nothing differs: {_scope(cell, command)} is as it was to be at position {command.to}",
            "There is nothing to roll back; `borgctl history` shows what happened",
        )
    return found


def rolled_back_with(cell: Cell, then: Cell, command: RollBack) -> frozenset[str]:
    """Return the jobs that a rollback is about: those named, with all that ends, or ended, with them."""
    return descendants(cell, command.only) | descendants(then, command.only)


def check_allowed(cell: Cell, then: Cell, found: Plan, command: RollBack, now: Now) -> None:
    """Raise Conflict for a state that may not be, and when more tasks would be stopped than is allowed."""
    check_restorable(cell, then, command, found, now.wall)
    check_affected(cell, found.stopped, command.max_affected)


def reason_of(command: RollBack) -> str:
    """Return the reason that is given for the tasks it stops."""
    return f"rolled back to position {command.to}"


def check_kept(job: Job) -> None:
    """Raise Conflict for a job that goes as soon as a rollback has stopped its last task."""
    if job.rollout is not None and job.rollout.tasks == 0:
        raise Conflict(
            f"{job.key} is being removed, as it was {job.rollout.reason}: "
            f"{task_count(len(job.rollout.attempts))} still to be stopped",
            f"end it at once with `borgctl job kill {job.key}`; then it can be submitted again",
        )


def _with_children(found: Plan, command: RollBack) -> str:
    children = [one.job for one in found.jobs if one.job not in command.only] if command.only else []
    return f" with {', '.join(children)}" if children else ""


def _scope(cell: Cell, command: RollBack) -> str:
    return ", ".join(sorted(command.only)) or f"cell {cell.name}"


# The cell as it would be left


def check_restorable(cell: Cell, then: Cell, command: RollBack, found: Plan, wall: float) -> None:
    """Raise Conflict when the cell may not be as this would leave it.

    ``then`` is the cell of the command's position, ``wall`` is now.
    """
    _check_priorities(cell, found)
    if command.only:
        specs = {one.job: one.after for one in found.jobs}
        hint = "name all of them with --only, or change the after of one of them first"
        for refused in circle_refusals(cell, specs, hint):
            raise refused
    _check_alloc_sets(cell, then, command, found)
    _check_quotas(cell, then, command, found, wall)


def _check_priorities(cell: Cell, found: Plan) -> None:
    highest = cell.rules.bands.highest
    for one in found.jobs:
        job = cell.jobs.get(one.job)
        if one.after is None or one.after.priority <= highest:
            continue
        if job is None or job.spec.priority != one.after.priority:
            raise Conflict(
                f"{one.job} had priority {one.after.priority}, and the cell's highest is {highest} now",
                "Name the jobs that may come back with --only, or change [bands] and start again",
            )


# Quotas


def _check_quotas(cell: Cell, then: Cell, command: RollBack, found: Plan, wall: float) -> None:
    quotas = cell.quotas if command.only else then.quotas
    required = cell.rules.quota_required
    for key, more in sorted(_more(cell, found).items()):
        user, band = split_quota_key(key)
        limits = limits_in(quotas, user, Band(band), wall, required=required)
        if limits is None:
            continue
        used = by_kind(cell.demand.of(key))
        over = {kind: used.get(kind, 0) + amount for kind, amount in more.items() if amount > 0}
        allowed = by_kind(limits)
        over = {kind: amount for kind, amount in over.items() if amount > allowed.get(kind, 0)}
        if over and not (not command.only and _was_so(then, command.at, key, over, allowed)):
            raise _over(command, key, over, allowed, quotas.get(key), wall)


def _more(cell: Cell, found: Plan) -> dict[str, Counter[Kind]]:
    """Return how much more is asked for after it than now, by quota key."""
    more: dict[str, Counter[Kind]] = {}
    for one in found.jobs:
        job = cell.jobs.get(one.job)
        if job is not None:
            live = [task.index for task in job.tasks if task.state is not State.DEAD]
            more.setdefault(_key(cell, job.spec), Counter()).subtract(by_kind(asked_by(job.spec, live)))
        if one.after is not None:
            more.setdefault(_key(cell, one.after), Counter()).update(by_kind(asked_by(one.after, one.live)))
    return more


def _key(cell: Cell, spec: JobSpec) -> str:
    return quota_key(spec.user, cell.rules.bands.of(spec.priority))


def _was_so(then: Cell, at: float, key: str, over: Kinds, allowed: Kinds) -> bool:
    """Return whether as much was asked for then, under a quota in force that was no larger."""
    user, band = split_quota_key(key)
    limits = limits_in(then.quotas, user, Band(band), at, required=then.rules.quota_required)
    if limits is None:
        return False
    before, asked = by_kind(limits), by_kind(then.demand.of(key))
    return all(
        amount <= asked.get(kind, 0) and before.get(kind, 0) <= allowed.get(kind, 0)
        for kind, amount in over.items()
    )


def _over(
    command: RollBack, key: str, over: Kinds, allowed: Kinds, quota: Quota | None, wall: float
) -> OverQuota:
    user, band = split_quota_key(key)
    amounts = " and ".join(
        f"{show_kind(kind, amount)} (quota {show_number(kind, allowed.get(kind, 0))})"
        for kind, amount in over.items()
    )
    ended = ""
    if quota is not None and 0 < quota.until <= wall:
        ended = f"; that quota ended at {show_moment(quota.until)}"
    elif quota is None:
        ended = f"; {user} has no quota there, and this cell requires one"
    ways = "Give more first with `borgctl quota set`, or name fewer jobs with --only"
    if not command.only:
        ways = "Name the jobs that may come back with --only: then quotas stay as they are now"
    return OverQuota(f"after the rollback {user} would ask for {amounts} in {band}{ended}", ways)


# Alloc sets


def _check_alloc_sets(cell: Cell, then: Cell, command: RollBack, found: Plan) -> None:
    after = {one.job: (one.after, not one.live) for one in found.jobs}
    for spec in _inside(cell, found):
        allocs, dead = after[spec.inside] if spec.inside in after else _found(cell.jobs.get(spec.inside))
        refused = refused_inside(spec, allocs, dead=dead)
        if refused is None or _is_so(cell, spec) or (not command.only and _is_so(then, spec)):
            continue
        raise _not_inside(then, command, spec, refused)


def _inside(cell: Cell, found: Plan) -> Iterator[JobSpec]:
    """Yield the jobs in alloc sets of which it, or its set, is changed, and of which something is to run."""
    changed, sets = {one.job for one in found.jobs}, set()
    for one in found.jobs:
        if one.after is not None and one.after.inside and one.live:
            yield one.after
        there = cell.jobs.get(one.job)
        if any(spec.kind is JobKind.ALLOC_SET for spec in (there and there.spec, one.after) if spec):
            sets.add(one.job)
    for key in sorted(cell.jobs.keys() - changed) if sets else ():
        job = cell.jobs[key]
        if job.spec.inside in sets and job.state is not State.DEAD:
            yield job.spec


def _is_so(cell: Cell, spec: JobSpec) -> bool:
    """Return whether a job of that cell is in the same set, and may not be."""
    job = cell.jobs.get(spec.key)
    if job is None or job.state is State.DEAD or job.spec.inside != spec.inside:
        return False
    allocs, dead = _found(cell.jobs.get(spec.inside))
    return refused_inside(job.spec, allocs, dead=dead) is not None


def _found(job: Job | None) -> tuple[JobSpec | None, bool]:
    return (None, True) if job is None else (job.spec, job.state is State.DEAD)


def _not_inside(then: Cell, command: RollBack, spec: JobSpec, refused: Refused) -> Conflict:
    hint = refused.hint
    if command.only and spec.inside in then.jobs and spec.inside not in command.only:
        hint = f"it comes back too with `--only {spec.inside}`"
    elif command.only and spec.key not in command.only:
        hint = f"name {spec.key} with --only as well, or end it first"
    return Conflict(f"after the rollback {refused.message}", hint)
