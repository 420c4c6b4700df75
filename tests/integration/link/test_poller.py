"""The link against a borglet that answers over real HTTP, well and badly."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from borgish.cell.commands import Observe
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.cell.observed import Miss, Observed, SeenMachine
from borgish.clock import SystemClock
from borgish.credentials import poll_token
from borgish.errors import Fenced, NotFound, StoreFull, Unreachable
from borgish.link import link, poller, transport
from borgish.link.conversation import Outgoing
from borgish.link.holds import PollSettings
from borgish.link.link import Link
from borgish.link.transport import HttpPeer, HttpTransport
from borgish.resources import Resources
from borgish.vocabulary import Phase, Runtime
from borgish.wire.api import Problem
from borgish.wire.link import (
    AttemptReport,
    ExecRequest,
    Facts,
    Leader,
    LogWanted,
    PollReply,
    PollRequest,
    Report,
)

FACTS = Facts(Resources(1000, 1024**3), {}, (Runtime.PROCESS,), 20000, 20010)
LEADER = Leader("http://a:7400", "nonce")
PATIENCE_SECONDS = 60.0
LONG_SECONDS = 300.0
"""Longer than any test: what is seen did not come of a poll's end, nor of one that a busy machine held up."""
Answer = Callable[[PollRequest], Awaitable[bytes]]


def http(status: int, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class FakeBorglet:
    """Holds polls like a borglet, or does what ``answer`` is set to."""

    def __init__(self) -> None:
        self.requests: list[PollRequest] = []
        self.tokens: set[str] = set()
        self.generation = 0
        self.report_generation = 1
        self.attempts: tuple[AttemptReport, ...] = ()
        self.changed = asyncio.Event()
        self.answer: Answer = self.poll
        self.port = 0

    async def poll(self, request: PollRequest) -> bytes:
        if request.assignment is not None:
            self.generation = request.assignment.generation
        has_news = request.seen != self.report_generation or request.seen_instance != "i"
        self.changed.set()  # a newer poll ends the held one
        self.changed = asyncio.Event()
        if not has_news and request.wait_seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), request.wait_seconds)
            has_news = request.seen != self.report_generation
        report = Report(FACTS, self.attempts) if has_news else None
        reply = PollReply("m1", "b", "i", self.generation, self.report_generation, report)
        return http(200, msgspec.json.encode(reply))

    def change(self, *attempts: AttemptReport) -> None:
        self.attempts = attempts
        self.report_generation += 1
        self.changed.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
                body = await reader.readexactly(length)
                self.tokens.add(head.partition("authorization: bearer ")[2].partition("\r\n")[0])
                if not body:
                    writer.write(http(404, b'{"title":"","status":404,"detail":"no such attempt"}'))
                    continue
                request = msgspec.json.decode(body, type=PollRequest)
                self.requests.append(request)
                writer.write(await self.answer(request))
        writer.close()


class FakeInbox:
    def __init__(self) -> None:
        self.reports: list[Observe] = []
        self.heard_of: list[str] = []
        self.is_full = False
        self.misses: list[Miss] = []
        self.arrived = asyncio.Event()

    async def observe(self, report: Observe) -> None:
        self.reports.append(report)
        if self.is_full:
            raise StoreFull("The store is full")
        self.arrived.set()

    def heard(self, machine: str, mono: float) -> None:
        self.heard_of.append(machine)

    def not_polled(self, machines: tuple[str, ...]) -> None:
        raise AssertionError("nothing is ramped up here")

    def missed(self, machine: str, miss: Miss) -> None:
        self.misses.append(miss)

    def used(self, machine: str, usage: dict[tuple[str, int], tuple[int, int]]) -> None:
        raise AssertionError("this borglet sends no usage")


