"""How long others wait while many tasks are submitted: a part of ``scale``.

First jobs come as fast as they can be taken in; then at a share of that, and last as jobs that are as large
as they may be. Those who ask meanwhile are a process each, so that they wait for the master and not for those
who submit.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory

from borgish.client import Client
from borgish.vocabulary import TASKS_PER_JOB_MAX
from borgish.wire.api import HealthView, JobList, StatusView
from tests.bench import host
from tests.bench.farm import FORKED
from tests.bench.figure import Figure
from tests.bench.load import OTHER, SMALL, Asked, loaded, of, spread, submit
from tests.bench.sizes import Sizes

ASK_SECONDS = 0.05
"""Between an answer and the next request of the same kind."""
SHARE = 0.8
"""Of the most that was measured, so that nothing piles up."""
LISTED = 100
"""Jobs of a list."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the most, then what others wait for at rest, beside a share of it, and beside large jobs."""
    machines, small = sizes.cell_machines, of(SMALL, SMALL * sizes.scale_jobs)
    with TemporaryDirectory(prefix="borgish-bench-") as place, loaded(Path(place), machines) as load:
        name = f"scale.{machines}.asked"
        most = load.measured(small)
        yield from most.figures(f"{name}.most_of_{SMALL}")
        with asked(load.folder, _REQUESTS) as waits:
            time.sleep(sizes.scale_rest_seconds)
        yield from _waits(f"{name}.at_rest", waits)
        every_seconds = SMALL / (SHARE * most.rate)
        paced = [job._replace(due_seconds=number * every_seconds) for number, job in enumerate(2 * small)]
        largest = of(TASKS_PER_JOB_MAX, sizes.cell_tasks)
        for what, jobs in ((f"paced_of_{SMALL}", paced), (f"of_{largest[0].tasks}", largest)):
            with asked(load.folder, _REQUESTS) as waits:
                taken = load.measured(jobs)
            yield from taken.figures(f"{name}.{what}")
            yield from _waits(f"{name}.{what}", waits)
        yield load.on_a_machine(name)
        yield from host.figures(name)


def _waits(name: str, waits: dict[str, list[float]]) -> Iterator[Figure]:
    for what, each in waits.items():
        yield from spread(f"{name}.others.{what}", each)


# Those who ask


def health(client: Client, _number: int) -> None:
    """Ask how the master is."""
    client.get("/v1/health", None, HealthView)


def _status(client: Client, _number: int) -> None:
    client.get("/v1/status", None, StatusView)


def job_list(client: Client, _number: int) -> None:
    """Ask for the first page of all jobs."""
    client.get("/v1/jobs", {"limit": LISTED}, JobList)


def _job_of_1(client: Client, number: int) -> None:
    submit(client, f"job-{number}", Asked(1), OTHER)


Request = Callable[[Client, int], None]
"""Asks once. The number is of this request alone."""
_REQUESTS: dict[str, Request] = {
    "health": health,
    "status": _status,
    "job_list": job_list,
    "job_of_1": _job_of_1,
}


@contextmanager
def asked(folder: Path, requests: Mapping[str, Request]) -> Iterator[dict[str, list[float]]]:
    """Have others ask the master of a local cell, a process for each kind of request; what they were made to
    wait, in milliseconds, is there once this is over."""
    over, waits = FORKED.Event(), dict[str, list[float]]()
    asking = {}
    for what, request in requests.items():
        here, there = FORKED.Pipe(duplex=False)
        process = FORKED.Process(target=_ask, args=(folder, request, over, there), daemon=True)
        process.start()
        there.close()  # so that the end of that process is the end of what it says
        asking[what] = process, here
    try:
        yield waits
        over.set()
        for what, (_, here) in asking.items():
            waits[what] = here.recv()
    finally:
        for process, here in asking.values():
            process.kill()
            process.join()
            here.close()


def _ask(folder: Path, request: Request, over: Event, found: Connection) -> None:
    """Ask again and again, once at least, until it is over."""
    client, waits = Client.find(folder), list[float]()
    while not (waits and over.wait(ASK_SECONDS)):
        began = time.perf_counter()
        request(client, time.monotonic_ns())
        waits.append(1000 * (time.perf_counter() - began))
    found.send(waits)
