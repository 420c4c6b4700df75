"""Looks back through the journal in the store, from its end, for what somebody asks about.

The store's one thread is lent for a page at a time, and pages are cut to what takes it a moment, so that
commits hardly wait. Entries are decoded and sifted in another thread. Only one page of all the walks is
under way at any time, and no walk looks at more than ``LOOKED_AT_MAX`` entries.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from borgish.api.views.history import HistoryFilter, history_view
from borgish.cell.events import Entry
from borgish.cell.generations import Thing, decides_about
from borgish.clock import Clock
from borgish.errors import Gone
from borgish.store.base import Store
from borgish.text import instant
from borgish.wire.api import Page
from borgish.wire.api_past import HistoryList, HistoryView

LOOKED_AT_MAX = 1_000_000
EVENTS_MAX = 5_000
"""An answer ends with the entry that brings it over this many events, whatever its limit."""
DECIDED_MAX = 3
DECIDED_LOOKED_AT_MAX = 1_000
CLOCK_SLACK_SECONDS = 600.0
"""Positions are in order, times are so but for a clock that was set back; by this much hides nothing."""
PAGE_ENTRIES_FIRST, PAGE_ENTRIES_MIN, PAGE_ENTRIES_MAX = 16, 4, 500
PAGE_NAMING_MIN, PAGE_NAMING_MAX = 500, 20_000
"""Where the store itself leaves out what does not name what is asked about."""
PAGE_SECONDS = 0.005
_END = 2**63 - 1  # above every position


T = TypeVar("T")


class StoreThread(Protocol):
    """Where the store is asked."""

    async def in_store(self, work: Callable[[], T]) -> T:
        """Do something with the store, in a thread in which one thing is done at a time."""
        ...


class Walk:
    """One look back, of positions below one, down to another: knows what was found, and when it has enough.
    Pure."""

    def __init__(
        self, wanted: HistoryFilter, limit: int, looked_at_max: int, *, begins: int, below: int
    ) -> None:
        self.wanted = wanted
        self._limit = limit
        self._begins = begins
        self._lowest = max(begins, below - looked_at_max)
        self._found: list[HistoryView] = []
        self._events = 0
        self._from = self.below = below  # all from there on was looked at

    def next(self, asked: int) -> int:
        """Return where the next page of so many positions begins."""
        return max(self._lowest, self.below - asked)

    def take(self, entries: Iterable[Entry], first: int) -> None:
        """Look at those of a page that may match, newest first; it begins at position ``first``."""
        for entry in entries:
            self._look(entry)
            if self._is_full:
                first = entry.position
                break
        self.below = first

    def _look(self, entry: Entry) -> None:
        view = history_view(entry, self.wanted)
        if view is not None:
            self._found.append(view)
            self._events += len(view.events)

    @property
    def is_done(self) -> bool:
        """Whether it need not, or may not, look at more."""
        return self.below <= self._lowest or self._is_full

    @property
    def is_at_the_end(self) -> bool:
        """Whether nothing older can match."""
        return self.below <= self._begins

    @property
    def _is_full(self) -> bool:
        return len(self._found) >= self._limit or self._events > EVENTS_MAX

    def answer(self, reached: float) -> HistoryList:
        """Return what was found, in order, and where older ones are to be looked for. ``reached`` is when the
        oldest was written of those that were looked at."""
        goes_on = not self.is_at_the_end
        return HistoryList(
            tuple(reversed(self._found)),
            Page(str(self.below) if goes_on else ""),
            self._from - self.below,
            instant(reached),
            cut_short=goes_on and not self._is_full,
        )


class History:
    """Reads the journal of a master's store, be it running or standing by."""

    def __init__(
        self, turn: StoreThread, store: Store, clock: Clock, looked_at_max: int = LOOKED_AT_MAX
    ) -> None:
        self._looked_at_max = looked_at_max
        self._turn = turn
        self._store = store
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList:
        """Return the latest entries that match, below position ``before`` (0: from the end), in order.

        Raises Gone when all that is asked about was pruned.
        """
        first = await self._oldest(0)
        if first is None:
            return HistoryList(())
        _expect_kept(first, wanted, before)
        newest = await self._newest(before or _END)
        if newest is None:
            return HistoryList(())
        below, begins = newest.position + 1, first.position
        if wanted.until is not None:
            below = await self._after(wanted.until + CLOCK_SLACK_SECONDS, newest)
        if wanted.since is not None:
            begins = max(begins, await self._after(wanted.since - CLOCK_SLACK_SECONDS, newest))
        walk, asked = Walk(wanted, limit, self._looked_at_max, begins=begins, below=below), PAGE_ENTRIES_FIRST
        while not walk.is_done:
            asked = await self._look(walk, asked)
        oldest = await self._oldest(walk.below)
        found = walk.answer((oldest or first).at)
        if 1 < first.position >= walk.below:
            return msgspec.structs.replace(found, begins=instant(first.at))
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

    async def _look(self, walk: Walk, asked: int) -> int:
        """Have a walk look at its next page of so many positions; return how many the one after that has."""
        first, below, words = walk.next(asked), walk.below, words_of(walk.wanted)
        async with self._one_at_a_time:
            entries, seconds = await self._turn.in_store(lambda: self._timed(words, first, below))
            await asyncio.to_thread(walk.take, entries, first)
        if words:
            return next_size(asked, seconds, PAGE_NAMING_MIN, PAGE_NAMING_MAX)
        return next_size(asked, seconds, PAGE_ENTRIES_MIN, PAGE_ENTRIES_MAX)

    def _timed(self, words: Sequence[str], first: int, below: int) -> tuple[Iterable[Entry], float]:
        began = self._clock.now().mono
        entries = self._store.entries_naming(words, first, below)
        return entries, self._clock.now().mono - began

    async def _after(self, at: float, newest: Entry) -> int:
        """Return the position from which on, up to the newest, all is from after a time."""
        if newest.at <= at:
            return newest.position + 1
        low, high = 0, newest.position
        while high - low > 1:
            middle = await self._newest((low + high) // 2 + 1)
            if middle is None or middle.at <= at:
                low = (low + high) // 2
            else:
                high = middle.position
        return high

    async def _newest(self, below: int) -> Entry | None:
        async with self._one_at_a_time:
            entries = await self._turn.in_store(lambda: self._store.entries_before(below, 1))
        return next(iter(entries), None)

    async def _oldest(self, first: int) -> Entry | None:
        """Return the first entry from a position on: of 0 not that of position 1 where older ones were
        pruned."""
        async with self._one_at_a_time:
            entries = await self._turn.in_store(lambda: list(self._store.entries(first - 1, 1)))
        return next(iter(entries), None)


def words_of(wanted: HistoryFilter) -> Sequence[str]:
    """Return what stands in every entry that can match: an event has the name of its job as one text, or as
    the user and the name of a specification."""
    return [*(wanted.job.split("/") if wanted.job else ()), *([wanted.machine] if wanted.machine else ())]


def _expect_kept(first: Entry | None, wanted: HistoryFilter, before: int) -> None:
    if first is None or first.position == 1:
        return
    if 0 < before <= first.position or (wanted.until is not None and wanted.until < first.at):
        raise Gone(
            f"what was before {instant(first.at)} is no longer kept",
            f"The journal begins then, at position {first.position}",
        )


def next_size(entries: int, seconds: float, entries_min: int, entries_max: int) -> int:
    """Return how many entries the next page has, after one that held the store's thread so long."""
    change = PAGE_SECONDS / max(seconds, PAGE_SECONDS / 4)
    return max(entries_min, min(entries_max, int(entries * min(2.0, max(0.5, change)))))
