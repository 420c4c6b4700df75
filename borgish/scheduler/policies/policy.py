"""What a policy of packing is, in which units it sees amounts, what it can learn of a cell's tasks, and the
policies that see one machine at a time: best fit, worst fit, balance, and two that are there to compare with.

A policy gives a cost from 0 (best) to about 1 for one more task on a machine. ``POLICIES`` has them
all by name; another one is another small class there, and nothing else needs to know of it.

The published forms are those of the FGD simulator (ATC 2023): cpu and devices on a machine that has
any, cpu and memory on the others.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from typing import NamedTuple, Self, TypeVar

import numpy as np

from borgish.cell.model import Cell, Job
from borgish.scheduler.arrays import BoolArray, FloatArray, Rows
from borgish.scheduler.fleet import CPU, DISK, PORTS, RAM, Fleet
from borgish.scheduler.queue import Classes
from borgish.scheduler.task_class import TaskClass

RATIO_STEP = math.log(1.05)
"""Proportions of what is asked for are rounded to such steps, so that they seldom change."""

BEST_FIT = 0.05
"""The part of best fit beside what is stranded: enough to decide between machines in balance."""

OTHERS_FADE_FIT = 16.0
"""Beside one other resource that is as scarce as cpu or ram, best fit counts ``1 + OTHERS_FADE_FIT`` times
less: what a small task strands is little beside what machines have left, so that with all of best fit the
fuller machine would win even where it lacks what is scarce.
"""
OTHERS_LEAST = 0.01
"""A resource that is less scarce than this, beside cpu or ram, does not count."""

Number = TypeVar("Number", float, FloatArray)


class Shape(NamedTuple):
    """Tasks that are alike in what they need and want, as one class of them, and how many there are."""

    kind: TaskClass
    tasks: int


class Demand:
    """What the tasks of one cell ask for, those that run and those that wait."""

    def __init__(
        self, cell: Cell, fleet: Fleet, classes: Classes, waiting: Iterable[tuple[TaskClass, int]]
    ) -> None:
        """``waiting`` is how many tasks of which classes wait."""
        self._cell, self._fleet, self._classes = cell, fleet, classes
        self._waiting = waiting

    def totals(self) -> list[float]:
        """Return how much of each resource, by its number, in their units."""
        fleet = self._fleet
        found: list[float] = (fleet.capacity - fleet.free).sum(axis=1).tolist()
        for kind, tasks in self._waiting:
            for number, amount in kind.needs:
                found[number] += amount * tasks
        return found

    def size(self) -> int:
        """Return about how many jobs there are, to see when ``shapes`` has changed much."""
        return len(self._cell.jobs)

    def shapes(self) -> list[Shape]:
        """Return all shapes, the most frequent first. Bands, ports and rules are no part of a shape."""
        counts: Counter[object] = Counter()
        kinds: dict[object, TaskClass] = {}
        for job in self._cell.jobs.values():
            for kind, tasks in self._classes_of(job).items():
                others = tuple([need for need in kind.needs if need[0] not in (CPU, RAM, PORTS)])
                shape = (kind.cpu, kind.ram, kind.devices, kind.wanted, others)
                counts[shape] += tasks
                kinds.setdefault(shape, kind)
        ordered = sorted(counts, key=lambda shape: (-counts[shape], repr(shape)))
        return [Shape(kinds[shape], counts[shape]) for shape in ordered if counts[shape] > 0]

    def _classes_of(self, job: Job) -> dict[TaskClass, int]:
        """Return the classes of a job's tasks that run or wait here: on machines, or in this alloc set."""
        spec, alive = job.spec, job.pending + job.running
        if spec.inside != self._fleet.alloc_set or not alive:
            return {}
        own = [index for index, override in spec.overrides.items() if override.resources is not None]
        found: Counter[TaskClass] = Counter()
        found[self._class(job, -1)] = max(0, alive - len(own))
        for index in own:
            found[self._class(job, index)] += 1
        return found

    def _class(self, job: Job, index: int) -> TaskClass:
        return self._classes.of(self._cell, job, index, self._fleet)


