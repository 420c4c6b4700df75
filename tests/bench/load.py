"""A real borgmaster under load from outside, by its API and its polls over real HTTP, as ``scale`` puts it.

Each machine is the core of a borglet, for which to start a program takes no time. All of them are one
process, and those who submit are threads of this one.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from borgish.borglet.actions import Action, Start
from borgish.cell.model import Cell, Job, Snapshot
from borgish.cli import local_cell as cell_folder
from borgish.client import Client
from borgish.clock import Now, SystemClock
from borgish.resources import Resources
from borgish.store.open import open_store
from borgish.vocabulary import Runtime, split_task_name
from borgish.wire.api import Accepted, MachineList
from borgish.wire.link import Facts, PollRequest
from tests.bench.apps import cpu_seconds
from tests.bench.borglets import FACTS, InstantBorglet, machine_record
from tests.bench.cli import LOOK_SECONDS, MIB, memory_bytes
from tests.bench.farm import FORKED, Farm
from tests.bench.figure import Figure
from tests.bench.past import kept
from tests.bench.standing import HELD_LONG, Started, configure, master

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

CELL = "bench"
OTHER = "other"
"""Whose tasks are not among those that a load waits for."""
USERS = 4
"""So many submit at once, each its next job when the last one was answered."""
PACED_USERS = 16
"""So many submit jobs that come at their time, so that one that waits holds up none that is due."""
LARGE, SMALL = 1_000, 20
"""Tasks of a job."""
NEEDS = Resources(100, 64 * MIB)
UP_SECONDS_MAX = 600.0
_FACTS = msgspec.structs.replace(FACTS, runtimes=(Runtime.PROCESS,))
UNLIMITED = "\n[limits]\nrequests_per_second = 0\n"
"""All who ask have one token: what one user may ask for at most is not measured here."""

_encode = msgspec.json.Encoder().encode
_poll = msgspec.json.Decoder(PollRequest).decode


class Asked(NamedTuple):
    """A job to submit. ``due_seconds`` after the first one it is due; None: as soon as somebody is free."""

    tasks: int
    needs: Resources = NEEDS
    due_seconds: float | None = None


class Waits(NamedTuple):
    """Milliseconds of each job: until its submission was answered, and until all its tasks run."""

    submit: list[float]
    running: list[float]


class Taken(NamedTuple):
    """What some jobs took: tasks a second, then for each task the milliseconds of cpu, by whose they are, and
    the KiB of polls."""

    rate: float
    cpu: dict[str, float]
    polls: float
    waits: Waits
    master_rss: float  # MiB, afterwards

    def figures(self, name: str) -> Iterator[Figure]:
        """Yield all of it."""
        yield Figure(f"{name}.rate", "tasks/s", [self.rate])
        for whose, each in self.cpu.items():
            yield Figure(f"{name}.{whose}_cpu", "ms a task", [each])
        yield Figure(f"{name}.polls", "KiB a task", [self.polls])
        yield from spread(f"{name}.submit", self.waits.submit)
        yield from spread(f"{name}.running", self.waits.running)
        yield Figure(f"{name}.master_rss", "MiB", [self.master_rss])


class Load:
    """Users of a cell that has nothing else to do."""

    def __init__(self, folder: Path, master: Started, machines: "Machines", farm: int) -> None:
        self.folder, self.master = folder, master
        self._machines, self._farm = machines, farm
        self._clients = [Client.find(folder) for _ in range(PACED_USERS)]
        self._tasks = self._jobs = 0

    def measured(self, jobs: Sequence[Asked]) -> "Taken":
        """Submit jobs; return what they took once all is up."""
        before, received = self._cpu_seconds(), self._machines.count.value
        began = time.perf_counter()
        waits = self.bring_up(jobs)
        seconds, tasks = time.perf_counter() - began, sum(job.tasks for job in jobs)
        polls_kib = (self._machines.count.value - received) / 1024
        cpu = {whose: 1000 * (now - before[whose]) / tasks for whose, now in self._cpu_seconds().items()}
        return Taken(tasks / seconds, cpu, polls_kib / tasks, waits, self.master_rss())

    def bring_up(self, jobs: Sequence[Asked]) -> Waits:
        """Submit jobs, and wait until all tasks are up; return what users waited for."""
        waits = self.start(jobs)
        self.until_up()
        return waits

    def start(self, jobs: Sequence[Asked]) -> Waits:
        """Submit jobs, and wait until all tasks run on their machines, whatever the master knows of that;
        return what users waited for."""
        started = named("job-", jobs, self._jobs)
        self._jobs += len(jobs)
        self._tasks += sum(job.tasks for job in jobs)
        are_paced = any(job.due_seconds is not None for job in jobs)
        answered = submit_all(self._clients[: PACED_USERS if are_paced else USERS], started)
        self._until_started()
        last = self._machines.last_started()
        return Waits(
            [1000 * (at - asked) for _, asked, at in answered],
            [1000 * (last[name] - asked) for name, asked, _ in answered],
        )

    def until_up(self) -> None:
        """Wait until all that was submitted here runs, and the master knows of that and of others' tasks."""
        self._until_started()
        self.master.until_heard(self._tasks + self._machines.others.value, LOOK_SECONDS)

    def _until_started(self) -> None:
        _until(self._machines.ours, self._tasks, "tasks run")

    def on_a_machine(self, name: str) -> Figure:
        """Return how many tasks each machine has that has some: what a change costs may follow from it."""
        machines = self.master.client.get("/v1/machines", None, MachineList).items
        counts = [machine.tasks for machine in machines if machine.tasks]
        return Figure(f"{name}.on_a_machine", "tasks", counts, note="n: machines that have some")

    def master_rss(self) -> float:
        """Return the MiB that the master has in memory."""
        return memory_bytes(self.master.pid)["Rss"] / MIB

    def _cpu_seconds(self) -> dict[str, float]:
        """Return the cpu of each. Master and machines are children of this process."""
        return {
            "master": cpu_seconds(self.master.pid),
            "machines": cpu_seconds(self._farm),
            "users": time.process_time(),
        }


