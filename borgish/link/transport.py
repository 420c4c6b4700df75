"""How machines are reached: the protocol, and HTTP, an asyncio protocol on httptools with a few connections
for each machine.

HTTP is written by hand because a cell has thousands of these connections and each is held most of the time:
what a poll costs here is what a machine costs the master. Redirects are never followed, proxies never used.
The simulator has a transport of its own (``sim/network.py``).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Protocol, cast

import httptools
import msgspec

from borgish.cell.model import Machine
from borgish.credentials import poll_token
from borgish.errors import NotListening, Unreachable
from borgish.tls.names import machine_name

BODY_BYTES_MAX = 16 * 1024 * 1024
CONNECT_SECONDS_MAX = 2.0
HEAD_SECONDS_MAX = 10.0  # until a stream begins; how long it goes on has no limit
_QUEUE_HIGH, _QUEUE_LOW = 64, 16


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes


class Peer(Protocol):
    """One borglet, and the way to it."""

    host: str
    port: int

    async def post(self, path: str, body: bytes, timeout_seconds: float) -> Response:
        """Send a body, return the whole answer. Raises Unreachable; NotListening, which is one, when the
        connection was refused."""
        ...

    def stream(self, path: str, body: bytes | None = None) -> AsyncIterator[Response]:
        """Yield the answer to a GET, or a POST of a body, in parts with the status. Raises Unreachable."""
        ...

    def close(self) -> None:
        """Close what is idle. Exchanges under way end by their own time limits."""
        ...

    def cut(self) -> None:
        """End streams under way at once."""
        ...


class Transport(Protocol):
    """Makes peers. ``permit`` is called just before anything is sent, and raises when it may not be."""

    def peer(self, record: Machine, permit: Callable[[], None] = lambda: None) -> Peer:
        """Return the way to a machine's borglet, where its record says that it is."""
        ...


class HttpTransport:
    """Reaches borglets by HTTP: with the cell's ``secret``, of which their tokens are made, and by ``tls``
    those that joined with it. They are known by their names in the ``cell`` whose own authority signs them,
    and by their hosts where it is an operator's. ``before`` is for those that still are known so in a cell
    that has an authority of its own by now."""

    def __init__(
        self, secret: str, tls: ssl.SSLContext | None, cell: str = "", before: ssl.SSLContext | None = None
    ) -> None:
        self._secret, self._tls, self._cell, self._before = secret, tls, cell, before

    def replace(self, tls: ssl.SSLContext, before: ssl.SSLContext | None = None) -> None:
        """Go by other contexts from the next connection on."""
        self._tls, self._before = tls, before

    def peer(self, record: Machine, permit: Callable[[], None] = lambda: None) -> "HttpPeer":
        token = poll_token(self._secret, record.name, record.admission)
        if not record.tls:
            return HttpPeer(record.host, record.port, token, None, permit)
        name = machine_name(record.name, self._cell) if self._cell else ""
        host, port = record.host, record.port
        return HttpPeer(host, port, token, lambda: self._tls, permit, name, lambda: self._before)