class Units(NamedTuple):
    """The largest machine there is: amounts are fractions of it, so that machines compare.

    Cpu and devices are in thousandths, ram in bytes.
    """

    cpu: float
    ram: float
    devices: float

    @classmethod
    def of(cls, fleet: Fleet) -> "Units":
        """Return the units of a fleet; 1 for what no machine has."""
        largest = fleet.capacity.max(axis=1, initial=0.0)
        devices = sum(fleet.capacity[kind] for kind in fleet.device_kinds()) if fleet.devices else 0.0
        return cls(
            largest.item(CPU) or 1.0, largest.item(RAM) or 1.0, float(np.max(devices, initial=0.0)) or 1.0
        )


class Policy(ABC):
    """What packing costs. ``costs`` and ``cost`` must agree.

    ``version`` grows when costs of before are no longer right although no machine changed; ``kept`` is
    whether costs may be kept at all.
    """

    version = 0
    kept = True

    def __init__(self, seed: int = 0) -> None:
        """Use a seed for chance, where the policy has any."""
        self._seed = seed
        self._units: Units | None = None

    def learn(self, fleet: Fleet, demand: Demand) -> None:  # noqa: ARG002
        """Learn from the machines and from what is asked for, as at the begin of a pass."""
        units = Units.of(fleet)
        if units != self._units:
            self._units = units
            self.version += 1

    def copy(self) -> Self:
        """Return the same with what it has learned, to learn apart from this."""
        return copy(self)

    def units(self, fleet: Fleet) -> Units:
        """Return the units as of the begin of the pass."""
        if self._units is None:
            self._units = Units.of(fleet)
        return self._units

    @abstractmethod
    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        """Return the cost of one more task of the class on each of the rows, where it has room.

        The answer has one axis, parallel to ``rows``; costs are from 0 (best) to about 1.
        """

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        """Return the cost of one more task on one machine, where it has room."""
        return float(self.costs(fleet, kind, np.array([row]))[0])

    def choose_device(self, fleet: Fleet, kind: TaskClass, row: int, device: str) -> int:
        """Return which device of a kind gives a part to the task: the fullest that has room, here."""
        return fleet.device(device).fullest(row, dict(kind.devices)[device])


class BestFit(Policy):
    """Fill what is nearly full: the least that is left, as a fraction of the largest machine."""

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        cpu_left = (fleet.free[CPU][rows] - kind.cpu) / units.cpu
        ram_left = (fleet.free[RAM][rows] - kind.ram) / units.ram
        if not fleet.devices:
            return self._of(cpu_left, ram_left)
        devices_left = (devices_free(fleet, rows) - devices_needed(kind)) / units.devices
        return self._of(cpu_left, np.where(has_devices(fleet, rows), devices_left, ram_left))

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        if fleet.devices:
            return super().cost(fleet, kind, row)
        units = self.units(fleet)
        return self._of(
            (fleet.free.item(CPU, row) - kind.cpu) / units.cpu,
            (fleet.free.item(RAM, row) - kind.ram) / units.ram,
        )

    def _of(self, cpu_left: Number, other_left: Number) -> Number:
        return (cpu_left + other_left) * 0.5


