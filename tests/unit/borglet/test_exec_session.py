"""A command that is given up when nothing is heard of who began it."""

import asyncio

import pytest

from borgish.borglet.server import Session
from borgish.errors import Unreachable
from borgish.wire.link import ExecReply


async def test_input_that_comes_after_the_end_disturbs_nobody() -> None:
    session = Session(60.0)
    work: asyncio.Future[ExecReply] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(session.unless_silent(work))
    await asyncio.sleep(0)
    session.hear()
    work.set_result(ExecReply(b"", 0))
    assert (await waiting).exit_code == 0
    session.hear()


async def test_silence_ends_it() -> None:
    session = Session(0.01)
    work: asyncio.Future[ExecReply] = asyncio.get_running_loop().create_future()
    with pytest.raises(Unreachable, match="nothing was heard"):
        await session.unless_silent(work)
    session.hear()
