"""Real programs in a local cell that are drained and updated: a part of ``change``."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from borgish.client import Client
from borgish.wire.api import Accepted, DrainRequest, JobDetail, MachineView, UndrainRequest
from tests.bench.figure import Figure, at_least
from tests.bench.programs import BenchJob
from tests.bench.sizes import Sizes
from tests.cells import cell, wait_until
from tests.web_load import WebLoad

SLEEP = ["sh", "-c", "exec sleep 100000"]
WEB = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "{{port.http}}"]
SETTLE = "2s"
LEFT_SECONDS = 6.0
"""What was replaced serves on for ``stop.deregister``, 5 s."""
AT_A_TIME = "20%"


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the seconds until a machine is empty, then the share of requests answered in an update."""
    with (
        tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder,
        cell(Path(folder) / "cell", sizes.live_machines, forked=sizes.forked) as real,
    ):
        client = real.client()
        yield from _drain(client, sizes.drained_tasks, sizes.live_machines)
        for handover in (False, True):
            yield from _update(client, real.client(), sizes.live_tasks, handover=handover)


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


def _update(client: Client, loads: Client, tasks: int, *, handover: bool) -> Iterator[Figure]:
    more = {
        "ports": ["http"],
        "health": {"http": "/", "port": "http", "interval": "1s"},
        "resources": {"cpu": "20m", "ram": "64MiB", "disk": "1MiB"},
        "update": {"at_a_time": AT_A_TIME, "settle": SETTLE, "handover": handover},
    }
    job = BenchJob(client, tasks, WEB, more=more)
    job.submit()
    job.until_up()
    began = time.perf_counter()
    with WebLoad(loads, job.key) as load:
        job.submit(env={"VERSION": "2"})
        wait_until(lambda: _is_updated(client, job, tasks), 120.0)
        seconds = time.perf_counter() - began
        time.sleep(LEFT_SECONDS)  # until the last of those before has left
    job.end()
    failed, way = len(load.failures), "handover" if handover else "no_handover"
    name, note = f"change.update.{tasks}_web", f"{failed} of {load.asked} requests failed"
    yield Figure(f"{name}.{way}", "s", [seconds], note=f"{AT_A_TIME} at a time, settle {SETTLE}")
    answered = 100 * (1 - failed / max(1, load.asked))
    goal = at_least(100) if handover else None
    yield Figure(f"{name}.{way}.answered", "%", [answered], goal, note=note, decimals=2)


def _is_updated(client: Client, job: BenchJob, tasks: int) -> bool:
    shown = client.get(f"/v1/jobs/{job.key}", None, JobDetail)
    return shown.rollout is None and shown.versions == {2: tasks}
