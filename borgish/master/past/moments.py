"""The cell at moments of the past, for who reads: told from the store, and kept for a while.

A cell is restored beside the loop, one at a time, and read in a thread, since the sums of a large one take a
while: turns go on meanwhile. What was restored is kept until nobody has asked for it for some time, so that
the several reads of one command, or of one person, are fast.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from borgish.api.moments import Moment, no_such_name, not_reached
from borgish.api.services import Reading
from borgish.api.views.history import HistoryFilter, history_view
from borgish.api.views.jobs import job_view
from borgish.api.views.machines import machine_view
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.sums import DEAD, PENDING, RUNNING
from borgish.api.views.tally import Tally
from borgish.cell.events import Entry
from borgish.cell.free_space import AMPLE
from borgish.cell.machines.drains import Drains
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Clock
from borgish.errors import Conflict, Gone, Invalid, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.store.base import CheckpointInfo, Store
from borgish.store.replay import cell_at, earliest_position, entries_between, position_at, replay_one
from borgish.text import instant
from borgish.wire.api import AsOf, SummaryView
from borgish.wire.api_past import PastStep, PastWindow

T = TypeVar("T")
log = logging.getLogger("borgmaster")

CELLS_KEPT = 6
TASKS_KEPT = 400_000
"""In all cells that are kept, or in the latest one alone."""
KEPT_SECONDS = 120.0
WINDOW_ENTRIES = 500
"""Entries of the journal that are told at once, with what each changed."""
STEP_RECORDS_MAX = 20
"""Jobs, and machines, that are told of one entry: more than a screen has room for."""
FUTURE_SECONDS = 2.0
"""A moment so little after now is taken for now: clocks differ."""


class Holder(Protocol):
    """Who holds the cell as it is."""

    @property
    def cell(self) -> Cell: ...


class Writer(Protocol):
    """Who writes what the cell became."""

    async def durable(self) -> None:
        """Return when everything in memory is durable."""
        ...


class PastCell:
    """A cell as it was. Nobody writes to it; one at a time reads it, for reading makes its sums."""

    def __init__(self, cell: Cell, as_of: AsOf) -> None:
        self.cell = cell
        self.as_of = as_of
        self.observed = Observed(known=False)
        self.tally = Tally()
        self.tasks = sum(len(job.tasks) for job in cell.jobs.values())
        self.one_at_a_time = asyncio.Lock()


class Moments:
    """Finds moments of a cell, of a running master or of one that stands by, and has it read as it was."""

    def __init__(
        self, core: Holder, turn: Writer, store: Store, clock: Clock, daemon: Callable[[], Daemon]
    ) -> None:
        self._core = core
        self._turn = turn
        self._store = store
        self._clock = clock
        self._daemon = daemon
        self._kept: dict[int, PastCell] = {}  # by position; the latest asked for last
        self._one_at_a_time = asyncio.Lock()
        self._forgetting: asyncio.TimerHandle | None = None

    async def find(self, moment: Moment) -> AsOf:
        """Return which moment is meant. Raises Invalid, NotFound, Conflict and Gone.

        The cell is restored already, so that what is in the way of that is known as well.
        """
        await self._turn.durable()
        head = self._core.cell.position
        async with self._one_at_a_time:
            position = await asyncio.to_thread(self._position, moment, head)
        return (await self._cell(position)).as_of

    async def read(self, as_of: AsOf, view: Callable[[Reading], T]) -> T:
        """Return what ``view`` makes of the cell as it was."""
        past = await self._cell(as_of.position)
        async with past.one_at_a_time:
            return await asyncio.to_thread(view, self._reading(past))

    async def read_both(self, old: AsOf, new: AsOf, view: Callable[[Cell, Cell], T]) -> T:
        """Return what ``view``, which makes no sums, makes of the cell as it was at two moments."""
        before, after = await self._cell(old.position), await self._cell(new.position)
        return await asyncio.to_thread(view, before.cell, after.cell)

    async def window(self, moment: Moment) -> PastWindow:
        """Return the entries of the journal around a moment, and the cell before and after each. Raises as
        ``find`` does."""
        await self._turn.durable()
        head = self._core.cell.position
        async with self._one_at_a_time:
            position = await asyncio.to_thread(self._position, moment, head)
            earliest = await asyncio.to_thread(earliest_position, self._store)
            last = min(head, max(position, earliest) + WINDOW_ENTRIES // 2)
            after = max(earliest, last - WINDOW_ENTRIES)
            past = await asyncio.to_thread(self._restored, after)  # not kept: it goes on to the window's end
            first, steps = await asyncio.to_thread(self._steps, past, self._reading(past), head)
        return PastWindow(first, steps, position, earliest, head, past.as_of)

    def _steps(self, past: PastCell, reading: Reading, head: int) -> tuple[SummaryView, tuple[PastStep, ...]]:
        after, first = past.as_of.position, reading.summary(())
        entries = entries_between(self._store, after, min(head, after + WINDOW_ENTRIES))
        return first, tuple(self._step(past, entry) for entry in entries)

    def _step(self, past: PastCell, entry: Entry) -> PastStep:
        """Apply an entry to a cell of the past and return what it changed."""
        cell, tally, observed, now = past.cell, past.tally, past.observed, self._clock.now()
        view = history_view(entry, HistoryFilter())
        assert view is not None  # nothing is asked about in particular
        touched = replay_one(cell, entry)
        tally.note(touched, {})
        tally.fill(cell, observed)
        counts = tally.sums.counts
        jobs = sorted(touched.jobs | set(touched.tasks))
        there = [cell.jobs[key] for key in jobs if key in cell.jobs]
        machines = [cell.machines[name] for name in sorted(touched.machines) if name in cell.machines]
        drains = Drains(cell, observed, now)
        return PastStep(
            view,
            counts[PENDING],
            counts[RUNNING],
            counts[DEAD],
            tally.sums.machines_up,
            tuple(job_view(cell, observed, job, (), 0) for job in there[:STEP_RECORDS_MAX]),
            tuple(sorted(touched.jobs_gone)),
            tuple(
                machine_view(cell, observed, tally, machine, now, drains)
                for machine in machines[:STEP_RECORDS_MAX]
            ),
            tuple(sorted(touched.machines_gone)),
        )

    async def cell(self, as_of: AsOf) -> Cell:
        """Return the cell as it was; nobody may write to it."""
        return (await self._cell(as_of.position)).cell

    def _reading(self, past: PastCell) -> Reading:
        cell, observed, tally = past.cell, past.observed, past.tally
        # What commands are refused for now is nothing of the past.
        present = {"free_space": AMPLE, "refused": "", "certificates": (), "uncertified": (), "busy": ()}
        now, daemon = self._clock.now(), msgspec.structs.replace(self._daemon(), **present)
        return Reading(
            cell,
            observed,
            now,
            {},
            lambda: status_view(cell, observed, tally, daemon, now),
            tally,
            past.as_of,
        )

    # Which position

    def _position(self, moment: Moment, head: int) -> int:
        if moment.checkpoint:
            return self._named(moment.checkpoint).position
        if moment.position is not None:
            if moment.position > head:
                raise not_reached(moment.position, head)
            return moment.position
        return head if moment.at is None else self._at(moment.text, moment.at, head)

    def _named(self, name: str) -> CheckpointInfo:
        kept = self._store.checkpoints()
        for info in kept:
            if info.name == name:
                return info
        raise no_such_name(name, "kept", (info.name for info in kept))

    def _at(self, text: str, at: float, head: int) -> int:
        now = self._clock.now().wall
        if at > now + FUTURE_SECONDS:
            raise Invalid(
                f"'{text}' is in the future", f"It is {instant(now)}, and position {head} is the latest"
            )
        return position_at(self._store, at, head) or self._before_all(text, at)

    def _before_all(self, text: str, at: float) -> int:
        """Return the position of a moment from which no entry is kept, or before the first there was."""
        earliest = earliest_position(self._store)
        began = self._written(max(1, earliest))
        if earliest and at >= began:
            return earliest
        if earliest:
            raise Gone(
                f"what was at '{text}' is no longer kept",
                f"The earliest is position {earliest}, of {instant(began)}",
            )
        raise NotFound(
            f"the cell had no history yet at '{text}'", f"The earliest is position 1, of {instant(began)}"
        )

    def _written(self, position: int) -> float:
        """Return when an entry was written, or else when the checkpoint at its position was made."""
        entry = next(iter(self._store.entries(position - 1, 1)), None)
        if entry is not None and entry.position == position:
            return entry.at
        return next((info.at for info in self._store.checkpoints() if info.position == position), 0.0)

    # The cell there

    async def _cell(self, position: int) -> PastCell:
        async with self._one_at_a_time:
            past = self._kept.pop(position, None)
            if past is None:
                past = await asyncio.to_thread(self._restored, position)
            self._keep(past)
        return past

    def _restored(self, position: int) -> PastCell:
        try:
            found = cell_at(self._store, self._core.cell.name, position)
        except (StoreDamaged, UnsafeConfiguration) as error:
            raise Conflict(error.message, error.hint) from error
        for warning in found.warnings:
            log.warning("%s", warning)
        at = instant(self._written(position)) if position else ""
        return PastCell(found.cell, AsOf(position, at, found.cell.timeline, tuple(found.warnings)))

    def _keep(self, past: PastCell) -> None:
        self._kept[past.as_of.position] = past
        while len(self._kept) > CELLS_KEPT or (
            len(self._kept) > 1 and sum(one.tasks for one in self._kept.values()) > TASKS_KEPT
        ):
            del self._kept[next(iter(self._kept))]
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._kept.clear)
