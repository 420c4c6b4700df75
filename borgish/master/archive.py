"""Streams the history of a running master's cell to who archives it: events, attempts, samples of usage.

All of it is read a page at a time and worked on in threads, so that turns go on and memory does not grow
with the journal; what is held is one cell, as it was where the rows begin. One stream at a time.

It is one stream, since stays of tasks are followed from that cell on by one replay. It ends with counts,
without which the client keeps nothing.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import msgspec

import borgish
from borgish.cell.events import Entry
from borgish.clock import Clock
from borgish.errors import BorgishError, Gone, Invalid, NotFound
from borgish.master.attempts import Attempts, event_rows
from borgish.master.core import Core
from borgish.master.turn import Turn
from borgish.store.base import Store
from borgish.store.replay import cell_at, earliest_position, position_at
from borgish.store.usage import UsageBlock, decode_usage
from borgish.text import instant
from borgish.vocabulary import split_task_name
from borgish.wire.archive import ArchiveBegin, ArchiveEnd, ArchivePiece, AttemptRow, EventRow, UsageRow

T = TypeVar("T")

PAGE_ENTRIES = 64
"""The store is held for so many."""
ROWS_AT_ONCE = 10_000
_encode = msgspec.json.Encoder().encode


class Archive:
    """Reads a running master's store for archives."""

    def __init__(self, core: Core, turn: Turn, store: Store, clock: Clock) -> None:
        self._core = core
        self._turn = turn
        self._store = store
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def begin(self, since: float | None, until: float | None) -> AsyncIterator[bytes]:
        """Return the lines of ``wire.archive``, of what happened from one moment to another.

        Raises Invalid, NotFound and Gone for what is not in the journal.
        """
        await self._turn.durable()
        head, now = self._core.cell.position, self._clock.now().wall
        begin = await asyncio.to_thread(self._range, since, until, head, now)
        return self._lines(begin)

    def _range(self, since: float | None, until: float | None, head: int, now: float) -> ArchiveBegin:
        if since is not None and since > now:
            raise Invalid(f"{instant(since)} has not come yet", f"It is {instant(now)}")
        first = next(iter(self._store.entries(0, 1)), None)
        if first is None:
            raise NotFound("nothing has happened yet", "Ask again when something has")
        _expect_kept(first, since, until)
        after = 0 if since is None else position_at(self._store, math.nextafter(since, 0.0), head)
        return ArchiveBegin(
            self._core.cell.name,
            borgish.__version__,
            now,
            since,
            now if until is None else min(until, now),
            max(after, first.position - 1),
            head if until is None else position_at(self._store, until, head),
            None if first.position == 1 else first.at,
        )

    async def _lines(self, begin: ArchiveBegin) -> AsyncIterator[bytes]:
        yield _line(ArchivePiece(begin=begin))
        events = attempts = usage = 0
        try:
            async with self._one_at_a_time:
                async for piece in self._pieces(begin):
                    events += len(piece.events)
                    attempts += len(piece.attempts)
                    usage += len(piece.usage)
                    yield await asyncio.to_thread(_line, piece)
            last = ArchivePiece(end=ArchiveEnd(events, attempts, usage))
        except BorgishError as error:
            last = ArchivePiece(problem=error.message, hint=error.hint)
        yield _line(last)

    async def _pieces(self, begin: ArchiveBegin) -> AsyncIterator[ArchivePiece]:
        after, position = begin.after, await asyncio.to_thread(earliest_position, self._store)
        following = await asyncio.to_thread(self._following, max(after, position))
        while page := await asyncio.to_thread(self._page, after, begin.last):
            yield await asyncio.to_thread(_piece, page, following, position)
            after = page[-1].position
        going_on = following.going_on()
        while rows := await asyncio.to_thread(_some, going_on):
            yield ArchivePiece(attempts=rows)
        key = (begin.since or 0.0, -1)
        while blocks := await asyncio.to_thread(self._store.usage, key, begin.until, 1):
            yield ArchivePiece(usage=await asyncio.to_thread(_usage_rows, blocks))
            key = (blocks[-1].at, blocks[-1].part)

    def _following(self, position: int) -> Attempts:
        return Attempts(cell_at(self._store, self._core.cell.name, position).cell)

    def _page(self, after: int, last: int) -> list[Entry]:
        if after >= last:
            return []
        return [one for one in self._store.entries(after, PAGE_ENTRIES) if one.position <= last]


def _expect_kept(first: Entry, since: float | None, until: float | None) -> None:
    begins = instant(first.at)
    if first.position > 1 and any(moment is not None and moment < first.at for moment in (since, until)):
        raise Gone(
            f"what was before {begins} is no longer kept", f"The journal begins then: --since {begins}"
        )
    if until is not None and until < first.at:
        raise NotFound(f"the cell had no history yet at {instant(until)}", f"The journal begins at {begins}")


def _piece(page: list[Entry], following: Attempts, position: int) -> ArchivePiece:
    """Return the rows of some entries. Up to ``position`` the cell has ingested them already."""
    events: list[EventRow] = []
    attempts: list[AttemptRow] = []
    for entry in page:
        events += event_rows(entry)
        if entry.position > position:
            attempts += following.take(entry)
    return ArchivePiece(events=events, attempts=attempts)


def _some(rows: Iterable[AttemptRow]) -> list[AttemptRow]:
    return [row for _, row in zip(range(ROWS_AT_ONCE), rows, strict=False)]


def _usage_rows(blocks: list[UsageBlock]) -> list[UsageRow]:
    rows = []
    for block in blocks:
        for one in decode_usage(block):
            job, index = split_task_name(one.task)
            user = job.partition("/")[0]
            rows.append(
                UsageRow(
                    block.at,
                    one.machine,
                    one.task,
                    user,
                    job,
                    index,
                    one.attempt,
                    one.cpu_millis,
                    one.ram_bytes,
                )
            )
    return rows


def _line(piece: ArchivePiece) -> bytes:
    return _encode(piece) + b"\n"
