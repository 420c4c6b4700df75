"""What a policy of packing is, in which units it sees amounts, and what it can learn of a cell's tasks.

A policy gives a cost from 0 (best) to about 1 for one more task on a machine. ``POLICIES`` has them
all by name; another one is another small class there, and nothing else needs to know of it.
"""

from abc import ABC, abstractmethod
from collections import Counter
from copy import copy
from itertools import chain
from typing import NamedTuple, Self, TypeVar

import numpy as np

from borgish.cell.model import Cell, Job
from borgish.scheduler.arrays import FloatArray, Rows
from borgish.scheduler.fleet import CPU, RAM, Fleet
from borgish.scheduler.queue import Classes, Level
from borgish.scheduler.task_class import TaskClass

Number = TypeVar("Number", float, FloatArray)


class Shape(NamedTuple):
    """Tasks that are alike in what they need and want, as one class of them, and how many there are."""

    kind: TaskClass
    tasks: int


class Demand:
    """What the tasks of one cell ask for, those that run and those that wait."""

    def __init__(self, cell: Cell, fleet: Fleet, classes: Classes, waiting: list[Level]) -> None:
        self._cell, self._fleet, self._classes = cell, fleet, classes
        self._waiting = waiting

    def totals(self) -> tuple[float, float]:
        """Return how much cpu and ram, in their units."""
        fleet = self._fleet
        cpu, ram = ((fleet.capacity[kind] - fleet.free[kind]).sum() for kind in (CPU, RAM))
        for waiting in chain.from_iterable(chain.from_iterable(self._waiting)):
            tasks = len(waiting.indexes) - waiting.done
            cpu += waiting.usual.cpu * tasks
            ram += waiting.usual.ram * tasks
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
        return self._classes.of(self._cell, job.spec, index, self._fleet)


class Units(NamedTuple):
    """The largest machine there is: amounts are fractions of it, so that machines compare."""

    cpu: float
    ram: float
    devices: float

    @classmethod
    def of(cls, fleet: Fleet) -> "Units":
        """Return the units of a fleet; 1 for what no machine has."""
        largest = fleet.capacity.max(axis=1, initial=0.0)
        devices = sum(fleet.capacity[kind] for kind in fleet.device_kinds())
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
        """Return the cost of one more task of the class on each of the rows, where it has room."""

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        """Return the cost of one more task on one machine, where it has room."""
        return float(self.costs(fleet, kind, np.array([row]))[0])

    def choose_device(self, fleet: Fleet, kind: TaskClass, row: int, device: str) -> int:
        """Return which device of a kind gives a part to the task: the fullest that has room, here."""
        return fleet.device(device).fullest(row, dict(kind.devices)[device])
