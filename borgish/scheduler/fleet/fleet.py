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
            readings = []
            for name in names[first : first + READ_AT_ONCE]:
                machine = cell.machines.get(name)
                if machine is None:
                    self._remove(cell, name)
                    continue
                row = self.row[name] if name in self.row else self._add(name)
                usage = usage_of(cell, observed, name, self.kinds, mono)
                readings.append(Reading(row, machine, usage, observed.machines.get(name) or UNSEEN))
            self._read(cell, readings)

    def _read(self, cell: Cell, readings: Sequence[Reading]) -> None:
        if not readings:
            return
        changed: BoolArray = np.array([self._read_one(cell, each) for each in readings])
        rows = np.array([each.row for each in readings])
        changed |= self._read_amounts(rows, readings)
        if changed.any():
            self.version += 1
            self.changed[rows[changed]] = self.version

    def _read_one(self, cell: Cell, each: Reading) -> bool:
        """Write what does not go by kind of resource; return whether what is free, or a fact, changed."""
        self._read_jobs(cell, each.row, each.usage.jobs)
        ports_changed = self._read_ports(each.row, each.machine, each.usage)
        facts_changed = self._read_facts(each.row, each.machine, each.seen)
        capacity_changed = self._read_capacity(each.row, each.machine)
        devices_changed = self._read_devices(each)
        return ports_changed or facts_changed or capacity_changed or devices_changed

    def _read_ports(self, row: int, machine: Machine, usage: MachineUsage) -> bool:
        self.ports[row] = PortRange(machine.ports_low, machine.ports_high, machine.port_next, usage.ports)
        self.kept_ports.pop(row, None)
        if usage.fixed_kept:
            self.kept_ports[row] = usage.fixed_kept
        self.blocked.pop(row, None)
        if usage.blocked_until != float("inf"):
            self.blocked[row] = usage.blocked_until
        return self.fixed_ports.read(row, self.ports[row])

    def _read_jobs(self, cell: Cell, row: int, jobs: dict[str, int]) -> None:
        self.topology.read(cell, row, self.jobs[row], jobs)
        self.jobs[row] = jobs

    def _read_facts(self, row: int, machine: Machine, seen: SeenMachine) -> bool:
        """Write what does not depend on tasks; return whether it changed."""
        fresh = (
            machine.up,
            seen.is_answering,
            machine.cordoned,
            machine.runtimes,
            machine.taints,
            machine.attributes,
            seen.unhealthy_runtimes,
            seen.images,
        )
        if self._known_facts.get(row) == fresh:
            return False
        self._known_facts[row] = fresh
        self.up[row], self.cordoned[row] = machine.up, machine.cordoned
        self.silent[row] = machine.up and not seen.is_answering
        self.runtimes[row], self.working[row] = _runtime_bits(machine.runtimes, seen.unhealthy_runtimes)
        self.taints.set(row, machine.taints)
        self.images.set(row, seen.images)
        self.attributes.set(row, machine.attributes)
        self._forget_facts()
        return True

    def _read_capacity(self, row: int, machine: Machine) -> bool:
        """Write what there is; return whether it changed."""
        ports = self.ports[row].size
        known = self._known_capacity.get(row)
        if known is not None and known[0] is machine.capacity and known[1] == ports:
            return False
        self._known_capacity[row] = machine.capacity, ports
        there: Amounts = {PORTS: ports}
        self.kinds.add(there, machine.capacity)
        self._deepen()
        capacity = [float(there.get(kind, 0)) for kind in range(len(self.kinds))]
        if capacity == self.capacity[:, row].tolist():
            return False
        self.capacity[:, row] = capacity
        self.inverse[:, row] = [1.0 / amount if amount > 0 else 0.0 for amount in capacity]
        return True

    def _read_amounts(self, rows: IntArray, readings: Sequence[Reading]) -> BoolArray:
        """Write what is held; return of which rows what is free, or to preempt, changed."""
        self._deepen()
        held = UsageMatrix([each.usage for each in readings], len(self.kinds))
        free = self.capacity[:, rows] - held.total()
        free[PORTS] = [self._free_ports(each.row, each.usage) for each in readings]
        changed: BoolArray = (free != self.free[:, rows]).any(axis=0)
        self.free[:, rows] = free
        return changed | self._read_held(rows, held) | self._read_shares(rows, held)

    def _free_ports(self, row: int, usage: MachineUsage) -> int:
        """Return how many ports are free. Several may hold one, so that what is taken is not a sum."""
        return self.ports[row].free_count() - usage.ports_kept

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

    def _read_devices(self, each: Reading) -> bool:
        row, machine, usage, changed = each.row, each.machine, each.usage, False
        for name in machine.capacity.devices.keys() | self.devices.keys():
            devices = self.device(name)
            before = devices.free[:, row].tolist()
            devices.read(row, machine.capacity.devices.get(name, 0) // DEVICE_MILLIS, usage.devices)
            for millis in sorted((m for kind, m in usage.devices_kept if kind == name), reverse=True):
                devices.keep(row, millis, usage.devices_leaving)
            changed |= before != devices.free[:, row].tolist()
        return changed

    def _remove(self, cell: Cell, name: str) -> None:
        row = self.row.pop(name, None)
        if row is None:
            return
        self.names[row] = ""
        self._read_jobs(cell, row, {})
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
