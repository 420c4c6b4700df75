"""Thousands of requests of one user over real sockets: who is answered before they are through."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from borgish.api import admission
from borgish.api.admission import AT_START, Admission
from borgish.api.app import create_app
from borgish.api.middleware import Receive, Scope, Send
from borgish.api.serve import serve
from borgish.clock import SystemClock
from borgish.wire import bounded_http
from borgish.wire.bounded_http import BoundedHttp
from tests.integration.api.fakes import PATIENCE_SECONDS, TOKENS, FakeMaster

CROWD = 300


class Cell:
    """A cell's API, and a client for each token that asks at once. Both are in this loop, so that all that
    is asked together is there before any of it is begun."""

    def __init__(self, port: int, door: Admission, begun: list[str]) -> None:
        self._port, self.door, self.begun = port, door, begun
        self.connections: list[socket.socket] = []

    async def connect(self, tokens: list[str]) -> None:
        """Open a connection for each."""
        loop = asyncio.get_running_loop()
        for _ in tokens:
            one = socket.socket()
            one.setblocking(False)
            self.connections.append(one)
            await loop.sock_connect(one, ("127.0.0.1", self._port))
        for one, token in zip(self.connections, tokens, strict=True):  # and have each taken
            assert await self._ask(one, token) == "200"
        self.begun.clear()

    def connect_and_send(self, tokens: list[str]) -> None:
        """Open a connection for each, and ask, before the master accepts any of them."""
        for token in tokens:
            one = socket.create_connection(("127.0.0.1", self._port))
            one.setblocking(False)
            self.connections.append(one)
            assert one.send(_request(token))

    def send(self, tokens: list[str]) -> None:
        """Ask on all connections, without a pause."""
        for one, token in zip(self.connections, tokens, strict=True):
            assert one.send(_request(token))

    async def answers(self) -> list[bytes]:
        """Return what each is answered."""
        loop = asyncio.get_running_loop()
        return [await loop.sock_recv(one, 65536) for one in self.connections]

    async def _ask(self, one: socket.socket, token: str) -> str:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(one, _request(token))
        return _status(await loop.sock_recv(one, 65536))


def _request(token: str) -> bytes:
    return f"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def _status(answer: bytes) -> str:
    return answer.split(maxsplit=2)[1].decode()


@asynccontextmanager
async def cell() -> AsyncIterator[Cell]:
    """Serve; all is closed behind it."""
    begun, app = list[str](), create_app(FakeMaster().services, TOKENS)

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        token = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer bgt_")
        begun.append(token)
        await app(scope, receive, send)

    door = Admission(noting, TOKENS, SystemClock())
    serving = await serve(door, "127.0.0.1", 0)
    one = Cell(serving.port, door, begun)
    try:
        yield one
    finally:
        for connection in one.connections:
            connection.close()
        await serving.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run in the loop that masters have."""
    uvloop.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


@pytest.mark.parametrize("other", ["bgt_bob", "bgt_operator", "bgt_wrong"])
def test_another_is_answered_before_a_crowd_is_through(other: str) -> None:
    async def test() -> None:
        async with cell() as served:
            tokens = [*["bgt_ann"] * CROWD, "bgt_bob"]
            await served.connect(tokens)
            tokens[-1] = other
            served.send(tokens)
            answers = await served.answers()
            assert Counter(map(_status, answers[:-1])) == {"200": CROWD}
            assert Counter(served.begun) == {"ann": CROWD, other.removeprefix("bgt_"): 1}
            # The first few are begun as they come; of the rest it is one of the first two.
            assert served.begun.index(other.removeprefix("bgt_")) <= AT_START + 1

    run(test)


def test_who_connects_in_the_midst_of_a_crowd_of_its_address_is_among_the_first() -> None:
    async def test() -> None:
        async with cell() as served:
            tokens = [*["bgt_ann"] * CROWD, "bgt_bob", *["bgt_ann"] * CROWD]
            served.connect_and_send(tokens)
            answers = await served.answers()
            assert Counter(map(_status, answers)) == {"200": 2 * CROWD + 1}
            # It is taken with the first few, and reads what it was sent by one of the first of these.
            assert served.begun.index("bob") <= bounded_http._TAKEN_AT_ONCE

    run(test)


def test_what_is_too_much_is_told_when_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "OF_ASKER_MAX", 10)

    async def test() -> None:
        async with cell() as served:
            tokens = [*["bgt_ann"] * CROWD, "bgt_bob"]
            await served.connect(tokens)
            served.send(tokens)
            *of_ann, of_bob = await served.answers()
            assert _status(of_bob) == "200"
            turned_away = [answer for answer in of_ann if _status(answer) == "429"]
            assert len(turned_away) >= CROWD // 2
            assert all(b"\r\nretry-after: 1\r\n" in answer for answer in turned_away)
            assert Counter(served.begun) == {"ann": CROWD - len(turned_away), "bob": 1}
            (line,) = served.door.busy()
            assert line.startswith(f"10 requests of ann wait already: {len(turned_away)} more")

    run(test)


def test_a_client_that_goes_away_while_it_waits_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = 0
    connection_lost = BoundedHttp.connection_lost

    def noting(self: BoundedHttp, exc: Exception | None) -> None:
        nonlocal lost
        lost += 1
        connection_lost(self, exc)

    monkeypatch.setattr(BoundedHttp, "connection_lost", noting)
    monkeypatch.setattr(admission, "AT_ONCE_MAX", 1)  # so that the end of a connection is heard meanwhile

    async def test() -> None:
        async with cell() as served:
            await served.connect(["bgt_ann"] * CROWD)
            served.send(["bgt_ann"] * CROWD)
            gone = served.connections[CROWD // 2 :]
            del served.connections[CROWD // 2 :]
            for one in gone:
                one.close()
            assert {_status(answer) for answer in await served.answers()} == {"200"}
            while lost < len(gone):
                await asyncio.sleep(0)
            assert len(served.begun) < CROWD - len(gone) // 2

    run(test)
