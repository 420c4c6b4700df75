"""What is passed to a command's standard input: taken in pieces, no faster than the command reads."""

import asyncio
from collections.abc import AsyncIterator

from borgish.errors import Conflict
from borgish.wire.link import StdinReply


class Stdin:
    """One command's input. ``put`` is for who has it, ``pieces`` and ``close`` for who runs the command.

    At most one piece waits here and one is being written, so that memory is bounded whatever is sent.
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()  # the command has begun and can read
        self._waiting: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(1)
        self._one_puts = asyncio.Lock()
        self._received = 0
        self._ended = False
        self._closed = False

    async def put(self, offset: int, data: bytes, wait_seconds: float, *, end: bool) -> StdinReply:
        """Take a piece that begins at ``offset``, and return how much was taken so far.

        That may be less than the piece brings when the command does not read in ``wait_seconds``: it is to
        be sent again. What is sent twice is taken once. Raises Conflict for a piece too far ahead.
        """
        async with self._one_puts:
            if offset > self._received:
                raise Conflict(f"input was taken up to byte {self._received}, not up to {offset}")
            rest = data[self._received - offset :]
            if (rest or end) and not (self._ended or self._closed):
                try:
                    async with asyncio.timeout(wait_seconds):
                        await self._waiting.put((rest, end))
                except TimeoutError:
                    return self._reply()
                self._received += len(rest)
                self._ended = end
            return self._reply()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the input as it comes, to its end."""
        self.wanted.set()
        end = False
        while not end:
            data, end = await self._waiting.get()
            if data:
                yield data

    def close(self) -> None:
        """Take no more: the command has ended, or closed its input."""
        self._closed = True
        if not self._waiting.empty():  # whoever waits to put is let go
            self._waiting.get_nowait()

    def _reply(self) -> StdinReply:
        return StdinReply(self._received, self._ended, self._closed)
