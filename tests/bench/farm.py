"""All machines of a cell as one server in a process of its own, which knows them apart by their tokens."""

import asyncio
import multiprocessing
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec
import uvloop

from borgish.credentials import poll_token
from borgish.wire.link import HeadReply
from tests.bench.cli import MIB

FORKED = multiprocessing.get_context("fork")


class Farm(ABC):
    """The machines. ``count`` is of what the one or other kind of them counts, and is read from outside."""

    def __init__(self, names: Iterable[str], secret: str) -> None:
        self.count = FORKED.Value("q", 0)
        self._names = {poll_token(secret, name).encode(): name for name in names}

    @abstractmethod
    async def answer(self, name: str, asked: bytes) -> bytes:
        """Return the answer of a machine to the body of a poll."""

    @contextmanager
    def running(self, listening: socket.socket) -> Iterator[int]:
        """Have the machines answer at a socket, which is closed behind them; the id is of their process."""
        process = FORKED.Process(target=lambda: uvloop.run(self._serve(listening)), daemon=True)
        process.start()
        try:
            yield process.pid or 0
        finally:
            process.kill()
            process.join()
            listening.close()

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._talk, sock=listening, limit=64 * MIB)
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, _, token = head.partition(b"Authorization: Bearer ")
                name = self._names[token.partition(b"\r\n")[0]]
                if head.startswith(b"GET /v1/head"):
                    body = msgspec.json.encode(HeadReply(name, 1, 0))
                else:
                    _, _, length = head.lower().partition(b"content-length:")
                    body = await self.answer(
                        name, await reader.readexactly(int(length.partition(b"\r\n")[0]))
                    )
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the master is gone
        finally:
            writer.close()
