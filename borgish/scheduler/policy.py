"""What a policy of packing is, and in which units it sees amounts.

A policy gives a cost from 0 (liked) to about 1 for one more task on a machine. ``policies`` has them
all by name; another one is another small class there, and nothing else needs to know of it.
"""

from abc import ABC, abstractmethod
from copy import copy
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from borgish.scheduler.arrays import FloatArray, Rows
from borgish.scheduler.census import CPU, RAM
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet

Number = TypeVar("Number", float, FloatArray)


class Shape(NamedTuple):
    """Tasks that are alike in what they need and want, as one class of them, and how many there are."""

    kind: TaskClass
    tasks: int


class Demand(Protocol):
    """What the tasks of a cell ask for, those that run and those that wait."""

    def totals(self) -> tuple[float, float]:
        """Return how much cpu and ram, in their units."""
        ...

    def size(self) -> int:
        """Return about how many jobs there are, to see when ``shapes`` has changed much."""
        ...

    def shapes(self) -> list[Shape]:
        """Return all shapes, the most frequent first."""
        ...


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
        """Look at the machines and at what is asked for, as at the begin of a pass."""
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

    def part(self, fleet: Fleet, kind: TaskClass, row: int, device: str) -> int:
        """Return which device of a kind gives a part to the task: the fullest that has room, here."""
        return fleet.device(device).fullest(row, dict(kind.devices)[device])
