"""Dead jobs are kept a while for those who ask what became of them, and then forgotten (Kubernetes'
ttlSecondsAfterFinished, one for the cell)."""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import ForgetJob
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(cell: Cell, _observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Forget jobs that have been dead long enough."""
    # A clock that leaps ten years ahead must forget no job.
    began = Now(settings.led_since_wall, settings.led_since)
    forgotten = now.wall_unless_set_on(began) - settings.dead_jobs_seconds
    for key in sorted(key for key, since in cell.swept.dead_since.items() if since < forgotten):
        if cell.jobs[key].cron not in cell.crons:  # whose runs ``reconcilers.crons`` keeps
            yield ForgetJob(key)
