import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec
import pytest

from borgish.api.routes import watch
from borgish.api.routes.watch import pieces
from borgish.api.services import WatchBatch, WatchMessage
from borgish.errors import Gone
from borgish.wire.api import Problem


def batch(first: int, count: int) -> WatchBatch:
    numbers = range(first, first + count)
    return WatchBatch([WatchMessage(f"1.{number}", "event", b"%d" % number) for number in numbers])


async def batches(count: int, error: Exception | None = None) -> AsyncGenerator[WatchBatch, None]:
    for first in range(0, 2 * count, 2):
        yield batch(first, 2)
    if error:
        raise error


async def test_what_came_together_is_one_piece() -> None:
    assert [piece async for piece in pieces(batches(2))] == [
        b": alive\n\n",
        b"id: 1.0\nevent: event\ndata: 0\n\nid: 1.1\nevent: event\ndata: 1\n\n",
        b"id: 1.2\nevent: event\ndata: 2\n\nid: 1.3\nevent: event\ndata: 3\n\n",
    ]


def test_a_batch_is_encoded_once() -> None:
    shared = batch(0, 3)
    assert shared.encoded() is shared.encoded()


async def test_a_watch_that_breaks_off_says_why() -> None:
    *_, last = [piece async for piece in pieces(batches(1, Gone("too slow", "read anew")))]
    data = last.split(b"event: gone\ndata: ")[1]
    assert msgspec.json.decode(data, type=Problem).hint == "read anew"


async def test_what_nobody_foresaw_breaks_the_stream() -> None:
    with pytest.raises(ZeroDivisionError):
        async for _ in pieces(batches(1, ZeroDivisionError())):
            pass


async def test_a_silent_watch_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_SECONDS", 0.01)
    silence = asyncio.Event()

    async def silent() -> AsyncGenerator[WatchBatch, None]:
        await silence.wait()
        yield batch(0, 1)

    stream = pieces(silent())
    assert [await anext(stream) for _ in range(3)] == [b": alive\n\n"] * 3
    silence.set()
    rest = b"".join([piece async for piece in stream])
    assert rest.endswith(b"id: 1.0\nevent: event\ndata: 0\n\n")


async def test_nothing_is_taken_for_a_reader_that_does_not_read() -> None:
    taken = 0

    async def many() -> AsyncGenerator[WatchBatch, None]:
        nonlocal taken
        async for each in batches(100):
            taken += 1
            yield each

    stream = pieces(many())
    await anext(stream)
    await anext(stream)
    for _ in range(100):
        await asyncio.sleep(0)
    assert taken == 1
    total = b"".join([piece async for piece in stream])
    assert total.count(b"id: ") == 198


@pytest.mark.parametrize("taken", [1, 2, 3])
async def test_a_reader_that_leaves_is_counted_no_more(taken: int) -> None:
    reading = 0

    async def followed() -> AsyncGenerator[WatchBatch, None]:
        nonlocal reading
        reading += 1
        try:
            yield batch(0, 1)
            await asyncio.Event().wait()
        finally:
            reading -= 1

    stream = pieces(followed())
    for _ in range(min(taken, 2)):
        await anext(stream)
    assert reading == (taken > 1)
    if taken == 3:  # it leaves while nothing comes
        waiting = asyncio.create_task(_anext(stream))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})
    await stream.aclose()
    assert reading == 0


async def _anext(stream: AsyncIterator[bytes]) -> bytes:
    return await anext(stream)
