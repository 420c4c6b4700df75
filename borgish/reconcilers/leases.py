"""Leases of exclusive tasks lapse: what was not heard of for long enough does not run any more, and its task
may be placed again (``cell/tasks/leases.py``)."""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import EndLeases
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.cell.tasks.leases import has_lapsed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(cell: Cell, observed: Observed, _settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """End what has lapsed, in order of jobs."""
    for key, known in sorted(observed.leases.items()):
        there = cell.leases.get(key, {})
        lapsed = [
            (index, lease.attempt)
            for index in sorted({index for index, _ in known})
            for lease in there.get(index, ())
            if has_lapsed(observed, key, index, lease, now)
        ]
        if lapsed:
            indexes, attempts = zip(*lapsed, strict=True)
            yield EndLeases(key, indexes, attempts, "lapsed")
