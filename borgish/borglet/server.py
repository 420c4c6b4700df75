"""The borglet's HTTP: a few routes, each behind the poll token, as a bare ASGI application.

Bare, because it is few routes that one caller uses: a framework would cost each borglet 0.2 s of
start and 11 MB, and half of the time of a poll. uvicorn serves it. Streams and commands end when the
daemon does: uvicorn would wait for them for ever.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
import uvicorn

from borgish.borglet.agent import Agent, Caller
from borgish.borglet.runtimes.process.commands import Stdin
from borgish.borglet.settings import Tls
from borgish.borglet.state_folder import Membership
from borgish.errors import (
    BorgishError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unreachable,
    UnsafeConfiguration,
)
from borgish.tls.names import PEER, Peer
from borgish.wire.api import Problem
from borgish.wire.bounded_http import ON_AUTHENTICATED, BoundedHttp, BoundedServer
from borgish.wire.link import ExecPiece, ExecReply, ExecRequest, LogWanted, PollRequest, attempt_key

log = logging.getLogger("borglet.server")

Message = dict[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")

POLL_BYTES_MAX = 16 * 1024 * 1024
EXEC_BYTES_MAX = 1024 * 1024
EXEC_SECONDS_MAX = 86_400.0
TERMINAL_SIDE_MAX = 10_000
STDIN_SECONDS = 5.0  # that a piece of input waits for a command that does not read
TAIL_LINES_MAX = 100_000
DIGITS_MAX = 20  # reading thousands of them would take long, and Python refuses
FIRST_CHUNK_SECONDS = 0.25
JOINING_SECONDS_MAX = 0.5
SHUTDOWN_SECONDS = 3

_encode = msgspec.json.Encoder().encode
_poll_request = msgspec.json.Decoder(PollRequest)
_exec_request = msgspec.json.Decoder(ExecRequest)


class BorgletApp:
    """The ASGI application. ``end`` ends all that is open, so that the server can stop.

    ``is_open`` tells whether there still is a connection from an address; the server that is made for the
    application (``make_server``) knows.
    """

    def __init__(self, agent: Agent, membership: Membership, *, by_certificate: bool = False) -> None:
        """``by_certificate``: only who has one of the cell's masters is admitted, beside its token."""
        self._agent, self._membership, self._by_certificate = agent, membership, by_certificate
        self.is_open: Callable[[Caller], bool] = lambda _: False
        self._ending = asyncio.Event()
        self._routes = {
            ("POST", "/v1/poll"): self._poll,
            ("GET", "/v1/head"): self._head,
            ("GET", "/v1/logs"): self._logs,
            ("POST", "/v1/exec"): self._exec,
            ("POST", "/v1/exec/stream"): self._exec_stream,
            ("POST", "/v1/exec/stdin"): self._exec_stdin,
        }
        self._stdins: dict[tuple[str, str], Session] = {}  # of commands, by attempt and session

    def end(self) -> None:
        """End held polls, streams and commands."""
        self._ending.set()
        self._agent.end_polls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._admit(scope)
            if on_authenticated := scope.get("state", {}).pop(ON_AUTHENTICATED, None):
                on_authenticated()
            route = self._routes.get((scope["method"], scope["path"]))
            if route is None:
                raise NotFound(f"a borglet has no {scope['method']} {scope['path']}")
            await route(scope, receive, send)
        except BorgishError as error:
            await _send_problem(send, error)

    async def _admit(self, scope: Scope) -> None:
        if not self._membership.cell:
            # A master that has let us in may poll before its answer is read here. Refused, it would wait for
            # a second before it polls again.
            await self._membership.first(JOINING_SECONDS_MAX)
        if self._by_certificate:
            _expect_master(scope["state"].get(PEER), self._membership.cell)
        given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        kind, _, token = given.decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or not self._membership.admits(token.strip()):
            raise Unauthenticated(
                "no poll token, or a wrong one",
                "A borglet answers only the master of the cell it has joined.",
            )

    async def _poll(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _decode(await _body(scope, receive, POLL_BYTES_MAX), _poll_request)
        await _send_json(send, await self._agent.poll(request, scope.get("client")))

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive  # nothing is asked but this
        await _send_json(send, self._agent.head(self.is_open))

    async def _exec(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await _exec_asked(scope, receive)
        work = asyncio.ensure_future(self._agent.exec(request))
        if not await self._before_end(work, receive):
            raise Unreachable("the borglet is ending; the command was given up")
        await _send_json(send, work.result())

    async def _exec_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a command, and answer while it runs. Its input comes by ``_exec_stdin``."""
        request = await _exec_asked(scope, receive)
        session = attempt_key(request.task, request.attempt, request.program), request.session
        if session in self._stdins:
            raise Conflict("there is a command with this session already")
        stdin = Session(request.silence_seconds) if request.session else None
        if stdin:
            self._stdins[session] = stdin
        try:
            work = asyncio.ensure_future(_stream_command(self._agent, request, stdin, send))
            await self._before_end(work, receive)
            if not work.cancelled():
                work.result()
        finally:
            if stdin:
                stdin.close()
                del self._stdins[session]

    async def _exec_stdin(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = _query(scope)
        data = await _body(scope, receive, EXEC_BYTES_MAX)
        key = attempt_key(query.get("task", ""), _number(query, "attempt", 2**63), query.get("program", ""))
        stdin = self._stdins.get((key, query.get("session", "")))
        if stdin is None:
            raise NotFound("there is no such command: it has ended, or its task has")
        stdin.hear()
        size = _number(query, "rows", TERMINAL_SIDE_MAX), _number(query, "columns", TERMINAL_SIDE_MAX)
        if all(size):
            stdin.resize(*size)
        work = asyncio.ensure_future(
            stdin.put(_number(query, "offset", 2**63), data, STDIN_SECONDS, end=query.get("end") == "1")
        )
        if await self._before_end(work, receive):
            await _send_json(send, work.result())

    async def _logs(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = _query(scope)
        attempt = _number(query, "attempt", 2**63)
        key = attempt_key(query.get("task", ""), attempt, query.get("program", ""))
        wanted = LogWanted(
            previous=query.get("previous") == "1",
            follow=query.get("follow") == "1",
            tail=_number(query, "tail", TAIL_LINES_MAX),
            since=_number(query, "since_millis", 2**63) / 1000,
            timestamps=query.get("timestamps") == "1",
        )
        chunks = self._agent.logs(key, wanted, _number(query, "run", 2**63))
        first = asyncio.ensure_future(_next(chunks))
        await asyncio.wait({first}, timeout=FIRST_CHUNK_SECONDS)
        if first.done():
            first.result()  # what is wrong from the start is an error, not a broken stream
        work = asyncio.ensure_future(_stream(first, chunks, send))
        await self._before_end(work, receive)
        if not work.cancelled():
            work.result()

    async def _before_end(self, work: "asyncio.Future[Any]", receive: Receive) -> bool:
        """Wait for some work, at most until the caller is gone or the daemon ends; was it done?"""
        gone = asyncio.ensure_future(_disconnected(receive))
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({work, gone, ending}, return_when=asyncio.FIRST_COMPLETED)
            return work.done()
        finally:
            for future in (work, gone, ending):
                if not future.done():
                    future.cancel()
                    await asyncio.wait({future})


class Session(Stdin):
    """The input of a command that is given up when nothing is heard of who began it."""

    def __init__(self, silence_seconds: float) -> None:
        super().__init__()
        self._silence_seconds = silence_seconds
        self._limit: asyncio.Timeout | None = None

    def hear(self) -> None:
        """Take note that somebody is there."""
        if self._limit and self._silence_seconds:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._silence_seconds)

    async def unless_silent(self, work: "asyncio.Future[ExecReply]") -> ExecReply:
        """Return what some work returns. Raises Unreachable when there was silence for too long before."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limit = limit
                self.hear()
                try:
                    return await work
                finally:
                    self._limit = None  # input may yet come, when there is nothing to give up any more
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unreachable(
                f"the command was ended: nothing was heard of who began it for {self._silence_seconds:g} s"
            ) from None


async def _stream_command(agent: Agent, request: ExecRequest, stdin: Session | None, send: Send) -> None:
    """Run a command, and send lines while it runs. What is wrong from the start is an error, not a line."""
    begun = False

    async def line(piece: ExecPiece) -> None:
        nonlocal begun
        if not begun:
            begun = True
            head = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": _encode(piece) + b"\n", "more_body": True})

    async def write(output: bytes) -> None:
        await line(ExecPiece(output))

    running = asyncio.ensure_future(agent.exec(request, stdin, write))
    wanted = asyncio.ensure_future(stdin.wanted.wait() if stdin else asyncio.sleep(FIRST_CHUNK_SECONDS))
    try:
        await asyncio.wait(
            {running, wanted}, timeout=FIRST_CHUNK_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not running.done():
            await line(ExecPiece(terminal=request.terminal is not None))  # it may begin to send input
        reply = await (stdin.unless_silent(running) if stdin else running)
        last = ExecPiece(exit_code=reply.exit_code)
    except BorgishError as error:
        if not begun:
            raise
        last = ExecPiece(error=str(error))
    finally:
        for future in (running, wanted):
            if not future.done():
                future.cancel()
                await asyncio.wait({future})
    await line(last)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _exec_asked(scope: Scope, receive: Receive) -> ExecRequest:
    request = _decode(await _body(scope, receive, EXEC_BYTES_MAX), _exec_request)
    if bool(request.run) is bool(request.port) or not 0 < request.timeout_seconds <= EXEC_SECONDS_MAX:
        raise Invalid(f"exec needs a command, and a timeout of at most {EXEC_SECONDS_MAX:.0f} s")
    if request.terminal and not (
        request.session
        and 0 < request.terminal.rows <= TERMINAL_SIDE_MAX
        and 0 < request.terminal.columns <= TERMINAL_SIDE_MAX
    ):
        raise Invalid(f"a terminal needs a session, and 1 to {TERMINAL_SIDE_MAX} rows and columns")
    return request


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _stream(first: "asyncio.Future[bytes | None]", chunks: AsyncIterator[bytes], send: Send) -> None:
    """Send chunks as they come; what goes wrong now can only break the stream off."""
    head = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    try:
        chunk = await first
        while chunk is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await anext(chunks, None)
    except BorgishError as error:
        log.warning("a stream of output broke off: %s", error)
    finally:
        first.cancel()
        if close := getattr(chunks, "aclose", None):
            await close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    length = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Invalid("the request broke off")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is over {bytes_max} bytes")


def _decode(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"invalid body: {error}") from None
    except RecursionError:
        raise Invalid("the body is nested too deeply") from None


def _query(scope: Scope) -> dict[str, str]:
    return {k: v[-1] for k, v in parse_qs(scope["query_string"].decode("latin-1")).items()}


def _number(query: dict[str, str], name: str, most: int) -> int:
    text = query.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) <= most):
        raise Invalid(f"{name} = '{text[:40]}' is not a whole number up to {most}")
    return int(text)


async def _send_json(send: Send, value: object) -> None:
    await _send(send, 200, b"application/json", _encode(value))


async def _send_problem(send: Send, error: BorgishError) -> None:
    problem = Problem(type(error).__name__, error.status, error.message, hint=error.hint)
    await _send(send, error.status, b"application/problem+json", _encode(problem))


async def _send(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _expect_master(peer: Peer | None, cell: str) -> None:
    if peer is None or not peer.is_master or peer.cell != cell:
        raise Forbidden(
            f"this certificate is not that of a master of cell {cell}",
            "A borglet answers only the master of the cell it has joined.",
        )


def make_server(app: BorgletApp, tls: Tls | None, context: ssl.SSLContext | None = None) -> BoundedServer:
    """Return a server of the application, to be given its socket, with an operator's files or with a
    ``context`` instead. Raises UnsafeConfiguration."""
    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise _unusable("tls.certificate and tls.key", error) from None
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    config.ssl = context or config.ssl
    server = BoundedServer(config)
    connections = server.server_state.connections

    # A master that lives keeps idle connections open; of one that was killed the kernel closes all.
    def is_open(caller: Caller) -> bool:
        return caller is not None and any(getattr(each, "client", None) == caller for each in connections)

    app.is_open = is_open
    return server


def expect_usable(tls: Tls | None) -> None:
    """Load the files into a context of their own. Raises UnsafeConfiguration."""
    if tls is None:
        return
    context, keys = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "tls.certificate and tls.key"
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")
        keys = "tls.ca"
        if tls.ca:
            context.load_verify_locations(tls.ca)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable(keys, error) from None


def reload_tls(server: BoundedServer, tls: Tls | None) -> None:
    """Show to new connections what is in the files now. Raises OSError for what cannot be used."""
    if tls is not None and server.config.ssl is not None:
        server.config.ssl.load_cert_chain(tls.certificate, tls.key)


def _unusable(keys: str, error: OSError) -> UnsafeConfiguration:
    return UnsafeConfiguration(
        f"{keys} cannot be used: {error.strerror}",
        "Give files in PEM: the key without a passphrase and of this certificate.",
    )
