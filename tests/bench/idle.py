"""Machines that have nothing new to say, as one server in a process of its own. Each takes little more to
answer than the kernel does: what they take is not there for the master that is measured beside them."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from borgish.clock import SystemClock
from borgish.tls.authority import new_key, request_to_sign
from borgish.tls.contexts import borglet_listener
from borgish.tls.files import AUTHORITY_FILE
from borgish.tls.folder import read_authority
from borgish.wire.link import HeadReply, PollReply, Report
from tests.bench.borglets import BOOT, FACTS
from tests.bench.farm import FORKED

BACKLOG = 4096
STEP_SECONDS = 0.01
STEPS = 6_000
"""Of the counts of intervals; what is longer than a minute counts as one."""

_encode = msgspec.json.Encoder().encode


class _Asked(msgspec.Struct):
    """What matters of a poll."""

    generation: int
    seen: int = 0
    seen_instance: str = ""
    wait_seconds: float = 0.0


_decode = msgspec.json.Decoder(_Asked).decode


class IdleMachines:
    """The machines, each at an address of its own, and all at the same port. ``count`` is of polls, ``known``
    of the machines whose report the master has."""

    def __init__(self, names: Iterable[str], context: ssl.SSLContext | None = None) -> None:
        self.hosts = {name: _host(number) for number, name in enumerate(names)}
        self._context = context
        self._listening = socket.create_server(("", 0), backlog=BACKLOG)
        self.port: int = self._listening.getsockname()[1]
        self.count, self.known = FORKED.Value("q", 0), FORKED.Value("q", 0)
        self._intervals = FORKED.Array("q", STEPS, lock=False)  # between two polls, by ``STEP_SECONDS``
        self.machines = {host: Idle(name, self) for name, host in self.hosts.items()}

    def polled(self, since: float, now: float) -> None:
        """Count a poll, and the seconds since the one before, if there was one."""
        self.count.value += 1
        if since:
            self._intervals[min(int((now - since) / STEP_SECONDS), STEPS - 1)] += 1

    def clear(self) -> None:
        """Forget the intervals so far."""
        for place in range(STEPS):
            self._intervals[place] = 0

    def interval_seconds(self, quantile: float) -> float:
        """Return which interval this share of all since ``clear`` is not above."""
        wanted = quantile * sum(self._intervals)
        for place, count in enumerate(self._intervals):
            wanted -= count
            if wanted <= 0:
                return (place + 1) * STEP_SECONDS
        return STEPS * STEP_SECONDS

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the machines answer; their socket is closed behind them."""
        process = FORKED.Process(target=lambda: uvloop.run(self._serve()), daemon=True)
        process.start()
        try:
            yield
        finally:
            process.kill()
            process.join()
            self._listening.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(
            lambda: _Connection(self), sock=self._listening, ssl=self._context, backlog=BACKLOG
        )
        await loop.create_future()


class Idle:
    """One machine: what it answers, and its held poll."""

    def __init__(self, name: str, farm: IdleMachines) -> None:
        self.name, self._farm = name, farm
        self._instance = f"{name}-1"
        self._polled = 0.0
        self._is_known = False
        self._held: tuple[asyncio.TimerHandle, _Connection, bytes] | None = None

    def take(self, connection: "_Connection", asked: _Asked) -> None:
        """Answer a poll when its hold is over, or another one comes."""
        now = time.perf_counter()
        self._farm.polled(self._polled, now)
        self._polled = now
        self._release()
        is_seen = asked.seen == 1 and asked.seen_instance == self._instance
        if is_seen and not self._is_known:
            self._is_known = True
            self._farm.known.value += 1
        answer = _encode(
            PollReply(
                self.name,
                BOOT,
                self._instance,
                asked.generation,
                1,
                None if is_seen else Report(FACTS),
                stamp=now,
            )
        )
        if is_seen and asked.wait_seconds:
            timer = asyncio.get_running_loop().call_later(asked.wait_seconds, self._release)
            self._held = timer, connection, answer
        else:
            connection.answer(answer)

    def _release(self) -> None:
        if self._held is not None:
            (timer, connection, answer), self._held = self._held, None
            timer.cancel()
            connection.answer(answer)


class _Connection(asyncio.Protocol):
    """One connection of the master to some machine."""

    _machine: Idle

    def __init__(self, farm: IdleMachines) -> None:
        self._farm = farm
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._machine = self._farm.machines[transport.get_extra_info("sockname")[0]]

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        head, end, body = received.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length:")
        if not end or len(body) < int(length.partition(b"\r\n")[0] or 0):
            self._received = received
            return
        self._received = b""
        if head.startswith(b"GET /v1/head"):
            self.answer(_encode(HeadReply(self._machine.name, 1, 0)))
        else:
            self._machine.take(self, _decode(body))

    def answer(self, body: bytes) -> None:
        """Send an answer, as a borglet's server has it."""
        if self._transport.is_closing():
            return
        head = b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-type: application/json\r\n"
        self._transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))


def _host(number: int) -> str:
    """Return the address of the machine with this number, which is of this host only."""
    return f"127.{1 + number // 2**16}.{number // 2**8 % 2**8}.{number % 2**8}"


def certified(folder: Path, cell: str) -> ssl.SSLContext:
    """Return how the machines of a cell are called that has an authority in its folder: they share one
    certificate, for which each machine's name will do."""
    key, everyone = new_key(), "*"
    now = SystemClock().now().wall
    certificate = read_authority(folder).sign_machine(cell, everyone, request_to_sign(key, everyone), now)
    file = folder / "machines.pem"
    file.write_bytes(certificate + key)
    return borglet_listener(str(file), str(folder / AUTHORITY_FILE))
