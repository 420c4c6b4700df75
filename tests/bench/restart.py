"""``restart``: how soon the replacement of a task that is killed runs.

A cell of three machines as ``borgctl up`` makes it runs real programs. A process is measured from ``kill -9``
of it to its replacement's own sign of life, a container to the engine's news that another one of its task
started. Each task is killed once, so that no restart waits for a back-off: that is left out. Beside
containers, in turns with them, is what the engine takes by itself (``bare``) for a run, a detached run, and
to remove and start one.
"""

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from borgish.borglet.runtimes.docker.container import LABEL_TASK
from borgish.client import Client
from tests.bench import containers, peers
from tests.bench.containers import BareEngine
from tests.bench.figure import Figure, at_most
from tests.bench.programs import BenchJob, SignsOfLife
from tests.bench.sizes import Sizes
from tests.cells import cell

DOCKER_GOAL = 1.3  # times a bare ``docker run``


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the milliseconds of a process, then of a container."""
    with (
        tempfile.TemporaryDirectory(prefix="borgish-bench-") as folder,
        cell(Path(folder) / "cell", forked=sizes.forked) as real,
    ):
        client = real.client()
        yield from _processes(client, sizes.kills)
        if lacking := containers.lacks(client):
            yield Figure("restart.docker", "ms", absent=lacking)
        else:
            yield from _containers(client, sizes.container_kills)


def _processes(client: Client, kills: int) -> Iterator[Figure]:
    signs = SignsOfLife()
    job = BenchJob(client, kills, signs.command())
    job.submit()
    for _ in range(kills):
        signs.next()
    job.until_up()
    samples = [_kill(signs, task.index, task.pid or 0) for task in job.tasks()]
    job.end()
    signs.close()
    yield Figure("restart.process", "ms", samples, at_most(50.0), peers.RUNIT_RESTART)
    yield Figure("restart.process.max", "ms", samples, quantile=1.0)


def _kill(signs: SignsOfLife, index: int, pid: int) -> float:
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    again = signs.next()
    milliseconds = 1000 * (time.perf_counter() - began)
    assert again == index, f"task {index} was killed and task {again} began"
    return milliseconds


def _containers(client: Client, kills: int) -> Iterator[Figure]:
    """Kills and bare runs take turns, so that all see the same machine."""
    engine = BareEngine()
    engine.make_image()
    job = BenchJob(client, kills, containers.SLEEP, containers.IMAGE)
    try:
        job.submit()
        job.until_up()
        bare, detached, floor, samples = [], [], [], []
        for task in job.tasks():
            bare.append(1000 * engine.run_bare())
            detached.append(1000 * engine.run_detached())
            floor.append(1000 * engine.replace_bare())
            samples.append(1000 * _kill_container(engine, task.name, task.pid or 0))
        job.end()
        engine.until_gone(job.key)
    finally:
        engine.close()
    yield Figure("restart.docker.bare_run", "ms", bare, peer=peers.BARE_RUN)
    yield Figure("restart.docker.bare_run_detached", "ms", detached)
    yield Figure("restart.docker.bare_replacement", "ms", floor)
    goal = at_most(DOCKER_GOAL * statistics.median(bare))
    yield Figure("restart.docker", "ms", samples, goal, peers.SWARM_RESTART)


def _kill_container(engine: BareEngine, task: str, pid: int) -> float:
    """Return seconds until the engine says that another container of the task started."""
    with engine.news("start", label=f"{LABEL_TASK}={task}") as started:
        began = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        started()
        return time.perf_counter() - began
