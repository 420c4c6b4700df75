"""A rollback reaches the tasks that lag behind it, a few of each job at a time.

So many tasks a second at most, and of one job a share, so that neither a cell nor a small job is down all at
once; unless whoever rolled back was in a hurry. A task whose machine is down is left to ``stranded``: it is
either moved from there, or decided on when the machine is back.
"""

import math
from collections.abc import Iterator

from borgish.cell.commands import Command, GoOnRollingBack
from borgish.cell.decide_going_on import due
from borgish.cell.model import Job
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings

JOB_SHARE = 0.1
"""Of one job, this share of its tasks is stopped in a second, and at least one."""


def reconcile(
    cell: Cell,
    _observed: Observed,
    names: frozenset[str] | None,
    settings: ReconcileSettings,
    _now: Now,
) -> Iterator[Command]:
    """Go on with every rollback. A resync, which comes each second, sets the pace."""
    left = settings.rollback_stops_max if names is None else 0
    stop: dict[str, tuple[int, ...]] = {}
    for key in sorted(cell.lagging):
        job, found = cell.jobs[key], due(cell.jobs[key])
        running = _stoppable(cell, job, found.running)
        chosen = running if _is_hurried(job) else running[: min(left, _at_a_time(job))]
        left = max(0, left - len(chosen))
        if chosen or found.at_once:
            stop[key] = tuple(chosen)
    if stop:
        yield GoOnRollingBack(stop)


def _stoppable(cell: Cell, job: Job, running: list[int]) -> list[int]:
    """Return those whose machine is up; those that end come first, since they make room for the others."""
    lagging = job.lagging
    found = [index for index in running if cell.machines[job.tasks[index].machine].up]
    return sorted(found, key=lambda index: lagging is not None and not lagging.ends(index))


def _is_hurried(job: Job) -> bool:
    return job.lagging is not None and job.lagging.hurried


def _at_a_time(job: Job) -> int:
    return max(1, math.floor(JOB_SHARE * len(job.tasks)))
