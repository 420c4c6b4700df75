"""HTTP as both daemons receive it: uvicorn's, with an end to all that a caller could go on with for ever.

A caller without a token gets this far, so nothing here may grow with what it sends: neither the head
of a request nor what follows a body, and no connection stays open for one that never finishes asking.
What is refused here is refused as problem details, like everything else.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from borgish.tls.names import PEER, Peer, peer_of
from borgish.wire.api import Problem

HANDSHAKE_SECONDS_MAX = 10.0
"""Of TLS: a caller that says nothing holds a connection no longer. asyncio would wait for a minute."""
HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 20.0
BODY_SECONDS_MAX = 60.0


class BoundedHttp(HttpToolsProtocol):
    """One connection. Bytes that are neither body nor complete a head or a message are counted.

    Whom the certificate of its caller names is in the state of each request's scope, as ``PEER``.
    """

    _peer: Peer | None = None
    _loose_bytes = 0
    _got_on = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # uvloop's transports are not asyncio's
        super().connection_made(transport)
        self._peer = peer_of(transport.get_extra_info("peercert"))
        self._finish_within(HEAD_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish_within(None)
        super().connection_lost(exc)
        # uvicorn leaves the timer of a connection that broke, and this object with it.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
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
        if self._peer is not None:
            self.scope["state"][PEER] = self._peer

    def on_headers_complete(self) -> None:
        self._got_on = True
        self._finish_within(BODY_SECONDS_MAX)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._got_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._got_on = True
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
    """uvicorn without its signal handlers, which would end the process by the signal itself, and with an end
    to handshakes, which it has no option for."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on these sockets."""
        await super().startup([])
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            return BoundedHttp(config, self.server_state, self.lifespan.state)

        for each in sockets or ():
            seconds = HANDSHAKE_SECONDS_MAX if config.ssl else None
            server = await loop.create_server(
                protocol, sock=each, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=seconds
            )
            self.servers.append(server)


def _answer(status: HTTPStatus, detail: str, hint: str) -> bytes:
    body = msgspec.json.encode(Problem(status.phrase, status, detail, hint=hint))
    head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
