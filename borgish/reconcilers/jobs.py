"""Dead jobs are kept a while for those who ask what became of them, and then forgotten."""

from collections.abc import Iterator

from borgish.cell.commands import Command, ForgetJob
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import State


def reconcile(
    cell: Cell, _observed: Observed, names: frozenset[str] | None, settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Forget jobs that have been dead long enough. Time does not wake anybody, so only at a resync."""
    if names is not None:
        return
    forgotten = _trusted_wall(settings, now) - settings.dead_jobs_seconds
    for key, job in sorted(cell.jobs.items()):
        if job.state is State.DEAD and all(task.since < forgotten for task in job.tasks):
            yield ForgetJob(key)


def _trusted_wall(settings: ReconcileSettings, now: Now) -> float:
    """Return the wall clock as it would be, had nobody set it on since this master began: a clock that leaps
    ten years ahead makes nobody older."""
    return min(now.wall, settings.led_since_wall + now.mono - settings.led_since)
