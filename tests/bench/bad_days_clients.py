"""Clients that do not read, and clients that all come at once: a part of ``bad_days``."""

import asyncio
import hashlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from borgish.client import Client
from borgish.ids import new_token
from borgish.wire.api import Accepted
from borgish.wire.api_access import TokenRequest
from tests.bench.bad_days_beside import beside, seen, spread
from tests.bench.farm import FORKED
from tests.bench.figure import Figure
from tests.bench.load import OTHER, USERS, Asked, Load, loaded, named, submit_all
from tests.bench.sizes import Sizes
from tests.bench.standing import HELD_LONG

KINDS = "event,tasks"
RECEIVED_BYTES_MAX = 128 * 1024
"""As much of a watch that nobody reads the reader's own kernel keeps, and its book-keeping as much again."""
CAUGHT_UP_SECONDS = 1.0
"""A watch that says nothing for so long has said all, and goes on."""
PIECE_BYTES = 64 * 1024
TOLD = b"event: gone"
GONE, CUT, ON = "gone", "cut", "on"
"""How watches end that are read at last: told that they were too slow, without such a word, or not at all."""
FEWER_THAN_KEPT = "nobody missed any of the messages, which were fewer than are kept"
FEWER_THAN_ALLOWED = "one user may ask so often at once"
TOO_MANY, BUSY = 429, 503
FIRST, AGAIN = "first", "again"


# Clients that never read


def watched(sizes: Sizes) -> Iterator[Figure]:
    """Yield what others wait for while jobs come, without watchers and with those that never read."""
    watchers, name = sizes.bad_watchers, "bad_days.watched"
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        loaded(Path(place), sizes.bad_machines) as load,
    ):
        yield from _beside_jobs(load, f"{name}.by_0", sizes)
        with _never_reading(load, watchers) as never_read:
            yield from _beside_jobs(load, f"{name}.by_{watchers}", sizes)
            ends = never_read.ends()
        yield Figure(f"{name}.by_{watchers}.master_rss_afterwards", "MiB", [load.master_rss()])
        gone, cut, on = (ends[how] for how in (GONE, CUT, ON))
        note = f"of {watchers}: {gone} told that they were too slow, {cut} cut off; {on} had missed nothing"
        absent = "" if gone + cut else FEWER_THAN_KEPT
        yield Figure(f"{name}.by_{watchers}.let_go", "watchers", [gone + cut], absent=absent, note=note)


def _beside_jobs(load: Load, name: str, sizes: Sizes) -> Iterator[Figure]:
    """Yield what others wait for while somebody submits jobs of one task as fast as they are taken in."""
    before = load.master_rss()
    jobs = named(f"job-{name.rpartition('_')[2]}-", [Asked(1)] * sizes.bad_watched_jobs)
    clients = [Client.find(load.folder) for _ in range(USERS)]
    with beside(lambda: len(submit_all(clients, jobs, OTHER))) as submitting:
        waits = seen(load, sizes.bad_probes, submitting.is_over)
        submitting.result()
    yield from waits.figures(name)
    yield Figure(f"{name}.master_rss_before", "MiB", [before])
    yield Figure(f"{name}.master_rss", "MiB", [load.master_rss()], note=f"after {len(jobs)} jobs of others")


class _NeverReading(NamedTuple):
    to_read: Connection

    def ends(self) -> Counter[str]:
        """Have the watchers read what there is, and return how many of them had which end."""
        self.to_read.send(None)
        found: Counter[str] = self.to_read.recv()
        return found


@contextmanager
def _never_reading(load: Load, watchers: int) -> Iterator[_NeverReading]:
    """Have so many watch and read no more than that they may."""
    here, there = FORKED.Pipe()
    url, token = urlsplit(load.master.client.url), load.master.client.token

    def watch() -> None:
        opened = [_open(url.hostname or "", url.port or 0, token) for _ in range(watchers)]
        there.send(len(opened))
        there.recv()
        there.send(Counter(uvloop.run(_read_all(opened))))

    process = FORKED.Process(target=watch, daemon=True)
    process.start()
    there.close()
    try:
        here.recv()  # all of them are open
        yield _NeverReading(here)
    finally:
        process.kill()
        process.join()
        here.close()


