"""What machines hold, counted from the cell and from what was seen there, and which ports are free.

Tasks placed there count with their limits, and so do those whose place is kept until others have
left. An attempt that is still seen there but should not be (it is leaving) counts too: its memory,
devices and ports are free when it has ended, not before.

What runs inside an alloc holds nothing of the machine but its ports: the alloc does. Of the alloc it
holds what it needs. What has yet to leave when its alloc has left already holds its needs of the machine.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from borgish.cell.commands import SeenAttempt
from borgish.cell.model import Cell, Job, Task
from borgish.cell.moves import Cursor, Move
from borgish.cell.observed import Observed, leaving_attempts
from borgish.cell.tasks.allocs import alloc_name, inside, is_alloc_set, is_reserved, priority_of
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, Rows, copied, widened
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, task_name

CPU, RAM, DISK, PORTS = range(4)
"""The kinds of resource every machine has; named resources and devices are numbered from ``KINDS`` on."""

KINDS = 4
DEVICE_PREFIX = "devices."
BANDS = tuple(Band)
BAND_INDEX = {band: index for index, band in enumerate(BANDS)}

_Name = TypeVar("_Name", str, int)

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
        self.count = KINDS

    def number(self, name: str) -> int:
        """Return the number of a named resource, or of a device's kind with its prefix."""
        if name not in self.named:
            self.named[name] = self.count
            self.count += 1
        return self.named[name]

    def of_resources(self) -> list[int]:
        """Return the numbers of the named resources, in the order of their names; devices are none."""
        return [self.named[name] for name in sorted(self.named) if not name.startswith(DEVICE_PREFIX)]

    def add(self, amounts: Amounts, needs: Resources, times: int = 1) -> None:
        """Add what a task needs to amounts by kind, or with -1 take it away; ports are not in it."""
        amounts[CPU] = amounts.get(CPU, 0) + times * needs.cpu_millis
        amounts[RAM] = amounts.get(RAM, 0) + times * needs.ram_bytes
        amounts[DISK] = amounts.get(DISK, 0) + times * needs.disk_bytes
        if needs.named or needs.devices:  # seldom any
            self._add_named(amounts, needs, times)

    def _add_named(self, amounts: Amounts, needs: Resources, times: int) -> None:
        for name, amount in needs.named.items():
            kind = self.number(name)
            amounts[kind] = amounts.get(kind, 0) + times * amount
        for name, amount in needs.devices.items():
            kind = self.number(DEVICE_PREFIX + name)
            amounts[kind] = amounts.get(kind, 0) + times * amount


class PlacedUsage:
    """What the tasks that are placed on one machine hold, kept so that to count them anew costs what moved
    since. Where there are allocs, which hold more or less by what is in them, all are counted."""

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._kept: MachineUsage | None = None
        self._ports: dict[int, int] = {}  # how many of the tasks have each

    def count(self, cell: Cell, machine: str, kinds: Kinds) -> MachineUsage:
        """Return it, to be added to."""
        moves, kept = self._cursor.news(cell.moves.get(machine)), self._kept
        if kept is None or moves is None or any(move.concerns_allocs for move in moves):
            return self._count_all(cell, machine, kinds)
        for move in moves:
            if move.tasks:
                self._count_move(kept, move, kinds)
        return copy_of(kept, set(self._ports))

    def _count_all(self, cell: Cell, machine: str, kinds: Kinds) -> MachineUsage:
        usage, has_allocs = MachineUsage({}, {}, set(), {}, {}, float("inf")), False
        self._ports = {}
        for key, index in cell.placed.get(machine, ()):
            job = cell.jobs[key]
            task = job.tasks[index]
            for port in task.ports:
                self._ports[port] = self._ports.get(port, 0) + 1
            if task.alloc < 0:
                _count_task(usage, cell, job, task, kinds)
                has_allocs = has_allocs or is_alloc_set(job)
            else:
                usage.jobs[key] = usage.jobs.get(key, 0) + 1
                has_allocs = True
        self._kept = None if has_allocs else usage
        return copy_of(usage, set(self._ports))

    def _count_move(self, usage: MachineUsage, move: Move, kinds: Kinds) -> None:
        needs, times = move.spec.needs(move.index), move.tasks
        held = usage.held.setdefault(move.spec.priority, {})
        kinds.add(held, needs, times)
        _add(usage.jobs, move.job, times)
        for port in move.ports:
            _add(self._ports, port, times)
        if move.ports:
            _add(held, PORTS, times * len(move.ports))
        for device, millis in device_shares(move.devices, needs.devices):
            _add(usage.devices, device, times * millis)


