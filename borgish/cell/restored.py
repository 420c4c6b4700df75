"""May a rollback leave the cell as it would? Checked against the restored state, not against the present one.

What a user asks for after it, band by band, is held against the quota as it is after it: that of then where
the whole cell goes back, that of now where some jobs do. It counts only where more is asked for than now,
since nothing ends for a quota's sake. Likewise the alloc set that a job names must be there after it, alive
and of the same user, and its priority one that the cell has.

Where the whole cell goes back, what was so then may be so again: a user over a quota that had been lowered,
a job that waited for an alloc set that was dead. A quota that has ended meanwhile, or is required only since
then, is another matter: that state was allowed, and would not be any more.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from borgish.cell.admission import limits_in, show_moment
from borgish.cell.allocs import refused_inside
from borgish.cell.commands import RollBack
from borgish.cell.demand import asked_by
from borgish.cell.model import Job, Quota, quota_key, split_quota_key
from borgish.cell.rollback import Plan
from borgish.cell.state import Cell
from borgish.errors import Conflict, OverQuota, Refused
from borgish.resources import Kind, by_kind, show_kind, show_number
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, State

Kinds = Mapping[Kind, int]  # amounts by resource


def expect_restorable(cell: Cell, command: RollBack, found: Plan, wall: float) -> None:
    """Raise Conflict when the cell may not be as this would leave it. ``wall`` is now."""
    _expect_priorities(cell, found)
    _expect_alloc_sets(cell, command, found)
    _expect_quotas(cell, command, found, wall)


def _expect_priorities(cell: Cell, found: Plan) -> None:
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


def _expect_quotas(cell: Cell, command: RollBack, found: Plan, wall: float) -> None:
    quotas = cell.quotas if command.only else command.then.quotas
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
        if over and not (not command.only and _was_so(command, key, over, allowed)):
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


def _was_so(command: RollBack, key: str, over: Kinds, allowed: Kinds) -> bool:
    """Return whether as much was asked for then, under a quota in force that was no larger."""
    then = command.then
    user, band = split_quota_key(key)
    limits = limits_in(then.quotas, user, Band(band), command.at, required=then.rules.quota_required)
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
    told = " and ".join(
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
    return OverQuota(f"after the rollback {user} would ask for {told} in {band}{ended}", ways)


# Alloc sets


def _expect_alloc_sets(cell: Cell, command: RollBack, found: Plan) -> None:
    after = {one.job: (one.after, not one.live) for one in found.jobs}
    for spec in _inside(cell, found):
        allocs, dead = after[spec.inside] if spec.inside in after else _found(cell.jobs.get(spec.inside))
        refused = refused_inside(spec, allocs, dead=dead)
        if refused is None or _is_so(cell, spec) or (not command.only and _is_so(command.then, spec)):
            continue
        raise _not_inside(command, spec, refused)


def _inside(cell: Cell, found: Plan) -> Iterator[JobSpec]:
    """Yield the jobs in alloc sets of which it, or its set, is changed, and of which something is to run."""
    planned = {one.job for one in found.jobs}
    for one in found.jobs:
        if one.after is not None and one.after.inside and one.live:
            yield one.after
    for key in sorted(cell.jobs.keys() - planned):
        job = cell.jobs[key]
        if job.spec.inside in planned and job.state is not State.DEAD:
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


def _not_inside(command: RollBack, spec: JobSpec, refused: Refused) -> Conflict:
    hint = refused.hint
    if command.only and spec.inside in command.then.jobs and spec.inside not in command.only:
        hint = f"it comes back too with `--only {spec.inside}`"
    elif command.only and spec.key not in command.only:
        hint = f"name {spec.key} with --only as well, or end it first"
    return Conflict(f"after the rollback {refused.message}", hint)
