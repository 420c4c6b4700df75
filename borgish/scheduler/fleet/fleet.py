"""All machines as a structure of arrays: one row a machine, found by its name.

A row is read from the cell and from what was seen (``usage`` counts what a machine holds), then asked by
filters and scores, and changed by what the running pass places. Every change of a row gets the next version
number, so that whoever keeps something computed from the rows knows which to compute again.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from borgish.bands import DEFAULT_BANDS
from borgish.cell.model import Cell, Job, Machine
from borgish.cell.observed import Observed, SeenMachine
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.scheduler.affinity import Choice, Counter, Topology
from borgish.scheduler.arrays import (
    BitArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    copied,
    widen,
    widened,
)
from borgish.scheduler.fleet.devices import Devices
from borgish.scheduler.fleet.facts import Attributes, Images, Taints, runtime_bits
from borgish.scheduler.fleet.usage import (
    CPU,
    DEVICE_PREFIX,
    KINDS,
    PORTS,
    Amounts,
    FixedPorts,
    Kinds,
    MachineUsage,
    PortRange,
    Usages,
    free_counts,
    usage_matrices,
)
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import MACHINE

TIE_MAX = 2.0**-30
"""Ties are broken by adding less than this to a score: far below any difference that matters."""

KnownCapacity = tuple[Resources, int]
"""What a machine's capacity was last read from: its record, and how many ports it has."""


AMOUNTS = ("capacity", "inverse", "free")
FLAGS = ("present", "up", "silent", "cordoned", "draining", "quarantined", "stuck")
BY_ROW = (*AMOUNTS, *FLAGS, "runtimes", "working", "changed", "tie", "cpu_held", "shares")
"""The arrays that grow when there are more machines."""


class FailureDomain(NamedTuple):
    """Which value of one attribute each machine has.

    ``codes`` [row] are the numbers of the values, in the narrowest type, and ``numbers`` [row] the same apart
    from those of all other domains. ``there`` [value] says which values machines have.
    ``holds``: whether each value of the domain before it, which is smaller, lies within one of its values.
    """

    codes: CodeArray
    numbers: IntArray
    there: BoolArray
    holds: bool


