"""A warm copy of a cell that another master leads, kept by taking in what is written to its journal.

It is made anew where the journal no longer goes on from it: when what follows was pruned meanwhile, or when
the database is another one than a moment ago (restored, or a replica that had lost the last commits).
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from borgish.cell.events import Entry
from borgish.cell.state import Cell
from borgish.errors import StoreDamaged
from borgish.store.replay import replay


class Source(Protocol):
    """What is read of a store (see ``store.base.Store``)."""

    def load(self) -> Cell: ...

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]: ...


class WarmCopy:
    """A cell as of the last ``follow``; None before the first."""

    def __init__(self) -> None:
        self.cell: Cell | None = None
        self.loads = 0  # how often it was made from the beginning
        self._last: Entry | None = None

    def follow(self, source: Source) -> Cell:
        """Bring the copy to where the journal is, and return it. Raises what ``Store.load`` does."""
        if self.cell is not None:
            try:
                self._go_on(self.cell, source)
                return self.cell
            except StoreDamaged:  # perhaps only the copy is not of this journal: that is seen by loading it
                self.cell = None
        cell = source.load()
        self._last = next(iter(source.entries(cell.position - 1, 1)), None) if cell.position else None
        self.cell, self.loads = cell, self.loads + 1
        return cell

    def _go_on(self, cell: Cell, source: Source) -> None:
        """Take in what is new. Raises StoreDamaged where the journal does not have our last entry."""
        following = iter(source.entries(max(0, cell.position - 1)))
        if cell.position and next(following, None) != self._last:
            raise StoreDamaged("The journal is not the one that was followed")
        replay(cell, self._noted(following))

    def _noted(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            yield entry
            self._last = entry  # only now it was taken in
