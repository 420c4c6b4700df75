"""What machines hold, counted from the cell and from what was seen there.

Tasks placed there count with their limits, and so do those whose place is kept until others have
left. An attempt that is still seen there but should not be (it is leaving) counts too: its memory,
devices and ports are free when it has ended, not before.

What runs inside an alloc holds nothing of the machine but its ports: the alloc does. Of the alloc it
holds what it needs. What has yet to leave when its alloc has left already holds its needs of the machine.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from borgish.cell.allocs import alloc_name, inside, is_alloc_set, is_reserved, priority_of
from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Job, Task
from borgish.cell.observed import Observed, SeenMachine
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.scheduler.arrays import FloatArray
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, task_name

CPU, RAM, DISK, PORTS = range(4)
"""The kinds of resource every machine has; named resources and devices are numbered from ``KINDS`` on."""

KINDS = 4
DEVICE_PREFIX = "devices."
BANDS = tuple(Band)
BAND_INDEX = {band: index for index, band in enumerate(BANDS)}

Amounts = dict[int, int]
"""By kind, in the units of ``Resources``; ports in pieces, devices in thousandths."""


class MachineUsage(msgspec.Struct):
    """What one machine holds. ``held`` is by priority: of tasks placed there and of places kept there."""

    held: dict[int, Amounts]
    leaving: Amounts  # of attempts that have not ended
    ports: set[int]
    devices: dict[str, int]  # thousandths in use of single devices, by their name, like gpu:0
    jobs: dict[str, int]  # how many tasks of each job are placed there
    blocked_until: float  # when the first of the blocked ports is free again; inf: none is blocked
    ports_kept: int = 0  # how many more, of any number, are for tasks whose place is kept
    fixed_kept: set[int] = set()  # of ``ports``: those only kept for such tasks, that want them by number
    devices_leaving: dict[str, int] = {}  # of ``devices``: what attempts use that have not ended
    devices_kept: list[tuple[str, int]] = []  # kind and thousandths of each that is kept for such a task


class Kinds:
    """The numbers of the kinds of resource, handed out as names turn up."""

    def __init__(self) -> None:
        self.named: dict[str, int] = {}

    def __len__(self) -> int:
        return KINDS + len(self.named)

    def number(self, name: str) -> int:
        """Return the number of a named resource, or of a device's kind with its prefix."""
        return self.named.setdefault(name, len(self))

    def add(self, amounts: Amounts, needs: Resources) -> None:
        """Add what a task needs to amounts by kind; ports are not in it."""
        amounts[CPU] = amounts.get(CPU, 0) + needs.cpu_millis
        amounts[RAM] = amounts.get(RAM, 0) + needs.ram_bytes
        amounts[DISK] = amounts.get(DISK, 0) + needs.disk_bytes
        for name, amount in needs.named.items():
            kind = self.number(name)
            amounts[kind] = amounts.get(kind, 0) + amount
        for name, amount in needs.devices.items():
            kind = self.number(DEVICE_PREFIX + name)
            amounts[kind] = amounts.get(kind, 0) + amount


def usage_of(cell: Cell, observed: Observed, machine: str, kinds: Kinds, mono: float) -> MachineUsage:
    """Count one machine. ``mono``: on the master's monotonic clock; blocked ports are free from then on."""
    usage = MachineUsage({}, {}, set(), {}, {}, float("inf"))
    placed = cell.placed.get(machine, ())
    for key, index in placed:
        job = cell.jobs[key]
        task = job.tasks[index]
        usage.ports.update(task.ports)
        if task.alloc < 0:
            _count_task(usage, cell, job, task, kinds)
        else:
            _count_one(usage, job)
    for key, index in sorted(cell.promised.get(machine, ())):
        job = cell.jobs[key]
        _count_needs(usage, job.spec, index, kinds, job.spec.priority)
        usage.ports_kept += len(job.spec.ports) - len(job.spec.fixed_ports)
        usage.fixed_kept.update(job.spec.fixed_ports.values())
        usage.devices_kept += job.spec.needs(index).devices.items()
    seen = observed.machines.get(machine)
    if seen is not None:
        for attempt in _leaving(seen, cell, placed):
            usage.ports.update(attempt.ports)
            if not (attempt.alloc and is_reserved(cell, machine, attempt.alloc)):
                _count_attempt(usage, attempt, kinds)
        for port, until in seen.ports_blocked.items():
            if until > mono:
                usage.ports.add(port)
                usage.blocked_until = min(usage.blocked_until, until)
    usage.fixed_kept -= usage.ports
    usage.ports |= usage.fixed_kept
    return usage


