"""A user who submits and kills for ever, one whose jobs are as large as they may be, and a cell full of dead
jobs: a part of ``bad_days``."""

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from os import kill
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from borgish.cell.model import Job, Task
from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import Conflict
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, State
from borgish.wire.api import Accepted, KillRequest, StatusView
from tests.bench.apps import cpu_seconds
from tests.bench.bad_days_beside import API_P99_MS, beside, seen, spread
from tests.bench.cli import LOOK_SECONDS, MIB, memory_bytes
from tests.bench.figure import Figure, at_most
from tests.bench.load import CELL, NEEDS, OTHER, Asked, Load, loaded, submit
from tests.bench.scale_beside import job_list
from tests.bench.sizes import Sizes

SAME, NEW = "same_name", "new_names"
QUARTERS = ("start", "first_quarter", "third_quarter", "end")
"""When is looked how large master and store are; between the first two and the last two lies a quarter."""
_ENV = {f"E{number}": "x" * 32_000 for number in range(30)}
_ENV_BYTES = sum(map(len, _ENV.values()))
FORGET_SOON = "\n[keep]\ndead_jobs_hours = 0.000001\n"
FORGOTTEN_SECONDS_MAX = 600.0


# A user who submits and kills for ever


class _Size(NamedTuple):
    """What there is: KiB of the master in memory, and KiB of the database's pages in use."""

    rss: float
    store: float


def cycled(sizes: Sizes) -> Iterator[Figure]:
    """Yield what a cell costs in which nothing is wrong, then how master and store grow while somebody
    submits a job and kills it again and again, under one name and under always new ones."""
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        loaded(Path(place), sizes.bad_machines) as load,
    ):
        yield from _at_rest(load, "bad_days.at_rest", sizes)
        for names in (SAME, NEW):
            work = partial(_cycle, load.folder, load.master.pid, names, sizes.bad_cycles)
            with beside(work) as cycling:
                waits = seen(load, sizes.bad_probes, cycling.is_over)
                sized, seconds = cycling.result()
            name = f"bad_days.cycles.{names}"
            yield Figure(f"{name}.rate", "cycles/s", [sizes.bad_cycles / seconds])
            yield from waits.figures(name)
            yield from _grown(name, "master_rss", [each.rss for each in sized], sizes.bad_cycles / 4)
            yield from _grown(name, "store", [each.store for each in sized], sizes.bad_cycles / 4)


def _grown(name: str, what: str, kib: list[float], cycles: float) -> Iterator[Figure]:
    for at, size in zip(QUARTERS, kib, strict=True):
        before = {QUARTERS[1]: kib[0], QUARTERS[3]: kib[2]}.get(at)
        note = "" if before is None else f"{(size - before) / cycles:+.2f} KiB a cycle in this quarter"
        yield Figure(f"{name}.{what}.{at}", "MiB", [size / 1024], note=note)


