"""Finds what of a damaged store can go on: a good checkpoint, and the entries after it that hold."""

from collections.abc import Iterator, Sequence

import msgspec

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, follows
from borgish.cell.model import Snapshot
from borgish.cell.state import Cell
from borgish.errors import BorgishError, StoreDamaged
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import RestorePoint, verified_snapshot
from borgish.store.remains import Remains, entry_of
from borgish.store.tables import Row, differences

UNKNOWN_SKIPPED = 1_000_000
"""So many positions are left out where nobody knows how far the journal went: no number comes again."""


class Salvaged(msgspec.Struct):
    """What can be saved, and what cannot."""

    cell: Cell  # as the last entry that holds left it
    head: int  # its position
    start: int  # that of the checkpoint that it was made from; 0: of none
    start_path: str  # of its file, where it was in one
    good: list[int]  # positions of the kept checkpoints that stay
    bad: list[str]  # why others do not
    stop: str  # why the cell is not followed any further, "" when it is to the end
    top: int  # the highest position that anything tells of
    lost: list[Row]  # of the journal, not followed or not to be read
    unread: list[str]  # what could not be read at all
    wrong: list[str]  # what can be read, and is not as it should be
    epoch: int
    is_end_known: bool  # or the journal may have gone on, with more than anything tells of

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong at all."""
        return not (self.bad or self.stop or self.lost or self.unread or self.wrong)

    @property
    def resumes_at(self) -> int:
        """The position of the first entry after what was lost; 0 when nothing was."""
        if not self.stop and self.is_end_known:
            return 0
        return self.top + 1 + (0 if self.is_end_known else UNKNOWN_SKIPPED)


def salvage(
    remains: Remains, name: str, given: RestorePoint | None = None, beside: Sequence[RestorePoint] = ()
) -> Salvaged:
    """Look through a database; ``given`` is a checkpoint to start from, instead of the newest good one.

    ``beside`` are good ones in files, newest first: one is used where the database does not lead as far by
    itself. Raises StoreDamaged when there is nothing to go on from.
    """
    good, bad, newest = _checkpoints(remains, name)
    start = given or newest or RestorePoint(0)
    cell, stop, lost = _followed(remains, name, start)
    if beside and not given and beside[0].position > cell.position:
        start = beside[0]
        cell, stop, lost = _followed(remains, name, start)
    is_ahead = start in (given, *beside) and not remains.tells_of(start.position)
    if is_ahead:
        remains.is_end_known = False
        remains.troubles.append(f"The journal does not tell of position {start.position}")
    _, timeline, epoch = remains.led()
    kept = [info.position for info in remains.checkpoints()] + [each.position for each in beside]
    top = max(remains.top(), cell.position, *kept, *_ids(cell))
    if not stop and top > cell.position:
        stop = f"The journal ends at {cell.position}, and something tells of a position {top}"
    if not start.position and not cell.position and (top or remains.troubles):
        raise StoreDamaged(
            "No checkpoint in the database is good, and the journal does not begin at its first entry",
            "Give a checkpoint that was exported: --recover FILE; or restore the database from a backup",
        )
    cell.timeline = max(cell.timeline, timeline)
    return Salvaged(
        cell,
        cell.position,
        start.position,
        start.path,
        [info.position for info in good if info.position <= cell.position],
        bad,
        stop,
        top,
        lost,
        remains.troubles,
        [] if stop or is_ahead else differences(cell, remains.rows),  # they are of an older cell then
        max(epoch, cell.epoch),
        remains.is_end_known,
    )


def _checkpoints(remains: Remains, name: str) -> tuple[list[CheckpointInfo], list[str], RestorePoint | None]:
    good: list[CheckpointInfo] = []
    bad: list[str] = []
    newest = None
    for info in remains.checkpoints():
        stored = remains.body(info.position)
        try:
            verified_snapshot(name, info, stored)
        except BorgishError as error:
            bad.append(f"The checkpoint at {info.position} is not good: {error.message}")
        else:
            good.append(info)
            newest = newest or RestorePoint(info.position, stored, info)
    return good, bad, newest


def _followed(remains: Remains, name: str, start: RestorePoint) -> tuple[Cell, str, list[Row]]:
    """Return the cell as far as the journal holds, why it does not any further, and the rows left over."""
    cell, stop = _replayed(remains, name, start, None)
    if stop:  # the entry that did not go with the cell may have been taken in by half
        cell, _ = _replayed(remains, name, start, cell.position)
    return cell, stop, list(_left_over(remains, cell.position))


def _replayed(remains: Remains, name: str, start: RestorePoint, until: int | None) -> tuple[Cell, str]:
    snapshot = verified_snapshot(name, start.info, start.stored) if start.info else Snapshot(name)
    cell = Cell(snapshot)
    for row in remains.journal(start.position):
        if cell.position == until:
            break
        try:
            _take(cell, entry_of(row))
        except StoreDamaged as error:
            return cell, error.message
    cell.take_touched()
    return cell, ""


def _take(cell: Cell, entry: Entry) -> None:
    if not follows(entry, cell.position):
        raise StoreDamaged(f"The journal has lost entries: after {cell.position} comes {entry.position}")
    try:
        apply_entry(cell, entry)
    except Exception as error:  # whatever it is: what was written went with the cell
        raise StoreDamaged(
            f"Journal entry {entry.position} does not go with the cell before it: {error!r}"
        ) from error


def _left_over(remains: Remains, head: int) -> Iterator[Row]:
    """Yield the rows that do not stay: those beyond the head, and those that cannot be understood."""
    for row in remains.journal():
        if row[0] > head or not is_readable(row):
            yield row


def is_readable(row: Row) -> bool:
    """Return whether a row of the journal can be understood."""
    try:
        entry_of(row)
    except StoreDamaged:
        return False
    return True


def _ids(cell: Cell) -> Iterator[int]:
    yield 0
    yield from (answer.position for answer in cell.requests.values())