def _add(counts: dict[_Name, int], name: _Name, more: int) -> None:
    """Count more of something, or less where that is below 0; what there is none of has no count."""
    count = counts.get(name, 0) + more
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)


def copy_of(usage: MachineUsage, ports: set[int]) -> MachineUsage:
    """Return what placed tasks hold, with these ports, to be added to."""
    held = {priority: dict(amounts) for priority, amounts in usage.held.items()}
    return MachineUsage(held, {}, ports, dict(usage.devices), dict(usage.jobs), float("inf"))


class Usages:
    """Counts machines, and keeps of each what the tasks placed there hold."""

    def __init__(self) -> None:
        self._placed: dict[str, PlacedUsage] = {}

    def forget(self, machine: str) -> None:
        """Keep nothing of a machine that is gone."""
        self._placed.pop(machine, None)

    def of(self, cell: Cell, observed: Observed, machine: str, kinds: Kinds, mono: float) -> MachineUsage:
        """Count one machine, always by the same ``kinds``. ``mono`` is on the master's monotonic clock:
        blocked ports are free from then on."""
        placed = self._placed.get(machine)
        if placed is None:
            placed = self._placed[machine] = PlacedUsage()
        usage = placed.count(cell, machine, kinds)
        for key, index in cell.arriving.get(machine, ()):
            job, task = cell.jobs[key], cell.handovers[key][index].task(index)
            usage.ports.update(task.ports)
            # At a priority that nobody preempts: nothing of the cell makes way by ending an incoming attempt.
            _count_task(usage, cell, job, task, kinds, max(job.spec.priority, cell.rules.bands.production))
        for key, index in sorted(cell.promised.get(machine, ())):
            job = cell.jobs[key]
            _count_needs(usage, job.spec, index, kinds, job.spec.priority)
            usage.ports_kept += len(job.spec.ports) - len(job.spec.fixed_ports)
            usage.fixed_kept.update(job.spec.fixed_ports.values())
            usage.devices_kept += job.spec.needs(index).devices.items()
        seen = observed.machines.get(machine)
        if seen is not None:
            for attempt in leaving_attempts(cell, machine, seen):
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
    current = set[tuple[str, int]]()
    for job, task in inside(cell, allocs, index):
        _count_task(usage, cell, job, task, kinds)
        current.add((task_name(job.key, task.index), task.attempt))
    seen = observed.machines.get(allocs.tasks[index].machine)
    if seen is not None:
        name = alloc_name(allocs, index)
        for key, attempt in seen.attempts.items():
            if attempt.alloc == name and attempt.ended is None and key not in current:
                _count_attempt(usage, attempt, kinds)
    return usage


def _count_task(
    usage: MachineUsage, cell: Cell, job: Job, task: Task, kinds: Kinds, priority: int | None = None
) -> None:
    usage.jobs[job.key] = usage.jobs.get(job.key, 0) + 1
    spec = job.spec_of(task)
    if priority is None:
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
    """Add what a task has of single devices."""
    for device, millis in device_shares(devices, needs):
        used[device] = used.get(device, 0) + millis


def device_shares(devices: tuple[str, ...], needs: dict[str, int]) -> Iterable[tuple[str, int]]:
    """Return what a task has of each of its devices, in thousandths: a part of one, or the whole of each."""
    return [(device, min(DEVICE_MILLIS, needs.get(device.partition(":")[0], 0))) for device in devices]


def _count_attempt(usage: MachineUsage, attempt: SeenAttempt, kinds: Kinds) -> None:
    kinds.add(usage.leaving, attempt.needs)
    for used in (usage.devices, usage.devices_leaving):
        count_devices(used, attempt.devices, attempt.needs.devices)


Columns = list[list[float]]


