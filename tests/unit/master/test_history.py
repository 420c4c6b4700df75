"""Looking back through the journal: how far, how much, and with what answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from borgish.api.views.history import HistoryFilter
from borgish.cell.events import AnyEvent, Entry, MachineDown, MachineUp
from borgish.cell.generations import Thing, ThingKind
from borgish.clock import Now, SystemClock
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past import history
from borgish.master.past.history import (
    LOOKED_AT_MAX,
    PAGE_ENTRIES_MAX,
    PAGE_ENTRIES_MIN,
    PAGE_NAMING_MAX,
    History,
    Walk,
    next_size,
)
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.base import Records
from borgish.store.memory import MemoryStore
from borgish.wire.api_past import HistoryList

SECONDS_BETWEEN = 10.0


def entry(position: int, at: float | None = None) -> Entry:
    machine = "even" if position % 2 == 0 else "odd"
    event: AnyEvent = MachineUp(machine)
    at = position * SECONDS_BETWEEN if at is None else at
    return Entry(position, at, 1, 1, "machines", "SetMachineUp", (event,))


class CountingStore(MemoryStore):
    """Counts how many entries it looked at, and the pages: how long each was asked for."""

    def __init__(self, cell: str) -> None:
        super().__init__(cell)
        self.given = 0
        self.pages: list[int] = []

    def entries_before(self, before: int, limit: int) -> Iterator[Entry]:
        page = list(super().entries_before(before, limit))
        self.given += len(page)
        return iter(page)

    def entries_naming(self, words: Sequence[str], first: int, below: int) -> Iterator[Entry]:
        self.pages.append(below - first)
        self.given += below - first
        return super().entries_naming(words, first, below)


def store_of(entries: list[Entry]) -> CountingStore:
    store = CountingStore("c")
    store.lead("me", "here")
    store.append(entries, Records())
    return store


@pytest.fixture
async def turns() -> AsyncIterator[list[Turn]]:
    made: list[Turn] = []
    yield made
    for turn in made:
        turn.close()


def past_of(store: MemoryStore, turns: list[Turn], looked_at_max: int = LOOKED_AT_MAX) -> History:
    clock = SystemClock()
    core = Core(MemoryStore("c").load(), ReconcileSettings(), clock.now())
    turns.append(Turn(core, store, Inbox(), clock, lambda _: None, lambda _: None))
    return History(turns[-1], store, clock, looked_at_max)


def positions(found: HistoryList) -> list[int]:
    return [item.position for item in found.items]


async def test_the_latest_that_match_in_order_and_where_to_go_on(turns: list[Turn]) -> None:
    looking = past_of(store_of([entry(p) for p in range(1, 201)]), turns)
    found = await looking.latest(HistoryFilter(machine="odd"), 0, 3)
    assert (positions(found), found.page.next, found.cut_short) == ([195, 197, 199], "195", False)
    found = await looking.latest(HistoryFilter(machine="odd"), 195, 2)
    assert positions(found) == [191, 193]


async def test_pages_together_are_the_whole(turns: list[Turn]) -> None:
    looking = past_of(store_of([entry(p) for p in range(1, 201)]), turns)
    seen, before = [], 0
    while True:
        found = await looking.latest(HistoryFilter(machine="even"), before, 7)
        seen += positions(found)[::-1]
        if not found.page.next:
            break
        before = int(found.page.next)
    assert seen == list(range(200, 0, -2))


async def test_an_empty_journal(turns: list[Turn]) -> None:
    looking = past_of(store_of([]), turns)
    assert await looking.latest(HistoryFilter(until=5.0), 0, 10) == HistoryList(())


async def test_it_stops_after_so_many_and_says_so(turns: list[Turn]) -> None:
    store = store_of([entry(p) for p in range(1, 501)])
    found = await past_of(store, turns, looked_at_max=100).latest(HistoryFilter(job="ann/web"), 0, 10)
    assert (found.items, found.looked_at, found.cut_short) == ((), 100, True)
    assert (found.page.next, found.reached) == ("401", "1970-01-01T01:06:50.000Z")
    assert store.given == 100 + 1  # the newest has to be known first


async def test_it_reads_no_further_than_since(turns: list[Turn]) -> None:
    store = store_of([entry(p) for p in range(1, 5001)])
    found = await past_of(store, turns).latest(HistoryFilter(since=49_970.0), 0, 100)
    assert (positions(found), found.page.next) == ([4997, 4998, 4999, 5000], "")
    assert found.looked_at < 100
    assert store.given < 200


async def test_it_finds_until_without_reading_what_is_later(turns: list[Turn]) -> None:
    store = store_of([entry(p) for p in range(1, 5001)])
    found = await past_of(store, turns).latest(HistoryFilter(until=30.0), 0, 2)
    assert positions(found) == [2, 3]
    assert store.given < 150


async def test_a_clock_that_was_set_back_hides_nothing(turns: list[Turn]) -> None:
    times = [100.0, 900.0, 1500.0, 950.0, 1000.0, 2000.0, 5000.0]
    store = store_of([entry(p, at) for p, at in enumerate(times, 1)])
    looking = past_of(store, turns)
    for since, until in ((900.0, 950.0), (1200.0, 1600.0), (100.0, 100.0), (960.0, 2000.0)):
        found = await looking.latest(HistoryFilter(since=since, until=until), 0, 10)
        assert positions(found) == [p for p, at in enumerate(times, 1) if since <= at <= until]


async def test_commits_wait_for_one_page_at_most(turns: list[Turn]) -> None:
    """However many look back, what is asked of the store meanwhile is next."""
    store = store_of([entry(p) for p in range(1, 3001)])
    looking = past_of(store, turns)
    walks = [asyncio.create_task(looking.latest(HistoryFilter(job="a/b"), 0, 10)) for _ in range(4)]
    await asyncio.sleep(0)
    before = await turns[0].in_store(lambda: len(store.pages))
    assert before <= 1
    await asyncio.gather(*walks)
    assert len(store.pages) > 4
    assert max(store.pages) <= PAGE_NAMING_MAX


def test_an_answer_has_only_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "EVENTS_MAX", 3)
    walk = Walk(HistoryFilter(), 100, 100, begins=1, below=10)
    many = (MachineDown("m1", "silent"), MachineUp("m1"))
    walk.take((Entry(p, 1.0, 1, 1, "x", "x", many) for p in range(9, 0, -1)), walk.next(9))
    assert walk.is_done
    found = walk.answer(1.0)
    assert (positions(found), found.page.next, found.looked_at) == ([8, 9], "8", 2)
    assert found.cut_short is False


def test_pages_are_cut_to_what_the_store_does_in_a_moment() -> None:
    moment, bounds = history.PAGE_SECONDS, (PAGE_ENTRIES_MIN, PAGE_ENTRIES_MAX)
    assert next_size(16, 0.0, *bounds) == 32
    assert next_size(16, moment, *bounds) == 16
    assert next_size(16, moment * 0.8, *bounds) == 20
    assert next_size(16, moment * 4, *bounds) == 8
    assert next_size(PAGE_ENTRIES_MAX, 0.0, *bounds) == PAGE_ENTRIES_MAX
    assert next_size(PAGE_ENTRIES_MIN, 1.0, *bounds) == PAGE_ENTRIES_MIN


async def test_a_slow_store_is_asked_for_less(turns: list[Turn]) -> None:
    class Slow(CountingStore):
        mono = 0.0

        def entries_naming(self, words: Sequence[str], first: int, below: int) -> Iterator[Entry]:
            self.mono += 0.001 * (below - first)
            return super().entries_naming(words, first, below)

        def now(self) -> Now:
            return Now(0.0, self.mono)

    store = Slow("c")
    store.lead("me", "here")
    store.append([entry(p) for p in range(1, 101)], Records())
    past_of(store, turns)
    await History(turns[0], store, store).latest(HistoryFilter(), 0, 1000)
    assert store.pages[:3] == [16, 8, 5]  # which takes it as long as it may
    assert set(store.pages[2:]) <= {4, 5}  # 0.001 s is not always the same


def decided(position: int, cause: str, subject: str) -> Entry:
    return Entry(position, 1.0, 1, 1, "ann", cause, (MachineUp("m1"),), subject=subject)


async def test_who_decided_about_a_thing_since(turns: list[Turn]) -> None:
    causes = {30: "CordonMachine", 50: "TaintMachine", 60: "UncordonMachine", 70: "CordonMachine"}
    entries = [
        decided(p, causes[p], "m1")
        if p in causes
        else decided(p, "CordonMachine", "m2")
        if p % 2
        else entry(p)
        for p in range(1, 101)
    ]
    store = store_of(entries)
    looking, machine = past_of(store, turns), Thing(ThingKind.MACHINE, "m1")

    async def positions_of(after: int, until: int) -> list[int]:
        return [each.position for each in await looking.decided(machine, after, until)]

    assert await positions_of(30, 70) == [50, 60, 70]
    assert await positions_of(10, 70) == [50, 60, 70]  # the latest few
    assert await positions_of(60, 70) == [70]
    assert await positions_of(30, 0) == [50, 60, 70]  # it is gone: up to the last
    assert await positions_of(70, 72) == [72]  # how it came again, whatever that was
    store.given = 0
    assert await positions_of(69, 70) == [70]
    assert store.given <= 2 * PAGE_ENTRIES_MIN * 4


async def test_who_looks_far_back_is_told_of_the_latest(
    turns: list[Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "DECIDED_LOOKED_AT_MAX", 40)
    entries = [decided(p, "CordonMachine", "m1") if p in (5, 200) else entry(p) for p in range(1, 201)]
    store = store_of(entries)
    found = await past_of(store, turns).decided(Thing(ThingKind.MACHINE, "m1"), 1, 200)
    assert [each.position for each in found] == [200]
    assert store.given == 40
