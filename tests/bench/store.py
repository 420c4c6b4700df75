"""``store``: what durable costs, in SQLite on this machine's disk and in a private Postgres server.

The store is called as the master calls it, from this process. ``append`` is a commit: of a turn in which
little happened, of a turn that placed tasks, and of the latter while another thread never pauses, as a
master's event loop may. The ``pause`` of a checkpoint is the longest that a turn waits for it: the cell's
records become bytes in slices, and the rest is done beside. ``load`` is from the opening of the store to a
cell in memory. Postgres is on the same host, so that a network is left out.
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from borgish.cell.events import Entry, MachineCordoned
from borgish.cell.model import Cell, Job, Machine, Snapshot, Task
from borgish.clock import SystemClock
from borgish.master.past.checkpoints import SLICE_SECONDS
from borgish.master.process import SWITCH_SECONDS
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.store.base import Records, Store
from borgish.store.codec import compress_pieces
from borgish.store.open import open_store
from borgish.store.sliced import SlicedSnapshot
from borgish.vocabulary import TASKS_PER_JOB_MAX, State
from tests.bench import peers
from tests.bench.borglets import machine_record
from tests.bench.figure import Figure, at_most
from tests.bench.sizes import Sizes
from tests.fixtures_postgres import durable_server
from tests.groups import postgres_lacks

CELL = "bench"
MIB = 1024**2


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of SQLite, then of Postgres where there is one."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder:
        yield from _all_of("sqlite", f"sqlite:///{folder}/cell.db", sizes)
    if lacking := postgres_lacks():
        yield Figure("store.postgres", "ms", absent=lacking)
        return
    with durable_server() as server:
        yield from _all_of("postgres", server.fresh_url(), sizes)


def _all_of(kind: str, url: str, sizes: Sizes) -> Iterator[Figure]:
    writer = Writer(url)
    try:
        yield from appends(f"store.{kind}", writer, sizes)
        rates = [sizes.rows / writer.rows(sizes.rows) for _ in range(sizes.rounds)]
        yield Figure(f"store.{kind}.rows.{sizes.rows}_at_once", "rows/s", rates)
        yield from beside_busy(f"store.{kind}", writer, sizes)
        yield from checkpoints(f"store.{kind}", writer, sizes)
    finally:
        writer.close()
    loads = [load(url) for _ in range(sizes.rounds)]
    goal = at_most(5.0)
    yield Figure(f"store.{kind}.load.{sizes.checkpoint_tasks}", "s", loads, goal, peers.BORG_RECOVERY)


def appends(name: str, writer: "Writer", sizes: Sizes) -> Iterator[Figure]:
    """Commits of a turn in which little happened."""
    small = [1000 * writer.small() for _ in range(sizes.appends)]
    yield Figure(f"{name}.append.p50", "ms", small)
    yield Figure(f"{name}.append.p99", "ms", small, quantile=0.99)


def beside_busy(name: str, writer: "Writer", sizes: Sizes) -> Iterator[Figure]:
    """Commits of tasks that a turn placed, as the master makes them: on a thread, while its event loop may
    have something to do without a pause."""
    busy, over, switch_seconds = sizes.beside_busy, threading.Event(), sys.getswitchinterval()

    def spin() -> None:
        while not over.is_set():
            pass

    idle = [1000 * writer.rows(busy) for _ in range(sizes.rounds)]
    yield Figure(f"{name}.append.{busy}_tasks", "ms", idle)
    spinning = threading.Thread(target=spin)
    sys.setswitchinterval(SWITCH_SECONDS)
    spinning.start()
    try:
        beside = [1000 * writer.rows(busy) for _ in range(sizes.rounds)]
    finally:
        over.set()
        spinning.join()
        sys.setswitchinterval(switch_seconds)
    yield Figure(f"{name}.append.{busy}_tasks_beside_busy_thread", "ms", beside)


def checkpoints(name: str, writer: "Writer", sizes: Sizes) -> Iterator[Figure]:
    """The pause is the longest that a turn waits for: the cell's records become bytes in slices. The rest is
    done beside it."""
    cell = large_cell(sizes.checkpoint_machines, sizes.checkpoint_tasks, writer.position)
    pauses, saves, stored = [], [], []
    for _ in range(sizes.rounds):
        began = time.perf_counter()
        sliced = SlicedSnapshot(cell)
        longest = time.perf_counter() - began + _slice(sliced)
        while not sliced.is_nearly_done:
            longest = max(longest, _slice(sliced))
        began = time.perf_counter()
        body = sliced.finish()
        pauses.append(1000 * max(longest, time.perf_counter() - began))
        began = time.perf_counter()
        stored.append(writer.keep(body) / MIB)
        saves.append(time.perf_counter() - began)
    tasks = sizes.checkpoint_tasks
    yield Figure(f"{name}.checkpoint.{tasks}.pause", "ms", pauses, at_most(25.0))
    yield Figure(f"{name}.checkpoint.{tasks}.save", "s", saves)
    yield Figure(f"{name}.checkpoint.{tasks}.size", "MiB", stored)


def _slice(sliced: SlicedSnapshot) -> float:
    """Encode for as long as a master does at a time; return the seconds that it took."""
    began = time.perf_counter()
    sliced.encode_some(lambda: time.perf_counter() <= began + SLICE_SECONDS)
    return time.perf_counter() - began


class Writer:
    """Writes to a store as a master does."""

    def __init__(self, url: str) -> None:
        self._store: Store = open_store(url, CELL)
        self._clock = SystemClock()
        self.position = self._store.load().position
        self._epoch = self._store.lead("bench", "bench")
        self._chance = random.Random(8)

    def small(self) -> float:
        """Append one entry and one machine's row."""
        return self._append(Records(machines=[machine_record("m1")]))

    def rows(self, count: int) -> float:
        """Append one entry and so many tasks' rows."""
        return self._append(
            Records(tasks=[(f"{CELL}/job", _tasks(self._chance, count, 1, self._clock.now().wall))])
        )

    def _append(self, records: Records) -> float:
        self.position += 1
        event = MachineCordoned("m1", "for the bench")
        at = self._clock.now().wall
        entry = Entry(self.position, at, 1, self._epoch, "bench", "cordon", (event,))
        began = time.perf_counter()
        self._store.append([entry], records)
        return time.perf_counter() - began

    def keep(self, body: Iterator[bytes]) -> int:
        """Keep a checkpoint at the journal's head; return its stored bytes."""
        stored = compress_pieces(body)
        return self._store.save_checkpoint(stored, self.position, self._clock.now().wall, "bench").bytes

    def close(self) -> None:
        self._store.close()


