"""``failover``: kill -9 of the master that leads, and how soon the other one commits a client's next write.

Two real borgmasters on one database, in turn the leader; the one that was killed comes back as the standby.
The client is ``borgish.client``, as borgctl uses it, with both addresses. ``untouched`` are the tasks that
ran on without a restart through all trials; the figures of a large cell have machines that answer nobody.
Both masters are on one host: a host or a network that is lost is left out.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from borgish.cell.events import Entry
from borgish.cli.changes import Deadline
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import BorgishError
from borgish.store.base import Records
from borgish.store.codec import compress, encode_snapshot
from borgish.store.open import open_store
from borgish.wire.api import Accepted, HealthView
from tests.bench import peers
from tests.bench.figure import Figure, at_least, at_most
from tests.bench.served import join_master
from tests.bench.sizes import Sizes
from tests.bench.store import large_cell
from tests.faults.judge import CELL
from tests.faults.ledger import JOB
from tests.faults.machines import Machines
from tests.faults.nursery import Nursery
from tests.fixtures_postgres import durable_server
from tests.groups import postgres_lacks
from tests.invited import invite_many
from tests.ports import free_port

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.02
MACHINES = 4
MIB = 1024**2
GOALS = {"sqlite": (3.0, 3.0), "postgres": (4.0, 8.0)}
"""Seconds: of the median, and of the 99th in a hundred."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of SQLite, then of Postgres where there is one."""
    with Nursery(measured=True) as nursery:
        yield from _all_of("sqlite", nursery, "", sizes)
        yield from _large("sqlite", nursery, "", sizes)
        if lacking := postgres_lacks():
            yield Figure("failover.postgres", "s", absent=lacking)
            return
        with durable_server() as server:
            yield from _all_of("postgres", nursery, server.fresh_url(), sizes)
            yield from _large("postgres", nursery, server.fresh_url(), sizes)


def _all_of(kind: str, nursery: Nursery, url: str, sizes: Sizes) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="borgish-failover-") as folder, Machines(MACHINES) as machines:
        two = Two(nursery, Path(folder), url or f"sqlite:///{folder}/cell.db")
        try:
            two.begin()
            two.have_run(sizes.failover_tasks, machines)
            before = machines.running()
            seconds = [two.fail_over(number) for number in range(sizes.failovers)]
            same = _untouched(before, machines)
        finally:
            two.end()
    median, worst = GOALS[kind]
    yield Figure(f"failover.{kind}", "s", seconds, at_most(median), peers.BORG_RECOVERY)
    yield Figure(f"failover.{kind}.p99", "s", seconds, at_most(worst), quantile=0.99)
    yield Figure(f"failover.{kind}.untouched", "tasks", [same], at_least(sizes.failover_tasks))


def _large(kind: str, nursery: Nursery, url: str, sizes: Sizes) -> Iterator[Figure]:
    """As well, in a cell so large that only a warm copy makes it quick. Its machines answer nobody."""
    tasks = sizes.checkpoint_tasks
    with tempfile.TemporaryDirectory(prefix="borgish-failover-") as folder:
        url = url or f"sqlite:///{folder}/cell.db"
        _keep_large_cell(url, sizes.silent_machines, tasks)
        two = Two(nursery, Path(folder), url)
        try:
            two.begin()
            leader, standby = two.rss_bytes()
            seconds = [two.fail_over(number) for number in range(sizes.rounds)]
        finally:
            two.end()
    median, _ = GOALS[kind]
    yield Figure(f"failover.{kind}.{tasks}_tasks", "s", seconds, at_most(median), peers.BORG_RECOVERY)
    yield Figure(f"failover.{kind}.rss.leader", "MiB", [leader / MIB], at_most(1024))
    yield Figure(f"failover.{kind}.rss.standby", "MiB", [standby / MIB], at_most(1024))


def _keep_large_cell(url: str, machines: int, tasks: int) -> None:
    """Have a database hold a checkpoint of a cell in which all runs."""
    store = open_store(url, CELL)
    try:
        store.load()
        epoch, now = store.lead("bench", ""), SystemClock().now().wall
        store.append([Entry(1, now, 1, epoch, "bench", "begin", ())], Records())
        snapshot = large_cell(machines, tasks, 1).snapshot()
        for machine in snapshot.machines.values():
            machine.host, machine.port = "127.0.0.1", 1
        snapshot.name = CELL
        store.save_checkpoint(compress(encode_snapshot(snapshot)), 1, now, "bench")
    finally:
        store.close()


