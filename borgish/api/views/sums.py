"""Sums over all jobs and machines of a cell, kept so that a reading costs what changed since the one before.

Like ``Tally``, which keeps one: it is told what changed.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from borgish.api.views.amounts import running_needs, total
from borgish.bands import Bands
from borgish.cell.model import Cell, Job, Machine
from borgish.cell.touched import Touched
from borgish.resources import Resources
from borgish.vocabulary import Band

R = TypeVar("R", Job, Machine)

JOBS, TASKS, PENDING, RUNNING, DEAD, FINISHED, FAILED = range(7)
"""The counts of jobs; those of each band follow."""
_OF_BAND = FAILED + 1
_PER_BAND = 3
_BANDS = tuple(Band)


class _Parts(Generic[R]):
    """What each record adds to sums, and which records are to be looked at again; None: all."""

    def __init__(self) -> None:
        self._stale: set[str] | None = None

    def note(self, names: Iterable[str]) -> None:
        if self._stale is not None:
            self._stale.update(names)

    def take(self, records: dict[str, R], known: Iterable[str]) -> Iterable[str]:
        """Return the names of those that may be others now, or gone."""
        stale, self._stale = self._stale, set()
        return {*records, *known} if stale is None else stale


class CellSums:
    """Of a whole cell. Call ``fill`` before the sums are read."""

    def __init__(self) -> None:
        self._job_parts, self._machine_parts = _Parts[Job](), _Parts[Machine]()
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
        for keys in (touched.jobs, touched.tasks, touched.tasks_gone, touched.jobs_gone):
            self._job_parts.note(keys)
        self._machine_parts.note(touched.machines | touched.machines_gone)

    def fill(self, cell: Cell) -> None:
        """Bring the sums up to date."""
        for key in self._job_parts.take(cell.jobs, self._by_job):
            job, before = cell.jobs.get(key), self._by_job.pop(key, ())
            if job is not None:
                self._by_job[key] = _counts(job, cell.rules.bands)
            for place, count in enumerate(before):
                self.counts[place] -= count
            for place, count in enumerate(self._by_job.get(key, ())):
                self.counts[place] += count
        changes: list[tuple[Resources, int]] = []
        for name in self._machine_parts.take(cell.machines, self._up):
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


def _counts(job: Job, bands: Bands) -> tuple[int, ...]:
    of_bands = [0] * (_PER_BAND * len(_BANDS))
    if job.running:
        needs, first = running_needs(job), _PER_BAND * _BANDS.index(bands.of(job.spec.priority))
        of_bands[first : first + _PER_BAND] = needs.cpu_millis, needs.ram_bytes, job.running
    counts = (1, len(job.tasks), job.pending, job.running, job.dead, job.finished, job.failed)
    return (*counts, *of_bands)
