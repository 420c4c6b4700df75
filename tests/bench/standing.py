"""A large cell whose borgmaster is killed and started again as its machines go on: a part of ``time``."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from borgish.cell.model import Cell
from borgish.cli import daemons
from borgish.cli import local_cell as cell_folder
from borgish.client import Client
from borgish.store.open import open_store
from borgish.vocabulary import Phase, State, task_name
from borgish.wire.api import StatusView
from borgish.wire.link import AttemptReport, PollRequest, Report
from tests.bench import peers
from tests.bench.borglets import BOOT, FACTS
from tests.bench.cli import LOOK_SECONDS, MIB, memory_bytes, until_served
from tests.bench.farm import Farm
from tests.bench.figure import Figure, at_least, at_most
from tests.bench.past import live
from tests.bench.sizes import Sizes
from tests.bench.store import large_cell

HEARD_SECONDS_MAX = 300.0
HOLD_SECONDS = 14.0
"""How long a poll is held, so that 10,000 machines on the two cores of the master leave it something. Twice
this is less than a lease, or no master takes it."""
HELD_LONG = f"""
[poll]
hold_seconds = {HOLD_SECONDS}
timeout_seconds = {HOLD_SECONDS}
down_after_seconds = {10 * HOLD_SECONDS}
"""
"""Has polls held for long."""

_encode = msgspec.json.Encoder().encode
_poll = msgspec.json.Decoder(PollRequest).decode


def figures_of(kind: str, url: str, folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield what a start takes, and how large the master is when all machines have reported."""
    name, tasks = f"time.{kind}", sizes.checkpoint_tasks
    cell_folder.make(folder, 1)
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    cell = large_cell(sizes.checkpoint_machines, tasks, 1)
    settle(cell, listening.getsockname()[1])
    with closing(open_store(url, cell.name)) as store:
        live(store, cell)
    configure(folder, cell.name, url)
    before = _attempts(cell)
    machines = _Machines(cell, (folder / "secret").read_text().strip())
    with machines.running(listening):
        starts = []
        for number in range(sizes.rounds):
            with master(folder) as started:
                starts.append(started.seconds)
                if number == sizes.rounds - 1:
                    heard = started.until_heard(tasks)
                    memory = memory_bytes(started.pid)["Rss"] / MIB
        yield Figure(f"{name}.start.{tasks}", "s", starts, at_most(5.0))
        yield Figure(f"{name}.start.{tasks}.all_heard", "s", [heard])
        yield Figure(f"{name}.master_rss.{tasks}", "MiB", [memory], at_most(1024.0), peers.BORG_MASTER_MEMORY)
        stopped = machines.count.value
    with closing(open_store(url, cell.name)) as store:
        after = _attempts(store.load())
    kept = sum(after.get(task) == attempt for task, attempt in before.items()) - stopped
    yield Figure(f"{name}.start.undisturbed", "tasks", [kept], at_least(tasks), decimals=0)


def settle(cell: Cell, port: int) -> None:
    """Have all machines at one port, and no task of a time that the journal has not reached."""
    for machine in cell.machines.values():
        machine.host, machine.port = "127.0.0.1", port
    for job in cell.jobs.values():
        for task in job.tasks:
            task.attempt = 1


def _attempts(cell: Cell) -> dict[tuple[str, int], tuple[int, str, State, int]]:
    """Return what must not change of a task that goes on."""
    return {
        (job.key, task.index): (task.attempt, task.machine, task.state, task.restarts)
        for job in cell.jobs.values()
        for task in job.tasks
    }


def configure(folder: Path, name: str, url: str, tables: str = HELD_LONG) -> None:
    """Have a local cell's master take a database, and be otherwise as these tables of its file say."""
    file = folder / "cell.toml"
    _, listen, state = file.read_text().splitlines()
    file.write_text(f'name = "{name}"\n{listen}\n{state}\ndb = "{url}"\n{tables}')


# The master


class Started(msgspec.Struct, frozen=True):
    """A borgmaster that serves."""

    pid: int
    seconds: float
    client: Client

    def until_heard(self, tasks: int, look_seconds: float = 10 * LOOK_SECONDS) -> float:
        """Return the seconds from its start until it knows of so many tasks that they are up."""
        began = time.perf_counter()
        while (up := self.client.get("/v1/status", None, StatusView).up or 0) < tasks:
            if time.perf_counter() - began > HEARD_SECONDS_MAX:
                raise TimeoutError(f"{up} of {tasks} tasks are up")
            time.sleep(look_seconds)
        return self.seconds + time.perf_counter() - began


@contextmanager
def master(folder: Path) -> Iterator[Started]:
    """Start a borgmaster; behind it it is killed."""
    daemon = cell_folder.master_of(folder)
    began = time.perf_counter()
    process = daemons.start(daemon)
    try:
        client = Client.find(folder)
        until_served(client, process, daemon)
        yield Started(process.pid, time.perf_counter() - began, client)
    finally:
        process.kill()
        process.wait()


# The machines


class _Machines(Farm):
    """Each says that its tasks are up. What they are told to stop is counted."""

    def __init__(self, cell: Cell, secret: str) -> None:
        super().__init__(cell.machines, secret)
        attempts: dict[str, list[AttemptReport]] = {name: [] for name in cell.machines}
        for job in cell.jobs.values():
            for task in job.tasks:
                name = task_name(job.key, task.index)
                report = AttemptReport(
                    name, task.attempt, Phase.UP, job.spec.resources, pid=4711, started_at=1.0
                )
                attempts[task.machine].append(report)
        self._reports = {
            name: msgspec.Raw(_encode(Report(FACTS, tuple(running)))) for name, running in attempts.items()
        }

    async def answer(self, name: str, asked: bytes) -> bytes:
        request = _poll(asked)
        instance, generation = f"{name}-1", request.generation
        if request.assignment is not None:
            self.count.value += len(request.assignment.stop)
        reply = {"machine": name, "boot_id": BOOT, "instance": instance, "generation": generation}
        if request.seen != 1 or request.seen_instance != instance:
            return _encode(reply | {"report_generation": 1, "report": self._reports[name]})
        if request.assignment is None:
            await asyncio.sleep(request.wait_seconds)
        return _encode(reply | {"report_generation": 1})
