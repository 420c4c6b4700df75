"""Input of a command: taken once, in order, no faster than it is read."""

import asyncio

import pytest

from borgish.borglet.runtimes.process.commands import Stdin
from borgish.errors import Conflict
from borgish.wire.link import StdinReply

AT_ONCE = 0.0
PATIENCE_SECONDS = 60.0


async def read_all(stdin: Stdin) -> bytes:
    return b"".join([piece async for piece in stdin.pieces()])


async def test_pieces_come_in_order_to_the_end() -> None:
    stdin = Stdin()
    reading = asyncio.create_task(read_all(stdin))
    assert await stdin.put(0, b"one ", PATIENCE_SECONDS, end=False) == StdinReply(4)
    assert await stdin.put(4, b"two", PATIENCE_SECONDS, end=True) == StdinReply(7, ended=True)
    assert await reading == b"one two"


async def test_nothing_but_the_end() -> None:
    stdin = Stdin()
    assert await stdin.put(0, b"", PATIENCE_SECONDS, end=True) == StdinReply(0, ended=True)
    assert await read_all(stdin) == b""


async def test_a_command_that_does_not_read_holds_back_all_but_one_piece() -> None:
    stdin = Stdin()
    assert await stdin.put(0, b"one", PATIENCE_SECONDS, end=False) == StdinReply(3)
    assert await stdin.put(3, b"two", AT_ONCE, end=True) == StdinReply(3)
    reading = asyncio.create_task(read_all(stdin))
    assert await stdin.put(3, b"two", PATIENCE_SECONDS, end=True) == StdinReply(6, ended=True)
    assert await reading == b"onetwo"


async def test_what_is_sent_twice_is_taken_once() -> None:
    stdin = Stdin()
    reading = asyncio.create_task(read_all(stdin))
    await stdin.put(0, b"one", PATIENCE_SECONDS, end=False)
    assert await stdin.put(0, b"one", PATIENCE_SECONDS, end=False) == StdinReply(3)
    assert await stdin.put(0, b"one two", PATIENCE_SECONDS, end=True) == StdinReply(7, ended=True)
    assert await stdin.put(0, b"one two", PATIENCE_SECONDS, end=True) == StdinReply(7, ended=True)
    assert await reading == b"one two"


async def test_a_piece_that_is_too_far_ahead_is_refused() -> None:
    with pytest.raises(Conflict, match="up to byte 0, not up to 5"):
        await Stdin().put(5, b"x", AT_ONCE, end=False)


async def test_whoever_waits_is_told_that_the_command_ended() -> None:
    stdin = Stdin()
    await stdin.put(0, b"one", PATIENCE_SECONDS, end=False)
    waiting = asyncio.create_task(stdin.put(3, b"two", PATIENCE_SECONDS, end=False))
    await asyncio.sleep(0)  # it waits now: nothing comes between in this loop
    stdin.close()
    assert (await waiting).closed
    assert (await stdin.put(3, b"two", AT_ONCE, end=True)).closed
