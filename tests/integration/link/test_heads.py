"""What machines have seen, asked over real HTTP: those that answer well, badly, late, or not at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from borgish.cell.model import Machine
from borgish.credentials import poll_token
from borgish.link.transport import HttpTransport
from borgish.master.host import preflight
from borgish.master.host.preflight import ask_heads
from borgish.resources import Resources
from borgish.vocabulary import Runtime
from borgish.wire.link import HeadReply
from tests.integration.link.test_poller import http

SECRET = "s" * 32
Answer = Callable[[str], Awaitable[bytes]]


def record(name: str, port: int) -> Machine:
    return Machine(name, "127.0.0.1", port, False, Resources(1000), {}, (Runtime.PROCESS,), 1, 2, "b", 0.0)


async def well(head: str) -> bytes:
    name = next((f"m{n}" for n in range(300) if f"bearer {poll_token(SECRET, f'm{n}')}\r" in head), "")
    assert head.startswith("get /v1/head ")
    return http(200, msgspec.json.encode(HeadReply(name, 2, 3, 4)))


async def never(head: str) -> bytes:
    await asyncio.Event().wait()
    return b""


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[int]:
    """Serve one machine's answer; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await answer((await reader.readuntil(b"\r\n\r\n")).decode().lower()))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def fixed(status: int, body: bytes) -> Answer:
    async def answer(_: str) -> bytes:
        return http(status, body)

    return answer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may be slow to answer: only tests about waiting wait for less than everybody."""
    monkeypatch.setattr(preflight, "WAIT_SECONDS", 60.0)


async def test_each_is_asked_with_its_own_token() -> None:
    async with listening(well) as port:
        found = await ask_heads([record("m1", port), record("m2", port)], HttpTransport(SECRET, None))
    assert set(found) == {HeadReply("m1", 2, 3, 4), HeadReply("m2", 2, 3, 4)}


@pytest.mark.parametrize(
    "answer",
    [
        fixed(404, b'{"title":"","status":404,"detail":"a borglet has no GET /v1/head"}'),
        fixed(200, b"not json"),
        fixed(200, b'{"machine":"m1","timeline":-1,"epoch":0}'),
        fixed(200, b'{"machine":"other","timeline":9,"epoch":9}'),
        fixed(200, b"\xff" * 100),
    ],
)
async def test_what_is_no_answer_counts_for_nothing(answer: Answer) -> None:
    async with listening(answer) as bad, listening(well) as good:
        found = await ask_heads([record("m1", bad), record("m2", good)], HttpTransport(SECRET, None))
    assert found == (HeadReply("m2", 2, 3, 4),)


async def test_nobody_is_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(preflight, "WAIT_SECONDS_MAX", 0.05)
    async with listening(never) as silent:
        assert (
            await ask_heads([record("m1", silent), record("m2", silent)], HttpTransport(SECRET, None)) == ()
        )


async def test_half_of_them_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(preflight, "WAIT_SECONDS_MAX", 60.0)
    async with listening(never) as silent, listening(well) as good:
        machines = [record("m1", silent), record("m2", good)]
        async with asyncio.timeout(30):
            assert await ask_heads(machines, HttpTransport(SECRET, None)) == (HeadReply("m2", 2, 3, 4),)


async def test_of_many_some_are_asked() -> None:
    async with listening(well) as port:
        found = await ask_heads([record(f"m{n}", port) for n in range(250)], HttpTransport(SECRET, None))
    assert {reply.machine for reply in found} == {f"m{n}" for n in range(0, 250, 3)}
    assert len(found) <= preflight.ASKED_MAX


async def test_a_cell_without_machines_has_nobody_to_ask() -> None:
    assert await ask_heads([], HttpTransport(SECRET, None)) == ()
