"""The cell as it was at any position of the journal: the nearest good checkpoint, and the entries after it.

``cell_at`` takes as long as it takes to replay what lies between. It may run in a thread beside the rest of
a store, which is held for a small page of entries at a time. Whoever wants several cells, or one several
times, keeps them; what this returns is the caller's own.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from borgish.cell.events import Entry
from borgish.cell.model import Snapshot
from borgish.cell.state import Cell
from borgish.errors import Gone, Invalid, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import verified_snapshot
from borgish.store.replay import Recovered, replay

PAGE_ENTRIES = 64


class Source(Protocol):
    """What is read of a store (see ``store.base.Store``)."""

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]: ...

    def entries_before(self, before: int, limit: int) -> Iterable[Entry]: ...

    def checkpoints(self) -> list[CheckpointInfo]: ...

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]: ...


def cell_at(source: Source, name: str, position: int) -> Recovered:
    """Return cell ``name`` as entry ``position`` of the journal left it; at 0 it is empty.

    The warnings name the checkpoints that were passed over, being no good. Raises Invalid for a position
    that the journal has not reached, Gone for one that is no longer kept, and StoreDamaged for a journal
    that has lost entries.
    """
    if position < 0:
        raise Invalid(f"there is no position {position}", "Positions of the journal count from 0")
    warnings: list[str] = []
    cell = Cell(_base(source, name, position, warnings))
    _expect_told(source, cell, position, warnings)
    try:
        return Recovered(replayed(source, cell, position, warnings), warnings)
    except StoreDamaged:
        _expect_told(source, cell, position, warnings)  # it may have been pruned meanwhile
        raise


def replayed(source: Source, cell: Cell, position: int, warnings: Sequence[str] = ()) -> Cell:
    """Return the cell itself, taken forward to a position. Raises Invalid and StoreDamaged."""
    for page in _pages(source, cell.position, position):
        replay(cell, page, warnings)
    if cell.position != position:
        raise Invalid(f"position {position} has not happened", f"The latest is {cell.position}")
    return cell


def position_at(source: Source, at: float, head: int) -> int:
    """Return the last position, up to ``head``, that was reached by a moment in seconds since 1970.

    0 when nothing that is kept had happened by then. Where a clock was set back the moment came twice, and
    either position may be meant.
    """
    low, high = 0, head + 1  # the first is early enough, the second is not
    while high - low > 1:
        middle = (low + high) // 2
        entry = next(iter(source.entries_before(middle + 1, 1)), None)
        if entry is None or entry.at <= at:
            low = middle
        else:
            high = entry.position
    entry = next(iter(source.entries_before(low + 1, 1)), None)
    return entry.position if entry is not None and entry.at <= at else 0  # where positions were left out


def earliest_position(source: Source) -> int:
    """Return the first position from which on every one can be told; 0 unless the journal was pruned."""
    first = next(iter(source.entries(0, 1)), None)
    if first is None or first.position == 1:
        return 0
    bases = [info.position for info in source.checkpoints() if info.position >= first.position - 1]
    return min(bases, default=first.position)


def stretch(source: Source, after: int, until: int) -> Iterator[Entry]:
    """Yield the entries above one position, up to another."""
    for page in _pages(source, after, until):
        yield from (entry for entry in page if entry.position <= until)


def _base(source: Source, name: str, position: int, warnings: list[str]) -> Snapshot:
    """Return the newest good checkpoint at or before a position, or else the beginning."""
    for info in source.checkpoints():
        if info.position > position:
            continue
        try:
            return verified_snapshot(name, *source.checkpoint_body(info.position))
        except (StoreDamaged, UnsafeConfiguration, NotFound) as error:  # NotFound: it went meanwhile
            warnings.append(f"The checkpoint at {info.position} is passed over: {error.message}")
    return Snapshot(name)


def _expect_told(source: Source, cell: Cell, position: int, warnings: Sequence[str]) -> None:
    """Raise Gone when the journal does not go on from the cell, but begins later."""
    if cell.position == position or not (first := next(iter(source.entries(0, 1)), None)):
        return
    if first.position > cell.position + 1:
        tried = f" ({'; '.join(warnings)})" if warnings else ""
        raise Gone(
            f"position {position} can no longer be told: the journal begins at {first.position}{tried}",
            f"The earliest is {earliest_position(source)}",
        )


def _pages(source: Source, after: int, until: int) -> Iterator[list[Entry]]:
    while after < until:
        page = list(source.entries(after, min(PAGE_ENTRIES, until - after)))
        if not page:
            return
        yield page
        after = page[-1].position
