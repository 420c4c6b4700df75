"""Samples of usage: what is kept of what machines said, and how long; none of it in the journal."""

from collections.abc import AsyncIterator

import pytest

from borgish.cell.free_space import AMPLE, FreeSpace, Level
from borgish.cell.observed import SeenMachine
from borgish.clock import Now
from borgish.errors import BorgishError
from borgish.master.core import Core
from borgish.master.host.settings import UsageSettings
from borgish.master.inbox import Inbox
from borgish.master.past import sampler
from borgish.master.past.sampler import Sampler
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.memory import MemoryStore
from borgish.store.usage import UsageSample, decode_usage

DAY = 86_400.0
BEGIN = (0.0, -1)


class Moving:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = Now(1e9, 1000.0)

    def now(self) -> Now:
        return self.at


class Bench:
    def __init__(self, settings: UsageSettings) -> None:
        self.clock = Moving()
        self.store = MemoryStore("c")
        self.store.lead("me", "here")
        self.core = Core(self.store.load(), ReconcileSettings(), self.clock.now())
        self.turn = Turn(self.core, self.store, Inbox(), self.clock, lambda _: None, lambda _: None)
        self.sampler = Sampler(self.core, self.turn, self.store, self.clock, settings)

    def see(self, machine: str, cpu: int, heard_ago: float = 1.0) -> None:
        heard = self.clock.now().mono - heard_ago
        usage = {(f"ann/{machine}/0", 7): (cpu, 4096)}
        self.core.observed.machines[machine] = SeenMachine(heard=heard, usage=usage)

    @property
    def kept(self) -> list[tuple[float, list[UsageSample]]]:
        return [(block.at, list(decode_usage(block))) for block in self.store.usage(BEGIN, 1e10, 100)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(UsageSettings(keep_days=2.0))
    yield made
    made.turn.close()


async def test_what_was_just_said_is_kept(bench: Bench) -> None:
    bench.see("m1", 10)
    bench.see("m2", 20)
    bench.see("silent", 30, heard_ago=60.0)
    bench.core.observed.machines["idle"] = SeenMachine(heard=bench.clock.now().mono)
    await bench.sampler.sample()
    assert bench.kept == [
        (1e9, [UsageSample("m1", "ann/m1/0", 7, 10, 4096), UsageSample("m2", "ann/m2/0", 7, 20, 4096)])
    ]
    assert bench.store.disk.entries == []


@pytest.mark.parametrize("level", [Level.LOW, Level.FULL])
async def test_none_is_kept_without_room_to_spare(bench: Bench, level: Level) -> None:
    bench.see("m1", 10)
    bench.turn.free_space = FreeSpace(level, 1, 4)
    await bench.sampler.sample()
    assert bench.kept == []
    bench.turn.free_space = AMPLE
    await bench.sampler.sample()
    assert len(bench.kept) == 1


async def test_many_machines_are_several_blocks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MACHINES_AT_ONCE", 2)
    for number in range(5):
        bench.see(f"m{number}", number)
    await bench.sampler.sample()
    assert [len(samples) for _, samples in bench.kept] == [2, 2, 1]
    assert {one.cpu_millis for _, samples in bench.kept for one in samples} == set(range(5))


async def test_with_nothing_to_tell_nothing_is_written(bench: Bench) -> None:
    await bench.sampler.sample()
    assert bench.kept == []


async def test_the_old_go(bench: Bench) -> None:
    for day in range(4):
        bench.clock.at = Now(1e9 + day * DAY, 1000.0 + day * DAY)
        bench.see("m1", day)
        await bench.sampler.sample()
    assert [at for at, _ in bench.kept] == [1e9 + day * DAY for day in (1, 2, 3)]


async def test_a_clock_that_leaps_ahead_costs_none(bench: Bench) -> None:
    bench.see("m1", 1)
    await bench.sampler.sample()
    bench.clock.at = Now(1e9 + 3650 * DAY, 1001.0)
    await bench.sampler.sample()
    assert [at for at, _ in bench.kept] == [1e9, 1e9 + 3650 * DAY]


async def test_none_is_kept_where_none_is_wanted() -> None:
    bench = Bench(UsageSettings(keep_days=2.0))
    bench.see("m1", 1)
    await bench.sampler.sample()
    bench.clock.at = Now(1e9 + 60, 1060.0)
    off = Sampler(bench.core, bench.turn, bench.store, bench.clock, UsageSettings(keep_days=0.0))
    bench.see("m1", 2)
    await off.sample()
    assert bench.kept == []
    bench.turn.close()


async def test_what_cannot_be_kept_is_logged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_blocks: object) -> None:
        raise BorgishError("The sample of usage was not kept: disk full")

    monkeypatch.setattr(bench.store, "save_usage", fails)
    bench.see("m1", 1)
    await bench.sampler.sample()
    assert "disk full" in caplog.text
