"""Compares the pending queue that a scheduler keeps with one that is read anew, at each pass."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from borgish.cell.model import Cell
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.passes import Memory
from borgish.scheduler.pending import Pending, PendingQueue
from borgish.scheduler.queue import Classes, Waiting
from borgish.scheduler.schedule import Scheduler


class Compared:
    """What was found. ``kept`` is how many jobs were not read, at all passes together."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.kept = 0


@contextmanager
def compared_with_new() -> Iterator[Compared]:
    """Compare at each pass. What differs is noted and not raised: masters go on without what fails."""
    found = Compared()
    read, read_pending = PendingQueue.read, Scheduler._read_pending

    def compared(self: PendingQueue, cell: Cell, classes: Classes, fleet: Fleet, at: float) -> None:
        found.kept += len(self.jobs.keys() - self._unread)
        read(self, cell, classes, fleet, at)
        anew = PendingQueue(cell.waiting)
        read(anew, cell, classes, fleet, at)
        for what, kept, new in zip(("jobs", "special", "classes"), _told(self), _told(anew), strict=True):
            if kept != new:
                found.differences.append(f"{what} at {cell.position}: {kept} and not {new}")

    def compared_pending(self: Scheduler, cell: Cell, memory: Memory) -> Pending:
        kept, anew = read_pending(self, cell, memory), Pending()
        anew.note(cell, cell.waiting)
        if (kept.terms, kept.alloc_sets) != (anew.terms, anew.alloc_sets):
            found.differences.append(f"alloc sets or terms at {cell.position}")
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PendingQueue, "read", compared)
        patch.setattr(Scheduler, "_read_pending", compared_pending)
        yield found


def _told(queue: PendingQueue) -> tuple[object, object, object]:
    return (
        {key: _of(waiting) for key, waiting in queue.jobs.items()},
        {key: _of(waiting) for key, waiting in queue.special.items()},
        {kind: (each.levels, each.tasks) for kind, each in queue.classes.items()},
    )


def _of(waiting: Waiting | None) -> object:
    return waiting and (waiting.job.key, waiting.indexes, waiting.usual, waiting.unusual, waiting.done)
