"""Connections that people have carried to a port of a task."""

import asyncio

from borgish.borglet.ports import Connect
from borgish.borglet.runtimes.base import Input, Write
from borgish.errors import Unreachable

PIECE_BYTES = 64 * 1024
CONNECT_SECONDS_MAX = 5.0
REST_SECONDS = 60.0
"""How long a program may be silent once nothing more comes to it: who is gone looks like who only listens."""


async def forward(port: int, connect: Connect, stdin: Input, write: Write) -> None:
    """Carry what comes from ``stdin`` to a port of this machine, and what comes from there to ``write``,
    until the program ends the connection. Raises Unreachable where nothing listens."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            reader, writer = await connect(port, PIECE_BYTES)
    except OSError as error:  # a time limit is one
        reason = error.strerror or "no answer in time"
        raise Unreachable(f"nothing listens on its port {port}: {reason.lower()}") from None
    feeding = asyncio.create_task(_feed(stdin, writer))
    try:
        while data := await _read(reader, feeding):
            await write(data)
    except OSError as error:
        raise Unreachable(f"its port {port} broke the connection off: {error}") from None
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        stdin.close()
        writer.close()


async def _read(reader: asyncio.StreamReader, feeding: "asyncio.Task[None]") -> bytes:
    """Return some of what the program sends; b"" at its end, or when it is silent for long after ours."""
    reading = asyncio.ensure_future(reader.read(PIECE_BYTES))
    try:
        await asyncio.wait({reading, feeding}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({reading}, timeout=REST_SECONDS)
        return reading.result() if reading.done() else b""
    finally:
        reading.cancel()


async def _feed(stdin: Input, writer: asyncio.StreamWriter) -> None:
    async for data in stdin.pieces():
        writer.write(data)
        await writer.drain()
    writer.write_eof()