def spread(name: str, waits: Sequence[float]) -> Iterator[Figure]:
    """Yield the median and the 99th percentile of milliseconds."""
    yield Figure(f"{name}_p50", "ms", waits)
    yield Figure(f"{name}_p99", "ms", waits, quantile=0.99)


def of(size: int, tasks: int) -> list[Asked]:
    """Return jobs of one size, or of fewer tasks where that is more than all."""
    size = min(size, tasks)
    return [Asked(size)] * (tasks // size)


def named(prefix: str, jobs: Sequence[Asked], first: int = 0) -> list[tuple[str, Asked]]:
    """Return jobs with their names, which are numbered."""
    return [(f"{prefix}{number}", job) for number, job in enumerate(jobs, first)]


def submit(client: Client, name: str, job: Asked, user: str = CELL, run: Sequence[str] = ("serve",)) -> None:
    """Submit a job; it is durable when this returns."""
    needs = {"cpu": f"{job.needs.cpu_millis}m", "ram": f"{job.needs.ram_bytes}B"}
    said = {"name": name, "tasks": job.tasks, "run": list(run), "resources": needs, "user": user}
    client.post("/v1/jobs", json.dumps(said).encode(), Accepted)


Answered = tuple[str, float, float]
"""The name of a job, when it was due, and when the answer to its submission was there."""


def submit_all(
    clients: Sequence[Client],
    jobs: Sequence[tuple[str, Asked]],
    user: str = CELL,
    run: Sequence[str] = ("serve",),
) -> list[Answered]:
    """Have clients submit jobs, each its next one when the last one was answered, or when it is due."""
    began, todo = time.perf_counter(), iter(jobs)

    def submit_next(client: Client) -> list[Answered]:
        answered = []
        for name, job in todo:
            due = time.perf_counter()
            if job.due_seconds is not None:
                due, now = began + job.due_seconds, due
                time.sleep(max(0.0, due - now))
            submit(client, name, job, user, run)
            answered.append((name, due, time.perf_counter()))
        return answered

    with ThreadPoolExecutor(len(clients)) as threads:
        return [each for some in threads.map(submit_next, clients) for each in some]


@contextmanager
def loaded(
    folder: Path,
    machines: int,
    tables: str = HELD_LONG + UNLIMITED,
    jobs: Mapping[str, Job] | None = None,
    made: "Callable[[list[str], str, Path], Machines] | None" = None,
) -> Iterator[Load]:
    """Start a borgmaster with these tables in its file; all its machines are there, and it knows that. The
    cell has these ``jobs`` from the start, and its machines are made by ``made``."""
    cell_folder.make(folder, 1)
    url = f"sqlite:///{folder}/cell.db"
    names = [f"m{number}" for number in range(machines)]
    listening = socket.create_server(("", 0), backlog=4096)
    records = {name: machine_record(name, _FACTS) for name in names}
    for number, record in enumerate(records.values()):
        # An address for each, as machines have: with 20,000 connections to one of them most of what a further
        # one takes is the kernel's search for a port of ours that is free.
        record.host, record.port = f"127.1.{number // 250}.{number % 250 + 1}", listening.getsockname()[1]
    with closing(open_store(url, CELL)) as store:
        kept(store, Cell(Snapshot(CELL, 1, machines=records, jobs=dict(jobs or {}))))
    configure(folder, CELL, url, tables)
    farm = (made or Machines)(names, (folder / "secret").read_text().strip(), folder / "started")
    with farm.running(listening) as pid, master(folder) as started:
        _until(farm.known, machines, "machines are known")
        yield Load(folder, started, farm, pid)


def _until(count: "Synchronized[int]", least: int, what: str) -> None:
    began = time.perf_counter()
    while (now := count.value) < least:
        if time.perf_counter() - began > UP_SECONDS_MAX:
            raise TimeoutError(f"{now} of {least} {what}")
        time.sleep(LOOK_SECONDS)


# The machines


class Machines(Farm):
    """Each has the core of a borglet. The bytes of polls are counted, and the tasks that were started:
    ``ours`` are the load's, ``others`` are those of somebody else. ``log`` is the file for when that was.
    ``known`` are the machines whose first report the master has."""

    def __init__(self, names: list[str], secret: str, log: Path) -> None:
        super().__init__(names, secret)
        self.ours, self.others = FORKED.Value("q", 0), FORKED.Value("q", 0)
        self.known = FORKED.Value("q", 0)
        self._unknown = set(names)
        clock = SystemClock()
        self._borglets = {name: _Borglet(name, clock, _FACTS) for name in names}
        self._newer: dict[str, asyncio.Event] = {}  # of each machine: set when a newer poll comes
        self._log = log

    def last_started(self) -> dict[str, float]:
        """Return when the last task of each of the load's jobs was started, by the clock of
        ``time.perf_counter``, which all processes of a host share."""
        rows = (row.split() for row in self._log.read_text().splitlines())
        return {job: float(at) for job, at in rows}

    async def answer(self, name: str, asked: bytes) -> bytes:
        self.count.value += len(asked)
        borglet, request = self._borglets[name], _poll(asked)
        borglet.take(request)
        if name in self._unknown and request.seen_instance:
            self._unknown.remove(name)
            self.known.value += 1
        self._note(borglet)
        if (held := self._newer.pop(name, None)) is not None:
            held.set()
        if not borglet.core.differs(request):
            newer = self._newer[name] = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(request.wait_seconds):
                    await newer.wait()
        return _encode(borglet.core.reply(request))

    def _note(self, borglet: "_Borglet") -> None:
        """Write down and count what a machine has just started."""
        if not borglet.started:
            return
        now = time.perf_counter()
        keys = [split_task_name(task)[0].split("/") for task in borglet.started]
        borglet.started.clear()
        names = [name for user, name in keys if user == CELL]
        with self._log.open("a") as file:
            file.writelines(f"{name} {now}\n" for name in dict.fromkeys(names))
        self.ours.value += len(names)
        self.others.value += len(keys) - len(names)


class _Borglet(InstantBorglet):
    """Says which tasks it has started."""

    def __init__(self, name: str, clock: SystemClock, facts: Facts) -> None:
        self.started: list[str] = []
        super().__init__(name, clock, facts)

    def _do(self, action: Action, now: Now) -> None:
        super()._do(action, now)
        if isinstance(action, Start):
            self.started.append(action.spec.task)
