"""A real borgmaster under load from outside: its API and its polls over real HTTP. Parts of ``scale`` use it.

Each machine is the core of a borglet, for which to start a program takes no time. What users wait for is
measured: from the first request until all tasks are up.
"""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from borgish.cell.model import Cell, Snapshot
from borgish.cli import local_cell as cell_folder
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.store.open import open_store
from borgish.vocabulary import Runtime
from borgish.wire.api import Accepted, MachineList
from borgish.wire.link import PollRequest
from tests.bench.apps import cpu_seconds
from tests.bench.borglets import FACTS, InstantBorglet, machine_record
from tests.bench.cli import LOOK_SECONDS, MIB, memory_bytes
from tests.bench.farm import FORKED, Farm
from tests.bench.figure import Figure
from tests.bench.past import kept
from tests.bench.standing import Started, configure, master

CELL = "bench"
USERS = 4
"""So many submit at once, each its next job when the last one was answered."""
LARGE, SMALL = 1_000, 20
"""Tasks of a job."""
_FACTS = msgspec.structs.replace(FACTS, runtimes=(Runtime.PROCESS,))

_encode = msgspec.json.Encoder().encode
_poll = msgspec.json.Decoder(PollRequest).decode


class Load:
    """Users of a cell that has nothing else to do."""

    def __init__(self, folder: Path, master: Started, machines: "_Machines", machines_pid: int) -> None:
        self._clients = [Client.find(folder) for _ in range(USERS)]
        self.folder, self.master = folder, master
        self._machines, self._machines_pid = machines, machines_pid
        self._tasks = self._jobs = 0
        self.of_others = FORKED.Value("q", 0)  # tasks that other processes have submitted

    def figures(self, name: str, jobs: int, size: int) -> Iterator[Figure]:
        """Submit jobs; yield what they took once all is up."""
        before, received = self._cpu_seconds(), self._machines.count.value
        began = time.perf_counter()
        waits = self.bring_up(jobs, size)
        seconds, tasks = time.perf_counter() - began, jobs * size
        master_cpu, machines_cpu, users_cpu = (
            1000 * (now - was) / tasks for now, was in zip(self._cpu_seconds(), before, strict=True)
        )
        yield Figure(f"{name}.rate", "tasks/s", [tasks / seconds])
        yield Figure(f"{name}.master_cpu", "ms a task", [master_cpu])
        yield Figure(f"{name}.machines_cpu", "ms a task", [machines_cpu])
        yield Figure(f"{name}.users_cpu", "ms a task", [users_cpu])
        yield Figure(f"{name}.polls", "KiB a task", [(self._machines.count.value - received) / 1024 / tasks])
        yield Figure(f"{name}.submit_p50", "ms", waits)
        yield Figure(f"{name}.submit_p99", "ms", waits, quantile=0.99)

    def bring_up(self, jobs: int, size: int) -> list[float]:
        """Submit jobs, and wait until all is up; return the milliseconds of each answer."""
        names = self._named(jobs, size)
        with ThreadPoolExecutor(USERS) as users:
            shares = (names[user::USERS] for user in range(USERS))
            waits = [
                ms for some in users.map(self._submit, self._clients, shares, [size] * USERS) for ms in some
            ]
        self._until_up()
        return waits

    def bring_up_slowly(self, jobs: int, every_seconds: float) -> None:
        """Submit jobs of one task, each some time after the answer to the last one; wait until all is up."""
        for name in self._named(jobs, 1):
            submit(self._clients[0], name, 1)
            time.sleep(every_seconds)
        self._until_up()

    def on_a_machine(self, name: str) -> Figure:
        """Return how many tasks each machine has that has some: what a change costs may follow from it."""
        machines = self.master.client.get("/v1/machines", None, MachineList).items
        counts = [machine.tasks for machine in machines if machine.tasks]
        return Figure(f"{name}.on_a_machine", "tasks", counts, peer="n: machines that have some")

    def master_rss(self, name: str) -> Figure:
        """Return what the master has in memory."""
        return Figure(f"{name}.master_rss", "MiB", [memory_bytes(self.master.pid)["Rss"] / MIB])

    def _until_up(self) -> None:
        """Wait until as many tasks are up as were submitted. The few that others submit while this waits may
        be among them."""
        self.master.until_heard(self._tasks + self.of_others.value, LOOK_SECONDS)

    def _cpu_seconds(self) -> tuple[float, float, float]:
        """Return the cpu of master, machines and users. The first two are children of this process."""
        return cpu_seconds(self.master.pid), cpu_seconds(self._machines_pid), time.process_time()

    def _named(self, jobs: int, size: int) -> list[str]:
        """Return names for more jobs, whose tasks are to be up."""
        first = self._jobs
        self._jobs += jobs
        self._tasks += jobs * size
        return [f"job-{number}" for number in range(first, self._jobs)]

    @staticmethod
    def _submit(client: Client, names: list[str], size: int) -> list[float]:
        """Submit one job after the other; return the milliseconds of each."""
        waits = []
        for name in names:
            began = time.perf_counter()
            submit(client, name, size)
            waits.append(1000 * (time.perf_counter() - began))
        return waits


def submit(client: Client, name: str, size: int) -> None:
    """Submit a job; it is durable when this returns."""
    resources = {"cpu": "100m", "ram": "64MiB"}
    job = {"name": name, "tasks": size, "run": ["serve"], "resources": resources, "user": CELL}
    client.post("/v1/jobs", json.dumps(job).encode(), Accepted)


@contextmanager
def loaded(folder: Path, machines: int) -> Iterator[Load]:
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
    farm = _Machines(names, (folder / "secret").read_text().strip())
    with farm.running(listening) as pid, master(folder) as started:
        yield Load(folder, started, farm, pid)


class _Machines(Farm):
    """Each has the core of a borglet. The bytes of polls are counted."""

    def __init__(self, names: list[str], secret: str) -> None:
        super().__init__(names, secret)
        clock = SystemClock()
        self._borglets = {name: InstantBorglet(name, clock, _FACTS) for name in names}
        self._newer: dict[str, asyncio.Event] = {}  # of each machine: set when a newer poll comes

    async def answer(self, name: str, asked: bytes) -> bytes:
        self.count.value += len(asked)
        borglet, request = self._borglets[name], _poll(asked)
        borglet.take(request)
        if (held := self._newer.pop(name, None)) is not None:
            held.set()
        if not borglet.core.differs(request):
            newer = self._newer[name] = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(request.wait_seconds):
                    await newer.wait()
        return _encode(borglet.core.reply(request))