class WorstFit(Policy):
    """E-PVM: the least rise of a cost that grows steeply with use, which spreads the load and leaves headroom
    for its spikes (section 3.2).

    A machine costs, for each resource, the number of machines to the power of the share in use; divided
    by that number here, so that a full one costs 1.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._base = 2.0

    def learn(self, fleet: Fleet, demand: Demand) -> None:
        super().learn(fleet, demand)
        base = float(max(2, len(fleet)))
        if base != self._base:
            self._base = base
            self.version += 1

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        risen = np.zeros(fleet.up[rows].shape)
        for number, asked in ((CPU, kind.cpu), (RAM, kind.ram)):
            share = fleet.inverse[number][rows]
            free = fleet.free[number][rows] * share
            risen += self._base ** (asked * share - free) - self._base**-free
        return risen


class DotProduct(Policy):
    """Little free of what a task asks for much of: for comparison. In steps of a hundredth, as published."""

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        cpu = fleet.free[CPU][rows] * kind.cpu / units.cpu**2
        other = fleet.free[RAM][rows] * kind.ram / units.ram**2
        if fleet.devices:
            devices = devices_free(fleet, rows) * devices_needed(kind) / units.devices**2
            other = np.where(has_devices(fleet, rows), devices, other)
        found: FloatArray = np.ceil((cpu + other) * 50.0) / 100.0
        return found


class Random(Policy):
    """Any machine, and any device: for comparison. Costs are drawn anew each time."""

    kept = False

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._chance = np.random.default_rng(seed)

    def copy(self) -> Self:
        other = super().copy()
        other._chance = deepcopy(self._chance)
        return other

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:  # noqa: ARG002
        return self._chance.random(fleet.up[rows].shape)

    def choose_device(self, fleet: Fleet, kind: TaskClass, row: int, device: str) -> int:
        free = fleet.device(device).free[:, row]
        return int(self._chance.choice(np.flatnonzero(free >= dict(kind.devices)[device])))


class Other(NamedTuple):
    """How a resource besides cpu, ram and devices counts: disk, or a named one.

    ``largest`` is the most that a machine has of it, in the resource's units. ``weight`` is how scarce it is
    beside cpu or ram, whichever is scarcer, at most 1. ``by_cpu`` and ``by_ram`` are how much of it tasks ask
    for, for each cpu and for each ram, all in units of the largest machine.
    """

    number: int
    largest: float
    weight: float
    by_cpu: float
    by_ram: float


class Balance(Policy):
    """Leave resources in the proportion in which the cell's tasks ask for them; else fill what is fuller.

    What is free of cpu or ram beyond its proportion to the other is stranded. Disk, and each named resource,
    are held against both likewise, by how scarce they are; what nobody asks for, not at all.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._ratio = 1.0  # ram for each cpu, both in units of the largest machine
        self._others: tuple[Other, ...] = ()
        self._fit = BEST_FIT
        self._part = 1.0  # of the cost of each, so that all together cost no more than cpu and ram alone

    def learn(self, fleet: Fleet, demand: Demand) -> None:
        super().learn(fleet, demand)
        units, asked = self.units(fleet), demand.totals()
        cpu, ram = asked[CPU] / units.cpu, asked[RAM] / units.ram
        learned = _rounded(ram / cpu) if cpu > 0 and ram > 0 else 1.0, _others(fleet, units, asked)
        if learned != (self._ratio, self._others):
            self._ratio, self._others = learned
            weights = sum(each.weight for each in self._others)
            self._fit = BEST_FIT / (1.0 + OTHERS_FADE_FIT * weights)
            self._part = 1.0 / (1.0 + weights)
            self.version += 1

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        cpu, ram = fleet.free[CPU][rows] / units.cpu, fleet.free[RAM][rows] / units.ram
        cpu_asked, ram_asked = kind.cpu / units.cpu, kind.ram / units.ram
        cost: FloatArray = _grown(cpu, ram, cpu_asked, ram_asked, self._ratio, self._fit)
        if not self._others:
            return cost
        others = [fleet.free[each.number][rows] / each.largest for each in self._others]
        return self._with_others(kind, cost, (cpu, ram), (cpu_asked, ram_asked), others)

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        units, free = self.units(fleet), fleet.free
        cpu, ram = free.item(CPU, row) / units.cpu, free.item(RAM, row) / units.ram
        cpu_asked, ram_asked = kind.cpu / units.cpu, kind.ram / units.ram
        cost = _grown(cpu, ram, cpu_asked, ram_asked, self._ratio, self._fit)
        if not self._others:
            return cost
        others = [free.item(each.number, row) / each.largest for each in self._others]
        return self._with_others(kind, cost, (cpu, ram), (cpu_asked, ram_asked), others)

    def _with_others(
        self,
        kind: TaskClass,
        cost: Number,
        free: tuple[Number, Number],
        asked: tuple[float, float],
        others: Sequence[Number],
    ) -> Number:
        """Return the cost with the other resources counted: ``cost`` is that of cpu and ram, ``free`` and
        ``asked`` what is free and asked for of these, and ``others`` what is free of the others, all in units
        of the largest machine."""
        (cpu, ram), (cpu_asked, ram_asked), needs = free, asked, dict(kind.needs)
        for each, other in zip(self._others, others, strict=True):
            other_asked = needs.get(each.number, 0.0) / each.largest
            by_cpu = _grown(cpu, other, cpu_asked, other_asked, each.by_cpu, 0.0)
            by_ram = _grown(ram, other, ram_asked, other_asked, each.by_ram, 0.0)
            cost = cost + (by_cpu + by_ram) * (0.5 * each.weight)
        return cost * self._part


