"""All machines as a structure of arrays: one row a machine, found by its name, read from the cell.

Every change of a row gets the next version number, so that whoever keeps something computed from
the rows knows which to compute again. What a machine holds is counted in ``usage``; this file
turns counts into rows.
"""

from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from borgish.cell.model import Machine
from borgish.cell.observed import Observed, SeenMachine
from borgish.cell.state import Cell
from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, copied
from borgish.scheduler.fleet.columns import RUNTIME_BIT, Columns
from borgish.scheduler.fleet.ports import PortRange
from borgish.scheduler.fleet.usage import CPU, PORTS, Amounts, MachineUsage, UsageMatrix, usage_of
from borgish.vocabulary import Runtime

READ_AT_ONCE = 1000
"""So many machines are counted before their rows are written; the counts of all would take much memory."""

SHARE_STEP = 1e-9  # below any share of a machine that a task can have


@cache
def _runtime_bits(runtimes: tuple[Runtime, ...], unhealthy: tuple[Runtime, ...]) -> tuple[int, int]:
    """Return which runtimes a machine has, and which of them work."""
    has = sum(RUNTIME_BIT[runtime] for runtime in set(runtimes))
    return has, sum(RUNTIME_BIT[runtime] for runtime in set(runtimes) - set(unhealthy))


class Reading(msgspec.Struct):
    """What there is to read into one row. ``devices`` are those of an alloc, by name."""

    row: int
    machine: Machine
    usage: MachineUsage
    seen: SeenMachine
    devices: tuple[str, ...] = ()


UNSEEN = SeenMachine()
"""What was seen of a machine that nobody has heard of yet."""


