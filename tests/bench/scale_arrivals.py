"""Jobs that arrive as the requests of a public cloud did, bursts and all: a part of ``scale``.

Each batch of the Azure trace is a job, with the cpu and the memory that its machines had. What the trace has
in five minutes arrives at once, a second after the five minutes before it; no task ends. Without the trace
nothing is measured.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from borgish.resources import Resources
from tests.bench import host
from tests.bench.borglets import FACTS, GIB
from tests.bench.cluster import AZURE_FILE, trace_batches
from tests.bench.figure import MEAN, Figure
from tests.bench.load import Asked, loaded
from tests.bench.sizes import Sizes
from tests.bench.traces import lacking

STEP_SECONDS = 300
"""The trace's times are multiples of this; each step is played as a second."""
BEGIN = 20_000
"""The number of the first batch, about a third into the trace."""
FULL_SHARE_MAX = 0.5
"""So much of the cell is asked for at most, so that everything finds a place."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what such jobs take, and how uneven they come."""
    machines = sizes.cell_machines
    name = f"scale.{machines}.azure"
    if not AZURE_FILE.is_file():
        yield Figure(name, "ms", absent=lacking())
        return
    jobs = _jobs(machines, sizes.scale_arrivals)
    with TemporaryDirectory(prefix="borgish-bench-") as place, loaded(Path(place), machines) as load:
        yield from load.measured(jobs).figures(name)
    steps = Counter[float | None]()
    for job in jobs:
        steps[job.due_seconds] += job.tasks
    yield Figure(f"{name}.tasks_a_second", "tasks/s", list(steps.values()), quantile=MEAN)
    yield Figure(f"{name}.tasks_of_a_job", "tasks", [job.tasks for job in jobs], quantile=MEAN)
    yield from host.figures(name)


def _jobs(machines: int, count: int) -> list[Asked]:
    """Return so many jobs, or fewer where the cell would be too full of them."""
    cpu = FULL_SHARE_MAX * machines * FACTS.capacity.cpu_millis
    ram = FULL_SHARE_MAX * machines * FACTS.capacity.ram_bytes
    jobs, first = list[Asked](), None
    for batch in islice(trace_batches(), BEGIN, BEGIN + count):
        first = batch.start_seconds if first is None else first
        needs = Resources(int(1000 * batch.vcpu), int(batch.ram_gib * GIB))
        cpu, ram = cpu - batch.vms * needs.cpu_millis, ram - batch.vms * needs.ram_bytes
        if cpu < 0 or ram < 0:
            break
        jobs.append(Asked(batch.vms, needs, (batch.start_seconds - first) / STEP_SECONDS))
    return jobs
