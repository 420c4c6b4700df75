"""How few machines could hold some tasks at best: a bound that no packing can beat.

The linear program over *configurations* (what one machine may hold) of Gilmore and Gomory: which are
worth looking at is found by a knapsack for each size of machine. Its value is above what the sums of cpu
and ram ask for, since it knows that tasks do not come in halves. HiGHS solves it, which is in scipy, an
optional extra.
"""

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from borgish.cell.model import Machine
from borgish.sim.pack.packing import Arrival

MILLIS, MIB_256 = 1000, 256 * 1024**2
"""Cpu and ram in steps so coarse that knapsacks are small.

Needs are rounded down and capacities up, so that the bound holds.
"""

Vector = npt.NDArray[np.float64]


def can_bound() -> bool:
    """Return whether scipy is here."""
    return find_spec("scipy") is not None


class ConfigurationBound:
    """The bound for some tasks, on any machines. Configurations found for one question serve the next."""

    def __init__(self, tasks: Sequence[Arrival]) -> None:
        counts = Counter((t.needs.cpu_millis // MILLIS, t.needs.ram_bytes // MIB_256) for t in tasks)
        self._sizes = sorted(counts)
        self._counts = np.array([counts[size] for size in self._sizes], dtype=np.float64)
        self._known: dict[tuple[int, int], list[Vector]] = {}

    def machines(self, order: Sequence[Machine], low: int) -> int:
        """Return how many of the first machines are needed at least; no fewer than ``low``."""
        kinds = [_kind(machine) for machine in order]
        high = len(order)
        while low < high:
            middle = (low + high) // 2
            if self._holds(Counter(kinds[:middle])):
                high = middle
            else:
                low = middle + 1
        return low

    def _holds(self, machines: Counter[tuple[int, int]]) -> bool:
        """Return whether parts of configurations hold all tasks that some machine takes at all."""
        kinds = sorted(machines)
        fits = np.array([any(c <= cpu and r <= ram for cpu, ram in kinds) for c, r in self._sizes])
        counts = np.where(fits, self._counts, 0.0)  # those that none takes may be left over: they are picky
        while True:
            left, worth, prices = self._solve(kinds, machines, counts)
            if left < 1e-7:
                return True
            if not self._add_better(kinds, worth, prices):
                return False

    def _solve(
        self, kinds: list[tuple[int, int]], machines: Counter[tuple[int, int]], counts: Vector
    ) -> tuple[float, Vector, Vector]:
        """Return how much is left over at least, and what tasks and machines are worth."""
        from scipy.optimize import linprog

        columns = [(number, held) for number, kind in enumerate(kinds) for held in self._known.get(kind, [])]
        sizes, width = len(self._sizes), len(columns)
        left_side = np.zeros((sizes + len(kinds), width + sizes))
        for place, (number, held) in enumerate(columns):
            left_side[:sizes, place] = -held
            left_side[sizes + number, place] = 1.0
        left_side[:sizes, width:] = -np.eye(sizes)
        right_side = np.concatenate([-counts, [float(machines[kind]) for kind in kinds]])
        cost = np.concatenate([np.zeros(width), [float(cpu + ram) for cpu, ram in self._sizes]])
        solved = linprog(cost, A_ub=left_side, b_ub=right_side, method="highs")
        prices = -np.asarray(solved.ineqlin.marginals, dtype=np.float64)
        return float(solved.fun), prices[:sizes], prices[sizes:]

    def _add_better(self, kinds: list[tuple[int, int]], worth: Vector, prices: Vector) -> bool:
        """Add for each kind of machine the configuration that is worth most; return whether any was new."""
        added = False
        for kind, price in zip(kinds, prices, strict=True):
            value, held = _knapsack(kind, self._sizes, worth)
            if value > price + 1e-9:
                self._known.setdefault(kind, []).append(held)
                added = True
        return added


def _kind(machine: Machine) -> tuple[int, int]:
    capacity = machine.capacity
    return -(-capacity.cpu_millis // MILLIS), -(-capacity.ram_bytes // MIB_256)


def _knapsack(kind: tuple[int, int], sizes: list[tuple[int, int]], worth: Vector) -> tuple[float, Vector]:
    """Return the most that one machine can hold in worth, and how many tasks of each size that is."""
    cpu_all, ram_all = kind
    best = np.zeros((cpu_all + 1, ram_all + 1))
    last = np.full(best.shape, -1)
    for cpu in range(1, cpu_all + 1):
        best[cpu] = best[cpu - 1]
        for number, (cpu_each, ram_each) in enumerate(sizes):
            if worth[number] <= 0 or not 0 < cpu_each <= cpu or ram_each > ram_all:
                continue
            with_one = best[cpu - cpu_each, : ram_all + 1 - ram_each] + worth[number]
            better = with_one > best[cpu, ram_each:] + 1e-12
            best[cpu, ram_each:][better] = with_one[better]
            last[cpu, ram_each:][better] = number
    held, cpu, ram = np.zeros(len(sizes)), cpu_all, ram_all
    while cpu > 0:
        number = int(last[cpu, ram])
        if number < 0:
            cpu -= 1
            continue
        held[number] += 1
        cpu, ram = cpu - sizes[number][0], ram - sizes[number][1]
    return float(best[cpu_all, ram_all]), held
