"""How machines are packed: a cost from 0 (liked) to about 1 for one more task on a machine.

Another policy is another small class in ``POLICIES``; nothing else needs to know of it. A policy that
looks at fractions of cpu and ram only says so in one formula, which answers for one machine in plain
numbers and for all of them in arrays.
"""

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

from borgish.scheduler.arrays import FloatArray, Rows
from borgish.scheduler.census import CPU, RAM
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet

Number = TypeVar("Number", float, FloatArray)


class Policy(Protocol):
    """What packing costs. Both answers must agree."""

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows, /) -> FloatArray:
        """Return the cost of one more task of the class on each of the rows, where it has room."""
        ...

    def cost(self, fleet: Fleet, kind: TaskClass, row: int, /) -> float:
        """Return the cost of one more task on one machine, where it has room."""
        ...


class ByFractions(ABC):
    """A policy of what is left of cpu and ram, as fractions of the machine's capacity.

    ``asks``: whether it looks at what the task asks for, too; what it is given for that means nothing else.
    """

    asks = False

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        cpu, ram = fleet.inverse[CPU][rows], fleet.inverse[RAM][rows]
        cpu_left, ram_left = (
            (fleet.free[CPU][rows] - kind.cpu) * cpu,
            (fleet.free[RAM][rows] - kind.ram) * ram,
        )
        if self.asks:
            return self.of(cpu_left, ram_left, kind.cpu * cpu, kind.ram * ram)
        return self.of(cpu_left, ram_left, cpu_left, ram_left)

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        cpu, ram = fleet.inverse.item(CPU, row), fleet.inverse.item(RAM, row)
        return self.of(
            (fleet.free.item(CPU, row) - kind.cpu) * cpu,
            (fleet.free.item(RAM, row) - kind.ram) * ram,
            kind.cpu * cpu,
            kind.ram * ram,
        )

    @abstractmethod
    def of(self, cpu_left: Number, ram_left: Number, cpu_asked: Number, ram_asked: Number) -> Number:
        """Return the cost. ``+ - * /``, ``**`` and ``abs`` only."""


class BestFit(ByFractions):
    """Fill what is nearly full, so that large tasks find whole machines."""

    def of(self, cpu_left: Number, ram_left: Number, cpu_asked: Number, ram_asked: Number) -> Number:  # noqa: ARG002
        return (cpu_left + ram_left) * 0.5


class WorstFit(ByFractions):
    """E-PVM: the least rise of a cost that grows steeply with use, which spreads the load (section 3.2)."""

    asks = True

    def of(self, cpu_left: Number, ram_left: Number, cpu_asked: Number, ram_asked: Number) -> Number:
        # 2 ** (share used after) - 2 ** (share used before), over both resources
        cpu: Number = 2.0 ** (1.0 - cpu_left) - 2.0 ** (1.0 - cpu_left - cpu_asked)
        ram: Number = 2.0 ** (1.0 - ram_left) - 2.0 ** (1.0 - ram_left - ram_asked)
        return cpu + ram


class Hybrid(ByFractions):
    """Best fit that leaves cpu and ram in balance: what is left of one without the other is stranded."""

    def of(self, cpu_left: Number, ram_left: Number, cpu_asked: Number, ram_asked: Number) -> Number:  # noqa: ARG002
        return (cpu_left + ram_left) * 0.5 + abs(cpu_left - ram_left) * 0.5


POLICIES: dict[str, type[Policy]] = {"hybrid": Hybrid, "best_fit": BestFit, "worst_fit": WorstFit}
"""By their names in the cell's configuration. The first is the default."""