def usage_matrices(usages: Sequence[MachineUsage], kinds: int) -> tuple[dict[int, FloatArray], FloatArray]:
    """Return what some machines hold, as columns [resource, machine], so that no number is written by itself.

    First, by priority, that of tasks and of kept places; then that of attempts that have not ended.
    """
    by_priority: dict[int, Columns] = {}
    leaving: Columns = [[0.0] * len(usages) for _ in range(kinds)]
    for place, usage in enumerate(usages):
        for priority, amounts in usage.held.items():
            columns = by_priority.get(priority)
            if columns is None:
                columns = by_priority[priority] = [[0.0] * len(usages) for _ in range(kinds)]
            for kind, amount in amounts.items():
                columns[kind][place] = amount
        for kind, amount in usage.leaving.items():
            leaving[kind][place] = amount
    return {priority: np.array(columns) for priority, columns in by_priority.items()}, np.array(leaving)


# Ports


class PortRange(msgspec.Struct):
    """Ports ``low`` to ``high`` of one machine; ``following`` is where the search goes on.

    It goes on where it last ended, so that a port rests as long as possible before another task gets it.
    """

    low: int
    high: int
    following: int
    taken: set[int]

    @property
    def size(self) -> int:
        """How many ports there are."""
        return max(0, self.high - self.low + 1)

    def count(self, ports: Iterable[int]) -> int:
        """Return how many of some ports are among them."""
        return sum([self.low <= port <= self.high for port in ports])

    def take(self, count: int) -> tuple[int, ...]:
        """Take that many free ports. There must be as many, or LookupError."""
        found: list[int] = []
        port = self.following if self.low <= self.following <= self.high else self.low
        for _ in range(self.size):
            if len(found) == count:
                break
            if port not in self.taken:
                found.append(port)
            port = port + 1 if port < self.high else self.low
        if len(found) < count:
            raise LookupError(f"{count} ports wanted, {len(found)} free in {self.low}-{self.high}")
        self.taken.update(found)
        self.following = port
        return tuple(found)


def free_counts(ranges: Iterable[PortRange]) -> list[int]:
    """Return how many ports are free in each range."""
    return [each.size - each.count(each.taken) for each in ranges]


class FixedPorts:
    """Which machines have a port taken, for those ports that some job wants by number."""

    def __init__(self) -> None:
        self._low: IntArray = np.zeros(0, dtype=np.int64)  # of each machine's range
        self._high: IntArray = np.zeros(0, dtype=np.int64)
        self._rows: list[set[int]] = []
        self._taken: dict[int, BoolArray] = {}

    def copy(self, rows: list[set[int]]) -> "FixedPorts":
        """Return the same with copies of the rows' taken ports, which others may hold as well."""
        other = copied(self)
        other._rows = list(rows)
        other._taken = {port: taken.copy() for port, taken in self._taken.items()}
        return other

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self._rows += [set() for _ in range(rows - len(self._rows))]
        self._taken = {port: widened(taken, rows) for port, taken in self._taken.items()}
        self._low, self._high = widened(self._low, rows), widened(self._high, rows)

    def read(self, rows: Iterable[int], ranges: Sequence[PortRange]) -> list[bool]:
        """Note which ports of some machines are taken, where ``ranges`` are those of all rows.

        Return for each machine whether one that somebody wants changed.
        """
        found = []
        for row in rows:
            of = ranges[row]
            changed, ports = False, of.taken
            self._low[row], self._high[row] = of.low, of.high
            for port, taken in self._taken.items():
                changed |= bool(taken[row] != (port in ports))
                taken[row] = port in ports
            self._rows[row] = ports
            found.append(changed)
        return found

    def taken(self, port: int) -> BoolArray:
        """Return which machines have it taken: [row]. It is not to be written to."""
        found = self._taken.get(port)
        if found is None:
            found = np.array([port in ports for ports in self._rows], dtype=np.bool_)
            self._taken[port] = found
        return found

    def own(self, port: int, rows: Rows) -> BoolArray:
        """Return of which of the rows a port is in the range from which others are given theirs."""
        found: BoolArray = (self._low[rows] <= port) & (port <= self._high[rows])
        return found

    def note(self, rows: Iterable[int], ports: Iterable[int]) -> None:
        """Note for those who want ports by number that these are taken; the rows' sets have them already."""
        for port in ports:
            taken = self._taken.get(port)
            if taken is not None:
                for row in rows:
                    taken[row] = True

    def set(self, rows: Iterable[int], port: int, *, taken: bool) -> None:
        """Note that the running pass takes a port on machines, or gives it back."""
        of_port = self.taken(port)
        for row in rows:
            of_port[row] = taken
            (self._rows[row].add if taken else self._rows[row].discard)(port)
