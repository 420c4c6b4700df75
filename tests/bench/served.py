"""Simulated machines on real sockets: a small HTTP server for each, speaking ``POST /v1/poll``.

All of them live in one thread beside the bench, so that a real borgmaster has a large cell to lead.
"""

import asyncio
import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from borgish.clock import SystemClock
from borgish.tls.https import MasterConnection
from borgish.wire.link import JoinRequest, PollRequest
from tests.bench.borglets import BOOT, FACTS, InstantBorglet

READY_SECONDS_MAX = 60.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PollRequest).decode


class Secure(NamedTuple):
    """How stand-ins of a cell with an authority know its master, and how each machine is called."""

    trust: ssl.SSLContext
    listener: Callable[[str], ssl.SSLContext]


class ServedBorglet:
    """One machine. Holds a poll for as long as it is allowed, or until the next one overtakes it."""

    def __init__(self, name: str, borglet: InstantBorglet | None = None) -> None:
        self.name = name
        self._borglet = borglet or InstantBorglet(name, SystemClock())
        self._overtaken = asyncio.Event()

    async def open(self, secure: "Secure | None" = None) -> tuple[asyncio.Server, JoinRequest]:
        """Listen on a free port; return the server and what joins it to a cell."""
        context = secure.listener(self.name) if secure else None
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        port, instance = server.sockets[0].getsockname()[1], self._borglet.core.instance
        return server, JoinRequest(
            self.name, "127.0.0.1", port, BOOT, instance, FACTS, tls=context is not None
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                body = await self._answer(_decode(await _body(reader)))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the master has let go, or the bench is over; nobody waits for this
        except msgspec.DecodeError:
            return  # it was no poll; an older borglet has no other answer either
        finally:
            writer.close()

    async def _answer(self, request: PollRequest) -> bytes:
        self._overtaken.set()
        self._overtaken = mine = asyncio.Event()
        self._borglet.take(request)
        if request.wait_seconds and not self._borglet.core.differs(request):
            try:
                async with asyncio.timeout(request.wait_seconds):
                    await mine.wait()
            except TimeoutError:
                pass
        return _encode(self._borglet.core.reply(request, self._borglet.usage()))


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))


@contextmanager
def served_borglets(master: str, join_token: str, count: int, secure: Secure | None = None) -> Iterator[None]:
    """Have so many machines in the cell of the master at ``master`` (host:port)."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="borglets", daemon=True)
    thread.start()
    try:
        borglets = [ServedBorglet(f"m{number}") for number in range(1, count + 1)]
        for borglet in borglets:
            opened = asyncio.run_coroutine_threadsafe(borglet.open(secure), loop)
            _, request = opened.result(READY_SECONDS_MAX)
            join_master(master, join_token, request, secure)
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        close_loop(loop)


def join_master(master: str, token: str, request: JoinRequest, secure: Secure | None = None) -> None:
    """Have a machine join the cell of the master at ``master`` (host:port)."""
    connection = http.client.HTTPConnection(master, timeout=READY_SECONDS_MAX)
    if secure:
        connection = MasterConnection(connection.host, connection.port, READY_SECONDS_MAX, secure.trust)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/machines", _encode(request), headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    if answer.status not in (200, 201):
        raise RuntimeError(f"{request.machine} may not join: {answer.status} {said!r}")


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """End what still waits, then the loop."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
