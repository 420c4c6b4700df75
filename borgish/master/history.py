"""Looks back through the journal in the store, from its end, for what somebody asks about.

The store's one thread is lent for a page at a time, and pages are cut to what takes it a moment, so that
commits hardly wait. Entries are decoded and sifted in another thread. Only one page of all the walks is
under way at any time, and no walk looks at more than ``LOOKED_AT_MAX`` entries.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

import msgspec

from borgish.api.views.history import HistoryFilter, history_view
from borgish.cell.events import Entry
from borgish.cell.generations import Thing, decides_about
from borgish.clock import Clock
from borgish.errors import Gone
from borgish.master.turn import Turn
from borgish.store.base import Store
from borgish.text import instant
from borgish.wire.api import Page
from borgish.wire.api_past import HistoryList, HistoryView

LOOKED_AT_MAX = 200_000
EVENTS_MAX = 5_000
"""An answer ends with the entry that brings it over this many events, whatever its limit."""
DECIDED_MAX = 3
DECIDED_LOOKED_AT_MAX = 1_000
CLOCK_SLACK_SECONDS = 600.0
"""Positions are in order, times are so but for a clock that was set back; by this much hides nothing."""
PAGE_ENTRIES_FIRST, PAGE_ENTRIES_MIN, PAGE_ENTRIES_MAX = 16, 4, 500
PAGE_SECONDS = 0.003
_END = 2**63 - 1  # above every position


class Walk:
    """One look back: takes entries newest first, and knows when it has enough. Pure."""

    def __init__(self, wanted: HistoryFilter, limit: int, looked_at_max: int) -> None:
        self._wanted = wanted
        self._limit = limit
        self._looked_at_max = looked_at_max
        self._found: list[HistoryView] = []
        self._events = 0
        self._last: Entry | None = None  # that was scanned
        self._is_over = False  # nothing older can match
        self.looked_at = 0

    def take(self, entries: Iterable[Entry], asked: int) -> None:
        """Look at a page, newest first; fewer than ``asked`` are the journal's first."""
        taken = 0
        for entry in entries:
            taken += 1
            self._look(entry)
            if self.is_done:
                return
        self._is_over = taken < asked

    def _look(self, entry: Entry) -> None:
        since = self._wanted.since
        self.looked_at += 1
        self._last = entry
        self._is_over = since is not None and entry.at < since - CLOCK_SLACK_SECONDS
        view = history_view(entry, self._wanted)
        if view is not None:
            self._found.append(view)
            self._events += len(view.events)

    @property
    def position(self) -> int:
        """The lowest that was scanned."""
        return self._last.position if self._last else _END

    @property
    def is_done(self) -> bool:
        """Whether it need not, or may not, look at more."""
        return self._is_over or self._is_full or self.looked_at >= self._looked_at_max

    @property
    def _is_full(self) -> bool:
        return len(self._found) >= self._limit or self._events > EVENTS_MAX

    def answer(self) -> HistoryList:
        """Return what was found, in order, and where older ones are to be looked for."""
        last = self._last
        if last is None:
            return HistoryList(())
        goes_on = last.position > 1 and not self._is_over
        return HistoryList(
            tuple(reversed(self._found)),
            Page(str(last.position) if goes_on else ""),
            self.looked_at,
            instant(last.at),
            cut_short=goes_on and not self._is_full,
        )


class History:
    """Reads the journal of a running master's store."""

    def __init__(self, turn: Turn, store: Store, clock: Clock, looked_at_max: int = LOOKED_AT_MAX) -> None:
        self._looked_at_max = looked_at_max
        self._turn = turn
        self._store = store
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList:
        """Return the latest entries that match, below position ``before`` (0: from the end), in order.

        Raises Gone when all that is asked about was pruned.
        """
        first = await self._first()
        _expect_kept(first, wanted, before)
        walk = Walk(wanted, limit, self._looked_at_max)
        below, asked = await self._start(wanted.until, before or _END), PAGE_ENTRIES_FIRST
        while not walk.is_done:
            asked = min(asked, self._looked_at_max - walk.looked_at)
            below, asked = await self._look(walk, below, asked)
        found = walk.answer()
        if first is not None and 1 < first.position >= walk.position:
            return msgspec.structs.replace(found, page=Page(), cut_short=False, begins=instant(first.at))
        return found

    async def decided(self, thing: Thing, after: int, until: int) -> list[Entry]:
        """Return the latest few entries by which somebody decided about a thing, in order: of those above
        position ``after``, up to ``until`` (0: the last). Of many only the latest are looked at."""
        found: list[Entry] = []
        below, left = until + 1 if until else _END, DECIDED_LOOKED_AT_MAX
        while left and len(found) < DECIDED_MAX:
            page = min(left, PAGE_ENTRIES_FIRST)
            async with self._one_at_a_time:
                entries = await self._turn.in_store(partial(self._read, below, page))
            kept = [entry for entry in entries if entry.position > after]
            found += [each for each in kept if each.position == until or decides_about(each, thing)]
            if len(kept) < page:
                break
            below, left = kept[-1].position, left - page
        return found[:DECIDED_MAX][::-1]

    def _read(self, below: int, limit: int) -> list[Entry]:
        return list(self._store.entries_before(below, limit))

    async def _first(self) -> Entry | None:
        """Return the first entry of the journal: not that of position 1 where older ones were pruned."""
        async with self._one_at_a_time:
            entries = await self._turn.in_store(lambda: list(self._store.entries(0, 1)))
        return next(iter(entries), None)

    async def _look(self, walk: Walk, below: int, asked: int) -> tuple[int, int]:
        """Have a walk look at the page below a position; return the same for the next page."""
        async with self._one_at_a_time:
            entries, seconds = await self._turn.in_store(lambda: self._timed(below, asked))
            await asyncio.to_thread(walk.take, entries, asked)
        return walk.position, next_size(asked, seconds)

    def _timed(self, below: int, limit: int) -> tuple[Iterable[Entry], float]:
        began = self._clock.now().mono
        entries = self._store.entries_before(below, limit)
        return entries, self._clock.now().mono - began

    async def _start(self, until: float | None, below: int) -> int:
        """Return a position at or above which, and below ``below``, nothing is from ``until`` or before."""
        if until is None:
            return below
        latest = until + CLOCK_SLACK_SECONDS
        newest = await self._newest(below)
        if newest is None or newest.at <= latest:
            return below
        low, high = 0, newest.position
        while high - low > 1:
            middle = await self._newest((low + high) // 2 + 1)
            if middle is None or middle.at <= latest:
                low = (low + high) // 2
            else:
                high = middle.position
        return high

    async def _newest(self, below: int) -> Entry | None:
        async with self._one_at_a_time:
            entries = await self._turn.in_store(lambda: self._store.entries_before(below, 1))
        return next(iter(entries), None)


def _expect_kept(first: Entry | None, wanted: HistoryFilter, before: int) -> None:
    if first is None or first.position == 1:
        return
    if 0 < before <= first.position or (wanted.until is not None and wanted.until < first.at):
        raise Gone(
            f"what was before {instant(first.at)} is no longer kept",
            f"The journal begins then, at position {first.position}",
        )


def next_size(entries: int, seconds: float) -> int:
    """Return how many entries the next page has, after one that held the store's thread so long."""
    if seconds > PAGE_SECONDS:
        return max(PAGE_ENTRIES_MIN, entries // 2)
    return min(PAGE_ENTRIES_MAX, entries * 2) if seconds < PAGE_SECONDS / 3 else entries
