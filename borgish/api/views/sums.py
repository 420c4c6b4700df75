"""Sums over all jobs and machines of a cell, kept so that a reading costs what changed since the one before.

Like ``Tally``, which keeps one: it is told what changed.
"""

from collections.abc import Iterable, Iterator
from math import inf

from borgish.bands import Bands
from borgish.cell.model import Cell, Job
from borgish.cell.touched import Touched
from borgish.resources import Resources
from borgish.vocabulary import Band, State

TASKS, PENDING, RUNNING, DEAD, FINISHED, FAILED = range(6)
"""The counts of jobs; those of each band follow."""
_OF_BAND = FAILED + 1
_PER_BAND = 3
_BANDS = tuple(Band)


class CellSums:
    """Of a whole cell. Call ``fill`` before the sums are read."""

    def __init__(self) -> None:
        self._is_filled = False
        # Which are to be looked at again.
        self._jobs: set[str] = set()
        self._machines: set[str] = set()
        self._by_job: dict[str, tuple[int, ...]] = {}
        self._up: dict[str, Resources] = {}  # capacity, of machines that are up
        self.counts = [0] * (_OF_BAND + _PER_BAND * len(_BANDS))
        self.capacity = Resources()  # of machines that are up
        self.draining: set[str] = set()  # machines, also those that are empty by now

    @property
    def machines_up(self) -> int:
        """How many machines are up."""
        return len(self._up)

    def is_up(self, machine: str) -> bool:
        """Return whether a machine is up."""
        return machine in self._up

    def band(self, band: Band) -> tuple[int, int, int]:
        """Return thousandths of a cpu and bytes of ram of a band's running tasks, and how many these are."""
        first = _OF_BAND + _PER_BAND * _BANDS.index(band)
        cpu_millis, ram_bytes, tasks = self.counts[first : first + _PER_BAND]
        return cpu_millis, ram_bytes, tasks

    def note(self, touched: Touched) -> None:
        """Note what a step changed."""
        if not self._is_filled:
            return
        for keys in (touched.jobs, touched.tasks, touched.tasks_gone, touched.jobs_gone):
            self._jobs.update(keys)
        self._machines |= touched.machines | touched.machines_gone

    def fill(self, cell: Cell, most: float = inf) -> None:
        """Bring the sums up to date, or nearer to it: look at no more jobs than so many, nor machines."""
        if not self._is_filled:
            self._is_filled = True
            self._jobs.update(cell.jobs)
            self._machines.update(cell.machines)
        for key in _some(self._jobs, most):
            job, before = cell.jobs.get(key), self._by_job.pop(key, ())
            if job is not None:
                self._by_job[key] = _counts(job, cell.rules.bands)
            for place, count in enumerate(before):
                self.counts[place] -= count
            for place, count in enumerate(self._by_job.get(key, ())):
                self.counts[place] += count
        changes: list[tuple[Resources, int]] = []
        for name in _some(self._machines, most):
            machine, there = cell.machines.get(name), self._up.pop(name, None)
            if there is not None:
                changes.append((there, -1))
            if machine is not None and machine.up:
                self._up[name] = machine.capacity
                changes.append((machine.capacity, 1))
            is_draining = machine is not None and machine.is_draining
            (self.draining.add if is_draining else self.draining.discard)(name)
        if changes:
            self.capacity = total([(self.capacity, 1), *changes])


def _some(names: set[str], most: float) -> Iterator[str]:
    """Take names out until there are none, or so many were taken."""
    taken = 0
    while names and taken < most:
        yield names.pop()
        taken += 1


def _counts(job: Job, bands: Bands) -> tuple[int, ...]:
    of_bands = [0] * (_PER_BAND * len(_BANDS))
    if job.running:
        needs, first = _running_needs(job), _PER_BAND * _BANDS.index(bands.of(job.spec.priority))
        of_bands[first : first + _PER_BAND] = needs.cpu_millis, needs.ram_bytes, job.running
    counts = (len(job.tasks), job.pending, job.running, job.dead, job.finished, job.failed)
    return (*counts, *of_bands)


def _running_needs(job: Job) -> Resources:
    """Return the limits of all running tasks of a job; looks only at those with limits of their own.

    Nothing for a job that runs in allocs: its limits are in theirs.
    """
    if job.spec.inside:
        return Resources()
    if job.is_mixed:
        running = (task for task in job.tasks if task.state is State.RUNNING)
        return total((job.spec_of(task).needs(task.index), 1) for task in running)
    own = [
        override.resources
        for index, override in job.spec.overrides.items()
        if override.resources and index < len(job.tasks) and job.tasks[index].state is State.RUNNING
    ]
    return total([(job.spec.resources, job.running - len(own)), *((needs, 1) for needs in own)])


def total(amounts: Iterable[tuple[Resources, int]]) -> Resources:
    """Return the sum of amounts, each taken so many times."""
    cpu_millis = ram_bytes = disk_bytes = 0
    named: dict[str, int] = {}
    devices: dict[str, int] = {}
    for amount, times in amounts:
        cpu_millis += amount.cpu_millis * times
        ram_bytes += amount.ram_bytes * times
        disk_bytes += amount.disk_bytes * times
        for name, count in amount.named.items():
            named[name] = named.get(name, 0) + count * times
        for kind, millis in amount.devices.items():
            devices[kind] = devices.get(kind, 0) + millis * times
    named = {name: count for name, count in named.items() if count}  # of what went there may be nothing left
    devices = {kind: millis for kind, millis in devices.items() if millis}
    return Resources(cpu_millis, ram_bytes, disk_bytes, named, devices)