def load(url: str) -> float:
    """Return the seconds from opening the store to having the cell in memory."""
    began = time.perf_counter()
    store = open_store(url, CELL)
    cell = store.load()
    seconds = time.perf_counter() - began
    store.close()
    assert cell.jobs, "the checkpoint was not read"
    return seconds


def large_cell(machines: int, tasks: int, position: int) -> Cell:
    """Return a cell at a journal position in which all runs."""
    names = [f"m{number}" for number in range(machines)]
    records: dict[str, Machine] = {name: machine_record(name) for name in names}
    jobs: dict[str, Job] = {}
    chance, at = random.Random(7), SystemClock().now().wall
    while left := tasks - sum(job.running for job in jobs.values()):
        size = min(left, TASKS_PER_JOB_MAX)
        spec = JobSpec(f"job-{len(jobs)}", CELL, size, ("serve",), resources=Resources(100, 128 * MIB))
        jobs[spec.key] = Job(
            spec.key, 1, spec, at, CELL, tasks=_tasks(chance, size, machines, at), running=size
        )
    return Cell(Snapshot(CELL, position, jobs=jobs, machines=records))


def _tasks(chance: random.Random, count: int, machines: int, at: float) -> list[Task]:
    """Return running tasks, placed here and there at one time and another."""
    return [
        Task(
            index,
            State.RUNNING,
            attempt=chance.randrange(1, 1_000_000),
            machine=f"m{chance.randrange(machines)}",
            since=at - chance.random() * 86_400,
        )
        for index in range(count)
    ]
