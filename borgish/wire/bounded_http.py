"""HTTP as both daemons receive it: uvicorn's, with an end to all that a caller could go on with for ever.

A caller without a token gets this far, so nothing here may grow with what it sends: neither the head
of a request nor what follows a body, and no connection stays open for one that never finishes asking.
What is refused here is refused as problem details, like everything else.
"""

import asyncio
import contextlib
import ipaddress
import re
import resource
import select
import socket
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from borgish.addresses import is_loopback
from borgish.tls.names import PEER, Peer, peer_of
from borgish.wire.api import Problem

HANDSHAKE_SECONDS_MAX = 10.0
"""Of TLS: a caller that says nothing holds a connection no longer. asyncio would wait for a minute."""
HANDSHAKES_MAX = 64
"""At a time; the others wait, and the newest of them is next. Of thousands that come at once, as machines
after a power cut, none would else be over before its caller gives up and comes again."""
HANDSHAKE_TURN_SECONDS = 0.5
"""After this long the next one may begin: who stops in the middle of one holds up nobody."""
HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 20.0
BODY_SECONDS_MAX = 60.0

UNAUTHENTICATED_OF_ADDRESS = 100
HURRIED_SECONDS_MAX = 5.0
_HURRIED = 25  # for each stranger of an address that has the time of a head
_ACCEPTED_AT_ONCE = 512  # of a crowd: what the kernel keeps has an order, and others wait behind it
_TAKEN_AT_ONCE = 32
_READ_AT_ONCE = 16  # of what strangers send: the event loop delivers all that is readable in one round
_NOT_ACCEPTING_SECONDS = 0.1
_PEEKED_BYTES = 2048
_AUTHORIZATION = re.compile(rb"\r\nauthorization:([^\r]*)\r\n", re.IGNORECASE)

T = TypeVar("T")

ON_AUTHENTICATED = "borgish.on_authenticated"
"""The key in the state of a request's scope: to be called where its token is valid."""
LOSS = "borgish.loss"
"""The key in the state of a request's scope: the ``Loss`` of its connection."""
_ABORT = "borgish.abort"


class Loss:
    """Of a connection: whether it ``happened``, and what is called then. Apart from the connection, which the
    scope of a request would keep."""

    happened = False
    call: Callable[[], None] | None = None


def abort_of(scope: Any) -> Callable[[], None]:
    """Return what closes the connection of a request at once, with what was not sent yet; of a request that
    came by none of these, nothing."""
    method: weakref.WeakMethod[Callable[[], None]] | None = scope.get("state", {}).get(_ABORT)

    def abort() -> None:
        if method is not None and (there := method()) is not None:
            there()

    return abort


async def cut_off(scope: Any, receive: Callable[[], Awaitable[Any]]) -> None:
    """Close the connection of a request at once, and wait until it is closed: while it is open, uvicorn takes
    an answer that ends without its end mark for a mistake of the app."""
    if _ABORT in scope.get("state", {}):
        abort_of(scope)()
        while (await receive())["type"] != "http.disconnect":
            pass