class Fleet(Columns):
    """The rows of all machines, as they are read from the cell and from what was seen."""

    @classmethod
    def of(cls, cell: Cell, observed: Observed, seed: int, mono: float) -> "Fleet":
        """Return the rows of all machines of a cell."""
        fleet = cls(seed, len(cell.machines))
        fleet.bands = cell.rules.bands
        fleet.read(cell, observed, sorted(cell.machines), mono)
        return fleet

    def copy(self) -> "Fleet":
        """Return the same rows, to be changed apart from these: for a pass that must leave no trace here."""
        other = copied(self)
        taken = [set(ports.taken) for ports in self.ports]
        other.ports = [
            PortRange(ports.low, ports.high, ports.following, those)
            for ports, those in zip(self.ports, taken, strict=True)
        ]
        other.fixed_ports = self.fixed_ports.copy(taken)
        other.jobs = [dict(jobs) for jobs in self.jobs]
        other.kinds, other.attributes = copied(self.kinds), self.attributes.copy()
        other.taints, other.images = self.taints.copy(), self.images.copy()
        other.topology = self.topology.copy()
        other.devices = {name: devices.copy() for name, devices in self.devices.items()}
        other.held = {priority: held.copy() for priority, held in self.held.items()}
        return other

    def read(self, cell: Cell, observed: Observed, names: Sequence[str], mono: float) -> None:
        """Read machines again, each once; those that are gone have no row any more.

        A row's version changes only when the row does.
        """
        for first in range(0, len(names), READ_AT_ONCE):
            found = []
            for name in names[first : first + READ_AT_ONCE]:
                machine = cell.machines.get(name)
                if machine is None:
                    self._remove(cell, name)
                else:
                    row = self.row[name] if name in self.row else self._add(name)
                    found.append((row, machine, observed.machines.get(name) or UNSEEN))
            self._read(
                cell,
                [
                    Reading(row, machine, usage_of(cell, observed, machine.name, self.kinds, mono), seen)
                    for row, machine, seen in found
                ],
            )

    def _read(self, cell: Cell, readings: Sequence[Reading]) -> None:
        """Write what was read, column by column."""
        if not readings:
            return
        rows = np.array([each.row for each in readings])
        self._read_jobs(cell, readings)
        ports_changed = self._read_ports(readings)
        facts_changed = self._read_facts(readings)
        capacity_changed = self._read_capacity(readings)
        devices_changed = self._read_devices(readings)
        changed = self._read_amounts(rows, readings)
        parts = zip(ports_changed, facts_changed, capacity_changed, devices_changed, strict=True)
        changed |= [any(part) for part in parts]
        if changed.any():
            self.version += 1
            self.changed[rows[changed]] = self.version

    # Each returns of which readings what is free, or a fact, changed: [reading]

    def _read_ports(self, readings: Sequence[Reading]) -> list[bool]:
        for each in readings:
            row, machine, usage = each.row, each.machine, each.usage
            self.ports[row] = PortRange(machine.ports_low, machine.ports_high, machine.port_next, usage.ports)
            self.kept_ports.pop(row, None)
            if usage.fixed_kept:
                self.kept_ports[row] = usage.fixed_kept
            self.blocked.pop(row, None)
            if usage.blocked_until != float("inf"):
                self.blocked[row] = usage.blocked_until
        return self._read_fixed_ports(readings)

    def _read_fixed_ports(self, readings: Sequence[Reading]) -> list[bool]:
        return [self.fixed_ports.read(each.row, self.ports[each.row]) for each in readings]

    def _read_jobs(self, cell: Cell, readings: Sequence[Reading]) -> None:
        for each in readings:
            before, after = self.jobs[each.row], each.usage.jobs
            if before != after:
                self.topology.read(cell, each.row, before, after)
                self.jobs[each.row] = after

    def _read_facts(self, readings: Sequence[Reading]) -> list[bool]:
        """Write what does not depend on tasks."""
        answering = [each.seen.is_answering for each in readings]
        fresh = [
            (
                each.machine.up,
                is_answering,
                each.machine.cordoned,
                each.machine.runtimes,
                each.machine.taints,
                each.machine.attributes,
                each.seen.unhealthy_runtimes,
                each.seen.images,
            )
            for each, is_answering in zip(readings, answering, strict=True)
        ]
        changed = [False] * len(readings)
        for place, each in enumerate(readings):
            row, machine, seen = each.row, each.machine, each.seen
            if self._known_facts.get(row) == fresh[place]:
                continue
            changed[place] = True
            self._known_facts[row] = fresh[place]
            self.up[row], self.cordoned[row] = machine.up, machine.cordoned
            self.silent[row] = machine.up and not answering[place]
            self.runtimes[row], self.working[row] = _runtime_bits(machine.runtimes, seen.unhealthy_runtimes)
            self.taints.set(row, machine.taints)
            self.images.set(row, seen.images)
            self.attributes.set(row, machine.attributes)
        if any(changed):
            self._forget_facts()
        return changed

    def _read_capacity(self, readings: Sequence[Reading]) -> list[bool]:
        """Write what there is."""
        ports = [self.ports[each.row].size for each in readings]
        changed = [False] * len(readings)
        found: dict[int, Amounts] = {}  # by place among the readings
        for place, each in enumerate(readings):
            known = self._known_capacity.get(each.row)
            # The same record: it is replaced, never written to, so that most need no comparison.
            if known is None or known[0] is not each.machine.capacity or known[1] != ports[place]:
                self._known_capacity[each.row] = each.machine.capacity, ports[place]
                found[place] = {PORTS: ports[place]}
                self.kinds.add(found[place], each.machine.capacity)
        if found:
            self._deepen()
        for place, there in found.items():
            row = readings[place].row
            capacity = [float(there.get(kind, 0)) for kind in range(len(self.capacity))]
            if capacity != self.capacity[:, row].tolist():
                changed[place] = True
                self.capacity[:, row] = capacity
                self.inverse[:, row] = [1.0 / amount if amount > 0 else 0.0 for amount in capacity]
        return changed

    def _read_amounts(self, rows: IntArray, readings: Sequence[Reading]) -> BoolArray:
        """Write what is held; return of which rows what is free, or to preempt, changed."""
        self._deepen()
        held = UsageMatrix([each.usage for each in readings], len(self.kinds))
        free = self.capacity[:, rows] - held.total()
        free[PORTS] = self._free_ports(readings)
        changed: BoolArray = (free != self.free[:, rows]).any(axis=0)
        self.free[:, rows] = free
        return changed | self._read_held(rows, held) | self._read_shares(rows, held)

    def _free_ports(self, readings: Sequence[Reading]) -> list[int]:
        """Return how many ports are free. Several may hold one, so that what is taken is not a sum."""
        return [self.ports[each.row].free_count() - each.usage.ports_kept for each in readings]

    def _read_held(self, rows: IntArray, held: UsageMatrix) -> BoolArray:
        """Write who holds how much; return where it changed."""
        changed: BoolArray = np.zeros(len(rows), dtype=np.bool_)
        if not self.preemptible:
            return changed
        for priority in self.held.keys() | held.by_priority.keys():
            if not self.bands.is_prod(priority):
                before, now = self._held(priority), held.of(priority)
                differs: BoolArray = (before[:, rows] != now).any(axis=0)
                changed |= differs
                before[:, rows] = now
        return changed

    def _read_shares(self, rows: IntArray, held: UsageMatrix) -> BoolArray:
        """Write who holds which share of the cpu; return where it changed."""
        shares: FloatArray = np.zeros((2, len(rows)))
        for priority, amounts in held.by_priority.items():
            shares[int(self.bands.is_prod(priority))] += amounts[CPU]
        shares *= self.inverse[CPU, rows]
        # The running pass adds up, so that the last digits may differ.
        below, prod = np.abs(shares - self.shares[:, rows]) >= SHARE_STEP
        changed: BoolArray = below | prod
        self.shares[:, rows[changed]] = shares[:, changed]
        return changed

    def _read_devices(self, readings: Sequence[Reading]) -> list[bool]:
        changed = [False] * len(readings)
        for place, each in enumerate(readings):
            row, there, usage = each.row, each.machine.capacity.devices, each.usage
            for name in there.keys() | self.devices.keys():
                devices = self.device(name)
                before = devices.free[:, row].tolist()
                devices.read(row, there.get(name, 0) // DEVICE_MILLIS, usage.devices)
                for millis in sorted((m for kind, m in usage.devices_kept if kind == name), reverse=True):
                    devices.keep(row, millis, usage.devices_leaving)
                changed[place] |= before != devices.free[:, row].tolist()
        return changed

    def _forget_jobs(self, cell: Cell, row: int) -> None:
        self.topology.read(cell, row, self.jobs[row], {})
        self.jobs[row] = {}

    def _remove(self, cell: Cell, name: str) -> None:
        row = self.row.pop(name, None)
        if row is None:
            return
        self.names[row] = ""
        self._forget_jobs(cell, row)
        self.blocked.pop(row, None)
        self._known_capacity.pop(row, None)
        self._known_facts.pop(row, None)
        self.ports[row] = PortRange(0, -1, 0, set())
        self.fixed_ports.read(row, self.ports[row])
        self.taints.set(row, ())
        self.images.set(row, {})
        for flags in (self.present, self.up, self.silent, self.cordoned):
            flags[row] = False
        for amounts in (self.capacity, self.inverse, self.free, *self.held.values()):
            amounts[..., row] = 0
        self.shares[:, row] = 0.0
        for devices in self.devices.values():
            devices.read(row, 0, {})
        self._spare.append(row)
        self._forget_facts()
        self.touch(row)
