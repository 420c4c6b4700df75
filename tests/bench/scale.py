"""Small jobs and large ones, from outside: a real borgmaster, its API and its polls over real HTTP.

The machines are one server in a process of its own: behind each token is the core of a borglet, for which to
start a program takes no time. What users wait for is measured: from the first request until all tasks are up.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import uvloop

from borgish.cell.model import Cell, Snapshot
from borgish.cli import local_cell as cell_folder
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.credentials import poll_token
from borgish.store.open import open_store
from borgish.vocabulary import Runtime
from borgish.wire.api import Accepted, StatusView
from borgish.wire.link import HeadReply, PollReply, PollRequest
from tests.bench.apps import cpu_seconds
from tests.bench.borglets import FACTS, InstantBorglet, machine_record
from tests.bench.cli import LOOK_SECONDS, MIB, memory_bytes
from tests.bench.figure import Figure
from tests.bench.past import kept
from tests.bench.sizes import Sizes
from tests.bench.standing import configure, master

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

CELL = "bench"
USERS = 4
"""So many submit at once, each its next job when the last one was answered."""
LARGE, SMALL = 1_000, 20
UP_SECONDS_MAX = 600.0
_FACTS = msgspec.structs.replace(FACTS, runtimes=(Runtime.PROCESS,))

_encode = msgspec.json.Encoder().encode
_poll = msgspec.json.Decoder(PollRequest).decode


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what a task costs in large jobs, then in small ones on the machines that the large ones fill."""
    for machines in sizes.scale_machines:
        with TemporaryDirectory(prefix="borgish-bench-") as place, _cell(Path(place), machines) as load:
            large = min(LARGE, sizes.scale_tasks)
            at_rest = sizes.scale_tasks // machines
            yield from load.figures(f"scale.{machines}.of_{large}", sizes.scale_tasks // large, large)
            yield from load.figures(f"scale.{machines}.{at_rest}_each.of_{SMALL}", sizes.scale_jobs, SMALL)
            yield Figure(f"scale.{machines}.master_rss", "MiB", [memory_bytes(load.pid)["Rss"] / MIB])


class _Load:
    """Users of a cell that has nothing else to do."""

    def __init__(self, folder: Path, pid: int, received: "Synchronized[int]") -> None:
        self._clients = [Client.find(folder) for _ in range(USERS)]
        self.pid, self._received = pid, received
        self._tasks = self._jobs = 0

    def figures(self, name: str, jobs: int, size: int) -> Iterator[Figure]:
        """Submit jobs; yield what they took once all is up."""
        names = [f"job-{self._jobs + number}" for number in range(jobs)]
        self._jobs += jobs
        self._tasks += jobs * size
        before, received = [cpu_seconds(pid) for pid in self._pids], self._received.value
        began = time.perf_counter()
        with ThreadPoolExecutor(USERS) as users:
            shares = (names[user::USERS] for user in range(USERS))
            waits = [
                ms for some in users.map(self._submit, self._clients, shares, [size] * USERS) for ms in some
            ]
        self._until_up()
        seconds, tasks = time.perf_counter() - began, jobs * size
        # Ours is with that of our children, and both are.
        master_cpu, all_cpu = (
            1000 * (cpu_seconds(pid) - was) / tasks for pid, was in zip(self._pids, before, strict=True)
        )
        yield Figure(f"{name}.rate", "tasks/s", [tasks / seconds])
        yield Figure(f"{name}.master_cpu", "ms a task", [master_cpu])
        yield Figure(f"{name}.load_cpu", "ms a task", [all_cpu - master_cpu])
        yield Figure(f"{name}.polls", "KiB a task", [(self._received.value - received) / 1024 / tasks])
        yield Figure(f"{name}.submit_p50", "ms", waits)
        yield Figure(f"{name}.submit_p99", "ms", waits, quantile=0.99)

    @property
    def _pids(self) -> tuple[int, int]:
        return self.pid, os.getpid()

    @staticmethod
    def _submit(client: Client, names: list[str], size: int) -> list[float]:
        """Submit one job after the other; return the milliseconds of each."""
        waits = []
        for name in names:
            resources = {"cpu": "100m", "ram": "64MiB"}
            job = {"name": name, "tasks": size, "run": ["serve"], "resources": resources, "user": CELL}
            began = time.perf_counter()
            client.post("/v1/jobs", json.dumps(job).encode(), Accepted)
            waits.append(1000 * (time.perf_counter() - began))
        return waits

    def _until_up(self) -> None:
        began = time.perf_counter()
        while (up := self._clients[0].get("/v1/status", None, StatusView).up or 0) < self._tasks:
            if time.perf_counter() - began > UP_SECONDS_MAX:
                raise TimeoutError(f"{up} of {self._tasks} tasks are up")
            time.sleep(LOOK_SECONDS)


@contextmanager
def _cell(folder: Path, machines: int) -> Iterator[_Load]:
    """Start a borgmaster whose machines are there."""
    cell_folder.make(folder, 1)
    url = f"sqlite:///{folder}/cell.db"
    names = [f"m{number}" for number in range(machines)]
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    records = {name: machine_record(name, _FACTS) for name in names}
    for record in records.values():
        record.host, record.port = "127.0.0.1", listening.getsockname()[1]
    with closing(open_store(url, CELL)) as store:
        kept(store, Cell(Snapshot(CELL, 1, machines=records)))
    configure(folder, CELL, url)
    context = multiprocessing.get_context("fork")
    received = context.Value("q", 0)
    farm = _Farm(names, (folder / "secret").read_text().strip(), received)
    process = context.Process(target=lambda: uvloop.run(farm.serve(listening)), daemon=True)
    process.start()
    try:
        with master(folder) as started:
            yield _Load(folder, started.pid, received)
    finally:
        process.kill()
        process.join()
        listening.close()


class _Farm:
    """All machines of a cell behind one port: that which is asked is known by its token."""

    def __init__(self, names: list[str], secret: str, received: "Synchronized[int]") -> None:
        clock = SystemClock()
        self._received = received
        self._borglets = {
            poll_token(secret, name).encode(): InstantBorglet(name, clock, _FACTS) for name in names
        }
        self._newer: dict[str, asyncio.Event] = {}  # of each machine: set when a newer poll comes

    async def serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._talk, sock=listening, limit=64 * MIB)
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, _, token = head.partition(b"Authorization: Bearer ")
                borglet = self._borglets[token.partition(b"\r\n")[0]]
                if head.startswith(b"GET /v1/head"):
                    body = _encode(HeadReply(borglet.core.machine, 1, 0))
                else:
                    _, _, length = head.lower().partition(b"content-length:")
                    asked = await reader.readexactly(int(length.partition(b"\r\n")[0]))
                    self._received.value += len(asked)
                    body = _encode(await self._poll(borglet, _poll(asked)))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the master is gone
        finally:
            writer.close()

    async def _poll(self, borglet: InstantBorglet, request: PollRequest) -> PollReply:
        name = borglet.core.machine
        borglet.take(request)
        if (held := self._newer.pop(name, None)) is not None:
            held.set()
        if not borglet.core.differs(request):
            newer = self._newer[name] = asyncio.Event()
            try:
                async with asyncio.timeout(request.wait_seconds):
                    await newer.wait()
            except TimeoutError:
                pass
        return borglet.core.reply(request)
