"""Probes over real sockets, and the ASGI application's bounds."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest

from borgish.borglet import health, server
from borgish.borglet.actions import Probe
from borgish.borglet.agent import Agent, Caller
from borgish.borglet.attempts.entry import Head
from borgish.borglet.core import BorgletCore
from borgish.borglet.ports import connect
from borgish.borglet.runtimes.base import TaskRuntime
from borgish.borglet.server import POLL_BYTES_MAX, BorgletApp
from borgish.borglet.state_folder import membership_in
from borgish.clock import Now
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.spec.job import Health
from borgish.vocabulary import Runtime
from borgish.wire.link import Facts, HeadReply


class Commands:
    """A runtime that only execs."""

    def __init__(self, output: bytes, code: int) -> None:
        self.output, self.code = output, code

    async def exec(self, key: str, run: tuple[str, ...], timeout_seconds: float) -> tuple[bytes, int, bool]:
        if self.code < 0:
            raise Conflict("it does not run")
        return self.output, self.code, False


FACTS = Facts(Resources(1000), {}, (Runtime.FAKE,), 1, 2)
NO_RUNTIME = cast("TaskRuntime", None)
PATIENCE_SECONDS = 60.0


async def ask(
    number: int = 0, runtime: object = None, timeout_seconds: float = PATIENCE_SECONDS, **fields: Any
) -> str:
    probe = Probe("k", 1, Health(timeout_seconds=timeout_seconds, **fields), number)
    return await health.ask(probe, cast("TaskRuntime", runtime), connect)


async def until(fulfilled: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not fulfilled():
            await asyncio.sleep(0.001)


class Listening:
    """A server that reads one request and answers with fixed bytes; None: never."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked = b""

    async def __aenter__(self) -> "Listening":
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = int(self.server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = await reader.readline()
        if self.answer is not None:
            writer.write(self.answer)
            writer.close()
        else:
            await reader.read()
            writer.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", ""),
        (b"HTTP/1.1 302 Found\r\n\r\n", ""),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "GET /ok answered 503"),
        (b"hello\r\n", "the answer is not HTTP"),
        (b"x" * 100_000, "the answer is not HTTP"),
        (b"", "the connection was closed without an answer"),
    ],
)
async def test_http_probes(answer: bytes, said: str) -> None:
    async with Listening(answer) as there:
        assert await ask(there.port, http="/ok", port="http") == said
        assert there.asked == b"GET /ok HTTP/1.1\r\n"


async def test_a_probe_waits_no_longer_than_it_may() -> None:
    async with Listening(None) as there:
        assert await ask(there.port, timeout_seconds=0.2, http="/", port="http") == "no answer within 200ms"


async def test_a_path_cannot_add_to_the_request() -> None:
    async with Listening(b"HTTP/1.1 200 OK\r\n\r\n") as there:
        await ask(there.port, http="/a b\r\nX: y", port="http")
        assert there.asked == b"GET /a%20b%0D%0AX:%20y HTTP/1.1\r\n"


async def test_tcp_probes() -> None:
    async with Listening(b"") as there:
        assert await ask(there.port, tcp=True, port="http") == ""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can be there
        port = taken.getsockname()[1]
        assert f"port {port}" in await ask(port, tcp=True, port="http")


async def test_command_probes() -> None:
    assert await ask(runtime=Commands(b"", 0), command=("true",)) == ""
    said = await ask(runtime=Commands(b"one\ntwo\n", 3), command=("false",))
    assert said == "the probe's command ended with exit code 3: two"
    assert await ask(runtime=Commands(b"", -1), command=("false",)) == "it does not run"


# -- the application ------------------------------------------------------------------------------------


class Answer:
    """What an application sent."""

    def __init__(self) -> None:
        self.status, self.body = 0, b""

    async def send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


class Logging:
    """An agent whose one log never ends."""

    def end_polls(self) -> None:
        pass

    async def logs(self, key: str, *_: object) -> AsyncIterator[bytes]:
        yield key.encode()
        await asyncio.Event().wait()


