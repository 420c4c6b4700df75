"""From a checkpoint and the journal after it to a cell: the newest, that of any position, and a warm replica.

What does not verify is never served. A cell at some position takes as long as it takes to replay what lies
between it and the checkpoint before it; this may run in a thread beside the rest of a store, which is held
for a small page of entries at a time. Nothing is cached here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, follows
from borgish.cell.model import Cell, Snapshot
from borgish.cell.touched import Touched
from borgish.errors import Gone, Invalid, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.store.base import DAMAGED_HINT, CheckpointInfo
from borgish.store.checkpoints import verified_snapshot

PAGE_ENTRIES = 64


class RestoredCell(msgspec.Struct):
    """A cell, and what had to be passed over to restore it."""

    cell: Cell
    warnings: list[str]


class HistorySource(Protocol):
    """What is read of a store to tell its past (see ``store.base.Store``)."""

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]: ...

    def entries_before(self, before: int, limit: int) -> Iterable[Entry]: ...

    def checkpoints(self) -> list[CheckpointInfo]: ...

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]: ...


def restore(
    name: str,
    checkpoints: Iterable[tuple[CheckpointInfo, bytes]],
    entries: Callable[[int], Iterable[Entry]],
) -> RestoredCell:
    """Return the cell from the newest checkpoint that verifies and the entries after it.

    ``checkpoints`` are given with their stored bodies, newest first; ``entries`` returns those above a
    position, in order. Raises StoreDamaged and UnsafeConfiguration.
    """
    warnings: list[str] = []
    snapshot = Snapshot(name)
    for info, stored in checkpoints:
        try:
            snapshot = verified_snapshot(name, info, stored)
            break
        except StoreDamaged as error:
            warnings.append(_passed_over(info, error))
    cell = Cell(snapshot)
    reach("recovery.snapshot")
    replay(cell, entries(cell.position), warnings)
    return RestoredCell(cell, warnings)


def replay(cell: Cell, entries: Iterable[Entry], warnings: Sequence[str] = ()) -> Touched:
    """Apply entries to a cell, each the next, and return what they touched. ``warnings`` are repeated in the
    error about what is missing.

    Raises StoreDamaged where one is lost, or does not go with the cell before it.
    """
    start = cell.position
    for entry in entries:
        _apply_next(cell, entry, start, warnings)
        reach("recovery.entry")
    return cell.take_touched()


def replay_one(cell: Cell, entry: Entry) -> Touched:
    """Apply the next entry to a cell and return what it touched. Raises StoreDamaged, as ``replay`` does."""
    _apply_next(cell, entry, cell.position, ())
    return cell.take_touched()


def _apply_next(cell: Cell, entry: Entry, start: int, warnings: Sequence[str]) -> None:
    """``start`` is the position of the checkpoint; 0 without one."""
    if not follows(entry, cell.position):
        if cell.position == start == 0:
            raise StoreDamaged(
                f"The journal begins at entry {entry.position} and no checkpoint before it is good",
                DAMAGED_HINT,
            )
        is_gap = entry.position > cell.position
        lost = f"entry {cell.position + 1}" if is_gap else f"order at {entry.position}"
        raise StoreDamaged(
            f"The journal has lost {lost}: after {cell.position} comes {entry.position}{_tried(warnings)}",
            DAMAGED_HINT,
        )
    try:
        apply_entry(cell, entry)
    except Exception as error:
        # Events cannot be refused: one that does not go with the cell is not what was written.
        raise StoreDamaged(
            f"Journal entry {entry.position} does not apply to the cell before it: {error!r}", DAMAGED_HINT
        ) from error


def _passed_over(info: CheckpointInfo, error: StoreDamaged | UnsafeConfiguration | NotFound) -> str:
    return f"The checkpoint at {info.position} is passed over: {error.message}"


def _tried(warnings: Sequence[str]) -> str:
    return f" ({'; '.join(warnings)})" if warnings else ""


# Any position of the journal


def cell_at(source: HistorySource, name: str, position: int) -> RestoredCell:
    """Return cell ``name`` as entry ``position`` of the journal left it; at 0 it is empty.

    The warnings name the checkpoints that were passed over, being no good. Raises Invalid for a position
    that the journal has not reached, Gone for one that is no longer kept, and StoreDamaged for a journal
    that has lost entries.
    """
    if position < 0:
        raise Invalid(f"there is no position {position}", "Positions of the journal count from 0")
    warnings: list[str] = []
    snapshot = Snapshot(name)
    for info in source.checkpoints():
        if info.position > position:
            continue
        try:
            snapshot = verified_snapshot(name, *source.checkpoint_body(info.position))
            break
        except (StoreDamaged, UnsafeConfiguration, NotFound) as error:  # NotFound: deleted meanwhile
            warnings.append(_passed_over(info, error))
    cell = Cell(snapshot)
    _check_not_pruned(source, cell, position, warnings)
    try:
        return RestoredCell(roll_forward(source, cell, position, warnings), warnings)
    except StoreDamaged:
        _check_not_pruned(source, cell, position, warnings)  # it may have been pruned meanwhile
        raise


def roll_forward(source: HistorySource, cell: Cell, position: int, warnings: Sequence[str] = ()) -> Cell:
    """Replay the journal onto a cell up to a position; return that cell. Raises Invalid and StoreDamaged."""
    for page in _pages(source, cell.position, position):
        replay(cell, page, warnings)
    if cell.position != position:
        raise Invalid(f"position {position} does not exist yet", f"The latest is {cell.position}")
    return cell


def position_at(source: HistorySource, at: float, head: int) -> int:
    """Return the last position, up to ``head``, that was reached by ``at``, in seconds since 1970.

    0 when nothing that is kept had happened by then. Where a clock was set back the same time came twice, and
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


