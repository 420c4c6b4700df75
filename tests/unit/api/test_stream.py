import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from borgish.api import watch
from borgish.api.services import WatchMessage
from borgish.api.watch import pieces
from borgish.errors import Gone
from borgish.wire.api import Problem


async def messages(count: int, error: Exception | None = None) -> AsyncIterator[WatchMessage]:
    for number in range(count):
        yield WatchMessage(f"1.{number}", "event", b"%d" % number)
    if error:
        raise error


async def test_what_came_meanwhile_is_one_piece() -> None:
    assert [piece async for piece in pieces(messages(2))] == [
        b": alive\n\n",
        b"id: 1.0\nevent: event\ndata: 0\n\nid: 1.1\nevent: event\ndata: 1\n\n",
    ]


async def test_a_watch_that_breaks_off_says_why() -> None:
    *_, last = [piece async for piece in pieces(messages(1, Gone("too slow", "read anew")))]
    data = last.split(b"event: gone\ndata: ")[1]
    assert msgspec.json.decode(data, type=Problem).hint == "read anew"


async def test_what_nobody_foresaw_breaks_the_stream() -> None:
    with pytest.raises(ZeroDivisionError):
        async for _ in pieces(messages(1, ZeroDivisionError())):
            pass


async def test_a_silent_watch_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_SECONDS", 0.01)
    silence = asyncio.Event()

    async def silent() -> AsyncIterator[WatchMessage]:
        await silence.wait()
        yield WatchMessage("1.0", "event", b"0")

    stream = pieces(silent())
    assert [await anext(stream) for _ in range(3)] == [b": alive\n\n"] * 3
    silence.set()
    rest = b"".join([piece async for piece in stream])
    assert rest.endswith(b"id: 1.0\nevent: event\ndata: 0\n\n")


async def test_a_reader_that_does_not_read_holds_a_bounded_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PIECES_WAITING_MAX", 10)
    taken = 0

    async def many() -> AsyncIterator[WatchMessage]:
        nonlocal taken
        async for message in messages(1000):
            taken += 1
            yield message

    stream = pieces(many())
    await anext(stream)
    for _ in range(100):
        await asyncio.sleep(0)
    assert taken == 10
    total = b"".join([piece async for piece in stream])
    assert total.count(b"id: ") == 1000
