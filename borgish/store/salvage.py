"""Finds what of a damaged store can go on: a good checkpoint, and the entries after it that hold. Only reads.

SQLite's own ``.recover`` is in its shell only, not in the library that Python has, and would return rows
without telling which belong together: a cell is good up to a position, as a checkpoint and the journal after
it verify it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Executable, Table, func, select, text
from sqlalchemy.exc import DataError, SQLAlchemyError

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, follows
from borgish.cell.model import Cell, Snapshot
from borgish.errors import BorgishError, StoreDamaged
from borgish.store.base import CheckpointInfo, reason_of
from borgish.store.checkpoints import RestorePoint, verified_snapshot
from borgish.store.sql import checkpoint_body, checkpoint_infos
from borgish.store.tables import (
    ENTRY_COLUMNS,
    Row,
    columns_as_written,
    differences,
    jobs,
    journal,
    leadership,
    read_entry,
    tasks,
)

T = TypeVar("T")
UNKNOWN_SKIPPED = 1_000_000
"""So many positions are left out where nobody knows how far the journal went: no number is used twice."""

PAGE_ROWS = 500
_ROW = tuple[int, float, int, int, str, str, str, str, str, str, str, str | None]
"""The types of a row of the journal, in the order of its columns; SQLite would take anything."""


class Salvaged(msgspec.Struct):
    """What can be saved, and what cannot."""

    cell: Cell  # as the last entry that holds left it
    head: int  # its position
    start: int  # position of the checkpoint that it was restored from; 0: of none
    start_path: str  # of its file, where it was in one
    good: list[int]  # positions of the stored checkpoints that stay
    bad: list[str]  # why others do not
    stop: str  # why the journal is not replayed any further, "" when it is to its end
    top: int  # the highest position that anything in the database mentions
    lost: list[Row]  # of the journal: not replayed, or not readable
    unread: list[str]  # what could not be read at all
    wrong: list[str]  # what can be read, and is not as it should be
    epoch: int
    is_end_known: bool  # or the journal may have gone on, beyond ``top``

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


class DamagedDatabase:
    """Reads what can be read through one connection, with a transaction begun, and passes over the rest."""

    def __init__(self, connection: Connection, problem: str = "", *, is_end_known: bool = True) -> None:
        """``problem`` is what there was with opening it."""
        self.problems = [problem] if problem else []  # what was passed over, in the order found
        self.is_end_known = is_end_known  # whether the journal could be read to its end
        self.connection = connection

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the stored checkpoints, newest first."""
        return self._try("The list of checkpoints", lambda: checkpoint_infos(self.connection)) or []

    def body(self, position: int) -> bytes:
        """Return a checkpoint's body as stored, empty when it cannot be read."""
        read = self._try(f"The checkpoint at {position}", lambda: checkpoint_body(self.connection, position))
        return read or b""

    def leadership(self) -> tuple[str, int, int]:
        """Return the cell's name, its timeline and its epoch, as far as they can be read."""
        columns = leadership.c.cell, leadership.c.timeline, leadership.c.epoch
        found = self._try("Who leads", lambda: self.connection.execute(select(*columns)).first())
        cell, timeline, epoch = found or ("", 0, 0)
        return str(cell or ""), int(timeline or 0), int(epoch or 0)

    def highest_position(self) -> int:
        """Return the highest position that anything mentions: ids of attempts and jobs are positions, too."""
        problems = len(self.problems)
        head = self._try("The head of the journal", self._scalar(func.max(journal.c.position)))
        self.is_end_known &= len(self.problems) == problems
        ids = (func.max(tasks.c.attempt), func.max(jobs.c.uid))
        others = [self._try("The highest number", self._scalar(each)) for each in ids]
        return max(int(found or 0) for found in (head, *others))

    def has_entry(self, position: int) -> bool:
        """Return whether the journal has an entry at a position."""
        wanted = select(journal.c.position).where(journal.c.position == position)
        return self._try("", self._scalar(wanted.scalar_subquery())) is not None

    def journal(self, after: int = 0) -> Iterator[Row]:
        """Yield the rows of the journal above a position, in order, as they are.

        A page that cannot be read is read row by row, and from the first row that cannot be read on, the next
        readable position is searched.
        """
        limit = PAGE_ROWS
        while True:
            page = self._try(f"The journal after {after}" if limit == 1 else "", self._page(after, limit))
            if page is None and limit > 1:
                limit = 1
            elif page is None:
                skipped = self._readable_after(after)
                if skipped is None:
                    self.is_end_known = False
                    return
                after, limit = skipped, PAGE_ROWS
            else:
                yield from page
                if len(page) < limit:
                    return
                after, limit = page[-1][0], PAGE_ROWS

    def table_rows(self, table: Table) -> list[Row] | None:
        """Return a table's rows, with JSON as it was written; None when they cannot be read."""
        wanted = select(*columns_as_written(table.c))
        return self._try(f"The table {table.name}", lambda: self._rows(wanted))

    def integrity_check(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        found = self._try("The file", lambda: self._rows(text("PRAGMA integrity_check(10)"))) or []
        lines = (line for (message,) in found for line in str(message).splitlines())
        return [f"SQLite finds: {line}" for line in lines if line != "ok"]

    def _readable_after(self, after: int) -> int | None:
        """Return a position from which on the journal can be read again, None when there is none."""
        top, step = self.highest_position(), 1
        while after + step <= top:
            if self._try("", self._page(after + step, 1)) is not None:
                return after + step
            step *= 2
        return None

    def _page(self, after: int, limit: int) -> Callable[[], list[Row]]:
        wanted = select(*ENTRY_COLUMNS).where(journal.c.position > after)
        wanted = wanted.order_by(journal.c.position).limit(limit)

        def read() -> list[Row]:
            page = self._rows(wanted)
            if any(later <= earlier for earlier, later in pairwise([after, *(row[0] for row in page)])):
                # A damaged tree leads in circles.
                raise DataError("SELECT", None, ValueError("the journal is not in order"))
            return page

        return read

    def _rows(self, wanted: Executable) -> list[Row]:
        return [tuple(row) for row in self.connection.execute(wanted)]

    def _scalar(self, column: Any) -> Callable[[], Any]:
        return lambda: self.connection.execute(select(column)).scalar()

    def _try(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what is read; None, and the problem noted under ``what``, when it cannot be."""
        try:
            with self.connection.begin_nested():
                return read()
        except SQLAlchemyError as error:
            if what and not any(problem.startswith(what) for problem in self.problems):
                self.problems.append(f"{what} cannot be read: {reason_of(error)}")
            return None


def salvage(
    database: DamagedDatabase,
    name: str,
    given: RestorePoint | None = None,
    files: Sequence[RestorePoint] = (),
) -> Salvaged:
    """Return what can be saved of a cell; ``given`` is a checkpoint to restore from, instead of the newest
    good one.

    ``files`` are good ones in files, newest first: one is used where the database by itself does not lead as
    far. Raises StoreDamaged when there is nothing to restore from.
    """
    good, bad, newest = _good_checkpoints(database, name)
    start = given or newest or RestorePoint(0)
    cell, stop, lost = _replay(database, name, start)
    if files and not given and files[0].position > cell.position:
        start = files[0]
        cell, stop, lost = _replay(database, name, start)
    is_ahead = start in (given, *files) and not database.has_entry(start.position)
    if is_ahead:
        database.is_end_known = False
        database.problems.append(f"The journal has no entry at position {start.position}")
    _, timeline, epoch = database.leadership()
    mentioned = [
        *(info.position for info in database.checkpoints()),
        *(each.position for each in files),
        *(answer.position for answer in cell.requests.values()),
    ]
    top = max(database.highest_position(), cell.position, *mentioned, 0)
    if not stop and top > cell.position:
        stop = f"The journal ends at {cell.position}, but the database refers to position {top}"
    if not start.position and not cell.position and (top or database.problems):
        raise StoreDamaged(
            "No checkpoint in the database is good, and the journal does not begin at its first entry",
            "Give a checkpoint that was exported: --recover FILE; or restore the database from a backup",
        )
    cell.timeline = max(cell.timeline, timeline)
    return Salvaged(
        cell=cell,
        head=cell.position,
        start=start.position,
        start_path=start.path,
        good=[info.position for info in good if info.position <= cell.position],
        bad=bad,
        stop=stop,
        top=top,
        lost=lost,
        unread=database.problems,
        # Where the cell is not the one that the tables show, they are not compared.
        wrong=[] if stop or is_ahead else differences(cell, database.table_rows),
        epoch=max(epoch, cell.epoch),
        is_end_known=database.is_end_known,
    )


def _good_checkpoints(
    database: DamagedDatabase, name: str
) -> tuple[list[CheckpointInfo], list[str], RestorePoint | None]:
    """Return those that verify, why others do not, and the newest good one."""
    good: list[CheckpointInfo] = []
    bad: list[str] = []
    newest = None
    for info in database.checkpoints():
        stored = database.body(info.position)
        try:
            verified_snapshot(name, info, stored)
        except BorgishError as error:
            bad.append(f"The checkpoint at {info.position} is not good: {error.message}")
        else:
            good.append(info)
            newest = newest or RestorePoint(info.position, stored, info)
    return good, bad, newest


def _replay(database: DamagedDatabase, name: str, start: RestorePoint) -> tuple[Cell, str, list[Row]]:
    """Return the cell as far as the journal holds, why it does not any further, and the rows that do not
    stay: those beyond, and those that cannot be understood."""
    cell, stop = _replay_until(database, name, start, None)
    if stop:  # half of the entry that did not go with the cell may have been applied
        cell, _ = _replay_until(database, name, start, cell.position)
    return cell, stop, [row for row in database.journal() if row[0] > cell.position or not is_readable(row)]


def _replay_until(
    database: DamagedDatabase, name: str, start: RestorePoint, until: int | None
) -> tuple[Cell, str]:
    snapshot = verified_snapshot(name, start.info, start.stored) if start.info else Snapshot(name)
    cell = Cell(snapshot)
    for row in database.journal(start.position):
        if cell.position == until:
            break
        try:
            _apply(cell, entry_of(row))
        except StoreDamaged as error:
            return cell, error.message
    cell.take_touched()
    return cell, ""


def _apply(cell: Cell, entry: Entry) -> None:
    if not follows(entry, cell.position):
        raise StoreDamaged(f"The journal has lost entries: after {cell.position} comes {entry.position}")
    try:
        apply_entry(cell, entry)
    except Exception as error:  # whatever it is: what was written went with the cell
        raise StoreDamaged(
            f"Journal entry {entry.position} does not apply to the cell before it: {error!r}"
        ) from error


def entry_of(row: Row) -> Entry:
    """Return the entry of a row. Raises StoreDamaged, naming it, when it is none."""
    try:
        checked = msgspec.convert(row, _ROW)
    except msgspec.ValidationError as error:
        raise StoreDamaged(f"Journal entry {row[0]} cannot be read: {error}") from error
    return read_entry(checked)


def is_readable(row: Row) -> bool:
    """Return whether a row of the journal is an entry."""
    try:
        entry_of(row)
    except StoreDamaged:
        return False
    return True
