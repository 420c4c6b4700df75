"""The turn over a store that is slow or fails: who may read when, and how it ends."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable

import pytest

from borgish.cell.commands import (
    CordonMachine,
    UncordonMachine,
)
from borgish.cell.model import Machine
from borgish.clock import SystemClock
from borgish.errors import CellBroken, Fenced, OutcomeUnknown
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.lease import LeaderGuard, Lease, LeaseSettings
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.store.memory import MemoryStore
from borgish.vocabulary import Runtime

PATIENCE_SECONDS = 60.0
SILENCE_IS_FINE = ReconcileSettings(down_after_seconds=3600.0)  # no machine speaks here


class Bench:
    def __init__(self, lease: Lease | None = None) -> None:
        self.store = MemoryStore("c")
        self.released: list[Step] = []
        cell = self.store.load()
        cell.machines["m1"] = Machine(
            "m1", "127.0.0.1", 1, False, Resources(1000), {}, (Runtime.PROCESS,), 1, 2, "b", 0.0
        )
        cell.reindex()
        clock = SystemClock()
        self.inbox = Inbox()
        core = Core(cell, SILENCE_IS_FINE, clock.now())
        epoch = self.store.lead("me", "here")
        guard = LeaderGuard(clock, lease)
        release = self.released.append
        self.turn = Turn(core, self.store, self.inbox, clock, release, lambda _: None, guard)
        self.running = asyncio.create_task(self.turn.run(core.begin(epoch, "me", clock.now())))

    async def ask_without_pause(self) -> None:
        """Have something new arrive during every commit."""
        async with asyncio.TaskGroup() as asked:
            for number in itertools.count():
                asked.create_task(self.inbox.ask(CordonMachine("m1"), "ann", f"r{number}"))
                await asyncio.sleep(0.001)


class Held:
    """Has the store hold every append from now on until it is let go, and then do it in a way of its own."""

    def __init__(self, bench: Bench, patch: pytest.MonkeyPatch, append: Callable[..., None]) -> None:
        self._begun, self._going_on, self._append = threading.Event(), threading.Event(), append
        patch.setattr(bench.store, "append", self._hold)
        self.let_go = self._going_on.set

    def _hold(self, *arguments: object) -> None:
        self._begun.set()
        assert self._going_on.wait(PATIENCE_SECONDS)
        self._append(*arguments)

    async def begun(self) -> None:
        """Wait until an append is held."""
        assert await asyncio.to_thread(self._begun.wait, PATIENCE_SECONDS)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_read_gets_through_however_much_arrives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = bench.store.append

    commits = 0

    def slow(*arguments: object) -> None:
        nonlocal commits
        commits += 1
        time.sleep(0.004)
        append(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(bench.store, "append", slow)
    asking = asyncio.create_task(bench.ask_without_pause())
    for _ in range(3):
        await asyncio.sleep(0.01)
        before = commits
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bench.turn.durable()
        assert commits - before <= 2
    asking.cancel()
    bench.turn.stop()
    await bench.running
    bench.turn.close()


async def test_stopping_during_a_commit_waits_for_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.inbox.ask(CordonMachine("m1"), "ann")
    commit = Held(bench, monkeypatch, bench.store.append)
    asked = asyncio.create_task(bench.inbox.ask(UncordonMachine("m1"), "ann"))
    await commit.begun()
    bench.turn.stop()
    commit.let_go()
    await asyncio.wait_for(bench.running, PATIENCE_SECONDS)
    assert (await asked).position == len(bench.store.disk.entries)
    bench.turn.close()


async def test_stopping_during_a_commit_that_fails_ends_as_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.inbox.ask(CordonMachine("m1"), "ann")

    def fail(*_: object) -> None:
        raise OutcomeUnknown("the disk is gone")

    commit = Held(bench, monkeypatch, fail)
    asked = asyncio.create_task(bench.inbox.ask(UncordonMachine("m1"), "ann"))
    await commit.begun()
    bench.turn.stop()
    commit.let_go()
    with pytest.raises(OutcomeUnknown):
        await asyncio.wait_for(bench.running, PATIENCE_SECONDS)
    asked.cancel()
    bench.turn.close()


async def test_nobody_reads_a_cell_that_a_step_broke(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.inbox.ask(CordonMachine("m1"), "ann")
    stored = len(bench.store.disk.entries)

    def broken(*_: object) -> None:
        raise CellBroken("half of it")

    monkeypatch.setattr(Core, "step", broken)
    asked = asyncio.create_task(bench.inbox.ask(UncordonMachine("m1"), "ann"))
    with pytest.raises(CellBroken):
        await asyncio.wait_for(bench.running, PATIENCE_SECONDS)
    reading = asyncio.create_task(bench.turn.durable())
    await asyncio.sleep(0)
    assert not reading.done()
    assert not asked.done()
    assert len(bench.store.disk.entries) == stored
    reading.cancel()
    asked.cancel()
    bench.turn.close()


LONG = LeaseSettings(ttl_seconds=120.0, deadline_seconds=60.0)


async def test_whose_time_is_over_commits_nothing_and_answers_nobody() -> None:
    lease = Lease(LONG, SystemClock().now().mono)
    bench = Bench(lease)
    await bench.inbox.ask(CordonMachine("m1"), "ann")
    head, released = bench.store.disk.head, len(bench.released)
    lease._asked -= 60.0  # as for a process that was stopped so long
    asked = asyncio.create_task(bench.inbox.ask(UncordonMachine("m1"), "ann"))
    with pytest.raises(Fenced, match="lease could not be renewed"):
        await bench.running
    assert (bench.store.disk.head, len(bench.released)) == (head, released)
    assert not asked.done()
    asked.cancel()
    bench.turn.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_time_that_ends_during_a_commit_is_why_nobody_is_answered(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What became of the commit the next leader finds; also where its outcome is unknown by that."""
    lease = Lease(LONG, SystemClock().now().mono)
    bench = Bench(lease)
    await bench.inbox.ask(CordonMachine("m1"), "ann")
    append = bench.store.append

    def stopped_meanwhile(*arguments: object) -> None:
        append(*arguments)  # type: ignore[arg-type]  # passed on as they came
        lease._asked -= 60.0
        if fails:
            raise OutcomeUnknown("the connection was cut")

    monkeypatch.setattr(bench.store, "append", stopped_meanwhile)
    asked = asyncio.create_task(bench.inbox.ask(UncordonMachine("m1"), "ann"))
    with pytest.raises(Fenced, match="lease could not be renewed"):
        await bench.running
    assert not asked.done()
    asked.cancel()
    bench.turn.close()