def earliest_position(source: HistorySource) -> int:
    """Return the first position from which on each can be restored; 0 unless the journal was pruned."""
    first = next(iter(source.entries(0, 1)), None)
    if first is None or first.position == 1:
        return 0
    bases = [info.position for info in source.checkpoints() if info.position >= first.position - 1]
    return min(bases, default=first.position)


def entries_between(source: HistorySource, after: int, until: int) -> Iterator[Entry]:
    """Yield the entries above one position, up to another."""
    for page in _pages(source, after, until):
        yield from (entry for entry in page if entry.position <= until)


def _pages(source: HistorySource, after: int, until: int) -> Iterator[list[Entry]]:
    while after < until:
        page = list(source.entries(after, min(PAGE_ENTRIES, until - after)))
        if not page:
            return
        yield page
        after = page[-1].position


def _check_not_pruned(source: HistorySource, cell: Cell, position: int, warnings: Sequence[str]) -> None:
    """Raise Gone when the journal does not go on from the cell, but begins later."""
    if cell.position == position or not (first := next(iter(source.entries(0, 1)), None)):
        return
    if first.position > cell.position + 1:
        raise Gone(
            f"position {position} can no longer be reconstructed: the journal begins at {first.position}"
            + _tried(warnings),
            f"The earliest is {earliest_position(source)}",
        )


# A replica


class ReplicaSource(Protocol):
    """What is read of a store to follow it (see ``store.base.Store``)."""

    def load(self) -> Cell: ...

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]: ...


class WarmReplica:
    """A cell that another master leads, kept up to date from what that one writes to the journal.

    A standby follows rows, not messages: it reads the journal after the last entry that it has, and compares
    that entry first. Where it is another one (the database was restored, or failed over to a replica that had
    lost the last commits), and where what follows was pruned meanwhile, the cell is loaded anew. Postgres'
    LISTEN would save a few reads, and need a session that no pooler moves.
    """

    def __init__(self) -> None:
        self.cell: Cell | None = None  # None before the first ``catch_up``
        self.loads = 0  # how often it was loaded from a checkpoint
        self.touched: Touched | None = None  # by the last ``catch_up``; None when it loaded the cell
        self.last: Entry | None = None  # that was applied

    def catch_up(self, source: ReplicaSource) -> Cell:
        """Bring the cell to the journal's end, and return it. Raises what ``Store.load`` does."""
        self.touched = None
        if self.cell is not None:
            try:
                self.touched = self._replay_new(self.cell, source)
                return self.cell
            except StoreDamaged:  # perhaps only the replica is not of this journal: loading it shows that
                self.cell = None
        cell = source.load()
        self.last = next(iter(source.entries(cell.position - 1, 1)), None) if cell.position else None
        self.cell, self.loads = cell, self.loads + 1
        return cell

    def _replay_new(self, cell: Cell, source: ReplicaSource) -> Touched:
        """Raise StoreDamaged where the journal does not have our last entry."""
        following = iter(source.entries(max(0, cell.position - 1)))
        if cell.position and next(following, None) != self.last:
            raise StoreDamaged("The journal is not the one that was followed")
        return replay(cell, self._remembering(following))

    def _remembering(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            yield entry
            self.last = entry  # only now it was applied