class Bench:
    def __init__(
        self, borglet: FakeBorglet, hold_seconds: float = LONG_SECONDS, timeout_seconds: float = LONG_SECONDS
    ) -> None:
        self.borglet = borglet
        self.inbox = FakeInbox()
        self.fenced: list[Fenced] = []
        self.cell = Cell(Snapshot("c"))
        self.cell.machines["m1"] = Machine(
            "m1", "127.0.0.1", borglet.port, False, FACTS.capacity, {}, FACTS.runtimes, 1, 2, "b", 0.0
        )
        observed = Observed()
        observed.machines["m1"] = SeenMachine()
        self.is_over = False
        self.link = Link(
            self.cell,
            observed,
            self.inbox,
            SystemClock(),
            PollSettings(hold_seconds, timeout_seconds),
            HttpTransport("s" * 32, None),
            self.fenced.append,
            self.permit,
            LEADER,
        )
        self._renewing = asyncio.create_task(self.link.keep_renewed(self.durable))

    async def durable(self) -> None:
        """Nothing is ever made durable here."""

    def permit(self) -> None:
        if self.is_over:
            raise Fenced("The lease is over")

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
async def borglet() -> AsyncIterator[FakeBorglet]:
    borglet = FakeBorglet()
    server = await asyncio.start_server(borglet.serve, "127.0.0.1", 0)
    borglet.port = server.sockets[0].getsockname()[1]
    yield borglet
    server.close()


@pytest.fixture
async def bench(borglet: FakeBorglet) -> AsyncIterator[Bench]:
    bench = Bench(borglet)
    bench.link.sync(["m1"])
    yield bench
    await bench.link.close()


UP = AttemptReport("a/b/0", 3, Phase.UP)


async def test_the_first_report_is_whole_and_then_only_differences_come(
    bench: Bench, borglet: FakeBorglet
) -> None:
    await bench.until(lambda: bench.inbox.reports)
    assert bench.inbox.reports[0].whole
    borglet.change(UP)
    await bench.until(lambda: len(bench.inbox.reports) == 2)
    assert [a.task for a in bench.inbox.reports[1].changed] == ["a/b/0"]
    borglet.change()
    await bench.until(lambda: len(bench.inbox.reports) == 3)
    assert bench.inbox.reports[2].gone == (("a/b/0", 3),)
    assert not bench.inbox.reports[2].whole
    assert borglet.tokens == {poll_token("s" * 32, "m1")}


async def test_a_new_assignment_overtakes_a_held_poll(bench: Bench, borglet: FakeBorglet) -> None:
    await bench.until(lambda: any(r.seen for r in borglet.requests))
    bench.link.renew(["m1"])
    await bench.until(lambda: borglet.generation == 2)
    await bench.until(lambda: borglet.requests[-1].assignment is None)


async def test_a_report_for_which_there_is_no_room_comes_again_until_there_is(
    bench: Bench, borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poller, "RETRY_SECONDS", 0.01)
    await bench.until(lambda: any(r.seen for r in borglet.requests))
    bench.inbox.is_full, before = True, len(bench.inbox.reports)
    borglet.change(UP)
    await bench.until(lambda: len(bench.inbox.reports) >= before + 3)
    assert all(report.whole for report in bench.inbox.reports[before + 1 :])
    assert len(bench.inbox.heard_of) >= before + 3
    assert bench.inbox.misses == []
    assert bench.link.trouble("m1") == ""
    assert caplog.text == ""
    bench.inbox.is_full = False
    await bench.until(lambda: borglet.requests[-1].seen == borglet.report_generation)
    assert [attempt.task for attempt in bench.inbox.reports[-1].changed] == ["a/b/0"]


async def test_a_change_that_leads_elsewhere_is_answered_by_asking_for_the_whole(
    bench: Bench, borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poller, "RETRY_SECONDS", 0.01)
    await bench.until(lambda: any(r.seen for r in borglet.requests))

    async def elsewhere(request: PollRequest) -> bytes:
        borglet.answer = borglet.poll
        report = Report(FACTS, (UP,), base=request.seen, digest=1)
        return http(200, msgspec.json.encode(PollReply("m1", "b", "i", borglet.generation, 2, report)))

    borglet.answer = elsewhere
    borglet.change(UP)
    bench.link.renew(["m1"])
    await bench.until(lambda: borglet.requests[-1].seen == borglet.report_generation)
    assert "leads to another report; it is asked for the whole" in caplog.text
    assert bench.inbox.reports[-1].whole
    assert [attempt.task for attempt in bench.inbox.reports[-1].changed] == ["a/b/0"]
    assert bench.inbox.misses == []
    assert bench.link.trouble("m1") == ""


