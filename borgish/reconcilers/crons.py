"""Crons that are due begin their runs, and of those that are over the last ones are kept.

A hundred that are due at once begin at the next step. Of more only so many begin in a second, the first due
first: thousands at midnight are spread over the seconds after it, and the master stays there for others.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    FireCron,
    ForgetJob,
)
from borgish.cell.crons.runs import runs
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings

CRON_STARTS_MAX = 200
"""How many crons are dealt with in a second."""

_RESYNC_SECONDS = 1.0


def reconcile(cell: Cell, _observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Deal with the first of those that are due; forget runs beyond those that are kept."""
    until = settings.judged(now).wall  # a clock that leaps ten years ahead makes nothing due
    due = cell.due.until(until)
    among = len(due) if len(due) > CRON_STARTS_MAX else 0
    for _, key in due[:CRON_STARTS_MAX]:
        yield FireCron(key, until, among)
    for key in sorted(cell.crowded):
        over = [run for run in runs(cell, key) if run.is_over]
        for run in over[: -cell.crons[key].spec.keep]:
            yield from (ForgetJob(job.key) for job in run.jobs)


def reconcile_between(
    cell: Cell, _observed: Observed, settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Deal with what has become due just now, unless it is too much at once: that waits for a resync, and
    so does what is left of it."""
    until = settings.judged(now).wall
    due = cell.due.until(until)
    if due and len(due) <= CRON_STARTS_MAX and due[0][0] > until - _RESYNC_SECONDS:
        for _, key in due:
            yield FireCron(key, until)
