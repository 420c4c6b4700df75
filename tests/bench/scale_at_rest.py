"""What one small change costs a borgmaster while many tasks are at rest: a part of ``scale``.

The cell grows, its machines do not. What the master takes at rest, for the polls of all machines, is left out
of what a change costs, and stands beside it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import host
from tests.bench.apps import cpu_seconds
from tests.bench.figure import Figure, at_most
from tests.bench.load import LARGE, Asked, Load, loaded, of
from tests.bench.sizes import Sizes

CHANGE_EVERY_SECONDS = 0.05
"""From one such job to the next, so that a turn has one of them."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the cpu of a borgmaster for a job of one task, from its submission until it is up, by how many
    tasks are at rest; and how many times as much that is as among the fewest of them."""
    machines, fewest = sizes.cell_machines, None
    with TemporaryDirectory(prefix="borgish-bench-") as place, loaded(Path(place), machines) as load:
        there = 0
        for tasks in sizes.scale_at_rest:
            load.bring_up(of(LARGE, tasks - there))
            there = tasks
            name = f"scale.{machines}.{tasks}_at_rest"
            time.sleep(sizes.scale_rest_seconds)  # what follows from the beginning is over
            rest = _cpu_a_second(load, sizes.scale_rest_seconds)
            yield Figure(f"{name}.master_cpu", "ms/s", [1000 * rest])
            changes = [_change(load, rest, sizes.scale_changes) for _ in range(sizes.rounds)]
            change = Figure(f"{name}.job_of_1.master_cpu", "ms a job", changes)
            yield change
            fewest = fewest or change
            ratios = [each / fewest.value for each in changes]
            yield Figure(f"{name}.job_of_1.ratio", "x", ratios, at_most(1.5), note=f"1: {fewest.name}")
            yield load.on_a_machine(name)
            yield Figure(f"{name}.master_rss", "MiB", [load.master_rss()])
            yield from host.figures(name)


def _cpu_a_second(load: Load, seconds: float) -> float:
    before, began = cpu_seconds(load.master.pid), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(load.master.pid) - before) / (time.perf_counter() - began)


def _change(load: Load, rest: float, jobs: int) -> float:
    """Submit jobs of one task, one after the other; return the milliseconds of the master's cpu for each
    until all are up, without what it takes at rest: ``rest`` seconds in a second."""
    before, began = cpu_seconds(load.master.pid), time.perf_counter()
    load.bring_up([Asked(1, due_seconds=number * CHANGE_EVERY_SECONDS) for number in range(jobs)])
    taken = cpu_seconds(load.master.pid) - before - rest * (time.perf_counter() - began)
    return 1000 * taken / jobs
