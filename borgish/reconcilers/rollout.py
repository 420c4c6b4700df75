"""A rollback reaches the tasks that lag behind it, a few of each job at a time.

So many tasks a second at most, and of one job so many that a share of it is not up, so that neither a cell
nor a small job is down all at once. More are stopped as those before them come up and stay so (see
``cell/rollout.py``), and none while one has failed: a version that crashes costs a job that share
and no more. Why it waits is noted. A rollback with ``hurried`` has none of this. A task whose machine is down
is left to ``stranded``: it is either moved from there, or decided on when the machine is back.
"""

import math
from collections.abc import Iterator

from borgish.cell.commands import AdvanceRollouts, Command, PauseRollouts
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.rollout import NotReady, not_ready, remaining, stoppable
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings

JOB_SHARE = 0.1
"""Of one job, at most this share of its tasks has been changed and is not up yet, and at least one task."""


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Go on with every rollback; how often this is called, once a second, is its pace."""
    return _go_on(cell, observed, settings, now, is_resync=True)


def reconcile_hurried(
    cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Go on with the rollbacks that have no pace, and wherever nothing has to be stopped for it."""
    return _go_on(cell, observed, settings, now, is_resync=False)


def _go_on(
    cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now, *, is_resync: bool
) -> Iterator[Command]:
    left = settings.rollback_stops_max
    stop: dict[str, tuple[int, ...]] = {}
    pause: dict[str, str] = {}
    for key in sorted(cell.rolling):
        job, found = cell.jobs[key], remaining(cell.jobs[key])
        assert job.rollout is not None
        # Those that end first, since they make room for the others.
        ends = job.rollout.ends
        running = sorted(stoppable(cell, job, found.to_stop), key=lambda index: not ends(index))
        chosen: list[int] = []
        if job.rollout.hurried:
            chosen = running
        elif is_resync:
            waits = not_ready(cell, observed, job, now)
            room = _room(job, waits)
            chosen = running[: min(left, room)]
            if waits is not None and waits.pauses(now) and not (room and running) and not job.rollout.paused:
                pause[key] = waits.reason
        left = max(0, left - len(chosen))
        if chosen or found.stops_nothing:
            stop[key] = tuple(chosen)
    if stop:
        yield AdvanceRollouts(stop)
    if pause:
        yield PauseRollouts(pause)


def _room(job: Job, waits: NotReady | None) -> int:
    """Return how many more tasks of a job may be stopped now."""
    share = max(1, math.floor(JOB_SHARE * len(job.tasks)))
    if waits is None:
        return share
    return 0 if waits.failed else max(0, share - waits.tasks)