async def test_who_answers_with_changes_only_is_asked_after_a_pause_each_time(
    borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "RETRY_SECONDS", 0.01)
    pauses, pause = 0, poller.Poller._pause

    async def counted(self: poller.Poller) -> None:
        nonlocal pauses
        pauses += 1
        await pause(self)

    async def changes(_request: PollRequest) -> bytes:
        report = Report(FACTS, (UP,), base=7, digest=1)
        return http(200, msgspec.json.encode(PollReply("m1", "b", "i", 0, 9, report)))

    monkeypatch.setattr(poller.Poller, "_pause", counted)
    borglet.answer = changes
    bench = Bench(borglet)
    bench.link.sync(["m1"])
    await bench.until(lambda: len(borglet.requests) >= 5)
    await bench.link.close()
    assert pauses >= 4
    assert bench.inbox.reports == []


async def test_whose_time_is_over_sends_nothing_more(bench: Bench, borglet: FakeBorglet) -> None:
    await bench.until(lambda: any(r.seen for r in borglet.requests))
    bench.is_over, sent = True, len(borglet.requests)
    bench.link.renew(["m1"])  # it would overtake the held poll
    await bench.until(lambda: bench.fenced)
    borglet.change(UP)
    await bench.until(lambda: bench.link.trouble("m1"))
    assert bench.link.trouble("m1") == "The lease is over"
    assert len(borglet.requests) == sent


async def test_after_a_failure_everything_is_said_again(bench: Bench, borglet: FakeBorglet) -> None:
    await bench.until(lambda: bench.inbox.reports)

    async def garbage(_request: PollRequest) -> bytes:
        return b"nonsense\r\n\r\n"

    borglet.answer = garbage
    borglet.change(UP)
    await bench.until(lambda: bench.link.trouble("m1"))
    borglet.answer = borglet.poll
    await bench.until(lambda: bench.inbox.reports[-1].whole and bench.inbox.reports[-1].changed)
    await bench.until(lambda: not bench.link.trouble("m1"))


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, msgspec.json.encode(Problem("", 401, "the token is\nwrong")), "401: the token is\\x0awrong"),
        (500, msgspec.json.encode(Problem("", 500, "x" * 9999)), f"500: {'x' * 300}"),
        (500, b"it's \xff" + b"y" * 9999, f"500: it's \ufffd{'y' * 194}"),
        (503, b"", "503"),
    ],
    ids=["detail", "long detail", "no problem", "nothing"],
)
async def test_a_bad_status_is_trouble_in_words(
    bench: Bench, borglet: FakeBorglet, status: int, body: bytes, said: str
) -> None:
    async def bad(_request: PollRequest) -> bytes:
        return http(status, body)

    borglet.answer = bad
    borglet.change()
    await bench.until(lambda: bench.link.trouble("m1"))
    assert bench.link.trouble("m1").endswith(f"m1 answered {said}")


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (b"{}", ""),
        (msgspec.json.encode(Problem("", 409, "it obeys epoch 7\n of b")), ": it obeys epoch 7\\x0a of b"),
    ],
)
async def test_a_borglet_that_obeys_another_master_is_told_of_and_asked_again(
    bench: Bench, borglet: FakeBorglet, refusal: bytes, said: str
) -> None:
    async def newer(_request: PollRequest) -> bytes:
        return http(409, refusal)

    borglet.answer = newer
    borglet.change()
    await bench.until(lambda: bench.fenced)
    assert f"m1 obeys another master of this cell{said}" in bench.link.trouble("m1")
    found = bench.link.fencing.fenced()
    assert found is not None
    assert said in found.text
    borglet.answer = borglet.poll
    await bench.until(lambda: not bench.link.trouble("m1"))
    assert bench.link.fencing.fenced() is None


