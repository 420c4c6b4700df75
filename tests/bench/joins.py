"""What it costs to let thousands of machines in, and how soon they are back when all come at once: a part of
``polls``. Each asks as its borglet does: it waits as long for an answer, and as long between two tries."""

import asyncio
import random
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import uvloop

from borgish.borglet.joining.join import PAUSE_GROWTH, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, REQUEST_SECONDS
from borgish.client import Client
from borgish.credentials import MEMBER, poll_token
from borgish.ids import new_token
from borgish.join_token import digest_of
from borgish.tls.authority import new_key, request_to_sign
from borgish.tls.contexts import caller
from borgish.tls.files import AUTHORITY_FILE
from borgish.tls.names import master_name
from borgish.wire.api import Accepted, JobList
from borgish.wire.api_access import InvitationRequest
from borgish.wire.link import JoinRequest
from tests.bench.borglets import BOOT, FACTS
from tests.bench.farm import FORKED
from tests.bench.idle import IdleMachines

LOOK_SECONDS = 0.1
BACK_SECONDS_MAX = 300.0
AT_ONCE = 32
"""So many join a new cell at a time."""

_encode = msgspec.json.Encoder().encode


class Joining(NamedTuple):
    """Machines that mean to join a cell, and where."""

    client: Client
    cell: str
    folder: Path
    farm: IdleMachines
    is_secure: bool

    def invited(self) -> dict[str, bytes]:
        """Return the request of each, by a new invitation for all, and for a certificate where there are."""
        secret = new_token()
        asked = InvitationRequest(digest_of(secret), uses=10_000, for_seconds=3600)
        self.client.post("/v1/invitations", asked, Accepted)
        key = new_key()
        return {
            name: self._request(
                name, secret, to_sign=request_to_sign(key, name).decode() if self.is_secure else ""
            )
            for name in self.farm.hosts
        }

    def known(self) -> dict[str, bytes]:
        """Return the request of each as a machine that is in the cell already."""
        secret = (self.folder / "secret").read_text().strip()
        found = {}
        for name in self.farm.hosts:
            token = poll_token(secret, name)
            found[name] = self._request(name, f"{MEMBER}{name}.{token}", token)
        return found

    def _request(self, name: str, token: str, proof: str = "", to_sign: str = "") -> bytes:
        body = _encode(
            JoinRequest(
                name,
                self.farm.hosts[name],
                self.farm.port,
                BOOT,
                f"{name}-2",
                FACTS,
                poll_token=proof,
                tls=self.is_secure,
                to_sign=to_sign,
            )
        )
        address = urlsplit(self.client.url).netloc
        head = f"POST /v1/machines HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n"
        head += f"Content-Type: application/json\r\nIdempotency-Key: {new_token()}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    @contextmanager
    def asking(
        self, requests: dict[str, bytes], at_once: int = 0, within_seconds: float = 0.0
    ) -> Iterator["Synchronized[int]"]:
        """Have them ask, in a process of its own, ``at_once`` at a time (0: all); each begins at some moment
        ``within_seconds``. Gives how many were let in so far."""
        joined = FORKED.Value("q", 0)
        crowd = _Crowd(self, joined, at_once, within_seconds)
        process = FORKED.Process(target=lambda: uvloop.run(crowd.ask(requests)), daemon=True)
        process.start()
        try:
            yield joined
        finally:
            process.kill()
            process.join()

    def longest_wait(self, joined: "Synchronized[int]", machines: int) -> float:
        """Wait until so many were let in, and return the longest that somebody else waited for an answer."""
        began, longest = time.perf_counter(), 0.0
        while joined.value < machines:
            asked = time.perf_counter()
            if asked - began > BACK_SECONDS_MAX:
                raise TimeoutError(f"{joined.value} of {machines} machines were let in")
            self.client.get("/v1/jobs", None, JobList)
            longest = max(longest, time.perf_counter() - asked)
            time.sleep(LOOK_SECONDS)
        return longest


class _Crowd:
    """Those who ask."""

    def __init__(
        self, joining: Joining, joined: "Synchronized[int]", at_once: int, within_seconds: float
    ) -> None:
        where = urlsplit(joining.client.url)
        self._host, self._port = where.hostname, where.port
        self._trust: ssl.SSLContext | None = None
        self._name: str | None = None
        if joining.is_secure:
            self._trust, self._name = caller(str(joining.folder / AUTHORITY_FILE)), master_name(joining.cell)
        self._joined, self._at_once, self._within_seconds = joined, at_once, within_seconds
        self._chance = random.Random(1)

    async def ask(self, requests: dict[str, bytes]) -> None:
        """Have each let in."""
        turns = asyncio.Semaphore(self._at_once or len(requests))
        await asyncio.gather(*(self._until_in(request, turns) for request in requests.values()))

    async def _until_in(self, request: bytes, turns: asyncio.Semaphore) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, self._within_seconds))
        async with turns:
            pause = PAUSE_SECONDS_MIN
            while not await self._is_let_in(request):
                await asyncio.sleep(pause)
                pause = min(pause * PAUSE_GROWTH, PAUSE_SECONDS_MAX)
        self._joined.value += 1

    async def _is_let_in(self, request: bytes) -> bool:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._trust, server_hostname=self._name
                )
                try:
                    writer.write(request)
                    return (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                finally:
                    writer.close()
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            return False
