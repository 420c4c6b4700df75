"""A job ends with its parent: when that is dead, however it came out, or no longer there."""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import EndChildren
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import State


def reconcile(cell: Cell, observed: Observed, _settings: ReconcileSettings, _now: Now) -> Iterator[Command]:
    """End what lives on without its parent; only where something of a parent has changed."""
    children, known = cell.links.children, observed.availability
    changed = children.keys() if known is None else (known.changed | known.orphaned) & children.keys()
    orphans = {
        child: parent
        for parent in sorted(changed)
        if parent not in cell.jobs or cell.jobs[parent].state is State.DEAD
        for child in sorted(children[parent])
        if cell.jobs[child].state is not State.DEAD
    }
    if known is not None:
        # They may be parents, too; and should it come to nothing, it is tried again. ``order``, which runs
        # after this, takes what has changed for looked at.
        known.orphaned = {*orphans, *orphans.values()}
    if orphans:
        yield EndChildren(orphans)
