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
from collections.abc import Iterable
from copy import copy, deepcopy
from typing import NamedTuple, Self, TypeVar

import numpy as np

from borgish.cell.model import Cell, Job
from borgish.scheduler.arrays import BoolArray, FloatArray, Rows
from borgish.scheduler.fleet import CPU, RAM, Fleet
from borgish.scheduler.queue import Classes
from borgish.scheduler.task_class import TaskClass

RATIO_STEP = math.log(1.05)
"""The proportion of cpu and ram is rounded to such steps, so that it seldom changes."""

BEST_FIT = 0.05
"""The part of best fit beside what is stranded: enough to decide between machines in balance."""

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

    def totals(self) -> tuple[float, float]:
        """Return how much cpu and ram, in their units."""
        fleet = self._fleet
        cpu, ram = ((fleet.capacity[kind] - fleet.free[kind]).sum() for kind in (CPU, RAM))
        for kind, tasks in self._waiting:
            cpu += kind.cpu * tasks
            ram += kind.ram * tasks
        return float(cpu), float(ram)

    def size(self) -> int:
        """Return about how many jobs there are, to see when ``shapes`` has changed much."""
        return len(self._cell.jobs)

    def shapes(self) -> list[Shape]:
        """Return all shapes, the most frequent first. Bands, ports and rules are no part of a shape."""
        counts: Counter[object] = Counter()
        kinds: dict[object, TaskClass] = {}
        for job in self._cell.jobs.values():
            for kind, tasks in self._classes_of(job).items():
                shape = (kind.cpu, kind.ram, kind.devices, kind.wanted)
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


class Balance(Policy):
    """Leave cpu and ram in the proportion in which the cell's tasks ask for them; else fill what is fuller.

    What is free of one beyond its proportion to the other is stranded.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._ratio = 1.0  # ram for each cpu, both in units of the largest machine

    def learn(self, fleet: Fleet, demand: Demand) -> None:
        super().learn(fleet, demand)
        units, (cpu, ram) = self.units(fleet), demand.totals()
        ratio = (ram / units.ram) / (cpu / units.cpu) if cpu > 0 and ram > 0 else 1.0
        rounded = math.exp(round(math.log(ratio) / RATIO_STEP) * RATIO_STEP)
        if rounded != self._ratio:
            self._ratio = rounded
            self.version += 1

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        units = self.units(fleet)
        return self._of(
            fleet.free[CPU][rows] / units.cpu,
            fleet.free[RAM][rows] / units.ram,
            kind.cpu / units.cpu,
            kind.ram / units.ram,
        )

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        units = self.units(fleet)
        return self._of(
            fleet.free.item(CPU, row) / units.cpu,
            fleet.free.item(RAM, row) / units.ram,
            kind.cpu / units.cpu,
            kind.ram / units.ram,
        )

    def _of(self, cpu: Number, ram: Number, cpu_asked: float, ram_asked: float) -> Number:
        """Return how much more would be stranded, half for all of either, and a part of best fit.

        ``short`` is what the ram that is free lacks for all the cpu that is free. Above 0, so much cpu is
        stranded: ``short * 0.5 / ratio``; below 0, so much ram: ``short * -0.5``. So what is stranded is a
        part of the size of ``short`` and a part of itself, whose change is the same on all machines.
        """
        ratio = self._ratio
        shift = cpu_asked * ratio - ram_asked
        same = shift * (0.25 - 0.25 / ratio) - (cpu_asked + ram_asked) * BEST_FIT
        short = cpu * ratio - ram
        grown = abs(short - shift) - abs(short)
        return grown * (0.25 + 0.25 / ratio) + (cpu + ram) * BEST_FIT + same


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
