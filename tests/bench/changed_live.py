"""Real programs in a local cell that are drained and updated: a part of ``change``."""

import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from borgish.client import Client
from borgish.vocabulary import Phase
from borgish.wire.api import Accepted, DrainRequest, JobDetail, MachineView, TaskList, UndrainRequest
from tests.bench.figure import Figure
from tests.bench.programs import BenchJob
from tests.bench.sizes import Sizes
from tests.cells import cell, wait_until

SLEEP = ["sh", "-c", "exec sleep 100000"]
WEB = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "{{port.http}}"]
SETTLE = "2s"
AT_A_TIME = "20%"
LISTED_SECONDS = 0.2
"""So old may be what the load knows of where tasks are."""
REQUEST_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.01


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the seconds until a machine is empty, then the share of requests answered in an update."""
    with (
        tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder,
        cell(Path(folder) / "cell", sizes.live_machines, forked=sizes.forked) as real,
    ):
        client = real.client()
        yield from _drain(client, sizes.drained_tasks, sizes.live_machines)
        yield from _update(client, real.client(), sizes.live_tasks)


def _drain(client: Client, tasks: int, machines: int) -> Iterator[Figure]:
    """The others take no tasks until all are on one machine; a tenth of them may be down at once."""
    others = [f"m{number}" for number in range(2, machines + 1)]
    for name in others:
        client.post(f"/v1/machines/{name}/cordon", None, Accepted)
    job = BenchJob(client, tasks, SLEEP)
    job.submit()
    job.until_up()
    for name in others:
        client.post(f"/v1/machines/{name}/uncordon", None, Accepted)
    began = time.perf_counter()
    client.post("/v1/drains", DrainRequest(("m1",)), Accepted)
    wait_until(lambda: client.get("/v1/machines/m1", None, MachineView).state == "drained", 120.0)
    seconds = time.perf_counter() - began
    job.until_up()
    client.post("/v1/drains/delete", UndrainRequest(("m1",)), Accepted)
    job.end()
    yield Figure(f"change.drain.{tasks}_tasks", "s", [seconds])


def _update(client: Client, loads: Client, tasks: int) -> Iterator[Figure]:
    more = {
        "ports": ["http"],
        "health": {"http": "/", "port": "http", "interval": "1s"},
        "resources": {"cpu": "20m", "ram": "64MiB", "disk": "1MiB"},
        "update": {"at_a_time": AT_A_TIME, "settle": SETTLE},
    }
    job = BenchJob(client, tasks, WEB, more=more)
    job.submit()
    job.until_up()
    began = time.perf_counter()
    with _load(loads, job.key) as load:
        job.submit(env={"VERSION": "2"})
        wait_until(lambda: _is_updated(client, job, tasks), 120.0)
    seconds = time.perf_counter() - began
    job.end()
    name, note = f"change.update.{tasks}_web", f"{load.failed} of {load.asked} requests failed"
    yield Figure(f"{name}.real", "s", [seconds], peer=f"{AT_A_TIME} at a time, settle {SETTLE}")
    answered = 100 * (1 - load.failed / max(1, load.asked))
    yield Figure(f"{name}.answered.no_handover", "%", [answered], peer=note, decimals=2)


def _is_updated(client: Client, job: BenchJob, tasks: int) -> bool:
    shown = client.get(f"/v1/jobs/{job.key}", None, JobDetail)
    return shown.rollout is None and shown.versions == {2: tasks}


class _Load:
    """A client that asks one task after the other, of those that are listed as healthy."""

    def __init__(self, client: Client, job: str) -> None:
        self.asked = self.failed = 0
        self._client, self._job = client, job  # one thread talks to the master, the other to tasks
        self._ports: list[int] = []
        self.ended = threading.Event()
        self._list()

    def list(self) -> None:
        """Keep the listing fresh until the end."""
        while not self.ended.wait(LISTED_SECONDS):
            self._list()

    def ask(self) -> None:
        """Ask until the end. What is not answered in full has failed."""
        chance = random.Random(7)
        while not self.ended.wait(PAUSE_SECONDS):
            if not self._ports:
                continue
            self.asked += 1
            url = f"http://127.0.0.1:{chance.choice(self._ports)}/"
            try:
                with urllib.request.urlopen(url, timeout=REQUEST_SECONDS_MAX) as reply:
                    reply.read()
            except OSError:
                self.failed += 1

    def _list(self) -> None:
        tasks = self._client.get("/v1/tasks", {"job": self._job}, TaskList).items
        self._ports = [task.ports["http"] for task in tasks if task.phase is Phase.HEALTHY]


@contextmanager
def _load(client: Client, job: str) -> Iterator[_Load]:
    load = _Load(client, job)
    threads = [threading.Thread(target=each) for each in (load.list, load.ask)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.ended.set()
        for thread in threads:
            thread.join()
