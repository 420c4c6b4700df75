"""Nomad's scheduler grid: machines x racks x tasks, with spread over racks and without.

Nomad's own benchmark (``BenchmarkServiceScheduler``, state of 500 to 10,000 nodes in 25 to 75 racks, one
job of 50 to 1,200 allocations) times one evaluation in process. Here: one pass over one job, in process.
"""

import time
from collections.abc import Iterator

import msgspec

from borgish.cell.model import Cell, Job, Machine, Snapshot
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.resources import Resources
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import Spread
from tests.bench.cluster import fleet, job
from tests.bench.figure import Figure
from tests.bench.sizes import Sizes

MACHINES = (500, 1_000, 5_000, 10_000)
RACKS = (25, 50, 75)
TASKS = (50, 300, 600, 900, 1_200)
NOW = Now(0.0, 0.0)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield, for each size of cell, the milliseconds of its passes; the value is the largest."""
    for machines in sorted({min(machines, sizes.fleet_machines) for machines in MACHINES}):
        for spread in (False, True):
            samples = [
                1000 * _pass(machines, racks, tasks, spread=spread) for racks in RACKS for tasks in TASKS
            ]
            name = f"schedule.nomad_grid.{machines}.{'spread' if spread else 'plain'}"
            yield Figure(name, "ms", samples, quantile=1.0, note="25-75 racks, 50-1,200 tasks")


def _pass(machines: int, racks: int, tasks: int, *, spread: bool) -> float:
    """Return the seconds in which one job is placed on a cell that is known already."""
    cell = Cell(Snapshot("grid", machines=_in_racks(machines, racks)))
    scheduler = Scheduler(1)
    scheduler.schedule(cell, Observed(), NOW)
    wanted = _job(tasks, spread=spread)
    cell.jobs[wanted.key] = wanted
    cell.waiting[wanted.key] = set(range(tasks))
    began = time.perf_counter()
    plan = scheduler.schedule(cell, Observed(), NOW)
    seconds = time.perf_counter() - began
    assert sum(len(each.indexes) for each in plan.placements) == tasks
    return seconds


def _in_racks(machines: int, racks: int) -> dict[str, Machine]:
    found = fleet(machines)
    for number, machine in enumerate(found.values()):
        machine.attributes = {**machine.attributes, "rack": f"r{number % racks}"}
    return found


def _job(tasks: int, *, spread: bool) -> Job:
    wanted = job("grid", "one", tasks, Resources(500, 256 * 1024**2), 0)
    if spread:
        wanted.spec = msgspec.structs.replace(wanted.spec, spread=(Spread("rack"),))
    return wanted
