"""``submit``: how fast jobs of real programs come up.

From the submission of a job over HTTP to the master saying that all of it is up, in a cell as ``borgctl up``
makes it. The programs only sleep; the start of a program that does something is left out, and so is the
fetching of an image. ``bare`` is what eight clients of the engine's API reach by themselves, in turns with
the cell.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from borgish.client import Client
from tests.bench import containers, peers
from tests.bench.containers import BareEngine
from tests.bench.figure import Figure, at_least, at_most
from tests.bench.programs import BenchJob
from tests.bench.sizes import Sizes
from tests.cells import cell

ENGINE_GOAL = 0.95
SWARM_ONE_SECONDS = 0.45


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield tasks a second for processes and for containers, then one container's seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder,
        cell(Path(folder) / "cell", sizes.machines, forked=sizes.forked) as real,
    ):
        client = real.client()
        tasks = sizes.process_tasks
        rates = [tasks / _up(client, tasks) for _ in range(sizes.rounds)]
        yield Figure(f"submit.{tasks}_processes", "tasks/s", rates, at_least(150.0), peers.PROCESSES_UP)
        if lacking := containers.lacks(client):
            yield Figure(f"submit.{sizes.containers}_containers", "tasks/s", absent=lacking)
            yield Figure("submit.one_container", "s", absent=lacking)
        else:
            yield from _containers(client, sizes)


def _containers(client: Client, sizes: Sizes) -> Iterator[Figure]:
    """The engine alone and the cell take turns, so that both see the same machine."""
    engine = BareEngine()
    engine.make_image()
    count = sizes.containers
    bare, rates = [], []
    try:
        for _ in range(sizes.rounds):
            bare.append(count / engine.start_many(count))
            rates.append(count / _up(client, count, engine))
        one = [_up(client, 1, engine) for _ in range(sizes.single_containers)]
    finally:
        engine.close()
    yield Figure(f"submit.{count}_containers.bare", "tasks/s", bare, peer=peers.ENGINE_UP)
    goal = at_least(ENGINE_GOAL * statistics.median(bare))
    yield Figure(f"submit.{count}_containers", "tasks/s", rates, goal, peers.SWARM_UP)
    yield Figure("submit.one_container", "s", one, at_most(SWARM_ONE_SECONDS), peers.SWARM_ONE)


def _up(client: Client, tasks: int, engine: BareEngine | None = None) -> float:
    """Return the seconds until a job is up, of containers when there is an engine; then end all of it."""
    job = BenchJob(client, tasks, containers.SLEEP, containers.IMAGE if engine else "")
    began = time.perf_counter()
    job.submit()
    job.until_up()
    seconds = time.perf_counter() - began
    job.end()
    if engine is not None:
        engine.until_gone(job.key)
    return seconds
