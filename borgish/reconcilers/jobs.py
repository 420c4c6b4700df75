"""Dead jobs are kept a while for those who ask what became of them, and then forgotten (Kubernetes'
ttlSecondsAfterFinished, one for the cell), the oldest of a user before that where these are too many (its
terminated-pod-gc-threshold)."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from borgish.cell.command import Command
from borgish.cell.commands import ForgetJob
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.cell.swept import DeadJobs
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings

FORGOTTEN_AT_ONCE = 500
"""In a second: more than one user may submit (``api/rate_limits.py``), and some 20 ms of a turn. Each is a
row and more to be written, and many jobs may be dead since one moment."""

DEAD_SHARE = 0.25
"""Of the most that the cell keeps of one user, so much is kept beside that in dead jobs."""


def reconcile(cell: Cell, _observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Forget jobs that have been dead long enough, and the oldest where a user has too many or too large
    ones."""
    # A clock that leaps ten years ahead must forget no job.
    began = Now(settings.led_since_wall, settings.led_since)
    forgotten = now.wall_unless_set_on(began) - settings.dead_jobs_seconds
    of_users = (
        _forgotten(cell, user, dead, forgotten, settings.dead_tasks_max)
        for user, dead in cell.swept.dead_jobs.items()
    )
    oldest = list(islice(merge(*of_users), FORGOTTEN_AT_ONCE))  # before the first of them is forgotten
    yield from (ForgetJob(key) for _, key in oldest)


def _forgotten(
    cell: Cell, user: str, dead: DeadJobs, forgotten: float, tasks_max: int
) -> Iterator[tuple[float, str]]:
    """Yield the jobs of a user that are not kept, with since when they are dead, the oldest first."""
    surplus, latest = dead.total - tasks_max, next(dead.by_age.last_first())
    surplus_bytes = cell.footprint.of_dead(user) - DEAD_SHARE * cell.rules.footprint_bytes_max
    for since, key in dead.by_age:
        if since >= forgotten and surplus <= 0 and surplus_bytes <= 0:
            return
        is_kept_run = cell.jobs[key].cron in cell.crons  # by ``reconcilers.crons``
        is_surplus = surplus > 0 and key in dead.tasks
        is_surplus |= surplus_bytes > 0 and key not in cell.links.followers
        if (since < forgotten and not is_kept_run) or (is_surplus and (since, key) != latest):
            surplus -= dead.tasks.get(key, 0)
            surplus_bytes -= cell.footprint.of_job(key)
            yield since, key
