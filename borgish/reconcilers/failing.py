"""What fails wherever it is, is held; what runs well again, is forgotten (``cell.failing`` has the rules).

A held job is released when something of it that had failed runs well for half a minute, its trial or what is
restarted where it is. After ten minutes of running well it is forgotten that a task had failed, as back-off
is (``attempts.failures``). Only tasks that failed are looked at, and of very many some at each resync.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    ForgetFailures,
    HoldJob,
    ReleaseJob,
)
from borgish.cell.limits.availability import why_down
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.tasks.failing import why_held
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import State, task_name

TRIAL_WELL_SECONDS = 30.0
FORGOTTEN_SECONDS = 600.0
LOOKED_AT_MAX = 2000
"""So many tasks that had failed are looked at in one resync, about."""


def reconcile(cell: Cell, observed: Observed, _settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Hold, release and forget, in order of jobs."""
    parts = 1 + sum(map(len, cell.failing.values())) // LOOKED_AT_MAX
    for key in sorted(cell.failing):
        job = cell.jobs[key]
        well = _run_well(cell, observed, job, int(now.mono) % parts, parts, now)
        if job.held is not None and well:
            yield ReleaseJob(key)
        elif job.held is None and (why := why_held(cell, job, now.wall)):
            yield HoldJob(key, why)
        if forgotten := tuple(index for index, seconds in well.items() if seconds >= FORGOTTEN_SECONDS):
            yield ForgetFailures(key, forgotten)


def _run_well(cell: Cell, observed: Observed, job: Job, part: int, parts: int, now: Now) -> dict[int, float]:
    """Return for how many seconds tasks that failed run well now, of those for which it is long enough; one
    of so many parts of them is looked at."""
    found = {}
    for place, index in enumerate(sorted(cell.failing[job.key])):
        task = job.tasks[index]
        if place % parts != part or task.state is not State.RUNNING or why_down(cell, observed, job, task):
            continue
        seen = observed.attempt(task.machine, task_name(job.key, index), task.attempt)
        if seen is not None and now.mono - seen.since >= TRIAL_WELL_SECONDS:
            found[index] = now.mono - seen.since
    return found
