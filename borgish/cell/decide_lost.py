"""What follows when a store is taken over that has lost history, as one restored from a backup has.

A new timeline, above every one that machines have obeyed, lets them obey again. The journal goes on above all
positions that the lost history may have had: the attempts it placed stay what nobody here has heard of, and
are not taken for something else.
"""

from borgish.cell.commands import Seen
from borgish.cell.events import EntriesLost
from borgish.cell.state import Cell

POSITIONS_MORE = 1_000_000
"""The lost history may have gone on for so long after the last attempt that a machine still knows of."""


def is_older(cell: Cell, seen: Seen) -> bool:
    """Return whether a machine has seen more than the cell's store has."""
    return (seen.timeline, seen.epoch) > (cell.timeline, cell.epoch) or seen.attempt > cell.position


def entries_lost(cell: Cell, seen: Seen) -> EntriesLost:
    """Return what a master says first that goes on from what is left."""
    last = max(cell.position, seen.attempt) + POSITIONS_MORE
    timeline = max(cell.timeline, seen.timeline) + 1
    reason = seen.reason or "the store was older than what machines have seen"
    return EntriesLost(cell.position + 1, last, timeline, reason)
