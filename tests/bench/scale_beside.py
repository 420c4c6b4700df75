"""Many small jobs on empty machines, then as many tasks in large ones, while others ask: a part of ``scale``.

Those who ask are a process each, so that they wait for the master and not for those who submit. One of them
submits, too: its jobs of one task are not among the figures of those who submit many.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory

from borgish.client import Client
from borgish.wire.api import HealthView, StatusView
from tests.bench import host
from tests.bench.farm import FORKED
from tests.bench.figure import Figure
from tests.bench.load import LARGE, OTHER, SMALL, Asked, Load, loaded, of, spread, submit
from tests.bench.sizes import Sizes

ASK_SECONDS = 0.05
"""Between an answer and the next request of the same kind."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what many small jobs cost, as many tasks in large ones, and how long others wait meanwhile."""
    machines, tasks = sizes.cell_machines, sizes.cell_tasks
    with TemporaryDirectory(prefix="borgish-bench-") as place, loaded(Path(place), machines) as load:
        for size in (min(SMALL, tasks // 2), min(LARGE, tasks)):
            name = f"scale.{machines}.{tasks}_asked.of_{size}"
            with _asked(load, name) as waits:
                taken = load.measured(of(size, tasks))
            yield from taken.figures(name)
            for what, each in waits.items():
                yield from spread(f"{name}.{what}", each)
            yield load.on_a_machine(name)
            yield from host.figures(name)


def _health(_load: Load, client: Client, _name: str) -> None:
    client.get("/v1/health", None, HealthView)


def _status(_load: Load, client: Client, _name: str) -> None:
    client.get("/v1/status", None, StatusView)


def _job_of_1(_load: Load, client: Client, name: str) -> None:
    submit(client, name, Asked(1), OTHER)


Request = Callable[[Load, Client, str], None]
_REQUESTS: dict[str, Request] = {"health": _health, "status": _status, "job_of_1": _job_of_1}


@contextmanager
def _asked(load: Load, name: str) -> Iterator[dict[str, list[float]]]:
    """Have others ask; what they were made to wait, in milliseconds, is there once this is over."""
    over, waits = FORKED.Event(), dict[str, list[float]]()
    prefix = name.replace(".", "-").replace("_", "-")
    asking = {}
    for what, request in _REQUESTS.items():
        here, there = FORKED.Pipe(duplex=False)
        process = FORKED.Process(target=_ask, args=(load, prefix, request, over, there), daemon=True)
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


def _ask(load: Load, prefix: str, request: Request, over: Event, found: Connection) -> None:
    """Ask until it is over, at least once; send the milliseconds of each answer."""
    client, waits = Client.find(load.folder), list[float]()
    while not (waits and over.wait(ASK_SECONDS)):
        began = time.perf_counter()
        request(load, client, f"{prefix}-{len(waits)}")
        waits.append(1000 * (time.perf_counter() - began))
    found.send(waits)