async def test_a_machine_that_does_not_answer_refuses_nothing(bench: Bench, borglet: FakeBorglet) -> None:
    async def refuses(_request: PollRequest) -> bytes:
        return http(409, b"{}")

    async def fails(_request: PollRequest) -> bytes:
        return http(500, b"")

    borglet.answer = refuses
    borglet.change()
    await bench.until(bench.link.fencing.fenced)
    borglet.answer = fails
    await bench.until(lambda: bench.link.fencing.fenced() is None)


async def test_each_poll_says_who_leads(bench: Bench, borglet: FakeBorglet) -> None:
    await bench.until(lambda: borglet.requests)
    assert borglet.requests[0].leader == LEADER


async def test_a_borglet_that_never_answers_is_a_miss(borglet: FakeBorglet) -> None:
    async def never(_request: PollRequest) -> bytes:
        await asyncio.sleep(60)
        return b""

    borglet.answer = never
    bench = Bench(borglet, hold_seconds=0.2, timeout_seconds=0.5)
    bench.link.sync(["m1"])
    await bench.until(lambda: "no answer" in bench.link.trouble("m1"))
    assert not bench.inbox.heard_of
    assert not any(miss.refused for miss in bench.inbox.misses)
    await bench.link.close()


async def test_a_refused_connection_is_told_from_silence(bench: Bench) -> None:
    await bench.until(lambda: bench.inbox.reports)
    with socket.create_server(("127.0.0.1", 0)) as free:
        bench.cell.machines["m1"].port = free.getsockname()[1]
    began = SystemClock().now().mono
    bench.link.sync(["m1"])
    await bench.until(lambda: any(miss.refused for miss in bench.inbox.misses))
    assert "connection refused" in bench.link.trouble("m1")
    assert bench.inbox.misses[-1].refused >= began


async def test_who_asks_for_output_or_a_command_is_told_which_machine_does_not_answer(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = bench.cell.machines["m1"].port = free.getsockname()[1]
    bench.link.sync(["m1"])
    request = ExecRequest("ann/web/0", 1, ("true",))
    said = f"machine m1 does not answer (127.0.0.1:{port}: connection refused)"
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: anext(bench.link.logs("m1", "ann/web/0", 1, LogWanted())),
        lambda: bench.link.exec("m1", request),
        lambda: anext(bench.link.exec_stream("m1", request)),
        lambda: bench.link.exec_stdin("m1", request, 0, b"", end=True),
    ]
    for ask in asked:
        with pytest.raises(Unreachable) as caught:
            await ask()
        assert caught.value.message == said
        assert caught.value.hint == "Its tasks may run on; `borgctl machine show m1` says more"


async def test_a_machine_that_moved_is_polled_there(bench: Bench, borglet: FakeBorglet) -> None:
    await bench.until(lambda: bench.inbox.reports)
    other = FakeBorglet()
    server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    bench.cell.machines["m1"].port = server.sockets[0].getsockname()[1]
    bench.link.sync(["m1"])
    await bench.until(lambda: other.requests)
    server.close()


async def test_logs_of_what_is_not_there(bench: Bench) -> None:
    await bench.until(lambda: bench.inbox.reports)
    with pytest.raises(NotFound, match="no such attempt"):
        async for _ in bench.link.logs("m1", "a/b/0", 1, LogWanted()):
            pass
    with pytest.raises(NotFound, match="no machine m9"):
        async for _ in bench.link.logs("m9", "a/b/0", 1, LogWanted()):
            pass


async def test_logs_of_a_machine_that_is_gone(borglet: FakeBorglet) -> None:
    bench = Bench(borglet)
    bench.cell.machines["m1"].port = 1
    bench.link.sync(["m1"])
    with pytest.raises(Unreachable):
        async for _ in bench.link.logs("m1", "a/b/0", 1, LogWanted()):
            pass
    await bench.link.close()


