"""What a standby shows of its copy: from which position on, and when it leaves that to the leader."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from borgish.api.services import Reading
from borgish.api.views.tally import Tally
from borgish.cell.events import MachineUp
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import InUse, NotLeading, Unreachable
from borgish.master import standby
from borgish.master.standby import Standby
from borgish.store.leadership import Leadership
from borgish.store.memory import MemoryStore
from borgish.wire.api import StatusView
from tests.contract.store.samples import CELL, Life


class Hand:
    """A clock that is set by hand."""

    mono = 100.0

    def now(self) -> Now:
        return Now(200.0, self.mono)


class Candidate:
    """Another one leads, until ``is_free``; the store answers when ``answers`` is set."""

    owns_folder = False

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.is_free = False
        self.answers = threading.Event()
        self.answers.set()
        self.failure = ""

    def try_lead(self) -> MemoryStore | None:
        self.answers.wait()
        if self.failure:
            raise Unreachable(self.failure)
        return self.store if self.is_free else None

    def reader(self) -> MemoryStore:
        return self.store

    def leadership(self) -> Leadership | None:
        return None

    def in_use_error(self) -> InUse | None:
        return None

    def close(self) -> None: ...


class Bench:
    """One that stands by a cell with a story of six entries."""

    def __init__(self) -> None:
        store = MemoryStore(CELL)
        self.life = Life(store)
        self.life.story()
        self.clock = Hand()
        self.candidate = Candidate(store)
        self.standby = Standby(CELL, self.candidate, self.clock)
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.standing_by = asyncio.create_task(self.standby.until_won(self.stopping))

    async def status(self, at_least: int = 0) -> StatusView:
        return await self.standby.read(lambda reading: reading.status(), at_least)

    async def read_until_refused(self) -> None:
        """Raise what is raised when a look has begun that does not end."""
        while True:
            await self.status()
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.candidate.answers.set()
        if not self.stopping.done():
            self.stopping.set_result(None)
        await self.standing_by


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(standby, "LOOK_SECONDS", 0.01)
    made = Bench()
    yield made
    await made.end()


async def test_it_shows_its_copy_and_of_which_moment_that_is(bench: Bench) -> None:
    last = bench.life.cell.position

    def view(reading: Reading) -> tuple[int, Observed]:
        assert reading.as_of is not None
        return reading.as_of.position, reading.observed

    position, observed = await bench.standby.read(view, last)
    assert (position, observed.known) == (last, False)
    status = await bench.status()
    assert (status.position, status.up, status.store) == (last, None, "memory")


async def test_who_asks_for_a_position_waits_for_it(bench: Bench) -> None:
    await bench.status()
    wanted = bench.life.cell.position + 1
    reading = asyncio.create_task(bench.status(wanted))
    await asyncio.sleep(0)
    assert not reading.done()
    bench.life.do(MachineUp("m1"))
    assert (await reading).position == wanted


async def test_what_it_does_not_come_to_have_is_the_leaders(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.status()
    monkeypatch.setattr(standby, "REACHED_SECONDS_MAX", 0.05)
    last = bench.life.cell.position
    with pytest.raises(NotLeading, match=f"is at position {last}, not at {last + 5}"):
        await bench.status(last + 5)


async def test_nothing_is_read_while_it_looks_and_a_store_that_hangs_holds_up_nobody_for_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.status()
    monkeypatch.setattr(standby, "REACHED_SECONDS_MAX", 0.05)
    bench.candidate.answers.clear()
    with pytest.raises(NotLeading, match="is at position"):
        await bench.read_until_refused()


async def test_one_that_cannot_follow_says_for_how_long(bench: Bench) -> None:
    await bench.status()
    bench.candidate.failure = "Postgres does not answer"

    def warnings(reading: Reading) -> tuple[str, ...]:
        assert reading.as_of is not None
        return reading.as_of.warnings

    assert await bench.standby.read(warnings) == ()
    while bench.standby.health().trouble == "":
        await asyncio.sleep(0.01)
    bench.clock.mono += 300
    assert await bench.standby.read(warnings) == (
        "this borgmaster last read the journal 5m ago: Postgres does not answer",
    )


async def test_one_that_has_won_shows_nothing_before_it_leads(bench: Bench) -> None:
    await bench.status()
    waiting = asyncio.create_task(bench.status(bench.life.cell.position + 1))
    await asyncio.sleep(0)
    bench.candidate.is_free = True
    with pytest.raises(NotLeading, match="about to lead"):
        await waiting
    with pytest.raises(NotLeading, match="about to lead"):
        await bench.status()


async def test_its_sums_follow_what_it_takes_in(bench: Bench) -> None:
    await bench.status()
    for _ in range(3):
        bench.life.do(MachineUp("m1"))
        status = await bench.status(bench.life.cell.position)

        def anew(reading: Reading) -> list[int]:
            tally = Tally()
            tally.fill(reading.cell, reading.observed)
            return tally.sums.counts

        def kept(reading: Reading) -> list[int]:
            return reading.tally.sums.counts

        assert await bench.standby.read(kept) == await bench.standby.read(anew)
        assert status.machines_up == len([each for each in bench.life.cell.machines.values() if each.up])