def _untouched(before: dict[str, set[tuple[str, int]]], machines: Machines) -> int:
    """Return how many of the tasks that ran before run still, and were started once."""
    now = machines.running()
    return sum(
        key in now[name] and machines.borglets[name].starts[key] == 1
        for name, keys in before.items()
        for key in keys
    )


class Two:
    """Two masters of one cell, each with a folder of its own."""

    def __init__(self, nursery: Nursery, folder: Path, url: str) -> None:
        self._nursery = nursery
        self._folders = [folder / "a", folder / "b"]
        self._urls = [f"http://127.0.0.1:{port}" for port in (free_port(), free_port())]
        self._pids: list[int] = [0, 0]
        self._leader = 0
        for own, address in zip(self._folders, self._urls, strict=True):
            own.mkdir(mode=0o700)
            listen = address.removeprefix("http://")
            text = f'name = "{CELL}"\nlisten = "{listen}"\nstate = "."\ndb = "{url}"\n'
            (own / "cell.toml").write_text(text)

    def begin(self) -> None:
        """Start both: one leads, the other has a warm copy."""
        self._start(0)
        self._until(lambda: self._health(0).role == "leader")
        shutil.copy(self._folders[0] / "secret", self._folders[1] / "secret")
        self._start(1)
        self._until(lambda: self._health(1).warm)

    def have_run(self, tasks: int, machines: Machines) -> None:
        """Have machines join, and so many tasks run on them."""
        address = self._urls[0].removeprefix("http://")
        token = invite_many(address, (self._folders[0] / "tokens" / "admin.token").read_text().strip())
        for request in machines.joins.values():
            join_master(address, token, request)
        self._write("steady", tasks)
        self._until(lambda: sum(map(len, machines.running().values())) == tasks)

    def rss_bytes(self) -> tuple[int, int]:
        """Return the memory of the leader and of the standby."""
        leader, standby = (psutil.Process(self._pids[one]) for one in (self._leader, 1 - self._leader))
        return leader.memory_info().rss, standby.memory_info().rss

    def fail_over(self, number: int) -> float:
        """Kill the leader; return the seconds until a write was committed. The other leads afterwards."""
        old, new = self._leader, 1 - self._leader
        began = time.perf_counter()
        self._kill(old)
        self._write(f"after-{number}", 1, first=old)
        seconds = time.perf_counter() - began
        self._leader = new
        self._start(old)
        self._until(lambda: self._health(old).warm)
        return seconds

    def end(self) -> None:
        """Kill both."""
        for one in range(2):
            self._kill(one)

    def _start(self, one: int) -> None:
        own = self._folders[one]
        self._pids[one] = self._nursery.start(["--config", str(own / "cell.toml"), "--standby"], own / "log")

    def _kill(self, one: int) -> None:
        if self._pids[one]:
            os.kill(self._pids[one], signal.SIGKILL)
            self._nursery.wait(self._pids[one])
            self._pids[one] = 0

    def _client(self, *ones: int) -> Client:
        token = (self._folders[0] / "tokens" / "admin.token").read_text().strip()
        return Client(",".join(self._urls[one] for one in ones), token)

    def _write(self, job: str, tasks: int, first: int = 0) -> None:
        """Submit a job, through the client that asked the master at ``first`` before."""
        body = JOB.format(name=job, tasks=tasks).encode()
        client = self._client(first, 1 - first)
        try:
            client.post("/v1/jobs", body, Accepted, params={"user": "ann"}, content_type="application/yaml")
        finally:
            client.close()

    def _health(self, one: int) -> HealthView:
        client = self._client(one)
        try:
            return client.get("/v1/health", None, HealthView)
        finally:
            client.close()

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = Deadline(PATIENCE_SECONDS)
        while not _holds(condition):
            if not deadline.left:
                said = "\n".join((own / "log").read_text()[-2000:] for own in self._folders)
                raise RuntimeError(f"it did not come to be:\n{said}")
            time.sleep(LOOK_SECONDS)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (BorgishError, OSError):  # not there yet
        return False
