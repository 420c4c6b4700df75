"""The columns of machines: what a pass asks of them and takes. ``fleet`` reads machines into them."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from borgish.bands import DEFAULT_BANDS
from borgish.cell.state import Cell
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.scheduler.affinity import Choice, Counter, Topology
from borgish.scheduler.arrays import BitArray, BoolArray, CodeArray, FloatArray, IntArray, widen, widened
from borgish.scheduler.fleet.devices import Devices
from borgish.scheduler.fleet.facts import Attributes, Images, Taints
from borgish.scheduler.fleet.ports import FixedPorts, PortRange
from borgish.scheduler.fleet.usage import CPU, DEVICE_PREFIX, KINDS, PORTS, Kinds
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import MACHINE, JobSpec
from borgish.vocabulary import Runtime

TIE_MAX = 2.0**-30
"""Ties are broken by adding less than this to a score: far below any difference that matters."""

RUNTIME_BIT = {runtime: 1 << number for number, runtime in enumerate(Runtime)}


KnownCapacity = tuple[Resources, int]
"""What a machine's capacity was last read from: its record, and how many ports it has."""


AMOUNTS = ("capacity", "inverse", "free")
FLAGS = ("present", "up", "silent", "cordoned")
BY_ROW = (*AMOUNTS, *FLAGS, "runtimes", "working", "changed", "tie", "shares")
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


def tie_of(seed: int, name: str) -> float:
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


class Columns:
    """The rows of all machines, as arrays: [row], or of amounts [resource, row].

    A row is a machine's place; rows that are not ``present`` are spare. Resources are numbered ``CPU`` (in
    thousandths of a cpu), ``RAM`` and ``DISK`` (bytes), ``PORTS`` (pieces), then, as they turn up, named ones
    (in units of their own) and kinds of device (thousandths of a device).

    ``free`` is ``capacity`` without what tasks, kept places and leaving attempts hold. ``held`` is what
    tasks below prod hold, by priority: what there is to preempt. ``shares`` [prod, row] is which part of the
    cpu tasks below prod hold (0) and prod (1).
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
        self.shares: FloatArray = np.zeros((2, 0))
        self._widen(size)

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
        self._deepen()
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
        """Return which machines take new tasks at all."""
        return self.up & ~self.silent & ~self.cordoned

    def codes(self, attribute: str) -> IntArray:
        """Return the number of each row's value of an attribute; over machines each has its own."""
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

    # What the running pass places

    def take(self, rows: Sequence[int], kind: TaskClass, spec: JobSpec) -> None:
        """Account for tasks of one job, one on each of the rows; their dynamic ports are taken elsewhere."""
        self._account(rows, kind, 1.0)
        job, all_jobs = spec.key, self.jobs
        for row in rows:
            jobs = all_jobs[row]
            jobs[job] = jobs.get(job, 0) + 1
        self._fix_ports(rows, kind, taken=True)
        self.topology.add(spec, job, rows, 1)

    def untake(self, rows: Sequence[int], kind: TaskClass, spec: JobSpec) -> None:
        """Undo ``take``."""
        self._account(rows, kind, -1.0)
        job = spec.key
        for row in rows:
            jobs = self.jobs[row]
            jobs[job] -= 1
            if not jobs[job]:
                del jobs[job]
        self._fix_ports(rows, kind, taken=False)
        self.topology.add(spec, job, rows, -1)

    def _fix_ports(self, rows: Sequence[int], kind: TaskClass, *, taken: bool) -> None:
        """Take the ports that the class wants by number, or give them back: no search finds them then."""
        for port in kind.fixed_ports:
            self.fixed_ports.set(rows, port, taken=taken)
        for row in rows if kind.fixed_ports else ():
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
        share, inverse = self.shares[int(kind.is_prod)], self.inverse[CPU]
        cpu, version, changed = kind.cpu * times, self.version, self.changed
        for row in rows:
            share[row] += cpu * inverse.item(row)
            changed[row] = version

    # A kept place keeps everything: amounts, ports of any number and by number, and devices one by one, so
    # that no other task of the meantime makes the preemption one in vain.

    def let_go(self, row: int, kind: TaskClass) -> None:
        """Stop counting a place that is kept on a machine; -1: there is no such machine."""
        if row >= 0:
            self._account((row,), kind, -1.0)
            self._keep_ports(row, kind, kept=False)
            self.let_go_devices(row, kind)

    def keep(self, row: int, kind: TaskClass) -> None:
        """Undo ``let_go``."""
        if row >= 0:
            self._account((row,), kind, 1.0)
            self._keep_ports(row, kind, kept=True)
            for of, millis in kind.devices:
                self.devices[of].keep_again(row, millis)

    def keep_devices(self, row: int, kind: TaskClass, leaving: dict[str, int]) -> None:
        """Keep devices for a task, that are free or of those whom it preempts, as by name."""
        for of, millis in kind.devices:
            self.devices[of].keep(row, millis, leaving)

    def let_go_devices(self, row: int, kind: TaskClass) -> None:
        """Undo ``keep_devices``."""
        for of, millis in kind.devices:
            self.devices[of].let_go(row, millis)

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
        self.tie[row] = tie_of(self.seed, name)
        self.touch(row)
        return row

    def touch(self, row: int) -> None:
        """Note that a row is another now."""
        self.version += 1
        self.changed[row] = self.version

    def _forget_facts(self) -> None:
        self.suitable.clear()
        self.facts_version += 1

    def _held(self, priority: int) -> FloatArray:
        held = self.held.get(priority)
        if held is None:
            held = self.held[priority] = np.zeros_like(self.free)
        return held

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
        facts = (self.attributes, self.taints, self.images)
        return (*facts, self.topology, self.fixed_ports, *self.devices.values())

    def _deepen(self) -> None:
        """Make columns for kinds of resource that turned up."""
        kinds = len(self.kinds)
        if kinds == len(self.capacity):
            return
        widen(self, AMOUNTS, kinds, axis=-2)
        self.held = {priority: widened(held, kinds, axis=-2) for priority, held in self.held.items()}


def device_kind(name: str) -> str:
    """Return the name under which a kind of device is counted among the resources."""
    return DEVICE_PREFIX + name
