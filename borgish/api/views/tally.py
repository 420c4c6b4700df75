"""Sums over the tasks of each machine, kept until something changes there.

Walking 100,000 tasks costs a good part of a second in Python, so the sums are kept per machine and made
anew only for machines that were ``drop``ped. A tally that nobody drops from must not outlive one reading.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed, SeenMachine
from borgish.resources import Resources
from borgish.vocabulary import JobKind, Phase, State, split_task_name

_RUNS = (Phase.HEALTHY, Phase.UP)


class MachineTally(msgspec.Struct, frozen=True):
    """One machine: the limits of what is placed there, and how many tasks of each job are up there."""

    committed: Resources
    fullness: float  # the share of cpu or ram that is committed, whichever is more
    up: dict[str, int]


class Tally:
    """The sums of a whole cell. The master keeps one and drops from it what a turn changed."""

    def __init__(self) -> None:
        self._machines: dict[str, MachineTally] = {}
        self._up: dict[str, int] = {}

    def drop(self, machines: Iterable[str]) -> None:
        """Forget the sums of machines where a task came, went, or was seen to change."""
        for name in machines:
            gone = self._machines.pop(name, None)
            if gone is not None:
                for job, count in gone.up.items():
                    self._up[job] -= count
                    if not self._up[job]:
                        del self._up[job]

    def drop_tasks(self, cell: Cell, tasks: Mapping[str, Iterable[int]]) -> None:
        """Forget the sums of the machines that tasks are on; ``tasks`` are indexes by job."""
        for key, indexes in tasks.items():
            job = cell.jobs.get(key)
            if job is not None:
                self.drop({job.tasks[index].machine for index in indexes if index < len(job.tasks)})

    def fill(self, cell: Cell, observed: Observed) -> None:
        """Make the sums that are missing."""
        self.drop(self._machines.keys() - cell.machines.keys())
        for name in cell.machines.keys() - self._machines.keys():
            self.machine(cell, observed, name)

    def machine(self, cell: Cell, observed: Observed, name: str) -> MachineTally:
        """Return the sums of one machine, made now when they are missing."""
        found = self._machines.get(name)
        if found is None:
            committed = _committed(cell, name)
            full = fullness(committed, cell.machines[name].capacity)
            up = _reserved(cell, name) | _up(cell, observed.machines.get(name), name)
            found = MachineTally(committed, full, up)
            self._machines[name] = found
            for job, count in found.up.items():
                self._up[job] = self._up.get(job, 0) + count
        return found

    def fullness(self, machine: str) -> float:
        """Return how full a machine is. Call ``fill`` before."""
        return self._machines[machine].fullness

    def up(self, job: str) -> int:
        """Return how many tasks of a job are up. Call ``fill`` before."""
        return self._up.get(job, 0)


def is_up(job: Job, phase: Phase | None) -> bool:
    """Return whether a running task does its work: healthy, or running where nothing probes it."""
    return phase is Phase.HEALTHY or (phase is Phase.UP and job.spec.health is None)


def _committed(cell: Cell, machine: str) -> Resources:
    """Return the sum of limits. What is in an alloc is in that alloc's."""
    jobs = cell.jobs
    placed = ((jobs[key], jobs[key].tasks[index]) for key, index in cell.placed.get(machine, ()))
    arriving = ((jobs[key], index) for key, index in cell.arriving.get(machine, ()))
    return total(
        chain(
            ((job.spec_of(task).needs(task.index), 1) for job, task in placed if task.alloc < 0),
            ((job.spec.needs(index), 1) for job, index in arriving),
        )
    )


def _reserved(cell: Cell, machine: str) -> dict[str, int]:
    """Return how many allocs of each set are on a machine: they are up without a word from it."""
    placed = (key for key, _ in cell.placed.get(machine, ()))
    return dict(Counter(key for key in placed if cell.jobs[key].spec.kind is JobKind.ALLOC_SET))


def _up(cell: Cell, seen: SeenMachine | None, machine: str) -> dict[str, int]:
    up: dict[str, int] = {}
    for (name, attempt), report in seen.attempts.items() if seen else ():
        if report.phase not in _RUNS or report.ended is not None:
            continue
        key, index = split_task_name(name)
        job = cell.jobs.get(key)
        if job is not None and index < len(job.tasks):
            task = job.tasks[index]
            current = task.attempt == attempt and task.state is State.RUNNING and task.machine == machine
            if current and is_up(job, report.phase):
                up[key] = up.get(key, 0) + 1
    return up


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
    return Resources(cpu_millis, ram_bytes, disk_bytes, named, devices)


def fullness(used: Resources, capacity: Resources) -> float:
    """Return the share (0 to 1) that is taken of cpu or ram, whichever is taken more."""
    return max(used.cpu_millis / (capacity.cpu_millis or 1), used.ram_bytes / (capacity.ram_bytes or 1))