class UnauthenticatedConnections:
    """The connections that have shown neither a valid token yet nor a certificate of the cell.

    Everybody comes as one, and thousands of clients may come from one address at once. So those of an
    address that are too many (``of_address``) are closed only if they do not soon say who they are. When
    they are very many, or take too much of the descriptors, the oldest is closed for each that comes: who
    means to ask does so at once.
    """

    def __init__(self, of_address: int = UNAUTHENTICATED_OF_ADDRESS) -> None:
        self.of_address = of_address
        # They have at most a quarter of the descriptors, and with them all connections three quarters: polls
        # of machines, the store and files always find one. One address leaves half of the quarter to others.
        self._descriptors, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._all: dict[BoundedHttp, None] = {}  # the oldest first, like those of each source
        self._by_source: dict[str, dict[BoundedHttp, None]] = {}
        self._unread = _Arrivals[tuple[BoundedHttp, bytes]]()
        self._may_read, self._is_reading = _READ_AT_ONCE, False

    def has_room(self, connections: int) -> bool:
        """Return whether there is room for one more than so many connections of all."""
        return connections < self._descriptors // 2

    @property
    def accepted_at_once(self) -> int:
        """How many to accept before anything else is done: where so many would close the connections of those
        before them, who then come again, only as many as are taken meanwhile."""
        has_room = len(self._all) + _ACCEPTED_AT_ONCE <= self._of_source_max
        return _ACCEPTED_AT_ONCE if has_room else _TAKEN_AT_ONCE

    @property
    def _of_source_max(self) -> int:
        return min(_HURRIED * self.of_address, self._descriptors // 8)

    def add(self, one: "BoundedHttp", source: str) -> float:
        """Count one, and return for how many seconds it may be unauthenticated."""
        there = self._by_source.setdefault(source, {})
        if len(there) >= self._of_source_max:
            next(iter(there)).abort()
        elif len(self._all) >= self._descriptors // 4:
            next(iter(self._all)).abort()
        self._all[one] = self._by_source.setdefault(source, {})[one] = None
        return HEAD_SECONDS_MAX if len(there) <= self.of_address else HURRIED_SECONDS_MAX

    def remove(self, one: "BoundedHttp", source: str) -> None:
        """Count one less: it is closed, or authenticated."""
        del self._all[one], self._by_source[source][one]
        if not self._by_source[source]:
            del self._by_source[source]

    def read(self, one: "BoundedHttp", source: str, data: bytes) -> None:
        """Have one read what it sent: a few in each round of the loop, and the others when it is their turn.
        So those who are known are read first, however many strangers send at once."""
        if len(data) > HEAD_BYTES_MAX:  # to keep it for thousands would be hundreds of MiB
            one.read(data)
        elif self._may_read and not self._unread:
            self._may_read -= 1
            one.read(data)
            self._read_soon()
        else:
            one.transport.pause_reading()
            self._unread.add((one, data), source, _credentials(data))
            self._read_soon()

    def _read_soon(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read_some)

    def _read_some(self) -> None:
        self._is_reading, self._may_read = False, _READ_AT_ONCE
        while self._may_read and self._unread:
            one, data = self._unread.next()
            self._may_read -= 1
            one.go_on(data)
        if self._may_read < _READ_AT_ONCE:  # a round of its own sets it back
            self._read_soon()


class BoundedHttp(HttpToolsProtocol):
    """One connection. Bytes that are neither body nor complete a head or a message are counted.

    Whom the certificate of its caller names is in the state of each request's scope, as ``PEER``.
    """

    _peer: Peer | None = None
    _loose_bytes = 0
    _got_on = False
    _deadline: asyncio.TimerHandle | None = None
    _strangers: UnauthenticatedConnections | None = None  # that it is one of
    _source = ""
    _seconds = HEAD_SECONDS_MAX
    _socket: socket.socket
    _loss: Loss

    def add_to(self, strangers: UnauthenticatedConnections, source: str, connection: socket.socket) -> None:
        """Be unauthenticated, with one deadline for all that is asked until that ends."""
        self._strangers, self._source, self._socket = strangers, source, connection
        self._seconds = strangers.add(self, source)

    def leave(self) -> None:
        """Be unauthenticated no more."""
        if self._strangers is not None:
            self._strangers.remove(self, self._source)
            self._strangers = None

    def abort(self) -> None:
        """Close the connection, whatever it is at."""
        self.leave()
        if self.transport is not None:
            self.transport.abort()
        else:  # what is about to read it finds its end
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def connection_made(self, transport: Any) -> None:  # uvloop's transports are not asyncio's
        super().connection_made(transport)
        self._loss = Loss()
        self._peer = peer_of(transport.get_extra_info("peercert"))
        if self._peer is not None:
            self.leave()
        self._finish_within(self._seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        self._finish_within(None)
        super().connection_lost(exc)
        # uvicorn leaves the timer of a connection that broke, and this object with it.
        self._unset_keepalive_if_required()
        self._loss.happened = True
        if self._loss.call is not None:
            self._loss.call()

    def data_received(self, data: bytes) -> None:
        if self._strangers is not None:
            self._strangers.read(self, self._source, data)
        else:
            self.read(data)

    def go_on(self, data: bytes) -> None:
        """Read what had to wait, and then what comes after it, unless the connection is closed by now."""
        if not self._loss.happened and not self.transport.is_closing():
            self.read(data)
            if not self.flow.read_paused and not self.transport.is_closing():
                self.transport.resume_reading()

    def read(self, data: bytes) -> None:
        """Take in what was received."""
        self._got_on = False
        super().data_received(data)
        self._loose_bytes = 0 if self._got_on else self._loose_bytes + len(data)
        if self._loose_bytes > HEAD_BYTES_MAX:
            hint = f"Send less than {HEAD_BYTES_MAX} bytes of path and headers"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head is too large", hint)

    def on_message_begin(self) -> None:
        if self._deadline is None:
            self._finish_within(HEAD_SECONDS_MAX)
        super().on_message_begin()
        self.scope["state"][_ABORT] = weakref.WeakMethod(self.abort)  # weak: the scope would keep all of this
        if self._strangers is not None:
            self.scope["state"][ON_AUTHENTICATED] = self._authenticated
        self.scope["state"][LOSS] = self._loss
        if self._peer is not None:
            self.scope["state"][PEER] = self._peer

    def on_headers_complete(self) -> None:
        self._got_on = True
        if self._strangers is None:
            self._finish_within(BODY_SECONDS_MAX)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._got_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._got_on = True
        if self._strangers is None:
            self._finish_within(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The framework keeps a body in the scope, and uvicorn the cycle until the next request, which an idle
        # connection may never send. A cycle that waits behind the one that was answered has all before it.
        cycle = self.cycle
        if cycle.response_complete:
            if self.scope is cycle.scope:  # and not that of a request whose head is on its way
                self.scope = {}  # type: ignore[typeddict-item]
            cycle.scope, cycle.body = {}, bytearray()  # type: ignore[typeddict-item]

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; uvicorn calls this."""
        del msg  # it says no more
        self._refuse(HTTPStatus.BAD_REQUEST, "malformed HTTP request", "Use HTTP/1.1, and check the URL")

    def _authenticated(self) -> None:
        if self._strangers is not None:
            self.leave()
            self._finish_within(BODY_SECONDS_MAX if self.cycle.more_body else None)

    def _finish_within(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT, "the request was not received in time", "Send all of it at once"
        )

    def _refuse(self, status: HTTPStatus, detail: str, hint: str) -> None:
        """Close the connection, with a word where no answer is under way."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_answer(status, detail, hint))
        self.transport.close()


class BoundedServer(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal itself, with an end to
    handshakes, which it has no option for, and with few connections that are not authenticated."""

    def __init__(self, config: uvicorn.Config, strangers: UnauthenticatedConnections | None = None) -> None:
        super().__init__(config)
        self._strangers = strangers or UnauthenticatedConnections()
        self._arriving: set[asyncio.Task[None]] = set()
        self._shaking = 0  # handshakes that have their turn
        self._waiting = _Arrivals[tuple[socket.socket, BoundedHttp]]()
        self._is_taking = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on these sockets."""
        await super().startup([])
        for each in sockets or ():
            each.setblocking(False)
            each.listen(self.config.backlog)
            self.servers.append(_Acceptor(each, self._arrive, self._strangers))  # type: ignore[arg-type]

    def _arrive(self, connection: socket.socket, source: str) -> None:
        """Speak with a new connection, or close it before it costs anything."""
        if not self._strangers.has_room(len(self.server_state.connections)):
            connection.close()
            return
        protocol = BoundedHttp(self.config, self.server_state, self.lifespan.state)
        protocol.add_to(self._strangers, source, connection)
        self._waiting.add((connection, protocol), source, _credentials(_peek(connection)))
        self._take_soon()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _take_soon(self) -> None:
        if not self._is_taking:
            self._is_taking = True
            asyncio.get_running_loop().call_soon(self._take_some)

    def _take_some(self) -> None:
        """Begin with the connections whose turn it is; all else has its turn between two calls."""
        self._is_taking = False
        for _ in range(_TAKEN_AT_ONCE):
            if not self._waiting or self._shaking >= HANDSHAKES_MAX:
                return
            connection, protocol = self._waiting.next()
            if self.config.ssl is None:
                self._begin(self._take(connection, protocol))
            elif _is_gone(connection):  # its caller gave up, or it was closed to make room
                protocol.leave()
                connection.close()
            else:
                self._shaking += 1
                self._begin(self._shake_hands(connection, protocol))
        self._take_soon()

    async def _shake_hands(self, connection: socket.socket, protocol: BoundedHttp) -> None:
        turn = asyncio.get_running_loop().call_later(HANDSHAKE_TURN_SECONDS, self._end_turn)
        try:
            await self._take(connection, protocol, HANDSHAKE_SECONDS_MAX)
        finally:
            if asyncio.get_running_loop().time() < turn.when():
                turn.cancel()
                self._end_turn()

    def _end_turn(self) -> None:
        self._shaking -= 1
        self._take_soon()

    async def _take(
        self, connection: socket.socket, protocol: BoundedHttp, handshake_seconds: float | None = None
    ) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.config.ssl,
                ssl_handshake_timeout=handshake_seconds,
            )
        except OSError:  # ssl.SSLError and TimeoutError are ones
            protocol.leave()


class _Arrivals(Generic[T]):
    """Connections of which nothing was read yet. Sources take turns, and of each those with other
    credentials; of these the newest is next: what waits is of a crowd for the most part, and who is there
    before the end of it may be anybody."""

    def __init__(self) -> None:
        self._by_source: OrderedDict[str, OrderedDict[int, list[T]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def add(self, one: T, source: str, credentials: int) -> None:
        """Add one, with what it takes to go on with it, and the number of its ``_credentials``."""
        there = self._by_source.setdefault(source, OrderedDict())
        there.setdefault(credentials, []).append(one)

    def next(self) -> T:
        """Return the one whose turn it is. There must be one."""
        source, there = self._by_source.popitem(last=False)
        credentials, waiting = there.popitem()
        taken = waiting.pop()
        if waiting:
            there[credentials] = waiting
            there.move_to_end(credentials, last=False)  # behind those of all others, as they come
        if there:
            self._by_source[source] = there
        return taken


def _credentials(head: bytes) -> int:
    """Return a number for the credentials that a head shows, right or wrong, and 0 where it shows none.

    It only says who takes turns with whom: whoever shows other ones each time has no more turns than the
    newest of a source has anyway. The token itself is not kept.
    """
    found = _AUTHORIZATION.search(head)
    return hash(found[1]) if found else 0


def _peek(connection: socket.socket) -> bytes:
    """Return what has come by now, and leave it there. Over TLS it says nothing of who it is."""
    try:
        return connection.recv(_PEEKED_BYTES, socket.MSG_PEEK)
    except OSError:  # nothing yet, or it is gone
        return b""


def _is_gone(connection: socket.socket) -> bool:
    """Return whether whoever connected has closed the connection by now."""
    look = select.poll()
    look.register(connection, select.POLLRDHUP)
    return bool(look.poll(0))


class _Acceptor:
    """Accepts connections, and says from where each is: asyncio's server would only after the handshake."""

    def __init__(
        self,
        listener: socket.socket,
        arrive: Callable[[socket.socket, str], None],
        strangers: UnauthenticatedConnections,
    ) -> None:
        self._listener, self._arrive, self._strangers = listener, arrive, strangers
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._again is not None:
            self._again.cancel()

    async def wait_closed(self) -> None:
        """Return at once; the server waits for the connections."""

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(self._strangers.accepted_at_once):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # other parts of this process have all descriptors
                self._loop.remove_reader(self._listener)
                self._again = self._loop.call_later(_NOT_ACCEPTING_SECONDS, self._listen)
                return
            connection.setblocking(False)
            self._arrive(connection, _source(address[0]))


@lru_cache(maxsize=4096)  # machines and people come again
def _source(host: str) -> str:
    """Return who is at an address, as far as it tells: whoever has one of these networks has all of it."""
    if is_loopback(host):
        return "loopback"
    if ":" in host:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    return host


def _answer(status: HTTPStatus, detail: str, hint: str) -> bytes:
    body = msgspec.json.encode(Problem(status.phrase, status, detail, hint=hint))
    head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