def usage_of_alloc(cell: Cell, observed: Observed, allocs: Job, index: int, kinds: Kinds) -> MachineUsage:
    """Count one alloc that is on a machine. Its ports are the machine's, and not counted."""
    usage = MachineUsage({}, {}, set(), {}, {}, float("inf"))
    current = []
    for job, task in inside(cell, allocs, index):
        _count_task(usage, cell, job, task, kinds)
        current.append((job.key, task.index))
    seen = observed.machines.get(allocs.tasks[index].machine)
    if seen is not None:
        name = alloc_name(allocs, index)
        for attempt in _leaving(seen, cell, current):
            if attempt.alloc == name:
                _count_attempt(usage, attempt, kinds)
    return usage


def _count_one(usage: MachineUsage, job: Job) -> None:
    usage.jobs[job.key] = usage.jobs.get(job.key, 0) + 1


def _count_task(usage: MachineUsage, cell: Cell, job: Job, task: Task, kinds: Kinds) -> None:
    _count_one(usage, job)
    spec = job.spec_of(task)
    priority = priority_of(cell, job, task.index) if is_alloc_set(job) else spec.priority
    held = _count_needs(usage, spec, task.index, kinds, priority)
    if task.ports:
        held[PORTS] = held.get(PORTS, 0) + len(task.ports)
    if task.devices:
        count_devices(usage.devices, task.devices, spec.needs(task.index).devices)


def _count_needs(usage: MachineUsage, spec: JobSpec, index: int, kinds: Kinds, priority: int) -> Amounts:
    held = usage.held.setdefault(priority, {})
    kinds.add(held, spec.needs(index))
    return held


def count_devices(used: dict[str, int], devices: tuple[str, ...], needs: dict[str, int]) -> None:
    """Add what a task has of single devices: a part of one, or the whole of each."""
    for device in devices:
        millis = min(DEVICE_MILLIS, needs.get(device.partition(":")[0], 0))
        used[device] = used.get(device, 0) + millis


def _leaving(seen: SeenMachine, cell: Cell, placed: Iterable[tuple[str, int]]) -> Iterator[SeenAttempt]:
    """Yield the attempts seen there that have not ended, but for those of tasks that should be there."""
    if not seen.attempts:
        return
    current = {(task_name(key, index), cell.jobs[key].tasks[index].attempt) for key, index in placed}
    for key, attempt in seen.attempts.items():
        if attempt.ended is None and key not in current:
            yield attempt


def _count_attempt(usage: MachineUsage, attempt: SeenAttempt, kinds: Kinds) -> None:
    kinds.add(usage.leaving, attempt.needs)
    for used in (usage.devices, usage.devices_leaving):
        count_devices(used, attempt.devices, attempt.needs.devices)


Lists = list[list[float]]


class UsageMatrix:
    """What some machines hold, as columns [resource, machine], so that no number is written by itself.

    ``by_priority`` is of tasks and of kept places, ``leaving`` of attempts that have not ended.
    """

    def __init__(self, usages: Sequence[MachineUsage], kinds: int) -> None:
        self._shape = (kinds, len(usages))
        lists: dict[int, Lists] = {}
        leaving = self._lists()
        for place, usage in enumerate(usages):
            for priority, amounts in usage.held.items():
                if priority not in lists:
                    lists[priority] = self._lists()
                _write(lists[priority], place, amounts)
            _write(leaving, place, usage.leaving)
        self.by_priority: dict[int, FloatArray] = {
            priority: np.array(columns) for priority, columns in lists.items()
        }
        self.leaving: FloatArray = np.array(leaving)

    def total(self) -> FloatArray:
        """Return all that is held."""
        found = self.leaving.copy()
        for amounts in self.by_priority.values():
            found += amounts
        return found

    def of(self, priority: int) -> FloatArray:
        """Return what one priority holds; zeros when nobody has it."""
        found = self.by_priority.get(priority)
        return np.zeros(self._shape) if found is None else found

    def _lists(self) -> Lists:
        kinds, usages = self._shape
        return [[0.0] * usages for _ in range(kinds)]


def _write(columns: Lists, place: int, amounts: Amounts) -> None:
    for kind, amount in amounts.items():
        columns[kind][place] = amount