@pytest.fixture
def app(tmp_path: Any) -> BorgletApp:
    membership = membership_in(tmp_path)
    membership.keep("local", "bgt_right")
    return BorgletApp(cast("Agent", Logging()), membership)


async def call(
    app: BorgletApp,
    method: str,
    path: str,
    *parts: bytes,
    query: bytes = b"",
    headers: tuple[tuple[bytes, bytes], ...] = ((b"authorization", b"Bearer bgt_right"),),
    gone: asyncio.Event | None = None,
    answer: Answer | None = None,
) -> Answer:
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    answer = answer or Answer()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": query}
    await asyncio.wait_for(app(scope, receive, answer.send), PATIENCE_SECONDS)
    return answer


async def test_what_it_has_seen_of_masters_is_told(tmp_path: Any) -> None:
    class Seeing(Logging):
        core = BorgletCore("m1", "boot", "i1", FACTS, head=Head("m1", 2, 7), now=Now(1.0, 1.0))

        def head(self, is_open: Callable[[Caller], bool]) -> HeadReply:
            return self.core.seen(Now(1.0, 1.0), connected=is_open(None))

    membership = membership_in(tmp_path)
    membership.keep("local", "bgt_right")
    answer = await call(BorgletApp(cast("Agent", Seeing()), membership), "GET", "/v1/head")
    assert answer.status == 200
    assert msgspec.json.decode(answer.body, type=HeadReply) == HeadReply("m1", 2, 7, polls=0)


async def test_without_the_token_nothing_answers(app: BorgletApp) -> None:
    for headers in ((), ((b"authorization", b"Bearer bgt_wrong"),), ((b"authorization", b"Basic x"),)):
        assert (await call(app, "POST", "/v1/poll", headers=headers)).status == 401
        assert (await call(app, "GET", "/nosuch", headers=headers)).status == 401


async def test_a_poll_that_overtakes_the_answer_to_the_join_waits_for_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = membership_in(tmp_path)
    app = BorgletApp(cast("Agent", Logging()), membership)
    monkeypatch.setattr(server, "JOINING_SECONDS_MAX", 0.0)
    assert (await call(app, "GET", "/nosuch")).status == 401
    monkeypatch.setattr(server, "JOINING_SECONDS_MAX", PATIENCE_SECONDS)
    asking = asyncio.create_task(call(app, "GET", "/nosuch"))
    await asyncio.sleep(0)
    membership.keep("local", "bgt_right")
    assert (await asking).status == 404


async def test_a_body_over_the_limit_is_refused_told_or_not(app: BorgletApp) -> None:
    right = (b"authorization", b"Bearer bgt_right")
    told = (b"content-length", str(POLL_BYTES_MAX + 1).encode())
    assert (await call(app, "POST", "/v1/poll", headers=(right, told))).status == 413
    parts = [b"x" * (4 * 1024 * 1024)] * 5
    assert (await call(app, "POST", "/v1/poll", *parts)).status == 413


async def test_what_is_not_a_poll_is_refused_with_words(app: BorgletApp) -> None:
    answer = await call(app, "POST", "/v1/poll", b'{"cell": 1}')
    assert answer.status == 400
    assert b"Expected `str`" in answer.body


async def test_a_stream_ends_with_its_reader_and_with_the_daemon(app: BorgletApp) -> None:
    gone, read, kept = asyncio.Event(), Answer(), Answer()
    query = b"task=a/b/0&attempt="
    reading = asyncio.create_task(call(app, "GET", "/v1/logs", query=query + b"3", gone=gone, answer=read))
    other = asyncio.create_task(call(app, "GET", "/v1/logs", query=query + b"4", answer=kept))
    await until(lambda: bool(read.body and kept.body))
    gone.set()
    assert (await reading).body == b"a/b/0@3"
    assert not other.done()
    app.end()
    assert (await other).body == b"a/b/0@4"
