"""How machines are reached: the protocol, and HTTP, an asyncio protocol on httptools with a few connections
for each machine.

HTTP is written by hand because a cell has thousands of these connections and each is held most of the time:
what a poll costs here is what a machine costs the master. So an exchange is neither a task nor a timer of
its own: whoever began it is called when it is over. Redirects are never followed, proxies never used. The
simulator has a transport of its own (``sim/network.py``).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, cast

import httptools
import msgspec

from borgish.cell.model import Machine
from borgish.credentials import poll_token
from borgish.errors import NotListening, Unreachable
from borgish.tls.names import machine_name

BODY_BYTES_MAX = 16 * 1024 * 1024
CONNECT_SECONDS_MAX = 2.0
HANDSHAKES_MAX = 64
"""At a time. Begun all together, as after a power cut, each would take longer than a poll may, and would be
begun again."""
HANDSHAKE_TURN_SECONDS = 0.5
"""After this long the next one may begin: a machine that says nothing holds nobody up."""
HEAD_SECONDS_MAX = 10.0  # until a stream begins; how long it goes on has no limit
DEADLINE_STEP_SECONDS = 0.1
"""Deadlines are looked at so often; an exchange may take so much longer than its time."""
_QUEUE_HIGH, _QUEUE_LOW = 64, 16


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes


class Exchange:
    """A request under way. ``done`` is called once, when its answer is there or why there is none; not by
    ``begin`` itself, and not after ``cancel``. ``told`` gives the error that is raised for another."""

    __slots__ = ("_done", "_outcome", "_told", "deadline", "give_up")

    def __init__(
        self, done: Callable[[], object], told: Callable[[Exception], Exception] = lambda error: error
    ) -> None:
        self._done: Callable[[], object] | None = done
        self._told = told
        self._outcome: Response | Exception | None = None
        self.deadline: dict[Exchange, float] | None = None  # those that end with it
        self.give_up: Callable[[], object] | None = None  # what lets go of the network

    @property
    def is_done(self) -> bool:
        """Whether there is an outcome."""
        return self._outcome is not None

    @property
    def result(self) -> Response:
        """The answer. Raises why there is none."""
        outcome = self._outcome
        if isinstance(outcome, Response):
            return outcome
        raise self._told(outcome) if outcome is not None else RuntimeError("this exchange is not over")

    def settle(self, outcome: Response | Exception) -> None:
        """Give it its outcome, unless it has one or was cancelled."""
        if (done := self._done) is not None:
            self._end(outcome)
            done()

    def fail(self, error: Exception) -> None:
        """End it from this side."""
        give_up = self.give_up
        self.settle(error)
        if give_up is not None:
            give_up()

    def cancel(self) -> None:
        """End it, where it is not over; nobody is called."""
        if self._done is not None:
            give_up = self.give_up
            self._end(None)
            if give_up is not None:
                give_up()

    def _end(self, outcome: Response | Exception | None) -> None:
        self._outcome, self._done, self.give_up = outcome, None, None
        if self.deadline is not None:
            self.deadline.pop(self, None)
            self.deadline = None


class Overdue(Exception):
    """An exchange took longer than it may."""


class Deadlines:
    """Ends exchanges that take too long. Those that are due in the same step share one timer: thousands are
    under way at any time, and hardly one needs it."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[Exchange, float]] = {}  # in order, with the seconds that each had

    def add(self, exchange: Exchange, seconds: float) -> None:
        """End an exchange after so many seconds, and at most a step more."""
        loop = asyncio.get_running_loop()
        step = int((loop.time() + seconds) / DEADLINE_STEP_SECONDS) + 1
        due = self._steps.get(step)
        if due is None:
            due = self._steps[step] = {}
            loop.call_at(step * DEADLINE_STEP_SECONDS, self._over, step)
        due[exchange] = seconds
        exchange.deadline = due

    def _over(self, step: int) -> None:
        for exchange, seconds in list(self._steps.pop(step).items()):
            exchange.fail(Overdue(f"{seconds:.1f} s"))


class Handshakes:
    """Has few handshakes of TLS go on at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(HANDSHAKES_MAX)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the handshake is over, but not for long."""
        await self._turns.acquire()
        over = asyncio.get_running_loop().call_later(HANDSHAKE_TURN_SECONDS, self._turns.release)
        try:
            yield
        finally:
            if asyncio.get_running_loop().time() < over.when():
                over.cancel()
                self._turns.release()


class Shared:
    """What all peers of one transport share."""

    def __init__(self) -> None:
        self.deadlines, self.handshakes = Deadlines(), Handshakes()


