"""What one machine holds, counted from the cell and from what was seen there.

Tasks placed there count with their limits, by band. An attempt that is still seen there but should
not be (it is leaving) counts too: its memory and ports are free when it has ended, not before.
"""

import msgspec

from borgish.cell.model import Job, Task
from borgish.cell.observed import Observed, SeenAttempt, SeenMachine
from borgish.cell.state import Cell
from borgish.resources import Resources
from borgish.vocabulary import Band, band_of, task_name

CPU, RAM, DISK, PORTS = range(4)
"""The kinds of resource every machine has; named resources are numbered from ``KINDS`` on."""

KINDS = 4
BANDS = tuple(Band)
BAND_INDEX = {band: index for index, band in enumerate(BANDS)}


class Census(msgspec.Struct):
    """What one machine holds: amounts by kind, in the units of ``Resources``; ports in pieces."""

    limits: list[dict[int, int]]  # by band: of the tasks placed there
    leaving: dict[int, int]  # of attempts that have not ended, and ports of foreign programs
    ports: set[int]
    jobs: dict[str, int]  # how many tasks of each job are placed there
    blocked_until: float  # when the first of the blocked ports is free again; inf: none is blocked


class Kinds:
    """The numbers of the kinds of resource, handed out as names turn up."""

    def __init__(self) -> None:
        self.named: dict[str, int] = {}

    def __len__(self) -> int:
        return KINDS + len(self.named)

    def number(self, name: str) -> int:
        """Return the number of a named resource."""
        return self.named.setdefault(name, len(self))

    def add(self, amounts: dict[int, int], needs: Resources) -> None:
        """Add what a task needs to amounts by kind; ports are not in it."""
        amounts[CPU] = amounts.get(CPU, 0) + needs.cpu_millis
        amounts[RAM] = amounts.get(RAM, 0) + needs.ram_bytes
        amounts[DISK] = amounts.get(DISK, 0) + needs.disk_bytes
        for name, amount in needs.named.items():
            kind = self.number(name)
            amounts[kind] = amounts.get(kind, 0) + amount


def take_census(cell: Cell, observed: Observed, machine: str, kinds: Kinds, mono: float) -> Census:
    """Count one machine. ``mono``: on the master's monotonic clock; blocked ports are free from then on."""
    census = Census([{} for _ in BANDS], {}, set(), {}, float("inf"))
    current = _count_placed(census, cell, machine, kinds)
    seen = observed.machines.get(machine)
    if seen is not None:
        _count_leaving(census, seen, current, kinds)
        _count_blocked(census, seen, mono)
    return census


def _count_placed(census: Census, cell: Cell, machine: str, kinds: Kinds) -> set[tuple[str, int]]:
    """Count what is placed there; return the attempts that should be there, as ``observed`` names them."""
    current = set()
    for key, index in cell.placed.get(machine, ()):
        job = cell.jobs[key]
        task = job.tasks[index]
        _count_task(census, job, task, kinds)
        current.add((task_name(key, index), task.attempt))
    return current


def _count_task(census: Census, job: Job, task: Task, kinds: Kinds) -> None:
    limits = census.limits[BAND_INDEX[band_of(job.spec.priority)]]
    kinds.add(limits, job.spec.needs(task.index))
    census.jobs[job.key] = census.jobs.get(job.key, 0) + 1
    if task.ports:
        limits[PORTS] = limits.get(PORTS, 0) + len(task.ports)
        census.ports.update(task.ports)


def _count_leaving(census: Census, seen: SeenMachine, current: set[tuple[str, int]], kinds: Kinds) -> None:
    for key, attempt in seen.attempts.items():
        if attempt.ended is None and key not in current:
            _count_attempt(census, attempt, kinds)


def _count_attempt(census: Census, attempt: SeenAttempt, kinds: Kinds) -> None:
    kinds.add(census.leaving, attempt.needs)
    census.ports.update(attempt.ports)


def _count_blocked(census: Census, seen: SeenMachine, mono: float) -> None:
    for port, until in seen.ports_blocked.items():
        if until > mono:
            census.ports.add(port)
            census.blocked_until = min(census.blocked_until, until)
