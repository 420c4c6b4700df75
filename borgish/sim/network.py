"""Messages between processes on different hosts: slow, lost, doubled, or held up where a host is cut off.

``SimTransport`` is the master's way to borglets, in the place of ``link.transport.HttpTransport``: the bytes
are those of real polls, and the borglet's own ASGI application answers them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from borgish.cell.model import Machine
from borgish.credentials import poll_token
from borgish.errors import BorgishError, NotListening, Unreachable
from borgish.link.transport import HEAD_SECONDS_MAX, Exchange, Response
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import Process, VirtualLoop

T = TypeVar("T")
LATE_SECONDS = 1.0
"""A message that takes longer may make its poll fail."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class Request(msgspec.Struct, frozen=True):
    """What is sent over a connection; ``client`` is where it comes from."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    client: tuple[str, int]


class Server(Protocol):
    """A machine, as the network sees it."""

    name: str

    @property
    def port(self) -> int: ...

    process: Process | None  # of its borglet; None while none runs
    app: App | None  # what answers there; None as long as it does not listen
    is_on: bool  # the host, whether or not its borglet runs
    is_inbound_cut: bool  # nothing gets through to it
    is_outbound_cut: bool  # nothing that it sends gets through

    def missed(self) -> None:
        """Note that a message from or to it came to nothing, or was late."""
        ...

    def answered(self) -> None:
        """Note that a master ingested its answer to a poll."""
        ...

    def refused(self) -> None:
        """Note that a master learned that its host refused a poll."""
        ...


class Network:
    """Carries requests and their answers. What is lost is silent: the caller has its own time limit.

    A host without a borglet refuses the connection; one that is off is silent.
    """

    def __init__(self, loop: VirtualLoop, injector: FaultInjector, machines: Mapping[str, Server]) -> None:
        self._loop = loop
        self._injector = injector
        self.machines = machines
        self._open: dict[str, dict[asyncio.Future[Response], None]] = {}
        """Exchanges under way with each borglet that runs, in their order."""
        self._callers: dict[tuple[str, int], Process] = {}

    def connected(self, caller: Process, client: tuple[str, int]) -> None:
        """Note who has the connections from an address, until it ends."""
        self._callers[client] = caller

    def is_open(self, client: tuple[str, int] | None) -> bool:
        """Whether there still are connections from an address: those of a process end with it."""
        caller = self._callers.get(client) if client else None
        return caller is not None and caller.is_alive

    def ask(self, machine: str, port: int, request: Request) -> "asyncio.Future[Response]":
        """Bring a request to a port of a machine; the future gets the answer, if both get through."""
        answer: asyncio.Future[Response] = self._loop.create_future()
        server = self.machines[machine]
        for _ in range(1 + self._injector.happens(self._injector.faults.message_doubled)):
            seconds = self.travel_seconds(server, is_to=True)
            if seconds is not None:
                self._loop.after(seconds, lambda: self._arrive(server, port, request, answer))
        return answer

    def _arrive(
        self, server: Server, port: int, request: Request, answer: "asyncio.Future[Response]"
    ) -> None:
        process, app = server.process, server.app
        if process is not None and app is not None and server.port == port:
            self._open.setdefault(process.name, {})[answer] = None
            process.spawn(self._serve(server, process.name, app, request, answer), request.path)
        elif server.is_on:
            self._later(server, answer, NotListening("connection refused"))

    async def _serve(
        self, server: Server, borglet: str, app: App, request: Request, answer: "asyncio.Future[Response]"
    ) -> None:
        response = await _answer(app, request, answer)
        self._open.get(borglet, {}).pop(answer, None)  # it was answered before, where it was doubled
        self._later(server, answer, response)

    def _later(
        self, server: Server, answer: "asyncio.Future[Response]", what: Response | Unreachable
    ) -> None:
        seconds = self.travel_seconds(server, is_to=False)
        if seconds is not None:
            # What was sent arrives, also when the borglet that sent it is gone by then.
            self._loop.after(seconds, lambda: settle(answer, what))

    def closed(self, server: Server, borglet: str) -> None:
        """End the connections of a borglet that ended; its host reports that, if it is on."""
        for answer in self._open.pop(borglet, {}):
            if server.is_on:
                self._later(server, answer, Unreachable("closed the connection"))

    def travel_seconds(self, server: Server, *, is_to: bool) -> float | None:
        """Return how long a message to or from a machine takes; None when it is lost."""
        is_cut = server.is_inbound_cut if is_to else server.is_outbound_cut
        seconds = None if is_cut else self._injector.travel_seconds()
        if seconds is None or seconds > LATE_SECONDS:
            server.missed()
        return seconds


def settle(answer: "asyncio.Future[T]", outcome: T | BorgishError) -> None:
    """Give a future its result, or what it failed with, unless nobody waits any more."""
    if answer.done():
        return
    if isinstance(outcome, BorgishError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


async def _answer(app: App, request: Request, answer: "asyncio.Future[Response]") -> Response:
    """Let the application answer a request."""
    received: list[dict[str, Any]] = [{"type": "http.request", "body": request.body, "more_body": False}]
    status, parts = 0, []

    async def receive() -> dict[str, Any]:
        if not received:
            await asyncio.wait({answer})  # it hears no more before the exchange is over
            return {"type": "http.disconnect"}
        return received.pop()

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    path, _, query = request.path.partition("?")
    scope = {
        "type": "http",
        "method": request.method,
        "path": path,
        "query_string": query.encode(),
        "headers": request.headers,
        "client": request.client,
    }
    await app(scope, receive, send)
    return Response(status, b"".join(parts))


class SimTransport:
    """One master's way to machines. ``client`` is the address that its requests come from."""

    def __init__(
        self,
        network: Network,
        secret: str,
        process: Process,
        client: tuple[str, int],
        judge: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """``judge`` is called with what is done, when a request leaves."""
        self._network, self._secret, self._client, self._judge = network, secret, client, judge
        network.connected(process, client)

    def peer(self, record: Machine, permit: Callable[[], None] = lambda: None) -> "SimPeer":
        token = poll_token(self._secret, record.name, record.admission)
        return SimPeer(self._network, record, token, self._client, permit, self._judge)


class SimPeer:
    """One borglet, where its machine's record says that it is."""

    def __init__(
        self,
        network: Network,
        record: Machine,
        token: str,
        client: tuple[str, int],
        permit: Callable[[], None],
        judge: Callable[[str], None],
    ) -> None:
        self.host, self.port = record.host, record.port
        self._machine = record.name
        self._network, self._client, self._permit, self._judge = network, client, permit, judge
        self._headers = ((b"authorization", f"Bearer {token}".encode()),)

    def begin(self, path: str, body: bytes, timeout_seconds: float, done: Callable[[], object]) -> Exchange:
        return self._begin("POST", path, body, timeout_seconds, done)

    async def post(self, path: str, body: bytes, timeout_seconds: float) -> Response:
        return await self._ask("POST", path, body, timeout_seconds)

    async def stream(self, path: str, body: bytes | None = None) -> AsyncIterator[Response]:
        method = "GET" if body is None else "POST"
        yield await self._ask(method, path, body or b"", HEAD_SECONDS_MAX)

    async def _ask(self, method: str, path: str, body: bytes, timeout_seconds: float) -> Response:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        exchange = self._begin(method, path, body, timeout_seconds, lambda: settle(over, None))
        try:
            await over
        finally:
            exchange.cancel()
        return exchange.result

    def _begin(
        self, method: str, path: str, body: bytes, timeout_seconds: float, done: Callable[[], object]
    ) -> Exchange:
        self._permit()
        self._judge("polls")
        request = Request(method, path, self._headers, body, self._client)
        answer = self._network.ask(self._machine, self.port, request)
        exchange = Exchange(done)

        def give_up() -> None:
            settle(answer, Unreachable(f"no answer from {self._machine} in {timeout_seconds:.1f} s"))

        timer = asyncio.get_running_loop().call_later(timeout_seconds, give_up)

        def over(answer: "asyncio.Future[Response]") -> None:
            timer.cancel()
            if answer.cancelled():
                return
            error = answer.exception()
            outcome = error if isinstance(error, Exception) else answer.result()
            if path == "/v1/poll":
                self._note(outcome)
            exchange.settle(outcome)

        answer.add_done_callback(over)
        exchange.give_up = answer.cancel
        return exchange

    def _note(self, outcome: Response | Exception) -> None:
        """Note what came of a poll, unless its master is gone by now."""
        if isinstance(outcome, NotListening):
            self._network.machines[self._machine].refused()
        elif isinstance(outcome, Response) and outcome.status == 200:
            self._network.machines[self._machine].answered()

    def close(self) -> None:
        pass

    def cut(self) -> None:
        pass  # nobody looks at output here
