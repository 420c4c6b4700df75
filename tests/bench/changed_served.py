"""A whole borgmaster whose cell is changed, with simulated machines on sockets: a part of ``change``.

Its cpu is as the kernel counts it, user and system together: turns, store, polls, HTTP and JSON; there is no
TLS. Programs on these machines are up, and gone, at once.
"""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from borgish.client import Client
from borgish.wire.api import Accepted, DrainRequest, StatusView, TaskList
from tests.bench.cli import LOOK_SECONDS, UP_SECONDS_MAX, lone_master
from tests.bench.figure import MEAN, Figure
from tests.bench.served import Secure, served_borglets
from tests.bench.sizes import Sizes

JOB_TASKS = 100
BATCH_EVERY = 10
SETTLE_SECONDS = 5.0
"""After what the beginning left to do."""
JOINED_SECONDS_MAX = 600.0  # all of them, one after the other
TICKS = os.sysconf("SC_CLK_TCK")


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the cpu that a borgmaster takes in a second, at rest and while its cell is changed."""
    with (
        lone_master() as master,
        machines(master.address, master.join_token, sizes.cell_machines),
    ):
        yield from _figures(master.client, master.pid, sizes)


@contextmanager
def machines(master: str, token: str, count: int, secure: Secure | None = None) -> Iterator[None]:
    """Have so many machines, in a process of their own."""
    context = multiprocessing.get_context("fork")
    joined = context.Event()

    def serve() -> None:
        with served_borglets(master, token, count, secure):
            joined.set()
            signal.pause()

    process = context.Process(target=serve, daemon=True)
    process.start()
    try:
        assert joined.wait(JOINED_SECONDS_MAX), "the machines did not join"
        yield
    finally:
        process.kill()
        process.join()


def _figures(client: Client, pid: int, sizes: Sizes) -> Iterator[Figure]:
    tasks, seconds = sizes.cell_tasks, sizes.changing_seconds
    size = min(JOB_TASKS, tasks // 5)
    jobs = [_job(number, size) for number in range(tasks // size)]
    for job in jobs:
        client.post("/v1/jobs", json.dumps(job).encode(), Accepted)
    began = time.perf_counter()
    while (up := client.get("/v1/status", None, StatusView).up or 0) < tasks:
        if time.perf_counter() - began > UP_SECONDS_MAX:
            raise TimeoutError(f"{up} of {tasks} tasks are up")
        time.sleep(10 * LOOK_SECONDS)
    batch = client.get("/v1/tasks", {"job": f"bench/{jobs[0]['name']}"}, TaskList).items
    drained = tuple(sorted({task.machine for task in batch if task.machine}))[: sizes.drains]
    time.sleep(SETTLE_SECONDS)
    rest = cpu_of(pid, seconds)
    for job in [job for job in jobs if "restart" not in job][: sizes.updates]:
        client.post("/v1/jobs", json.dumps(job | {"env": {"VERSION": "2"}}).encode(), Accepted)
    client.post("/v1/drains", DrainRequest(drained, max_affected=tasks), Accepted)
    busy = cpu_of(pid, seconds)
    left = client.get("/v1/status", None, StatusView).to_change
    name = f"change.master.{tasks}_on_{sizes.cell_machines}"
    yield Figure(f"{name}.at_rest", "ms/s", rest, quantile=MEAN)
    yield Figure(f"{name}.{sizes.updates}_updates_{sizes.drains}_drains", "ms/s", busy, quantile=MEAN)
    yield Figure(
        f"{name}.ratio",
        "x",
        [sum(busy) / max(sum(rest), 1000 / TICKS)],
        note=f"{left} tasks were still to change",
    )


def _job(number: int, tasks: int) -> dict[str, object]:
    job = {
        "name": f"job-{number}",
        "user": "bench",
        "tasks": tasks,
        "run": ["serve"],
        "runtime": "fake",
        "resources": {"cpu": "3", "ram": "128MiB"},
    }
    return job if number % BATCH_EVERY else job | {"restart": {"policy": "never"}}


def cpu_of(pid: int, seconds: int) -> list[float]:
    """Return the milliseconds of cpu that a process takes in each of the next seconds."""
    found, before = [], ticks(pid)
    began = time.perf_counter()
    for second in range(seconds):
        time.sleep(max(0.0, began + second + 1 - time.perf_counter()))
        now = ticks(pid)
        found.append(1000 * (now - before) / TICKS)
        before = now
    return found


def ticks(pid: int) -> int:
    """Return the cpu that a process has taken, in ``TICKS`` of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
