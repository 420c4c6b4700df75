"""The history of a running master's cell for who archives it: events, attempts, samples of usage, which is
what Borg keeps in Infrastore (section 2.6).

``Archive`` streams them. All of it is read a page at a time and worked on in threads, so that turns go on and
memory does not grow with the journal; what is held is one cell, as it was where the rows begin. One stream at
a time. It is one stream, since stays of tasks are followed from that cell on by one replay. It ends with
counts, without which the client keeps nothing.

``event_rows`` and ``Attempts``, which are pure, make the rows: each event by itself, and each stay of a task
on a machine.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TypeVar

import msgspec

import borgish
from borgish.api.views.history import COMMAND_WORDS
from borgish.cell.events import (
    AnyEvent,
    Entry,
    JobChanged,
    JobSubmitted,
    MachineJoined,
    RolledBack,
    RolloutWentOn,
    TasksEnded,
    TasksEvicted,
    TasksHandedOver,
    TasksRestarted,
)
from borgish.cell.model import Cell, Job, Task
from borgish.clock import Clock
from borgish.errors import BorgishError, Gone, Invalid, NotFound
from borgish.master.core import Core
from borgish.master.turn import Turn
from borgish.resources import Resources
from borgish.store.base import Store
from borgish.store.replay import cell_at, earliest_position, position_at, replay_one
from borgish.store.usage import UsageBlock, decode_usage
from borgish.text import instant
from borgish.vocabulary import State, split_task_name, task_name
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
        """Return the lines of ``wire.archive``, of what happened from one moment to another, in seconds since
        1970.

        Raises Invalid, NotFound and Gone for what is not in the journal.
        """
        await self._turn.durable()
        head, now = self._core.cell.position, self._clock.now().wall
        begin = await asyncio.to_thread(self._range, since, until, head, now)
        return self._lines(begin)

    def _range(self, since: float | None, until: float | None, head: int, now: float) -> ArchiveBegin:
        if since is not None and since > now:
            raise Invalid(f"{instant(since)} is in the future", f"It is {instant(now)}")
        first = next(iter(self._store.entries(0, 1)), None)
        if first is None:
            raise NotFound("the journal has no entries", "Ask again when something has")
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

    def _following(self, position: int) -> "Attempts":
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


def _piece(page: list[Entry], following: "Attempts", position: int) -> ArchivePiece:
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


def event_rows(entry: Entry) -> Iterator[EventRow]:
    """Yield a row for each event of an entry, or one that has none."""
    for number, event in enumerate(entry.events or (None,)):
        yield EventRow(
            entry.position,
            number,
            entry.at,
            entry.timeline,
            entry.epoch,
            entry.actor,
            COMMAND_WORDS.get(entry.cause, entry.cause),
            entry.request_id,
            entry.subject,
            entry.text,
            *_event_columns(event),
        )


def _event_columns(event: AnyEvent | None) -> tuple[str | None, str | None, str | None, int, str | None]:
    if event is None:
        return None, None, None, 0, None
    job = event.spec.key if isinstance(event, JobSubmitted) else getattr(event, "job", None)
    machine = event.machine.name if isinstance(event, MachineJoined) else getattr(event, "machine", None)
    return type(event).__name__, job, machine, len(getattr(event, "indexes", ())), _encode(event).decode()


class _Stay(msgspec.Struct, gc=False):
    """One that goes on. There are 200,000 of them in a large cell."""

    attempt: int
    machine: str
    placed_at: float
    kind: str
    band: str
    priority: int
    limits: Resources
    restarts: int


class _EndCause(msgspec.Struct, frozen=True):
    """How a stay ended."""

    ending: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None


class Attempts:
    """Follows the stays of tasks through the journal. ``cell`` is its own, as it was where that begins.

    A stay is found by comparing each touched task with what was noted, not by reading events, so that no kind
    of event can be forgotten.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._open: dict[str, dict[int, _Stay]] = {}  # by job and index
        for job in cell.jobs.values():
            for task in job.tasks:
                self._look(job, task)

    def take(self, entry: Entry) -> Iterator[AttemptRow]:
        """Take the next entry into the cell; yield the stays that ended by it. Raises StoreDamaged."""
        touched = replay_one(self._cell, entry)
        self._count_restarts(entry)
        end_causes = dict(_end_causes(entry))
        for key in sorted(touched.jobs_gone | touched.tasks_gone.keys()):
            job = self._cell.jobs.get(key)
            yield from self._close(key, range(len(job.tasks) if job else 0), entry, end_causes)
        for key, indexes in sorted(touched.tasks.items()):
            yield from self._compare(key, sorted(indexes), entry, end_causes)

    def going_on(self) -> Iterator[AttemptRow]:
        """Yield the stays that have not ended."""
        for job, stays in sorted(self._open.items()):
            for index, stay in sorted(stays.items()):
                yield _row(job, index, stay)

    def _look(self, job: Job, task: Task) -> None:
        """Note a stay that has begun."""
        if task.state is State.RUNNING:
            spec = job.spec_of(task)
            self._open.setdefault(job.key, {})[task.index] = _Stay(
                task.attempt,
                task.machine,
                task.since,
                str(spec.kind),
                str(self._cell.rules.bands.of(spec.priority)),
                spec.priority,
                spec.needs(task.index),
                task.restarts,
            )

    def _compare(
        self, key: str, indexes: list[int], entry: Entry, end_causes: dict[tuple[str, int], _EndCause]
    ) -> Iterator[AttemptRow]:
        job = self._cell.jobs.get(key)
        if job is None:
            return
        open_here = self._open.get(key, {})
        for index in indexes:
            if index >= len(job.tasks):
                continue
            task, stay = job.tasks[index], open_here.get(index)
            goes_on = stay is not None and task.state is State.RUNNING and task.attempt == stay.attempt
            if stay is not None and not goes_on:
                del open_here[index]
                yield _row(key, index, stay, entry, end_causes.get((key, index)) or _by(entry))
            if not goes_on:
                self._look(job, task)

    def _close(
        self, key: str, there: range, entry: Entry, end_causes: dict[tuple[str, int], _EndCause]
    ) -> Iterator[AttemptRow]:
        """Yield the stays of tasks that are no more."""
        stays = self._open.get(key, {})
        for index in sorted(index for index in stays if index not in there):
            yield _row(key, index, stays.pop(index), entry, end_causes.get((key, index)) or _by(entry))
        if not stays:
            self._open.pop(key, None)

    def _count_restarts(self, entry: Entry) -> None:
        for event in entry.events:
            if isinstance(event, TasksRestarted):
                stays = self._open.get(event.job, {})
                for index, restarts in zip(event.indexes, event.restarts, strict=True):
                    if index in stays:
                        stays[index].restarts = restarts