async def test_an_unforeseen_fault_ends_no_poller(
    borglet: FakeBorglet, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(borglet)
    bench.cell.machines["m1"].host = "x" * 64  # no label of a host name is so long
    bench.link.sync(["m1"])
    await bench.until(lambda: bench.link.trouble("m1"))
    bench.cell.machines["m1"].host = "127.0.0.1"
    bench.link.sync(["m1"])
    await bench.until(lambda: bench.inbox.reports)
    await bench.link.close()
    assert "never retrieved" not in caplog.text


async def test_a_connection_with_half_an_answer_on_it_is_not_used_again(borglet: FakeBorglet) -> None:
    sent: list[int] = []

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(slowly, "127.0.0.1", 0)
    peer = HttpPeer("127.0.0.1", server.sockets[0].getsockname()[1], "t", None)
    for _ in range(2):
        with pytest.raises(Unreachable, match="no answer"):
            await peer.post("/v1/poll", b"", 0.2)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(sent) < 2:  # it may have been given up before it was taken there
            await asyncio.sleep(0.005)
    assert len(sent) == 2
    server.close()


BAD_FACTS = msgspec.structs.replace(FACTS, capacity=Resources(-1))
BAD_REPLIES = [
    b"\xff",
    b'{"machine": "\xff"}',
    b'{"zz": ' + b"[" * 100_000,
    msgspec.json.encode(PollReply("m1", "b", "i", 0, 1, Report(BAD_FACTS))),
    msgspec.json.encode(
        PollReply("m1", "b", "i", 0, 1, Report(FACTS, (AttemptReport("a/b/0", -3, Phase.UP),)))
    ),
]


@pytest.mark.parametrize("body", BAD_REPLIES)
async def test_what_a_machine_may_not_say_is_trouble_and_polling_goes_on(
    bench: Bench, borglet: FakeBorglet, body: bytes
) -> None:
    await bench.until(lambda: bench.inbox.reports)

    async def wrong(_request: PollRequest) -> bytes:
        return http(200, body)

    borglet.answer = wrong
    borglet.change(UP)
    await bench.until(lambda: bench.link.trouble("m1"))
    assert all(attempt.attempt > 0 for report in bench.inbox.reports for attempt in report.changed)
    assert not any(report.capacity for report in bench.inbox.reports[1:])
    borglet.answer = borglet.poll
    await bench.until(lambda: not bench.link.trouble("m1"))


@pytest.mark.parametrize("status", [200, 500])
async def test_nothing_is_kept_of_answers_that_are_none(
    bench: Bench, borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Each may have 16 MiB, and a master looks for garbage seldom."""

    async def wrong(_request: PollRequest) -> bytes:
        return http(status, b"garbage")

    monkeypatch.setattr(poller, "RETRY_SECONDS", 0.001)
    borglet.answer = wrong
    gc.collect()
    gc.disable()
    try:
        await bench.until(lambda: len(bench.inbox.misses) > 10)
        kept = [each for each in gc.get_objects() if isinstance(each, poller._Poll)]
        assert len(kept) <= 2  # under way, and of the last one that failed
    finally:
        gc.enable()


async def test_a_reason_that_postgres_could_not_store(bench: Bench, borglet: FakeBorglet) -> None:
    await bench.until(lambda: bench.inbox.reports)
    borglet.change(msgspec.structs.replace(UP, reason="a\0b \\u0000"))
    await bench.until(lambda: len(bench.inbox.reports) == 2)
    assert bench.inbox.reports[1].changed[0].reason == "a\ufffdb \\ufffd"


async def test_an_answer_that_comes_byte_by_byte_is_a_miss(borglet: FakeBorglet) -> None:
    """Each byte is a sign of life, and none of them is an answer: the whole has to be there in time."""
    answered = http(200, msgspec.json.encode(PollReply("m1", "b", "i", 0, 1)))

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            for byte in answered:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    slow = await asyncio.start_server(drip, "127.0.0.1", 0)
    bench = Bench(borglet, hold_seconds=0.2, timeout_seconds=0.5)
    bench.cell.machines["m1"].port = slow.sockets[0].getsockname()[1]
    bench.link.sync(["m1"])
    await bench.until(lambda: "no answer" in bench.link.trouble("m1"))
    assert not bench.inbox.heard_of
    await bench.link.close()
    slow.close()


async def test_an_answer_without_end_is_cut_off(
    bench: Bench, borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "BODY_BYTES_MAX", 100_000)

    async def endless(_request: PollRequest) -> bytes:
        return http(200, b" " * 200_000)

    borglet.answer = endless
    borglet.change()
    await bench.until(lambda: "answer over 100000 bytes" in bench.link.trouble("m1"))


async def test_an_answer_that_nobody_asked_for_is_taken_for_none(borglet: FakeBorglet) -> None:
    bench = Bench(borglet, hold_seconds=0.01)

    async def twice(request: PollRequest) -> bytes:
        borglet.answer = borglet.poll
        return 2 * await borglet.poll(request)

    bench.link.sync(["m1"])
    await bench.until(lambda: bench.inbox.reports)
    borglet.answer = twice
    await bench.until(lambda: len(bench.inbox.reports) == 2)
    await bench.link.close()
    assert [miss.trouble.partition(": ")[2] for miss in bench.inbox.misses] == ["not HTTP"]
    assert bench.inbox.reports[1].whole


async def test_quiet_answers_are_heard_and_followed_by_the_next_poll(borglet: FakeBorglet) -> None:
    bench = Bench(borglet, hold_seconds=0.01)
    bench.link.sync(["m1"])
    await bench.until(lambda: len(borglet.requests) > 5)
    await bench.link.close()
    assert [report.whole for report in bench.inbox.reports] == [True]
    assert len(bench.inbox.heard_of) >= 4
    assert not bench.inbox.misses


async def test_an_unforeseen_fault_in_a_quiet_answer_ends_no_poller(
    borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(borglet, hold_seconds=0.01)
    bench.link.sync(["m1"])
    await bench.until(lambda: bench.inbox.heard_of)
    monkeypatch.setattr(poller, "RETRY_SECONDS", 0.01)
    heard = bench.inbox.heard

    def broken(machine: str, mono: float) -> None:
        monkeypatch.setattr(bench.inbox, "heard", heard)
        raise RuntimeError("a fault")

    monkeypatch.setattr(bench.inbox, "heard", broken)
    await bench.until(lambda: len(bench.inbox.reports) == 2)
    await bench.link.close()
    assert "a fault" in bench.inbox.misses[0].trouble


async def test_assignments_wait_until_what_they_are_made_of_is_durable(
    bench: Bench, borglet: FakeBorglet
) -> None:
    await bench.until(lambda: any(r.seen for r in borglet.requests))
    is_durable = asyncio.Event()
    bench._renewing.cancel()

    async def durable() -> None:
        await is_durable.wait()

    renewing = asyncio.create_task(bench.link.keep_renewed(durable))
    before = borglet.requests[-1].generation
    bench.link.renew(["m1"])
    bench.link.renew(["m1"])
    await asyncio.sleep(0.05)
    assert borglet.requests[-1].generation == before
    is_durable.set()
    await bench.until(lambda: borglet.requests[-1].generation > before)
    await asyncio.sleep(0.05)
    assert borglet.requests[-1].generation == before + 1, "asked for twice and made once"
    renewing.cancel()


async def test_a_machine_whose_assignment_cannot_be_made_holds_up_no_other(
    bench: Bench, borglet: FakeBorglet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.until(lambda: any(r.seen for r in borglet.requests))
    before, renew = borglet.requests[-1].generation, Outgoing.renew

    def fail_once(self: Outgoing, *_: object) -> None:
        monkeypatch.setattr(Outgoing, "renew", renew)
        self._moved()
        raise ZeroDivisionError

    monkeypatch.setattr(Outgoing, "renew", fail_once)
    monkeypatch.setattr(link, "RENEW_AGAIN_SECONDS", 0.01)
    bench.link.renew(["m1", "gone"])
    await bench.until(lambda: borglet.requests[-1].generation > before)
    assert "what m1 is to run cannot be told" in caplog.text
