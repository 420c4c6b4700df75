"""Serves an app on an address, inside the daemon's own loop.

No signal handlers: the daemon decides when to stop, and ``Serving.stop`` takes at most a second
whatever streams are open. A listener beyond loopback without TLS is refused here, whoever asks.
"""

import asyncio
import contextlib
import socket
import ssl

import msgspec
import uvicorn

from borgish.addresses import is_loopback
from borgish.api.middleware import App
from borgish.errors import UnsafeConfiguration
from borgish.tls.contexts import Replaceable, master_listener, operators_listener
from borgish.wire.bounded_http import BoundedHttp, BoundedServer, UnauthenticatedConnections

KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 0.6  # for answers under way; what is still open then is cut off
_CUT_SECONDS = 0.3
FOR_BROWSERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
]
"""What is answered is no page, wherever a browser was led to open it."""


class Tls(msgspec.Struct, frozen=True):
    """Files with what a listener shows and, when ``ca`` is given, asks of its callers. ``is_own``: the cell's
    own authority signed them. ``name`` is what its callers ask for then, and ``before`` the operator's files
    for those that do not: they have not been carried over yet."""

    certificate: str
    key: str
    ca: str = ""
    is_own: bool = False
    name: str = ""
    before: "Tls | None" = None


class Serving:
    """A running listener."""

    def __init__(self, server: "_Server", port: int, url: str, own: Replaceable | None = None) -> None:
        self.port = port  # the real one, also when any was asked for
        self.url = url
        self._server, self._own = server, own
        self._task = asyncio.create_task(server.serve(sockets=[server.socket]))

    def reload(self, tls: Tls) -> None:
        """Show to new connections what is in these files now, and with the cell's own authority judge them by
        it, too. Raises OSError and UnsafeConfiguration for what cannot be used."""
        if self._own is not None:
            self._own.replace(master_listener(tls.certificate, tls.ca), _operators(tls.before))
            return
        context = self._server.config.ssl
        assert context is not None, "what serves without TLS cannot begin to"
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.ca:
            context.load_verify_locations(tls.ca)

    async def stop(self) -> None:
        """Stop listening and end what is open, within a second. Close the watch before: it ends cleanly."""
        self._server.should_exit = True
        done, _ = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not done:
            self._server.cut_off()
            await asyncio.wait([self._task], timeout=_CUT_SECONDS)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def serve(
    app: App,
    host: str,
    port: int,
    tls: Tls | None = None,
    strangers: UnauthenticatedConnections | None = None,
) -> Serving:
    """Start serving; returns when connections are answered. Port 0: any free one.

    Raises UnsafeConfiguration beyond loopback without TLS, with files that cannot be used, and when the
    address cannot be had.
    """
    if tls is None and not is_loopback(host):
        raise UnsafeConfiguration(
            f"{host} is not loopback, and there is no [tls]",
            "Listen on 127.0.0.1, or name certificate and key under [tls]",
        )
    listener = _bind(host, port)
    config, own = _config(app, tls), None
    if tls is not None and tls.is_own:
        own = Replaceable(master_listener(tls.certificate, tls.ca), tls.name, _operators(tls.before))
        config.ssl = own.context
    server = _Server(config, listener, strangers)
    bound = int(listener.getsockname()[1])
    shown = f"[{host}]" if ":" in host else host
    serving = Serving(server, bound, f"{'https' if tls else 'http'}://{shown}:{bound}", own)
    await server.ready.wait()
    return serving


class _Server(BoundedServer):
    """The server, with a word when it is ready."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, strangers: UnauthenticatedConnections | None
    ) -> None:
        super().__init__(config, strangers)
        self.socket = listener
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def cut_off(self) -> None:
        """End every request and connection now."""
        self.force_exit = True
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).lower().partition(" (while ")[0]
        raise UnsafeConfiguration(
            f"cannot listen on {host}:{port}: {reason}", "Give another `listen`, or stop what holds this one"
        ) from error
    listener.setblocking(False)
    return listener


def _operators(tls: Tls | None) -> ssl.SSLContext | None:
    try:
        return operators_listener(tls.ca, tls.certificate, tls.key) if tls else None
    except OSError as error:  # ssl.SSLError is one
        raise UnsafeConfiguration(f"the files under [tls] cannot be used: {error}") from error


def _config(app: App, tls: Tls | None) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            app,
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=FOR_BROWSERS,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key or None if tls else None,
            ssl_ca_certs=tls.ca or None if tls else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if tls and tls.ca else ssl.CERT_NONE,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UnsafeConfiguration(f"the files under [tls] cannot be used: {error}") from error
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    return config
