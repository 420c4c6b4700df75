"""Streams whose first piece may be an error: that is then the answer, and not a stream that breaks off."""

import asyncio
from collections.abc import AsyncIterator

FIRST_PIECE_SECONDS = 1.0


async def begun(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Wait a moment for the first piece, so that what is in its way can still be answered as an error."""
    first = asyncio.create_task(_next(pieces))
    await asyncio.wait({first}, timeout=FIRST_PIECE_SECONDS)
    if first.done():
        first.result()
    return _from(first, pieces)


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces, b"")


async def _from(first: asyncio.Task[bytes], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield await first
        async for piece in pieces:
            yield piece
    finally:
        first.cancel()
