"""The cell at moments of the past: which is meant, how it was, and what cannot be told."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from borgish.api.moments import Moment, read_moment
from borgish.api.views.status import Daemon
from borgish.cell.events import AnyEvent, JobForgotten, JobSubmitted, MachineUp, TasksEnded
from borgish.cell.free_space import FreeSpace, Level
from borgish.cell.model import Cell
from borgish.clock import Now
from borgish.errors import Conflict, Gone, Invalid, NotFound
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past import moments
from borgish.master.past.moments import Moments
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.memory import MemoryStore
from borgish.vocabulary import Ending
from borgish.wire.api import AsOf, JobView
from borgish.wire.api_past import PastWindow
from tests.contract.store.samples import CELL, Life, body_of, job

AT = 101.25
"""Of the first entry; each following one is a second later."""


class Standing:
    """A clock that stands."""

    def now(self) -> Now:
        return Now(200.0, 200.0)


class CountingStore(MemoryStore):
    """Counts the entries that are read in order."""

    given = 0

    def entries(self, after: int, limit: int = 0):  # type: ignore[no-untyped-def]  # as the real one
        for entry in super().entries(after, limit):
            self.given += 1
            yield entry


FULL = FreeSpace(Level.FULL, 20, 512)
REFUSED = "2 of 2 machines refuse this borgmaster"


class Bench:
    """A cell with a story of six entries, and a master's parts around its store."""

    def __init__(self) -> None:
        self.store = CountingStore(CELL)
        self.life = Life(self.store)
        self.life.story()
        self.core = Core(self.life.cell, ReconcileSettings(), Now(200.0, 200.0))
        self.turn = Turn(self.core, self.store, Inbox(), Standing(), lambda _: None, lambda _: None)
        self.moments = Moments(
            self.core,
            self.turn,
            self.store,
            Standing(),
            lambda: Daemon(1.0, "memory", free_space=FULL, refused=REFUSED),
        )

    def go_on(self, entries: int) -> dict[int, bytes]:
        return {self.do(MachineUp("m1")): self.life.body() for _ in range(entries)}

    def do(self, event: AnyEvent) -> int:
        return self.life.do(event).position

    def damage(self, position: int) -> None:
        info, stored = self.store.disk.checkpoints[position]
        self.store.disk.checkpoints[position] = (info, stored[:-1])

    async def find(self, text: str) -> AsOf:
        return await self.moments.find(read_moment(text, 200.0))

    async def cell(self, text: str) -> Cell:
        return await self.moments.read(await self.find(text), lambda reading: reading.cell)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.turn.close()


async def test_a_position_is_told_as_it_was(bench: Bench) -> None:
    bodies = bench.go_on(5)
    for position, body in bodies.items():
        found = await bench.find(str(position))
        assert found == AsOf(position, f"1970-01-01T00:01:{40 + position}.250Z", 1)
        assert body_of(await bench.cell(str(position))) == body


@pytest.mark.parametrize(
    ("at", "position"), [(AT, 1), (AT + 0.5, 1), (AT + 3.0, 4), (AT + 3.999, 4), (AT + 50, 6), (201.0, 6)]
)
async def test_a_time_is_the_last_position_reached_by_then(bench: Bench, at: float, position: int) -> None:
    assert (await bench.moments.find(Moment("then", at=at))).position == position


async def test_a_checkpoint_is_found_by_its_name(bench: Bench) -> None:
    bench.go_on(2)
    named = bench.store.save_checkpoint(bench.life.stored(), bench.life.cell.position, 150.0, "test", "noon")
    bench.go_on(2)

    assert (await bench.find("noon")).position == named.position
    with pytest.raises(Invalid, match="no checkpoint 'yesterday' is kept") as caught:
        await bench.find("yesterday")
    assert "a time like" in caught.value.hint
    assert "'5m ago'" in caught.value.hint
    assert caught.value.hint.endswith("the name of a checkpoint: noon")


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m ago", 300), ("1 hour ago", 3600), ("2 days ago", 172_800), ("1.5 hours", 5400)]
)
def test_an_age_is_written_in_letters_or_in_words(text: str, seconds: float) -> None:
    assert read_moment(text, 1e9).at == 1e9 - seconds


