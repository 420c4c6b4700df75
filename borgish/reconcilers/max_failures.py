"""A job of which too many tasks failed is ended (``cell.max_failures`` has the rule)."""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import EndFailedJob
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(cell: Cell, _observed: Observed, _settings: ReconcileSettings, _now: Now) -> Iterator[Command]:
    """End what is left of such jobs, in their order."""
    yield from map(EndFailedJob, sorted(cell.swept.over_max_failures))
