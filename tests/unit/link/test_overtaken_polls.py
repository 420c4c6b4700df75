"""What a held poll learned counts, although the newer one that overtook it got lost; and when it counts."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec

from borgish.cell.commands import Observe
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.cell.observed import Miss, Observed, SeenMachine
from borgish.clock import Clock, Now, SystemClock
from borgish.errors import NotListening, Unreachable
from borgish.link.fencing import FencingMonitor
from borgish.link.holds import PollSettings
from borgish.link.poller import Poller
from borgish.link.slices import Slices
from borgish.link.transport import Exchange, Peer, Response
from borgish.resources import Resources
from borgish.vocabulary import Runtime
from borgish.wire.link import Facts, PollReply, PollRequest, Report

PATIENCE_SECONDS = 60.0
FACTS = Facts(Resources(1000), {}, (Runtime.PROCESS,), 1, 2)
RECORD = Machine("m1", "127.0.0.1", 1, False, FACTS.capacity, {}, FACTS.runtimes, 1, 2, "b", 0.0)


class DyingBorglet:
    """Answers once. Then the connection of the poll that it should hold is refused, after a newer one has
    overtaken it, which gets lost."""

    host, port = "127.0.0.1", 1

    def __init__(self) -> None:
        self.is_held, self.is_overtaken, self.is_refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def begin(self, path: str, body: bytes, timeout_seconds: float, done: Callable[[], object]) -> Exchange:
        exchange = Exchange(done)

        async def ask() -> None:
            try:
                exchange.settle(await self.post(path, body, timeout_seconds))
            except Unreachable as error:
                exchange.settle(error)

        exchange.give_up = asyncio.get_running_loop().create_task(ask()).cancel
        return exchange

    async def post(self, path: str, body: bytes, timeout_seconds: float) -> Response:
        request = msgspec.json.decode(body, type=PollRequest)
        if not request.seen_instance:
            return Response(200, msgspec.json.encode(PollReply("m1", "b", "i", 1, 1, Report(FACTS, ()))))
        if request.wait_seconds:
            self.is_held.set()
            await self.is_overtaken.wait()
            self.is_refused.set()
            raise NotListening("connection refused")
        self.is_overtaken.set()
        await self.is_refused.wait()
        raise Unreachable("no answer")

    def stream(self, path: str, body: bytes | None = None) -> AsyncIterator[Response]:
        raise AssertionError("nothing is streamed")

    def cut(self) -> None:
        pass

    def close(self) -> None:
        pass


class AnsweringBorglet(DyingBorglet):
    """Answers the held poll when a newer one has overtaken it, and that one not at all."""

    def __init__(self, clock: "LeapingClock") -> None:
        super().__init__()
        self.clock, self.leap_seconds = clock, 0.0

    async def post(self, path: str, body: bytes, timeout_seconds: float) -> Response:
        request = msgspec.json.decode(body, type=PollRequest)
        if request.seen_instance and not request.wait_seconds:
            self.is_overtaken.set()
            await asyncio.Future()
        if request.wait_seconds:
            self.is_held.set()
            await self.is_overtaken.wait()
        self.clock.mono += self.leap_seconds
        return Response(200, msgspec.json.encode(PollReply("m1", "b", "i", 1, 1, Report(FACTS, ()))))


class LeapingClock:
    """One on which time goes by only when somebody says so."""

    def __init__(self) -> None:
        self.mono = 1000.0

    def now(self) -> Now:
        return Now(self.mono, self.mono)


class Inbox:
    def __init__(self) -> None:
        self.heard_at: list[float] = []
        self.miss: asyncio.Future[Miss] = asyncio.get_running_loop().create_future()

    async def observe(self, report: Observe) -> None:
        pass

    def heard(self, machine: str, mono: float) -> None:
        self.heard_at.append(mono)

    def not_polled(self, machines: tuple[str, ...]) -> None:
        raise AssertionError("nothing is ramped up here")

    def used(self, machine: str, usage: dict[tuple[str, int], tuple[int, int]]) -> None:
        raise AssertionError("this borglet sends no usage")

    def missed(self, machine: str, miss: Miss) -> None:
        self.miss.set_result(miss)


def poller_of(borglet: DyingBorglet, inbox: Inbox, clock: Clock) -> Poller:
    cell, observed = Cell(Snapshot("c")), Observed()
    cell.machines["m1"] = RECORD
    observed.machines["m1"] = SeenMachine()

    def dial(_: Machine) -> Peer:
        return borglet

    answers = Slices(clock)
    return Poller(
        RECORD, dial, cell, observed, inbox, clock, answers, PollSettings(), print, FencingMonitor()
    )


async def test_a_host_that_refused_the_held_poll_is_alive() -> None:
    borglet, inbox = DyingBorglet(), Inbox()
    poller = poller_of(borglet, inbox, SystemClock())
    poller.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await borglet.is_held.wait()
        poller.renew()
        miss = await inbox.miss
    await poller.close()
    assert miss.refused > 0
    assert "connection refused" in miss.trouble


async def test_an_answer_is_a_sign_of_life_while_a_newer_poll_is_under_way() -> None:
    clock, inbox = LeapingClock(), Inbox()
    borglet = AnsweringBorglet(clock)
    poller = poller_of(borglet, inbox, clock)
    poller.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await borglet.is_held.wait()
        clock.mono += 1.0
        poller.renew()
        while len(inbox.heard_at) < 2:
            await asyncio.sleep(0)
    await poller.close()
    assert inbox.heard_at == [1000.0, 1001.0]


async def test_what_is_read_after_its_time_was_said_before() -> None:
    """As by a master that was stopped while its machines answered."""
    clock, inbox = LeapingClock(), Inbox()
    borglet = AnsweringBorglet(clock)
    borglet.leap_seconds = 100.0
    poller = poller_of(borglet, inbox, clock)
    poller.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await borglet.is_held.wait()
    await poller.close()
    assert inbox.heard_at == [1000.0 + PollSettings().timeout_seconds]