def _cycle(folder: Path, pid: int, names: str, count: int) -> tuple[list[_Size], float]:
    """Submit and kill so many jobs; return how large master and store are, and the seconds for all."""
    client, seconds = Client.find(folder), 0.0
    sized = [_size(folder, pid)]
    for part in (range(count // 4), range(count // 4, 3 * count // 4), range(3 * count // 4, count)):
        began = time.perf_counter()
        for number in part:
            name = names.replace("_", "-") + (f"-{number}" if names == NEW else "")
            submit(client, name, Asked(1), OTHER)
            client.post(f"/v1/jobs/{OTHER}/{name}/kill", KillRequest(max_affected=1), Accepted)
        seconds += time.perf_counter() - began
        sized.append(_size(folder, pid))
    return sized, seconds


def _size(folder: Path, pid: int) -> _Size:
    with closing(sqlite3.connect(f"file:{folder}/cell.db?mode=ro", uri=True)) as store:
        pages, free, page_bytes = (
            store.execute(f"PRAGMA {what}").fetchone()[0]
            for what in ("page_count", "freelist_count", "page_size")
        )
    return _Size(memory_bytes(pid)["Rss"] / 1024, (pages - free) * page_bytes / 1024)


# Large specifications


def large(sizes: Sizes) -> Iterator[Figure]:
    """Yield how master and store grow while somebody submits jobs with as much of an environment as there may
    be, until no more are taken in, and then kills each for the next one."""
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        loaded(Path(place), sizes.bad_machines) as load,
    ):
        before = _size(load.folder, load.master.pid)
        with beside(partial(_fill, load.folder, load.master.pid, sizes.bad_large_jobs)) as filling:
            waits = seen(load, sizes.bad_probes, filling.is_over)
            filled, turned = filling.result()
    name = "bad_days.large"
    yield Figure(f"{name}.jobs", "jobs", [filled.jobs], note=f"{_ENV_BYTES / MIB:.2f} MiB each")
    yield Figure(f"{name}.turned_over", "jobs", [turned.jobs])
    for when, size in (("start", before), ("full", filled.size), ("end", turned.size)):
        yield Figure(f"{name}.master_rss.{when}", "MiB", [size.rss / 1024])
        yield Figure(f"{name}.store.{when}", "MiB", [size.store / 1024])
    yield from waits.figures(name)


class _Filled(NamedTuple):
    """So many jobs were taken in, and how large master and store were then."""

    jobs: int
    size: _Size


def _fill(folder: Path, pid: int, most: int) -> tuple[_Filled, _Filled]:
    """Submit so many jobs at the most; then as many again, for each of which one is killed. Return both."""
    client, begun = Client.find(folder), 0
    with suppress(Conflict):
        while begun < most:
            _submit_large(client, begun)
            begun += 1
    filled = _Filled(begun, _size(folder, pid))
    for number in range(begun):
        client.post(f"/v1/jobs/{OTHER}/large-{number}/kill", KillRequest(max_affected=1), Accepted)
        _submit_large(client, begun + number)
    return filled, _Filled(begun, _size(folder, pid))


def _submit_large(client: Client, number: int) -> None:
    said = {"name": f"large-{number}", "run": ["serve"], "user": OTHER, "priority": "free", "env": _ENV}
    client.post("/v1/jobs", json.dumps(said).encode(), Accepted)


# Dead jobs


def dead(sizes: Sizes) -> Iterator[Figure]:
    """Yield what a cell with many dead jobs costs, and what others wait for while they are forgotten."""
    jobs, name = _dead_jobs(sizes.bad_dead_jobs), f"bad_days.dead.{sizes.bad_dead_jobs}"
    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        loaded(Path(place), sizes.bad_machines, jobs=jobs) as load,
    ):
        yield from _at_rest(load, name, sizes)
        yield from _forgotten(load, name, sizes)


def _at_rest(load: Load, name: str, sizes: Sizes) -> Iterator[Figure]:
    yield Figure(f"{name}.start", "s", [load.master.seconds])
    yield Figure(f"{name}.master_rss", "MiB", [load.master_rss()])
    yield Figure(f"{name}.master_cpu", "ms/s", [_cpu_a_second(load, sizes.bad_seconds)])
    yield from spread(f"{name}.job_list", _listed(load, sizes.bad_probes), at_most(API_P99_MS))
    yield from seen(load, sizes.bad_probes).figures(name)


def _dead_jobs(count: int) -> dict[str, Job]:
    """Return jobs of one task each, all of one user, which have just finished."""
    now, found = SystemClock().now().wall, dict[str, Job]()
    for number in range(count):
        spec = JobSpec(f"dead-{number}", OTHER, 1, ("serve",), resources=NEEDS)
        ended = Task(0, State.DEAD, 1, "m0", since=now, ending=Ending.FINISH, exit_code=0, started_at=now)
        found[spec.key] = Job(spec.key, 1, spec, now, CELL, tasks=[ended], dead=1, finished=1)
    return found


def _listed(load: Load, times: int) -> list[float]:
    return [_ms(lambda: job_list(load.master.client, 0)) for _ in range(times)]


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def _cpu_a_second(load: Load, seconds: float) -> float:
    before, began = cpu_seconds(load.master.pid), time.perf_counter()
    time.sleep(seconds)
    return 1000 * (cpu_seconds(load.master.pid) - before) / (time.perf_counter() - began)


def _forgotten(load: Load, name: str, sizes: Sizes) -> Iterator[Figure]:
    """Have the master keep dead jobs no longer, and yield what others wait for until all are forgotten."""
    file = load.folder / "cell.toml"
    file.write_text(file.read_text() + FORGET_SOON)
    began = time.perf_counter()
    kill(load.master.pid, signal.SIGHUP)
    with beside(partial(_until_forgotten, load.folder, began)) as waiting:
        waits = seen(load, sizes.bad_probes, waiting.is_over)
        seconds = waiting.result()
    yield Figure(f"{name}.forgotten.all", "s", [seconds])
    yield from waits.figures(f"{name}.forgotten")
    yield Figure(f"{name}.forgotten.master_rss", "MiB", [memory_bytes(load.master.pid)["Rss"] / MIB])


def _until_forgotten(folder: Path, began: float) -> float:
    client = Client.find(folder)
    while client.get("/v1/status", None, StatusView).dead:
        if time.perf_counter() - began > FORGOTTEN_SECONDS_MAX:
            raise TimeoutError("dead jobs are still there")
        time.sleep(10 * LOOK_SECONDS)
    return time.perf_counter() - began