def tie_break(seed: int, name: str) -> float:
    """Return a machine's place in the seeded order among equals, from 0 to ``TIE_MAX``."""
    digest = blake2b(f"{seed}:{name}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest) >> 10) * TIE_MAX / 2**22


def level_of(amount: float, free: FloatArray, held: Iterable[tuple[int, FloatArray]]) -> FloatArray:
    """Return up to which priority tasks would have to leave for an amount of a resource, [machine].

    -1: nobody has to; inf: that all leave is not enough. ``free`` is [machine], and so is what each priority
    holds, the lowest first.
    """
    level: FloatArray = np.where(free >= amount, -1.0, np.inf)
    for priority, there in held:
        free = free + there
        level = np.where((level == np.inf) & (free >= amount), float(priority), level)
    return level


class Widening(Protocol):
    """What has something for each row, and makes room for more."""

    def widen(self, rows: int, /) -> None: ...


READ_AT_ONCE = 1000
"""So many machines are counted before their rows are written; the counts of all would take much memory."""


class Reading(msgspec.Struct):
    """What there is to read into one row. ``devices`` are those of an alloc, by name."""

    row: int
    machine: Machine
    usage: MachineUsage
    seen: SeenMachine
    devices: tuple[str, ...] = ()


UNSEEN = SeenMachine()
"""What was seen of a machine that nobody has heard of yet."""


class Fleet:
    """The rows of all machines, as arrays: [row], or of amounts [resource, row].

    A row is a machine's place; rows that are not ``present`` are spare. Resources are numbered ``CPU`` (in
    thousandths of a cpu), ``RAM`` and ``DISK`` (bytes), ``PORTS`` (pieces), then, as they turn up, named ones
    (in units of their own) and kinds of device (thousandths of a device).

    ``free`` is ``capacity`` without what tasks, kept places and leaving attempts hold. ``held`` is what
    tasks below prod hold, by priority: what there is to preempt. ``cpu_held`` [prod, row]
    is how much cpu tasks below prod hold (0) and prod (1), and ``shares`` [prod, row] which part of it.
    """

    noun = "machine"
    independent_rows = True  # what is taken on one row changes no other
    preemptible = True  # lower tasks have to leave for higher ones
    alloc_set = ""  # the alloc set whose allocs these are; "": they are machines
    failure_domains: tuple[str, ...] = ()  # of the cell's settings; see ``failure_domains.py``

    def __init__(self, seed: int, size: int) -> None:
        self.seed = seed
        self.version = 0
        self.facts_version = 0  # of what does not depend on tasks
        self.bands = DEFAULT_BANDS  # of the cell; they change with a new master only
        self.kinds = Kinds()
        self.row: dict[str, int] = {}
        self.names: list[str] = []
        self.ports: list[PortRange] = []
        self.fixed_ports = FixedPorts()
        self.kept_ports: dict[int, set[int]] = {}  # by row: those kept for single tasks, by number
        self.jobs: list[dict[str, int]] = []  # by row: tasks of each job placed there
        self.blocked: dict[int, float] = {}  # by row: when its first blocked port is free again
        self.attributes = Attributes()
        self.taints = Taints()
        self.images = Images()
        self.topology = Topology()
        self.devices: dict[str, Devices] = {}
        self.suitable: dict[object, BoolArray] = {}  # what ``feasibility`` keeps until facts change
        self._domains: tuple[int, dict[str, FailureDomain]] = (-1, {})  # as of a version of the facts
        self._spare: list[int] = []
        self.present: BoolArray = np.zeros(0, dtype=np.bool_)
        self.up: BoolArray = np.zeros(0, dtype=np.bool_)
        self.silent: BoolArray = np.zeros(0, dtype=np.bool_)  # up, and missed its last polls
        self.cordoned: BoolArray = np.zeros(0, dtype=np.bool_)
        self.draining: BoolArray = np.zeros(0, dtype=np.bool_)
        self.quarantined: BoolArray = np.zeros(0, dtype=np.bool_)
        self.stuck: BoolArray = np.zeros(0, dtype=np.bool_)  # something there cannot be killed
        self.runtimes: BitArray = np.zeros(0, dtype=np.uint8)  # bits: has it
        self.working: BitArray = np.zeros(0, dtype=np.uint8)  # bits: has it, and it works
        self.changed: IntArray = np.zeros(0, dtype=np.int64)  # the version of the latest change
        self.tie: FloatArray = np.zeros(0)
        self.capacity: FloatArray = np.zeros((KINDS, 0))
        self.inverse: FloatArray = np.zeros((KINDS, 0))  # 1 / capacity; 0 where there is none
        self.free: FloatArray = np.zeros((KINDS, 0))
        self.held: dict[int, FloatArray] = {}
        self._known_capacity: dict[int, KnownCapacity] = {}  # by row
        self._known_facts: dict[int, tuple[object, ...]] = {}  # by row: what its facts were last read from
        self._usages = Usages()
        self.cpu_held: FloatArray = np.zeros((2, 0))
        self.shares: FloatArray = np.zeros((2, 0))
        self._widen(size)

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
        other._usages = Usages()  # counted by the numbers of these kinds
        other.kinds, other.attributes = copied(self.kinds), self.attributes.copy()
        other.taints, other.images = self.taints.copy(), self.images.copy()
        other.topology = self.topology.copy()
        other.devices = {name: devices.copy() for name, devices in self.devices.items()}
        other.held = {priority: held.copy() for priority, held in self.held.items()}
        return other

    def __len__(self) -> int:
        """Return the number of machines."""
        return len(self.row)

    # Queries

    def has_fixed_ports(self, row: int, kind: TaskClass) -> bool:
        """Return whether the ports that the class wants by number are free, and enough others beside."""
        if any(self.fixed_ports.taken(port)[row] for port in kind.fixed_ports):
            return False
        wanted = kind.ports + self.ports[row].count(kind.fixed_ports)
        return not wanted or self.free.item(PORTS, row) >= wanted

    def count_words(self, count: int) -> str:
        """Return ``1 machine``, ``2 machines``."""
        return f"{count:,} {self.noun}{'' if count == 1 else 's'}"

    def kind(self, name: str) -> int:
        """Return the number of a named resource; one that no machine has gets a column of zeros."""
        kind = self.kinds.number(name)
        self._add_new_kinds()
        return kind

    def device(self, name: str) -> Devices:
        """Return one kind of device; one that no machine has is there, too."""
        found = self.devices.get(name)
        if found is None:
            found = self.devices[name] = Devices(name, len(self.names))
        return found

    def device_kinds(self) -> list[int]:
        """Return the numbers of the kinds of device, among those of the resources."""
        return [self.kind(device_kind(name)) for name in self.devices]

    def usable(self) -> BoolArray:
        """Return which machines take new tasks at all: [row]."""
        return self.up & ~self.silent & ~self.cordoned & ~self.draining & ~self.quarantined & ~self.stuck

    def codes(self, attribute: str) -> IntArray:
        """Return the number of each row's value of an attribute: [row]. Over machines each has its own."""
        return np.arange(len(self.names)) if attribute == MACHINE else self.attributes.codes(attribute)

    def domains(self) -> dict[str, FailureDomain]:
        """Return the failure domains in which machines differ.

        One that all machines share, or none has, is nothing to spread over and costs nothing.
        """
        if self._domains[0] != self.facts_version:
            found: dict[str, FailureDomain] = {}
            base, smaller = 0, np.zeros(0, dtype=np.int64)
            for name in self.failure_domains:
                codes = self.codes(name)
                there: BoolArray = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
                there[codes[self.present]] = True
                if np.count_nonzero(there) > 1:
                    narrow, here = codes.astype(np.min_scalar_type(len(there))), codes[self.present]
                    pairs = np.unique(smaller * len(there) + here) if base else np.zeros(0)
                    holds = len(pairs) <= len(np.unique(smaller))
                    found[name] = FailureDomain(narrow, codes + base, there, holds)
                    base, smaller = base + len(there), here
            self._domains = self.facts_version, found
        return self._domains[1]

    def absent(self, attribute: str) -> int:
        """Return the number that stands for no value of an attribute; below 0: each has one."""
        return self.attributes.absent(attribute)

    def at_values(self, by_machine: IntArray, attribute: str) -> IntArray:
        """Return counts [row] summed by the value of an attribute, [value]; over machines, those given."""
        if attribute == MACHINE:
            return by_machine
        found: IntArray = np.bincount(self.codes(attribute), weights=by_machine).astype(np.int64)
        return found

    def at_rows(self, by_value: FloatArray, attribute: str) -> FloatArray:
        """Return what is known by value [value] of each row's value of an attribute, [row]."""
        if attribute == MACHINE:
            return by_value
        found: FloatArray = by_value[self.codes(attribute)]
        return found

    def counter(self, cell: Cell, choice: Choice) -> Counter:
        """Return a counter of tasks by machine."""
        return self.topology.counter(choice, cell, self.row, self.jobs)

    def rows_of(self, cell: Cell, job: str) -> list[int]:
        """Return the row of each task of a job that has one, those placed by the running pass among them."""
        return self.topology.rows_of(job, cell, self.row, self.jobs)

    def rows_on(self, machine: str) -> list[int]:
        """Return the rows that are of, or on, a machine."""
        return [self.row[machine]] if machine in self.row else []

    # Reading machines from the cell, and from what was seen

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
                    Reading(
                        row, machine, self._usages.of(cell, observed, machine.name, self.kinds, mono), seen
                    )
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
        return self.fixed_ports.read([each.row for each in readings], self.ports)

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
                each.machine.is_draining,
                each.machine.quarantined_until,
                each.machine.runtimes,
                each.machine.taints,
                each.machine.attributes,
                each.seen.unhealthy_runtimes,
                each.seen.images,
                each.seen.has_unkillable,
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
            self.quarantined[row], self.stuck[row] = bool(machine.quarantined_until), seen.has_unkillable
            self.draining[row], self.silent[row] = machine.is_draining, machine.up and not answering[place]
            self.runtimes[row], self.working[row] = runtime_bits(machine.runtimes, seen.unhealthy_runtimes)
            self.taints.set(row, machine.taints)
            self.images.set(row, seen.images)
            self.attributes.set(row, machine.attributes)
        if any(changed):
            self._forget_facts()
        return changed

    def _read_capacity(self, readings: Sequence[Reading]) -> list[bool]:
        """Write what there is."""
        ports = [max(0, each.machine.ports_high - each.machine.ports_low + 1) for each in readings]
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
            self._add_new_kinds()
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
        self._add_new_kinds()
        by_priority, leaving = usage_matrices([each.usage for each in readings], self.kinds.count)
        free = self.capacity[:, rows] - leaving
        for held in by_priority.values():
            free -= held
        free[PORTS] = self._free_ports(readings)
        changed: BoolArray = (free != self.free[:, rows]).any(axis=0)
        self.free[:, rows] = free
        return changed | self._read_held(rows, by_priority) | self._read_shares(rows, by_priority)

    def _free_ports(self, readings: Sequence[Reading]) -> list[int]:
        """Return how many ports are free. Several may hold one, so that what is taken is not a sum."""
        counts = free_counts([self.ports[each.row] for each in readings])
        return [count - each.usage.ports_kept for count, each in zip(counts, readings, strict=True)]

    def _read_held(self, rows: IntArray, by_priority: dict[int, FloatArray]) -> BoolArray:
        """Write who holds how much; return where it changed."""
        changed: BoolArray = np.zeros(len(rows), dtype=np.bool_)
        if not self.preemptible:
            return changed
        for priority in self.held.keys() | by_priority.keys():
            if priority < self.bands.production:
                before, now = self._held(priority), by_priority.get(priority, 0.0)
                differs: BoolArray = (before[:, rows] != now).any(axis=0)
                changed |= differs
                before[:, rows] = now
        return changed

    def _read_shares(self, rows: IntArray, by_priority: dict[int, FloatArray]) -> BoolArray:
        """Write who holds which share of the cpu; return where it changed."""
        held: FloatArray = np.zeros((2, len(rows)))
        for priority, amounts in by_priority.items():
            held[int(priority >= self.bands.production)] += amounts[CPU]
        shares = held * self.inverse[CPU, rows]
        changed: BoolArray = (shares != self.shares[:, rows]).any(axis=0)
        self.cpu_held[:, rows], self.shares[:, rows] = held, shares
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

    # What the running pass places

    def take(self, rows: Sequence[int], kind: TaskClass, job: Job) -> None:
        """Account for tasks of one job, one on each of the rows; their dynamic ports are taken elsewhere."""
        self._account(rows, kind, 1.0)
        key, all_jobs = job.key, self.jobs
        for row in rows:
            jobs = all_jobs[row]
            jobs[key] = jobs.get(key, 0) + 1
        if kind.fixed_ports:
            self._fix_ports(rows, kind, taken=True)
        self.topology.add(job.spec, key, rows, 1)

    def undo_take(self, rows: Sequence[int], kind: TaskClass, job: Job) -> None:
        """Undo ``take``."""
        self._account(rows, kind, -1.0)
        key = job.key
        for row in rows:
            jobs = self.jobs[row]
            jobs[key] -= 1
            if not jobs[key]:
                del jobs[key]
        if kind.fixed_ports:
            self._fix_ports(rows, kind, taken=False)
        self.topology.add(job.spec, key, rows, -1, undoes=True)

    def _fix_ports(self, rows: Sequence[int], kind: TaskClass, *, taken: bool) -> None:
        """Take the ports that the class wants by number, or give them back: no search finds them then."""
        for port in kind.fixed_ports:
            self.fixed_ports.set(rows, port, taken=taken)
        for row in rows:
            own = self.ports[row].count(kind.fixed_ports)
            self.free[PORTS, row] += -own if taken else own

    def _account(self, rows: Sequence[int], kind: TaskClass, times: float) -> None:
        held = self._held(kind.priority) if self.preemptible and not kind.is_prod else None
        for number, amount in kind.needs:
            free, change = self.free[number], amount * times
            for row in rows:
                free[row] -= change
            if held is not None:
                of_kind = held[number]
                for row in rows:
                    of_kind[row] += change
        self.version += 1
        is_prod, inverse = int(kind.is_prod), self.inverse[CPU]
        held_cpu, share = self.cpu_held[is_prod], self.shares[is_prod]
        cpu, version, changed = kind.cpu * times, self.version, self.changed
        for row in rows:
            # Of a sum of whole numbers, as it is read: shares added up would differ in the last digits.
            held_cpu[row] += cpu
            share[row] = held_cpu.item(row) * inverse.item(row)
            changed[row] = version

    # A kept place keeps everything: amounts, ports of any number and by number, and devices one by one, so
    # that no other task of the meantime makes the preemption one in vain.

    def release(self, row: int, kind: TaskClass) -> None:
        """Stop counting a place that is kept on a machine; -1: there is no such machine."""
        if row >= 0:
            self._account((row,), kind, -1.0)
            self._keep_ports(row, kind, kept=False)
            self.release_devices(row, kind)

    def keep(self, row: int, kind: TaskClass) -> None:
        """Undo ``release``."""
        if row >= 0:
            self._account((row,), kind, 1.0)
            self._keep_ports(row, kind, kept=True)
            for of, millis in kind.devices:
                self.devices[of].keep_again(row, millis)

    def keep_devices(self, row: int, kind: TaskClass, leaving: dict[str, int]) -> None:
        """Keep devices for a task, that are free or of those whom it preempts, as by name."""
        for of, millis in kind.devices:
            self.devices[of].keep(row, millis, leaving)

    def release_devices(self, row: int, kind: TaskClass) -> None:
        """Undo ``keep_devices``."""
        for of, millis in kind.devices:
            self.devices[of].release(row, millis)

    def _keep_ports(self, row: int, kind: TaskClass, *, kept: bool) -> None:
        ports = self.kept_ports.get(row, set()).intersection(kind.fixed_ports)
        for port in ports:
            self.fixed_ports.set((row,), port, taken=kept)
        self.free[PORTS, row] += self.ports[row].count(ports) * (-1 if kept else 1)

    def choose_ports(self, row: int, count: int) -> tuple[int, ...]:
        """Return the numbers of ports for a task that was given room for as many."""
        chosen = self.ports[row].take(count)
        self.fixed_ports.note((row,), chosen)
        return chosen

    def take_devices(self, row: int, kind: TaskClass, choose: Callable[[str], int]) -> tuple[str, ...]:
        """Take a task's devices, which must be there; return them by name.

        ``choose`` returns the number of the device, of one kind, that gives a part of itself.
        """
        taken: list[str] = []
        for of, millis in kind.devices:
            chosen = choose(of) if millis < DEVICE_MILLIS else -1
            taken += self.devices[of].take(row, millis, chosen)
        return tuple(taken)

    def give_back_devices(self, row: int, kind: TaskClass, devices: tuple[str, ...]) -> None:
        """Undo ``take_devices``."""
        for of, millis in kind.devices:
            self.devices[of].give_back(row, devices, millis)

    # Rows come and go

    def _add(self, name: str) -> int:
        if not self._spare:
            self._widen(len(self.names) + len(self.names) // 8 + 16)
        row = self._spare.pop()
        self.row[name] = row
        self.names[row] = name
        self.present[row] = True
        self._forget_facts()
        self.tie[row] = tie_break(self.seed, name)
        self.touch(row)
        return row

    def _forget_jobs(self, cell: Cell, row: int) -> None:
        self.topology.read(cell, row, self.jobs[row], {})
        self.jobs[row] = {}

    def _remove(self, cell: Cell, name: str) -> None:
        row = self.row.pop(name, None)
        if row is None:
            return
        self.names[row] = ""
        self._usages.forget(name)
        self._forget_jobs(cell, row)
        self.blocked.pop(row, None)
        self._known_capacity.pop(row, None)
        self._known_facts.pop(row, None)
        self.ports[row] = PortRange(0, -1, 0, set())
        self.fixed_ports.read([row], self.ports)
        self.taints.set(row, ())
        self.images.set(row, {})
        for each in (*map(self.__dict__.__getitem__, (*FLAGS, *AMOUNTS)), *self.held.values()):
            each[..., row] = 0
        self.cpu_held[:, row] = self.shares[:, row] = 0.0
        for devices in self.devices.values():
            devices.read(row, 0, {})
        self._spare.append(row)
        self._forget_facts()
        self.touch(row)

    def touch(self, row: int) -> None:
        """Note that a row is another now."""
        self.version += 1
        self.changed[row] = self.version

    def _forget_facts(self) -> None:
        self.suitable.clear()
        self.facts_version += 1

    def _held(self, priority: int) -> FloatArray:
        if priority not in self.held:
            self.held[priority] = np.zeros_like(self.free)
        return self.held[priority]

    def _widen(self, size: int) -> None:
        """Make rows for more machines; the lowest new one is used first."""
        self._spare += range(size - 1, len(self.names) - 1, -1)
        added = size - len(self.names)
        self.names += [""] * added
        self.ports += [PortRange(0, -1, 0, set())] * added
        self.jobs += [{} for _ in range(added)]
        for part in self._parts():
            part.widen(size)
        widen(self, BY_ROW, size)
        self.held = {priority: widened(held, size) for priority, held in self.held.items()}

    def _parts(self) -> tuple[Widening, ...]:
        facts = (self.attributes, self.taints, self.images, self.topology, self.fixed_ports)
        return (*facts, *self.devices.values())

    def _add_new_kinds(self) -> None:
        """Make columns for kinds of resource that turned up."""
        if (kinds := self.kinds.count) == len(self.capacity):
            return
        widen(self, AMOUNTS, kinds, axis=-2)
        self.held = {priority: widened(held, kinds, axis=-2) for priority, held in self.held.items()}


def device_kind(name: str) -> str:
    """Return the name under which a kind of device is counted among the resources."""
    return DEVICE_PREFIX + name