@pytest.mark.parametrize("text", ["", "1 fortnight ago", "1.2.3 hours ago", ". hours ago"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="invalid moment"):
        read_moment(text, 1e9)


async def test_the_empty_cell_before_everything(bench: Bench) -> None:
    assert await bench.find("0") == AsOf(0, "")
    assert (await bench.cell("0")).machines == {}


async def test_what_was_merely_seen_is_not_known(bench: Bench) -> None:
    found = await bench.find("6")
    known = await bench.moments.read(found, lambda reading: (reading.observed.known, dict(reading.refusals)))
    status = await bench.moments.read(found, lambda reading: reading.status())
    assert known == (False, {})
    assert (status.position, status.running, status.up) == (6, 1, None)
    assert (status.refusing, status.store_free_bytes) == ((), None)  # that is of now


@pytest.mark.parametrize(
    ("text", "error", "words", "hint"),
    [
        ("7", Invalid, "position 7 does not exist yet", "The latest is 6"),
        ("9" * 30, Invalid, "does not exist yet", "The latest is 6"),
        ("1970-01-01T00:05:00Z", Invalid, "is in the future", "position 6 is the latest"),
        ("3m", NotFound, "had no history yet at '3m'", "position 1, of 1970-01-01T00:01:41.250Z"),
        ("noon", Invalid, "no checkpoint 'noon' is kept", "the name of a checkpoint: none has one"),
    ],
)
async def test_what_cannot_be_told_says_what_can(
    bench: Bench, text: str, error: type[Exception], words: str, hint: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        await bench.find(text)
    assert hint in getattr(caught.value, "hint", "")


async def test_what_was_pruned_is_gone_and_the_earliest_is_said(bench: Bench) -> None:
    bench.go_on(4)
    bench.life.checkpoint()
    bench.go_on(2)
    bench.store.prune_journal(10, 100)

    for text in ("4", "9", "1970-01-01T00:01:45Z"):
        with pytest.raises(Gone, match="no longer") as caught:
            await bench.find(text)
        assert caught.value.hint.startswith("The earliest is")
        assert "10" in caught.value.hint
    assert (await bench.find("10")).at == "1970-01-01T00:01:50.250Z"
    assert (await bench.find("1970-01-01T00:01:51Z")).position == 10
    assert (await bench.find("12")).position == 12


async def test_several_reads_of_one_moment_replay_once(bench: Bench) -> None:
    bench.go_on(20)
    found = await bench.find("24")
    given = bench.store.given

    for _ in range(3):
        assert await bench.moments.read(found, lambda reading: reading.cell.position) == 24
        assert await bench.find("24") == found

    assert bench.store.given == given


async def test_only_so_many_cells_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "CELLS_KEPT", 2)
    bench.go_on(4)
    for text in ("4", "5", "4", "6"):
        await bench.find(text)
    given = bench.store.given

    await bench.find("4")
    assert bench.store.given == given
    await bench.find("5")
    assert bench.store.given > given


async def test_large_cells_are_kept_one_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "TASKS_KEPT", 100)
    bench.do(JobSubmitted(job("wide", 90)))
    bench.go_on(1)
    await bench.find("7")
    await bench.find("8")
    given = bench.store.given

    await bench.find("8")
    assert bench.store.given == given
    await bench.find("7")
    assert bench.store.given > given


async def test_what_nobody_asks_for_is_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "KEPT_SECONDS", 0.0)
    await bench.find("4")
    given = bench.store.given
    while bench.store.given == given:
        await asyncio.sleep(0)
        await bench.find("4")


async def test_a_damaged_checkpoint_is_logged_and_told_and_the_one_before_is_used(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.go_on(2)
    bench.life.checkpoint()
    damaged = bench.life.cell.position
    bodies = bench.go_on(1)
    bench.damage(damaged)

    with caplog.at_level(logging.WARNING, "borgmaster"):
        found = await bench.find(str(damaged + 1))

    assert body_of(await bench.cell(str(damaged + 1))) == bodies[damaged + 1]
    assert [f"checkpoint at {damaged} is passed over" in warning for warning in found.warnings] == [True]
    assert found.warnings[0] in caplog.text


async def test_what_is_not_what_was_written_is_never_told(bench: Bench) -> None:
    bench.store.disk.entries[3] = b"{}"
    with pytest.raises(Conflict, match="cannot be read"):
        await bench.find("5")
    assert (await bench.find("3")).position == 3


async def test_it_is_told_and_read_beside_the_loop(bench: Bench) -> None:
    loop_thread = threading.get_ident()
    found = await bench.find("4")
    assert await bench.moments.read(found, lambda _: threading.get_ident()) != loop_thread


async def window(bench: Bench, text: str) -> PastWindow:
    return await bench.moments.window(read_moment(text, 200.0))


async def jobs_at(bench: Bench, position: int) -> dict[str, JobView]:
    as_of = await bench.find(str(position))
    view = await bench.moments.read(as_of, lambda reading: reading.summary(()))
    return {each.name: each for each in view.jobs}


async def test_what_entries_changed_leads_from_the_cell_before_a_window_to_that_after_each(
    bench: Bench,
) -> None:
    for number in range(3):
        bench.do(JobSubmitted(job(f"more-{number}")))
    killed = (0, 1, 2)
    nothing = (None,) * 3
    bench.do(TasksEnded("ann/more-1", killed, Ending.KILL, ("",) * 3, nothing, nothing, (0.0,) * 3))
    bench.do(JobForgotten("ann/more-1"))
    found = await window(bench, "now")
    assert [step.entry.position for step in found.steps] == list(range(1, bench.life.cell.position + 1))
    jobs = {each.name: each for each in found.first.jobs}
    for step in found.steps:
        jobs |= {each.name: each for each in step.jobs}
        for gone in step.jobs_gone:
            del jobs[gone]
        assert jobs == await jobs_at(bench, step.entry.position)
    last = found.steps[-1]
    assert (last.pending, last.running, last.dead, last.machines_up) == (7, 1, 1, 1)


async def test_a_window_lies_around_its_moment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "WINDOW_ENTRIES", 4)
    bench.go_on(20)
    head = bench.life.cell.position
    for text, first, last in (("now", head - 3, head), ("10", 9, 12), ("1", 1, 4), ("0", 1, 4)):
        found = await window(bench, text)
        assert (found.steps[0].entry.position, found.steps[-1].entry.position) == (first, last)
        assert found.as_of is not None
        assert found.as_of.position == first - 1
        assert (found.earliest, found.head) == (0, head)
    with pytest.raises(Invalid, match="does not exist yet"):
        await window(bench, str(head + 1))
    with pytest.raises(Invalid, match="is in the future"):
        await window(bench, "2999-01-01")


async def test_a_window_says_which_entry_was_asked_for(bench: Bench) -> None:
    assert (await window(bench, "3")).position == 3
    assert (await window(bench, "now")).position == bench.life.cell.position