def _end_causes(entry: Entry) -> Iterator[tuple[tuple[str, int], _EndCause]]:
    """Yield what an entry says of how stays ended, by job and index."""
    for event in entry.events:
        if isinstance(event, TasksEvicted):
            end_cause = _EndCause(str(event.cause), event.reason)
            yield from (((event.job, index), end_cause) for index in event.indexes)
        elif isinstance(event, TasksHandedOver):
            yield from (((event.job, index), _EndCause("handed over")) for index in event.indexes)
        elif isinstance(event, TasksEnded):
            for row, index in enumerate(event.indexes):
                if event.attempts:  # the stay that ends here is a later one, which is stopped for it
                    yield (
                        (event.job, index),
                        _EndCause("superseded", f"attempt {event.attempts[row]} had ended"),
                    )
                    continue
                yield (
                    (event.job, index),
                    _EndCause(
                        str(event.ending),
                        event.reasons[row],
                        event.exit_codes[row] if event.exit_codes else None,
                        event.signals[row] if event.signals else None,
                    ),
                )


def _by(entry: Entry) -> _EndCause:
    """Return how stays ended of which an entry does not say so one by one."""
    for event in entry.events:
        if isinstance(event, RolledBack):
            return _EndCause("rollback")
        if isinstance(event, RolloutWentOn):
            return _EndCause(str(event.kind))
        if isinstance(event, JobChanged):
            return _EndCause("update" if event.version else "scale", entry.text)
    return _EndCause("other", entry.text)


def _row(
    job: str, index: int, stay: _Stay, entry: Entry | None = None, end_cause: _EndCause | None = None
) -> AttemptRow:
    return AttemptRow(
        stay.attempt,
        task_name(job, index),
        job.partition("/")[0],
        job,
        index,
        stay.kind,
        stay.machine,
        stay.band,
        stay.priority,
        stay.limits.cpu_millis,
        stay.limits.ram_bytes,
        stay.limits.disk_bytes,
        stay.placed_at,
        entry.at if entry else None,
        entry.position if entry else None,
        end_cause.ending if end_cause else None,
        end_cause.reason if end_cause else "",
        end_cause.exit_code if end_cause else None,
        end_cause.signal if end_cause else None,
        stay.restarts,
    )