def _open(name: str, port: int, token: str) -> socket.socket:
    """Open a watch, and read its head alone."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES_MAX)
    opened.connect((name, port))
    head = f"GET /v1/watch?kinds={KINDS} HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {token}\r\n\r\n"
    opened.sendall(head.encode())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        if not (piece := opened.recv(1)):
            raise RuntimeError(f"no watch: {said!r}")
        said += piece
    if not said.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"no watch: {said!r}")
    return opened


async def _read_all(opened: list[socket.socket]) -> list[str]:
    return await asyncio.gather(*map(_read, opened))


async def _read(opened: socket.socket) -> str:
    """Read a watch until it ends, or has nothing more to say."""
    reader, writer = await asyncio.open_connection(sock=opened)
    last = b""
    try:
        while piece := await asyncio.wait_for(reader.read(PIECE_BYTES), CAUGHT_UP_SECONDS):
            last = last[-len(TOLD) :] + piece
            if TOLD in last:
                return GONE
    except TimeoutError:
        return ON
    except ConnectionError:
        pass
    finally:
        writer.close()
    return CUT


# Clients that come at once


class _Answer(NamedTuple):
    status: int  # 0: there was none
    says_when: bool  # to ask again
    ms: float


def crowded(sizes: Sizes) -> Iterator[Figure]:
    """Yield what becomes of many clients of one user that ask at once, from one address, and then again."""
    clients, name = sizes.bad_clients, f"bad_days.crowd.{sizes.bad_clients}"
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        loaded(Path(place), sizes.bad_machines, HELD_LONG) as load,
    ):
        token = _token_of_another(load.master.client)
        url = urlsplit(load.master.client.url)
        for time_ in (FIRST, AGAIN):
            before = load.master_rss()
            crowd = partial(_crowd, url.hostname or "", url.port or 0, token, clients)
            with beside(lambda: uvloop.run(crowd())) as asking:  # noqa: B023 - it is over within this turn
                waits = seen(load, sizes.bad_probes, asking.is_over)
                answers, seconds = asking.result()
            yield from _answered(f"{name}.{time_}", answers)
            if time_ == AGAIN:
                yield _told_when(f"{name}.{time_}", answers)
            yield Figure(f"{name}.{time_}.all_answered", "s", [seconds])
            yield from waits.figures(f"{name}.{time_}")
            yield Figure(f"{name}.{time_}.master_rss_before", "MiB", [before])
            yield Figure(f"{name}.{time_}.master_rss", "MiB", [load.master_rss()])


def _answered(name: str, answers: list[_Answer]) -> Iterator[Figure]:
    by_status = Counter(answer.status for answer in answers)
    note = ", ".join(f"{count} {status or 'no answer'}" for status, count in sorted(by_status.items()))
    answered = [answer.ms for answer in answers if answer.status]
    yield Figure(f"{name}.answered", "clients", [len(answered)], note=f"of {len(answers)}: {note}")
    yield from spread(f"{name}.answer", answered)


def _told_when(name: str, answers: list[_Answer]) -> Figure:
    told = sum(answer.status in (TOO_MANY, BUSY) and answer.says_when for answer in answers)
    absent = "" if told else FEWER_THAN_ALLOWED
    return Figure(f"{name}.told_when", "clients", [told], absent=absent, note="429 or 503 with Retry-After")


def _token_of_another(admin: Client) -> str:
    """Return the token of somebody else who may only read."""
    token = new_token()
    admin.post(f"/v1/users/{OTHER}", b"", Accepted)
    digest = hashlib.sha256(token.encode()).hexdigest()
    admin.post("/v1/tokens", TokenRequest(digest, OTHER, "reader"), Accepted)
    return token


async def _crowd(name: str, port: int, token: str, clients: int) -> tuple[list[_Answer], float]:
    """Ask with so many connections at once; return what each was answered, and the seconds for all."""
    head = f"GET /v1/status HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    began = time.perf_counter()
    opened = list[asyncio.StreamWriter]()  # until all are answered

    async def ask() -> _Answer:
        said = b""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(name, port)
            opened.append(writer)
            writer.write(head)
            said = await reader.readuntil(b"\r\n\r\n")
        ms = 1000 * (time.perf_counter() - began)
        status = int(said.split(maxsplit=2)[1]) if said else 0
        return _Answer(status, b"retry-after:" in said.lower(), ms)

    answers = await asyncio.gather(*(ask() for _ in range(clients)))
    return answers, time.perf_counter() - began
