"""Reads what can still be read of a damaged database, and passes over what cannot.

Nothing here changes anything. ``troubles`` is what was passed over, in words, in the order it was found.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Executable, Table, func, select, text
from sqlalchemy.exc import DataError, SQLAlchemyError

from borgish.cell.events import Entry
from borgish.errors import StoreDamaged
from borgish.store import sql
from borgish.store.base import CheckpointInfo, reason_of
from borgish.store.tables import (
    ENTRY_COLUMNS,
    Row,
    columns_as_written,
    jobs,
    journal,
    leadership,
    read_entry,
    tasks,
)

T = TypeVar("T")
PAGE_ROWS = 500
_ROW = tuple[int, float, int, int, str, str, str, str, str, str, str, str | None]
"""What a row of the journal is made of, in the order of its columns; SQLite would take anything."""


class Remains:
    """A database through one connection, with a transaction begun."""

    def __init__(self, connection: Connection, trouble: str = "", *, is_end_known: bool = True) -> None:
        """``trouble`` is what there was with opening it."""
        self.troubles = [trouble] if trouble else []
        self.is_end_known = is_end_known  # whether the journal could be read to its end
        self.connection = connection

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return what is kept, newest first."""
        return self._tried("The list of checkpoints", lambda: sql.checkpoint_infos(self.connection)) or []

    def body(self, position: int) -> bytes:
        """Return a checkpoint's body as stored, empty when it cannot be read."""
        read = self._tried(
            f"The checkpoint at {position}", lambda: sql.checkpoint_body(self.connection, position)
        )
        return read or b""

    def led(self) -> tuple[str, int, int]:
        """Return the cell's name, its timeline and its epoch, as far as they can be read."""
        columns = leadership.c.cell, leadership.c.timeline, leadership.c.epoch
        found = self._tried("Who leads", lambda: self.connection.execute(select(*columns)).first())
        cell, timeline, epoch = found or ("", 0, 0)
        return str(cell or ""), int(timeline or 0), int(epoch or 0)

    def top(self) -> int:
        """Return the highest position that anything tells of."""
        asked = (func.max(journal.c.position), func.max(tasks.c.attempt), func.max(jobs.c.uid))
        troubles = len(self.troubles)
        head = self._tried("The head of the journal", partial(self._scalar, asked[0]))
        self.is_end_known &= len(self.troubles) == troubles
        others = [self._tried("The highest number", partial(self._scalar, each)) for each in asked[1:]]
        return max(int(found or 0) for found in (head, *others))

    def tells_of(self, position: int) -> bool:
        """Return whether the journal has an entry at a position."""
        found = self._tried(
            "",
            lambda: self._scalar(
                select(journal.c.position).where(journal.c.position == position).scalar_subquery()
            ),
        )
        return found is not None

    def journal(self, after: int = 0) -> Iterator[Row]:
        """Yield the rows of the journal above a position, in order, as they are."""
        limit = PAGE_ROWS
        while True:
            page = self._tried(f"The journal after {after}" if limit == 1 else "", self._page(after, limit))
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

    def integrity(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        found = self._tried("The file", lambda: self._all(text("PRAGMA integrity_check(10)"))) or []
        lines = (line for (said,) in found for line in str(said).splitlines())
        return [f"SQLite finds: {line}" for line in lines if line != "ok"]

    def rows(self, table: Table) -> list[Row] | None:
        """Return a table's rows with JSON as it was written; None when they cannot be read."""
        wanted = select(*columns_as_written(table.c))
        return self._tried(f"The table {table.name}", lambda: self._all(wanted))

    def _readable_after(self, after: int) -> int | None:
        """Return a position from which on the journal can be read again, None when there is none."""
        top, step = self.top(), 1
        while after + step <= top:
            if self._tried("", self._page(after + step, 1)) is not None:
                return after + step
            step *= 2
        return None

    def _page(self, after: int, limit: int) -> Callable[[], list[Row]]:
        wanted = select(*ENTRY_COLUMNS).where(journal.c.position > after)
        wanted = wanted.order_by(journal.c.position).limit(limit)
        return lambda: _expect_beyond(after, self._all(wanted))

    def _all(self, wanted: Executable) -> list[Row]:
        return [tuple(row) for row in self.connection.execute(wanted)]

    def _scalar(self, column: Any) -> Any:
        return self.connection.execute(select(column)).scalar()

    def _tried(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what is read; None, and the trouble noted under ``what``, when it cannot be."""
        try:
            with self.connection.begin_nested():
                return read()
        except SQLAlchemyError as error:
            if what and not any(trouble.startswith(what) for trouble in self.troubles):
                self.troubles.append(f"{what} cannot be read: {reason_of(error)}")
            return None


def _expect_beyond(after: int, page: list[Row]) -> list[Row]:
    """Return a page as it is, unless it is not what was asked for: a damaged tree leads in circles."""
    positions = [after, *(row[0] for row in page)]
    if any(later <= earlier for earlier, later in pairwise(positions)):
        raise DataError("SELECT", None, ValueError("the journal is not in order"))
    return page


def entry_of(row: Row) -> Entry:
    """Return the entry of a row. Raises StoreDamaged, naming it, when it is none."""
    try:
        checked = msgspec.convert(row, _ROW)
    except msgspec.ValidationError as error:
        raise StoreDamaged(f"Journal entry {row[0]} cannot be read: {error}") from error
    return read_entry(checked)