def _grown(
    one: Number, other: Number, one_asked: float, other_asked: float, ratio: float, fit: float
) -> Number:
    """Return how much more would be stranded of two resources, half for all of either, and a part of best
    fit.

    ``ratio`` is how much of the other is asked for, for each of the one. ``short`` is what the other that is
    free lacks for all of the one that is free. Above 0, so much of the one is stranded: ``short * 0.5 /
    ratio``; below 0, so much of the other: ``short * -0.5``. So what is stranded is a part of the size of
    ``short`` and a part of itself, whose change is the same on all machines.
    """
    shift = one_asked * ratio - other_asked
    same = shift * (0.25 - 0.25 / ratio) - (one_asked + other_asked) * fit
    short = one * ratio - other
    grown = abs(short - shift) - abs(short)
    return grown * (0.25 + 0.25 / ratio) + (one + other) * fit + same


def _others(fleet: Fleet, units: Units, asked: Sequence[float]) -> tuple[Other, ...]:
    """Return how disk and named resources count, by what is asked for of all resources, by number."""
    cpu, ram = asked[CPU] / units.cpu, asked[RAM] / units.ram
    numbers = [number for number in (DISK, *fleet.kinds.of_resources()) if asked[number] > 0]
    if not numbers or not (cpu > 0 and ram > 0):
        return ()
    there = fleet.capacity.sum(axis=1).tolist()
    if not (there[CPU] and there[RAM]):
        return ()
    most = max(asked[CPU] / there[CPU], asked[RAM] / there[RAM])
    found = []
    for number in numbers:
        weight = min(1.0, asked[number] / there[number] / most) if there[number] else 0.0
        if weight >= OTHERS_LEAST:
            largest = float(fleet.capacity[number].max())
            amount = asked[number] / largest
            found.append(
                Other(number, largest, _rounded(weight), _rounded(amount / cpu), _rounded(amount / ram))
            )
    return tuple(found)


def _rounded(value: float) -> float:
    """Return a value above 0, rounded to the nearest of ``RATIO_STEP``."""
    return math.exp(round(math.log(value) / RATIO_STEP) * RATIO_STEP)


def devices_free(fleet: Fleet, rows: Rows) -> FloatArray:
    """Return how much of all devices together is free, by row, in thousandths."""
    found: FloatArray = np.sum([fleet.free[kind][rows] for kind in fleet.device_kinds()], axis=0)
    return found


def has_devices(fleet: Fleet, rows: Rows) -> BoolArray:
    """Return which rows have devices, free or not."""
    found: BoolArray = np.sum([fleet.capacity[kind][rows] for kind in fleet.device_kinds()], axis=0) > 0
    return found


def devices_needed(kind: TaskClass) -> float:
    """Return the thousandths of devices that a task needs, of all kinds together."""
    return float(sum(millis for _, millis in kind.devices))
