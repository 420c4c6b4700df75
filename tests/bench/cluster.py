"""Cells for the scheduler's benches: machines of a real cell's sizes, jobs of a real cell's shapes.

Both come from public traces (``$BORGISH_TRACES``, default ``../shared/data``). Where a trace is not
there, stated numbers take its place, and the figure says so.
"""

import csv
import gzip
import os
import random
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from borgish.cell.model import Job, Machine, Task
from borgish.resources import Resources
from borgish.spec.job import Constraint, JobSpec
from borgish.vocabulary import Runtime
from tests.bench.borglets import GIB, machine_record

TRACES = Path(os.environ.get("BORGISH_TRACES", Path(__file__).parents[3] / "shared" / "data"))
MIX_FILE = TRACES / "machine_mix_2011.csv"
AZURE_FILE = TRACES / "azure-vm-2017" / "azure_v1_dev.csv.gz"
# Where the file is not there, its six largest groups, 99.9 % of it: share of cpu, of ram, machines.
MIX_STATED = (
    (0.5, 0.5, 6732),
    (0.5, 0.25, 3863),
    (0.5, 0.75, 1001),
    (1.0, 1.0, 795),
    (0.25, 0.25, 126),
    (0.5, 0.12, 52),
)
# Likewise: vCPU, GB and VMs of the trace's commonest flavours, and sizes of its batches by chance.
FLAVOURS_STATED = ((1, 1.75, 156), (2, 3.5, 48), (4, 7.0, 26), (8, 14.0, 23), (1, 0.75, 4), (8, 56.0, 1))
BATCHES_STATED = (1, 1, 1, 1, 2, 3, 5, 8, 20, 60)
LARGEST_CPU_MILLIS, LARGEST_RAM_BYTES = 64_000, 256 * GIB
RACK_MACHINES, ZONE_RACKS = 40, 25
USERS = 200
PRIORITIES = (0, 100, 110, 200, 210, 300)
CONSTRAINTS = (
    (),
    (),
    (),
    (),
    (),
    (),
    (Constraint("arch", "==", ("amd64",)),),
    (Constraint("zone", "!=", ("z3",)),),
    (Constraint("disk", "==", ("ssd",)), Constraint("arch", "==", ("amd64",))),
)
ASKED = 64  # different fractions of a flavour that are asked for


def sources() -> str:
    """Return where shapes come from."""
    mix = "machine_mix_2011.csv" if MIX_FILE.is_file() else "stated mix"
    return f"{mix}, {'Azure trace' if AZURE_FILE.is_file() else 'stated flavours'}"


def fleet(machines: int) -> dict[str, Machine]:
    """Return machines of a real cell's sizes, in racks and zones, most of them amd64."""
    chance = random.Random(1)
    mix = _mix()
    found = {}
    for number in range(machines):
        cpu, ram, _ = chance.choices(mix, [row[2] for row in mix])[0]
        rack = number // RACK_MACHINES
        attributes = {
            "rack": f"r{rack}",
            "zone": f"z{rack // ZONE_RACKS}",
            "arch": "amd64" if chance.random() < 0.9 else "arm64",
            "disk": "ssd" if chance.random() < 0.5 else "hdd",
        }
        record = machine_record(f"m{number}")
        found[record.name] = msgspec.structs.replace(
            record,
            capacity=Resources(int(cpu * LARGEST_CPU_MILLIS), int(ram * LARGEST_RAM_BYTES), 1000 * GIB),
            attributes=attributes,
            runtimes=(Runtime.PROCESS, Runtime.DOCKER),
        )
    return found


@cache
def _mix() -> tuple[tuple[float, float, int], ...]:
    if not MIX_FILE.is_file():
        return MIX_STATED
    with MIX_FILE.open(newline="") as file:
        return tuple(
            (float(row["cpu_capacity"]), float(row["memory_capacity"]), int(row["machines"]))
            for row in csv.DictReader(file)
        )


Batch = tuple[float, float, int]
"""What one tenant asked for at once: vCPU, GB, and how many."""


@cache
def _batches() -> tuple[Batch, ...]:
    """Return what came together in the trace, in its order."""
    if not AZURE_FILE.is_file():
        chance = random.Random(5)
        weights = [count for _, _, count in FLAVOURS_STATED]
        drawn = [
            (chance.choices(FLAVOURS_STATED, weights)[0], chance.choice(BATCHES_STATED))
            for _ in range(40_000)
        ]
        return tuple((cpu, ram, count) for (cpu, ram, _), count in drawn)
    return tuple((batch.vcpu, batch.ram_gib, batch.vms) for batch in trace_batches())


class TraceBatch(NamedTuple):
    """What one tenant asked for at one time in the trace, of one flavour."""

    start_seconds: int
    vcpu: float
    ram_gib: float
    vms: int


def trace_batches() -> Iterator[TraceBatch]:
    """Yield what came together in the Azure trace, in its order. The trace must be there."""
    with gzip.open(AZURE_FILE, "rt", newline="") as file:
        rows = (
            (row["batch"], int(row["start_s"]), float(row["vcpu"]), float(row["mem_gb"]))
            for row in csv.DictReader(file)
        )
        for (_, start, vcpu, ram), same in groupby(rows):
            yield TraceBatch(start, vcpu, ram, len(list(same)))


class Workload:
    """Jobs as they come, drawn from a seed: sizes and flavours of the trace, at a fraction of the flavour.

    The fraction makes thousands of shapes of sixteen flavours; bands, users and constraints are drawn too.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._batches = self._endless()
        self._number = 0
        self.shapes: set[tuple[int, int, int, tuple[Constraint, ...]]] = set()

    def _endless(self) -> Iterator[Batch]:
        batches = _batches()
        start = self._chance.randrange(len(batches))
        while True:
            yield from batches[start:]
            start = 0

    def job(self, tasks_max: int = 10_000) -> Job:
        """Return the next job; it has at most so many tasks."""
        cpu, ram, count = next(self._batches)
        chance = self._chance
        fraction = (ASKED + chance.randrange(ASKED)) / (2 * ASKED)
        needs = Resources(int(cpu * 1000 * fraction), int(ram * GIB * fraction))
        priority, constraints = chance.choice(PRIORITIES), chance.choice(CONSTRAINTS)
        self.shapes.add((needs.cpu_millis, needs.ram_bytes, priority, constraints))
        self._number += 1
        user = f"u{chance.randrange(USERS)}"
        return job(user, f"job-{self._number}", min(count, tasks_max), needs, priority, constraints)

    def jobs(self, tasks: int) -> dict[str, Job]:
        """Return waiting jobs with so many tasks in all."""
        found: dict[str, Job] = {}
        while tasks:
            each = self.job(tasks)
            found[each.key] = each
            tasks -= len(each.tasks)
        return found


def job(
    user: str,
    name: str,
    tasks: int,
    needs: Resources,
    priority: int,
    constraints: tuple[Constraint, ...] = (),
) -> Job:
    """Return a job whose tasks wait."""
    spec = JobSpec(name, user, tasks, ("serve",), priority=priority, resources=needs, constraints=constraints)
    return Job(spec.key, 1, spec, 0.0, user, tasks=[Task(index) for index in range(tasks)], pending=tasks)
