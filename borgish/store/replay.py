"""From a checkpoint and the journal after it to a cell; what does not verify is never served."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, follows
from borgish.cell.model import Snapshot
from borgish.cell.state import Cell, Touched
from borgish.errors import StoreDamaged
from borgish.failpoints import reach
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import verified_snapshot
from borgish.store.faults import DAMAGED_HINT


class Recovered(msgspec.Struct):
    """A cell as it was loaded, and what had to be passed over on the way."""

    cell: Cell
    warnings: list[str]


def recover(
    name: str,
    kept: Iterable[tuple[CheckpointInfo, bytes]],
    entries: Callable[[int], Iterable[Entry]],
) -> Recovered:
    """Return the cell from the newest checkpoint that verifies and the entries after it.

    ``kept`` is checkpoints with their stored bodies, newest first; ``entries`` gives those above a
    position, in order. Raises StoreDamaged and UnsafeConfiguration.
    """
    warnings: list[str] = []
    cell = Cell(_newest_good(name, kept, warnings) or Snapshot(name))
    reach("recovery.snapshot")
    replay(cell, entries(cell.position), warnings)
    return Recovered(cell, warnings)


def replay(cell: Cell, entries: Iterable[Entry], warnings: Sequence[str] = ()) -> None:
    """Take entries into a cell, each the next. Pure. ``warnings`` are told with what is missing.

    Raises StoreDamaged where one is lost, or does not go with the cell before it.
    """
    start = cell.position
    for entry in entries:
        _expect_next(cell, entry, start, warnings)
        _take(cell, entry)
        reach("recovery.entry")
    cell.take_touched()


def take_in(cell: Cell, entry: Entry) -> Touched:
    """Take one entry into a cell and return what it touched. Raises StoreDamaged, as ``replay`` does."""
    _expect_next(cell, entry, cell.position, ())
    _take(cell, entry)
    return cell.take_touched()


def _newest_good(
    name: str, kept: Iterable[tuple[CheckpointInfo, bytes]], warnings: list[str]
) -> Snapshot | None:
    for info, stored in kept:
        try:
            return verified_snapshot(name, info, stored)
        except StoreDamaged as error:
            warnings.append(f"The checkpoint at {info.position} is passed over: {error.message}")
    return None


def _expect_next(cell: Cell, entry: Entry, start: int, warnings: Sequence[str]) -> None:
    if follows(entry, cell.position):
        return
    if cell.position == start == 0:
        raise StoreDamaged(
            f"The journal begins at entry {entry.position} and no checkpoint before it is good", DAMAGED_HINT
        )
    lost = f"entry {cell.position + 1}" if entry.position > cell.position else f"order at {entry.position}"
    tried = f" ({'; '.join(warnings)})" if warnings else ""
    raise StoreDamaged(
        f"The journal has lost {lost}: after {cell.position} comes {entry.position}{tried}", DAMAGED_HINT
    )


def _take(cell: Cell, entry: Entry) -> None:
    try:
        apply_entry(cell, entry)
    except Exception as error:
        # Events cannot be refused: one that does not go with the cell is not what was written.
        raise StoreDamaged(
            f"Journal entry {entry.position} does not go with the cell before it: {error!r}", DAMAGED_HINT
        ) from error
