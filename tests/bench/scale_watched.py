"""What those who follow the watch cost a borgmaster: a part of ``scale``.

Jobs are submitted without watchers and with them, in turns, since machines fill meanwhile. Each watcher has a
connection of its own and follows all events; all of them are one process, which only counts what comes.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvloop

from tests.bench import host
from tests.bench.cli import LOOK_SECONDS
from tests.bench.farm import FORKED
from tests.bench.figure import Figure
from tests.bench.load import SMALL, Load, Taken, loaded, of, spread
from tests.bench.sizes import Sizes

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

OPEN_AT_ONCE = 50
OPEN_SECONDS_MAX = 60.0
PIECE_BYTES = 64 * 1024


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what a task costs without watchers, with them, and the ratio."""
    machines, watchers = sizes.cell_machines, sizes.scale_watchers
    small = of(SMALL, SMALL * sizes.scale_watched_jobs)
    with TemporaryDirectory(prefix="borgish-bench-") as place, loaded(Path(place), machines) as load:
        load.bring_up(small)  # the first of a master's life
        without, beside, kib = list[Taken](), list[Taken](), list[float]()
        for _ in range(sizes.rounds):
            without.append(load.measured(small))
            with _watched(load, watchers) as received:
                before = received.value
                beside.append(load.measured(small))
                kib.append((received.value - before) / 1024 / (SMALL * len(small)))
    name = f"scale.{machines}.watched"
    for what, taken in (("by_0", without), (f"by_{watchers}", beside)):
        yield Figure(f"{name}.{what}.rate", "tasks/s", [each.rate for each in taken])
        yield Figure(f"{name}.{what}.master_cpu", "ms a task", [each.cpu["master"] for each in taken])
        running = [ms for each in taken for ms in each.waits.running]
        yield from spread(f"{name}.{what}.running", running)
    usual = statistics.median(each.cpu["master"] for each in without)
    ratios = [each.cpu["master"] / usual for each in beside]
    yield Figure(f"{name}.by_{watchers}.ratio", "x", ratios, note="master's cpu, to nobody who watches")
    yield Figure(f"{name}.by_{watchers}.sent", "KiB a task", kib, note="to all of them")
    yield from host.figures(name)


@contextmanager
def _watched(load: Load, watchers: int) -> Iterator["Synchronized[int]"]:
    """Have so many follow what happens; yield how many bytes have come to them."""
    following, received = FORKED.Value("q", 0), FORKED.Value("q", 0)
    token = (load.folder / "tokens" / "admin.token").read_text().strip()
    url = urlsplit(load.master.client.url)

    def follow() -> None:
        uvloop.run(_follow(url.hostname or "", url.port or 0, token, watchers, following, received))

    process = FORKED.Process(target=follow, daemon=True)
    process.start()
    try:
        began = time.perf_counter()
        while following.value < watchers:
            if not process.is_alive() or time.perf_counter() - began > OPEN_SECONDS_MAX:
                raise RuntimeError(f"{following.value} of {watchers} watch")
            time.sleep(LOOK_SECONDS)
        yield received
        if not process.is_alive():
            raise RuntimeError("a watch has ended before its time")
    finally:
        process.kill()
        process.join()


async def _follow(
    name: str,
    port: int,
    token: str,
    watchers: int,
    following: "Synchronized[int]",
    received: "Synchronized[int]",
) -> None:
    """Watch until one of the watches ends, which none should."""
    opening = asyncio.Semaphore(OPEN_AT_ONCE)
    asked = f"GET /v1/watch HTTP/1.1\r\nHost: {name}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    async def watch() -> None:
        async with opening:
            reader, writer = await asyncio.open_connection(name, port)
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                said = await reader.read(PIECE_BYTES)
                raise RuntimeError(f"no watch: {head!r} {said!r}")
            following.value += 1
        while piece := await reader.read(PIECE_BYTES):
            received.value += len(piece)
        raise RuntimeError("the watch has ended")

    async with asyncio.TaskGroup() as group:
        for _ in range(watchers):
            group.create_task(watch())