class Peer(Protocol):
    """One borglet, and the way to it."""

    host: str
    port: int

    def begin(self, path: str, body: bytes, timeout_seconds: float, done: Callable[[], object]) -> Exchange:
        """Send a body; ``done`` is called when the exchange is over. It fails with Unreachable, as ``post``
        does. Raises what ``permit`` raises, where that is known at once."""
        ...

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
        self._shared = Shared()

    def replace(self, tls: ssl.SSLContext, before: ssl.SSLContext | None = None) -> None:
        """Go by other contexts from the next connection on."""
        self._tls, self._before = tls, before

    def peer(self, record: Machine, permit: Callable[[], None] = lambda: None) -> "HttpPeer":
        token = poll_token(self._secret, record.name, record.admission)
        if not record.tls:
            return HttpPeer(record.host, record.port, token, None, permit, shared=self._shared)
        name = machine_name(record.name, self._cell) if self._cell else ""
        host, port = record.host, record.port
        return HttpPeer(
            host, port, token, lambda: self._tls, permit, name, lambda: self._before, self._shared
        )


class Connection(asyncio.Protocol):
    """One connection; one exchange, or one stream, at a time. The callbacks ``on_*`` are httptools'."""

    def __init__(self, peer: "HttpPeer") -> None:
        self.is_reusable = False  # true between two exchanges
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)  # of all that comes on it
        self._exchange: Exchange | None = None
        self._parts: list[bytes] = []
        self._bytes = 0
        self._status = 0
        self._is_complete = False  # the answer
        self._stream: _Stream | None = None

    @property
    def is_open(self) -> bool:
        """Whether something can be sent on it."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; what is not HTTP, or was not asked for, ends the connection."""
        if self._exchange is None and self._stream is None:
            self._end("said something that was not asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end("not HTTP")
            return
        # Not before the parser is done with it: who is told may send the next request at once.
        if self._is_complete and self._exchange is not None:
            self._answered(self._exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange that was going on, if any."""
        self._end(str(exc or "closed the connection"))

    def on_message_begin(self) -> None:
        """Begin an answer; one that follows another unasked has no place here."""
        if self._is_complete:
            raise ValueError("a second answer")

    def on_headers_complete(self) -> None:
        """Give the status to whoever asked."""
        self._status = self._parser.get_status_code()
        if self._stream is not None:
            self._stream.begin(self._status)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body. Of a stream, stop reading when the reader is behind."""
        if self._stream is not None:
            self._stream.put(body)
            return
        self._parts.append(body)
        self._bytes += len(body)
        if self._bytes > BODY_BYTES_MAX:
            self._end(f"answer over {BODY_BYTES_MAX} bytes")

    def on_message_complete(self) -> None:
        """End the answer; the connection may serve another exchange."""
        self._is_complete = True
        self.is_reusable = self._parser.should_keep_alive()
        if self._stream is not None:
            self._stream.end()

    def _answered(self, exchange: Exchange) -> None:
        self._exchange, parts, self._parts = None, self._parts, []
        self._peer.give_back(self)
        exchange.settle(Response(self._status, parts[0] if len(parts) == 1 else b"".join(parts)))

    def _end(self, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        self.close()
        if self._stream is not None:
            self._stream.end(reason)
        if exchange is not None:
            exchange.settle(ConnectionError(reason))

    def ask(self, request: bytes, exchange: Exchange) -> None:
        """Send a request, whose exchange gets the answer. Raises OSError."""
        self._send(request)
        self._exchange = exchange
        exchange.give_up = self.close

    def open_stream(self, request: bytes) -> "_Stream":
        """Send a request whose answer is read as it comes. Raises OSError."""
        transport = self._send(request)
        self._stream = _Stream(transport)
        return self._stream

    def _send(self, request: bytes) -> asyncio.Transport:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionError("connection is closed")
        self.is_reusable = self._is_complete = False
        self._bytes = 0
        transport.write(request)
        return transport

    def close(self) -> None:
        """Close at once."""
        self.is_reusable, self._exchange = False, None
        if self._transport is not None:
            self._transport.abort()


class _Stream:
    """An answer that is read as it comes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_paused = False

    def begin(self, status: int) -> None:
        """The status is there."""
        if not self.status.done():
            self.status.set_result(status)

    def put(self, body: bytes) -> None:
        """Queue a part of the body, and stop reading when the reader is behind."""
        self._chunks.put_nowait(body)
        if self._chunks.qsize() > _QUEUE_HIGH:
            self._transport.pause_reading()
            self._is_paused = True

    def end(self, reason: str = "") -> None:
        """No more comes; without a status, for this reason."""
        if not self.status.done():
            self.status.set_exception(ConnectionError(reason))
        self._chunks.put_nowait(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body of the answer as it comes."""
        while (chunk := await self._chunks.get()) is not None:
            if self._is_paused and self._chunks.qsize() < _QUEUE_LOW:
                self._transport.resume_reading()
                self._is_paused = False
            yield chunk


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
        shared: Shared | None = None,
    ) -> None:
        """``tls`` gives the context of each connection, None for one in clear. ``permit`` is called just
        before anything is sent, and raises when it may not be. ``tls_name`` is what its certificate has to
        name; "" means its host. ``before`` gives how it is known by its host, if by ``tls`` it is not.
        ``shared``: with other peers."""
        self._permit, self._before = permit, before
        self._tls_name = tls_name or None
        self.host = host
        self.port = port
        self._tls = tls
        self._head = (  # behind the path
            f" HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._idle: list[Connection] = []
        self._streams: set[Connection] = set()
        self._shared = shared or Shared()

    def begin(self, path: str, body: bytes, timeout_seconds: float, done: Callable[[], object]) -> Exchange:
        exchange = Exchange(done, self._told)
        request = self._request(b"POST", path, body)
        if (connection := self._reusable()) is not None:
            self._ask(
                connection, request, exchange
            )  # it is open, so this raises nothing but what ``permit`` does
        else:
            connecting = self._connect_and_ask(request, exchange)
            exchange.give_up = asyncio.get_running_loop().create_task(connecting).cancel
        self._shared.deadlines.add(exchange, timeout_seconds)
        return exchange

    async def post(self, path: str, body: bytes, timeout_seconds: float) -> Response:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        exchange = self.begin(path, body, timeout_seconds, partial(_set, over))
        try:
            await over
        finally:
            exchange.cancel()
        return exchange.result

    async def stream(self, path: str, body: bytes | None = None) -> AsyncIterator[Response]:
        request = self._request(b"GET" if body is None else b"POST", path, body or b"")
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                connection = self._reusable() or await self._connected()
                try:
                    self._permit()
                    stream = connection.open_stream(request)
                    status = await stream.status
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise self._told(Overdue(f"{HEAD_SECONDS_MAX:.0f} s")) from None
        except OSError as error:
            raise self._told(error) from None
        self._streams.add(connection)
        try:
            async for chunk in stream.chunks():
                yield Response(status, chunk)
        finally:
            self._streams.discard(connection)
            connection.close()

    def _request(self, method: bytes, path: str, body: bytes) -> bytes:
        return b"%b %b%b%d\r\n\r\n%b" % (method, path.encode(), self._head, len(body), body)

    def _ask(self, connection: Connection, request: bytes, exchange: Exchange) -> None:
        try:
            self._permit()
            connection.ask(request, exchange)
        except BaseException:
            connection.close()
            raise

    async def _connect_and_ask(self, request: bytes, exchange: Exchange) -> None:
        try:
            self._ask(await self._connected(), request, exchange)
        except Exception as error:  # is raised to whoever asks for the result
            exchange.settle(error)

    def _told(self, error: Exception) -> Exception:
        """Return an error of the network as what it says of the borglet."""
        where = f"{self.host}:{self.port}"
        if isinstance(error, Overdue):
            return Unreachable(f"no answer from {where} in {error}")
        if isinstance(error, TimeoutError):
            return Unreachable(f"no connection to {where} in {CONNECT_SECONDS_MAX:.1f} s")
        if isinstance(error, ConnectionRefusedError):
            return NotListening(f"{where}: connection refused")
        return Unreachable(f"{where}: {error}") if isinstance(error, OSError) else error

    def _reusable(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.is_open:
                return connection
        return None

    async def _connected(self) -> Connection:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            context = self._tls() if self._tls else None
            try:
                return await self._connected_by(context, self._tls_name)
            except ssl.SSLCertVerificationError:
                if (before := self._before()) is None:
                    raise
                return await self._connected_by(before, None)

    async def _connected_by(self, context: ssl.SSLContext | None, name: str | None) -> Connection:
        loop = asyncio.get_running_loop()
        plain, made = await loop.create_connection(lambda: Connection(self), self.host, self.port)
        if context is not None:
            try:
                async with self._shared.handshakes.turn():
                    shown = name or self.host
                    secure = await loop.start_tls(plain, made, context, server_hostname=shown)
            except BaseException:
                plain.abort()
                raise
            if secure is None:
                raise ConnectionError("closed the connection")
            made.connection_made(secure)
        return made

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next exchange, if it can be used."""
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


def _set(over: "asyncio.Future[None]") -> None:
    if not over.done():  # whoever waited for it may have been cancelled
        over.set_result(None)