class Connection(asyncio.Protocol):
    """One connection; one exchange at a time. The callbacks ``on_*`` are httptools'."""

    def __init__(self) -> None:
        self.is_reusable = False  # true between two exchanges
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._head: asyncio.Future[int] | None = None
        self._bytes = 0
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; what is not HTTP ends the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end("not HTTP")

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange that was going on, if any."""
        self._end(str(exc or "closed the connection"))

    def on_headers_complete(self) -> None:
        """Give the status to whoever asked."""
        if self._head is not None and not self._head.done():
            self._head.set_result(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        """Queue a part of the body, and stop reading when the reader is behind."""
        self._bytes += len(body)
        self._chunks.put_nowait(body)
        if self._chunks.qsize() > _QUEUE_HIGH and self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True

    def on_message_complete(self) -> None:
        """End the exchange; the connection may serve another."""
        self.is_reusable = self._parser.should_keep_alive()
        self._chunks.put_nowait(None)

    def _end(self, reason: str) -> None:
        self.is_reusable = False
        if self._head is not None and not self._head.done():
            self._head.set_exception(ConnectionError(reason))
        self._chunks.put_nowait(None)
        self.close()

    async def ask(self, head: bytes, body: bytes) -> int:
        """Send a request and return the status of its answer. Raises OSError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("connection is closed")
        self.is_reusable = False
        self._head = asyncio.get_running_loop().create_future()
        self._chunks = asyncio.Queue()
        self._bytes = 0
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(head + body)
        return await self._head

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body of the answer as it comes."""
        while (chunk := await self._chunks.get()) is not None:
            if self._is_paused and self._chunks.qsize() < _QUEUE_LOW and self._transport is not None:
                self._transport.resume_reading()
                self._is_paused = False
            yield chunk

    async def body(self) -> bytes:
        """Return the whole body. Raises OSError when it is over the limit."""
        parts = []
        async for chunk in self.chunks():
            parts.append(chunk)
            if self._bytes > BODY_BYTES_MAX:
                self.close()
                raise ConnectionError(f"answer over {BODY_BYTES_MAX} bytes")
        return b"".join(parts)

    def close(self) -> None:
        """Close at once."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()


class HttpPeer:
    """One borglet: where it is, the token it wants, and the idle connections to it."""

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        tls: Callable[[], ssl.SSLContext | None] | None,
        permit: Callable[[], None] = lambda: None,
        tls_name: str = "",
        before: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """``tls`` gives the context of each connection, None for one in clear. ``permit`` is called just
        before anything is sent, and raises when it may not be. ``tls_name`` is what its certificate has to
        name; "" means its host. ``before`` gives how it is known by its host, if by ``tls`` it is not."""
        self._permit, self._before = permit, before
        self._tls_name = tls_name or None
        self.host = host
        self.port = port
        self._tls = tls
        self._head = (
            f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        )
        self._idle: list[Connection] = []
        self._streams: set[Connection] = set()

    async def post(self, path: str, body: bytes, timeout_seconds: float) -> Response:
        try:
            async with asyncio.timeout(timeout_seconds):
                connection, status = await self._exchange("POST", path, body)
                try:
                    return Response(status, await connection.body())
                finally:
                    self._give_back(connection)
        except TimeoutError:
            raise Unreachable(f"no answer from {self.host}:{self.port} in {timeout_seconds:.1f} s") from None
        except ConnectionRefusedError:
            raise NotListening(f"{self.host}:{self.port}: connection refused") from None
        except OSError as error:
            raise Unreachable(f"{self.host}:{self.port}: {error}") from None

    async def stream(self, path: str, body: bytes | None = None) -> AsyncIterator[Response]:
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                method = "GET" if body is None else "POST"
                connection, status = await self._exchange(method, path, body or b"")
        except TimeoutError:
            raise Unreachable(f"no answer from {self.host}:{self.port} in {HEAD_SECONDS_MAX:.0f} s") from None
        except OSError as error:
            raise Unreachable(f"{self.host}:{self.port}: {error}") from None
        self._streams.add(connection)
        try:
            async for chunk in connection.chunks():
                yield Response(status, chunk)
        finally:
            self._streams.discard(connection)
            connection.close()

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[Connection, int]:
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode()
        connection = await self._connection()
        try:
            self._permit()
            return connection, await connection.ask(head, body)
        except BaseException:
            connection.close()
            raise

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            context = self._tls() if self._tls else None
            try:
                return await self._connected(context, self._tls_name)
            except ssl.SSLCertVerificationError:
                if (before := self._before()) is None:
                    raise
                return await self._connected(before, None)

    async def _connected(self, context: ssl.SSLContext | None, name: str | None) -> Connection:
        _, made = await asyncio.get_running_loop().create_connection(
            Connection, self.host, self.port, ssl=context, server_hostname=name if context else None
        )
        return made

    def _give_back(self, connection: Connection) -> None:
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def cut(self) -> None:
        for connection in list(self._streams):
            connection.close()
