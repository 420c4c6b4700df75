"""What a standby shows of its copy: from which position on, and when it leaves that to the leader."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from borgish.api.moments import Moment
from borgish.api.services import Reading
from borgish.api.views.history import HistoryFilter
from borgish.api.views.tally import Tally
from borgish.cell.events import Entry, JobForgotten, JobSubmitted, MachineUp, TasksEnded
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import InUse, Invalid, NotFound, NotLeading, Unreachable
from borgish.master import standby
from borgish.master.standby import Standby
from borgish.store.leadership import Leadership
from borgish.store.memory import MemoryStore
from borgish.vocabulary import Ending
from borgish.wire.api import StatusView
from tests.contract.store.samples import CELL, JOB, Life, job
from tests.unit.master.reading import read_back_here


class Hand:
    """A clock that is set by hand."""

    mono = 100.0

    def now(self) -> Now:
        return Now(200.0, self.mono)


class Faulty(MemoryStore):
    """A store that can be read up to an entry at which it is ``broken_at``, when ``answers`` is set."""

    broken_at = 1000
    is_closed = False

    def __init__(self, cell: str) -> None:
        super().__init__(cell)
        self.answers = threading.Event()
        self.answers.set()

    def entries(self, after: int, limit: int = 0) -> Iterator[Entry]:
        self.answers.wait()
        for entry in super().entries(after, limit):
            if entry.position >= self.broken_at:
                raise Unreachable("the connection broke")
            yield entry

    def close(self) -> None:
        self.is_closed = True
        super().close()


class Candidate:
    """Another one leads, until ``is_free``; who leads is known when ``answers`` is set."""

    owns_folder = False

    def __init__(self, store: Faulty) -> None:
        self.store = store
        self.is_free = False
        self.answers = threading.Event()
        self.answers.set()
        self.failure = ""
        self.is_readable = True
        self.beside: list[Faulty] = []

    def try_lead(self) -> Faulty | None:
        self.answers.wait()
        if self.failure:
            raise Unreachable(self.failure)
        return self.store if self.is_free else None

    def reader(self) -> Faulty:
        return self.store

    def another_reader(self) -> Faulty | None:
        if not self.is_readable:
            return None
        self.beside.append(Faulty(CELL))
        self.beside[-1].disk = self.store.disk
        return self.beside[-1]

    def leadership(self) -> Leadership | None:
        return None

    def in_use_error(self) -> InUse | None:
        return None

    def close(self) -> None: ...


class Bench:
    """One that stands by a cell with a story of six entries."""

    def __init__(self) -> None:
        self.store = store = Faulty(CELL)
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
        self.store.answers.set()
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
    said = "reads the journal"
    while "reads the journal" in said:  # a look was under way just then
        with pytest.raises(NotLeading) as refused:
            await bench.status(last + 5)
        said = str(refused.value)
    assert f"at position {last}, not {last + 5}" in said


async def test_nothing_is_read_while_the_copy_is_written_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.status()
    monkeypatch.setattr(standby, "REACHED_SECONDS_MAX", 0.05)
    bench.store.answers.clear()
    with pytest.raises(NotLeading, match="and reads the journal"):
        await bench.read_until_refused()


async def test_who_leads_may_be_hard_to_tell_and_holds_up_nobody_who_reads(bench: Bench) -> None:
    await bench.status()
    bench.candidate.answers.clear()
    for _ in range(5):
        assert (await bench.status()).position == bench.life.cell.position
        await asyncio.sleep(0.01)


async def test_what_was_read_of_a_journal_that_broke_off_is_in_its_sums(bench: Bench) -> None:
    ended = TasksEnded(JOB, (0, 1), Ending.KILL, ("", ""), (None, None), (None, None), (98.5, 98.5))
    bench.life.do(ended)
    await bench.status(bench.life.cell.position)
    last = bench.life.cell.position + 2
    bench.store.broken_at = last + 1
    bench.life.do(JobForgotten(JOB))
    bench.life.do(JobSubmitted(job("other")))
    bench.life.do(MachineUp("m1"))

    def jobs(reading: Reading) -> tuple[list[str], int]:
        reading.tally.fill(reading.cell, reading.observed)
        return list(reading.tally.jobs_after("")), reading.cell.position

    while bench.standby.health().trouble != "the connection broke":
        await asyncio.sleep(0.01)
    assert await bench.standby.read(jobs, last) == (["ann/other"], last)
    bench.store.broken_at = 1000
    assert await bench.standby.read(jobs, last + 1) == (["ann/other"], last + 1)


async def test_one_that_could_not_look_for_long_shows_nothing(bench: Bench) -> None:
    await bench.status()
    bench.candidate.failure = "Postgres does not answer"
    while bench.standby.health().trouble == "":
        await asyncio.sleep(0.01)
    bench.clock.mono += standby.STALE_SECONDS_MAX + 1
    with pytest.raises(NotLeading, match="last read the journal 61s ago: Postgres does not answer"):
        await bench.status()


async def test_one_that_cannot_follow_says_for_how_long(bench: Bench) -> None:
    await bench.status()
    bench.candidate.failure = "Postgres does not answer"

    def warnings(reading: Reading) -> tuple[str, ...]:
        assert reading.as_of is not None
        return reading.as_of.warnings

    assert await bench.standby.read(warnings) == ()
    while bench.standby.health().trouble == "":
        await asyncio.sleep(0.01)
    bench.clock.mono += 30
    assert await bench.standby.read(warnings) == (
        "this borgmaster last read the journal 30s ago: Postgres does not answer",
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


# The past


def on_machines(reading: Reading) -> tuple[int, list[str]]:
    assert reading.as_of is not None
    return reading.as_of.position, sorted(reading.cell.machines)


async def test_the_past_is_read_beside_what_is_followed(bench: Bench) -> None:
    past, head = bench.standby.past, bench.life.cell.position
    for position, machines in ((1, []), (2, ["m1"]), (head, ["m1"])):
        as_of = await past.find(Moment(str(position), position=position))
        assert await past.read(as_of, on_machines) == (position, machines)
    found = await past.latest(HistoryFilter("ann/web"), 5, 10)
    assert [item.position for item in found.items] == [3, 4]
    (store,) = bench.candidate.beside
    assert store is not bench.store


async def test_a_position_that_is_yet_to_come_is_waited_for(bench: Bench) -> None:
    position = bench.life.cell.position + 1
    finding = asyncio.create_task(bench.standby.past.find(Moment(str(position), position=position)))
    await asyncio.sleep(0)
    bench.life.do(MachineUp("m1"))
    assert (await finding).position == position


async def test_two_moments_are_compared_and_walked_through(bench: Bench) -> None:
    past, position = bench.standby.past, bench.life.cell.position + 1
    walking = asyncio.create_task(past.window(Moment(str(position), position=position)))
    await asyncio.sleep(0)
    bench.life.do(MachineUp("m1"))
    window = await walking
    assert (window.position, window.head) == (position, position)
    assert [step.entry.position for step in window.steps] == list(range(1, position + 1))
    old, new = [await past.find(moment) for moment in (Moment("1", position=1), Moment("now"))]
    assert (old.position, new.position) == (1, position)
    assert await past.read_both(old, new, lambda *both: [len(each.machines) for each in both]) == [0, 1]


async def test_checkpoints_are_listed_and_looked_into(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read_back_here(monkeypatch)
    past, position = bench.standby.past, bench.life.checkpoint().position
    (kept,) = await past.checkpoints()
    assert (kept.position, kept.problem) == (position, "")
    found = await past.checkpoint(position)
    assert found.contents is not None
    assert found.contents.machines == 1
    with pytest.raises(NotFound):
        await past.checkpoint(position + 1)


async def test_a_connection_that_breaks_sends_on_to_the_leader_and_another_one_follows(bench: Bench) -> None:
    past, moment = bench.standby.past, Moment("4", position=4)
    assert (await past.find(moment)).position == 4
    (first,) = bench.candidate.beside
    first.broken_at = 0
    with pytest.raises(NotLeading, match="cannot read the past: the connection broke"):
        await past.find(Moment("3", position=3))
    while not first.is_closed:
        await asyncio.sleep(0.01)
    assert (await past.find(Moment("3", position=3))).position == 3
    assert len(bench.candidate.beside) == 2


async def test_of_another_version_nothing_is_read(bench: Bench) -> None:
    bench.candidate.is_readable = False
    with pytest.raises(NotLeading, match="another version"):
        await bench.standby.past.find(Moment("4", position=4))


async def test_what_nobody_can_tell_is_refused_as_by_a_leader(bench: Bench) -> None:
    with pytest.raises(Invalid, match="no checkpoint 'noon'"):
        await bench.standby.past.find(Moment("noon", checkpoint="noon"))


async def test_who_may_lead_waits_for_no_read_of_the_past(bench: Bench) -> None:
    """As where a server answers on one connection and hangs on the other."""
    assert (await bench.standby.past.find(Moment("4", position=4))).position == 4
    (store,) = bench.candidate.beside
    store.answers.clear()
    finding = asyncio.create_task(bench.standby.past.find(Moment("3", position=3)))
    await asyncio.sleep(0.05)
    bench.candidate.is_free = True
    assert await bench.standing_by is bench.store
    assert not finding.done()
    store.answers.set()
    await asyncio.wait({finding})
    while not store.is_closed:
        await asyncio.sleep(0.01)
