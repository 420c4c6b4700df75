"""A watcher is stalled while it takes no piece, and not while there is none."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from borgish.api.routes import watch

PIECES = [b"a", b"b", b"c"]


async def pass_turns() -> None:
    """Let whatever is due in the loop happen."""
    for _ in range(3):
        await asyncio.sleep(0)


async def stream() -> AsyncGenerator[bytes, None]:
    for piece in PIECES:
        await pass_turns()
        yield piece


@pytest.mark.parametrize("is_slow", [False, True])
async def test_only_who_does_not_take_what_there_is(is_slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STALLED_SECONDS_MAX", 0.0)
    aborted, taken = list[bool](), list[bytes]()
    async for piece in watch.unless_stalled(stream(), lambda: aborted.append(True)):
        taken.append(piece)
        if is_slow:
            await pass_turns()
    assert taken == PIECES
    assert aborted == [True] * len(PIECES) * is_slow
