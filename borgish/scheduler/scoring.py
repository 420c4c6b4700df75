"""How much a machine is liked for a task: a cost, less is better.

A scorer is a small function of how the machine would be afterwards. It uses nothing but
``+ - * /`` and ``abs``, so that the same function answers for one machine in plain numbers and for
all of them in arrays, to the last bit. It must not fall when ``same_job`` grows.
"""

from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from borgish.scheduler.arrays import ALL, FloatArray, Rows
from borgish.scheduler.census import CPU, RAM
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.feasibility import feasible
from borgish.scheduler.machines import Fleet

Number = TypeVar("Number", float, FloatArray)

VECTORS_KEPT = 256  # classes whose costs are kept; 80 kB each at 10,000 machines
RENEW_SHARE = 4  # when more than a fourth of the rows changed, all are computed anew
FEW_SHARE = 2  # where no more than half of the rows fits, only those are scored
SPREAD_WEIGHT = 2.0  # above the sum of the others, so that it decides first; placing relies on it
UNFIT = float("inf")


class After(NamedTuple, Generic[Number]):
    """A machine with one more task of a class: what is left of it, as fractions of its capacity.

    ``same_job`` is how many tasks of the same job were there before.
    """

    cpu_left: Number
    ram_left: Number
    same_job: int


class Scorer(Protocol):
    """One thing to like or dislike: from 0 (liked) to its weight; ``spread`` goes beyond."""

    def __call__(self, after: After[Number], /) -> Number | float: ...


def spread(after: After[Number]) -> Number | float:
    """Fewest tasks of the same job first, so that one machine's end takes few of them."""
    return after.same_job * SPREAD_WEIGHT


def best_fit(after: After[Number]) -> Number | float:
    """Fill what is nearly full, so that large tasks find whole machines."""
    return (after.cpu_left + after.ram_left) * 0.5


def stranding(after: After[Number]) -> Number | float:
    """Leave cpu and ram in balance: what is left of one without the other is of no use."""
    return abs(after.cpu_left - after.ram_left) * 0.5


SCORERS: tuple[Scorer, ...] = (spread, best_fit, stranding)


def cost(after: After[Number], tie: Number) -> Number:
    """Return the sum of all scorers; ``tie`` puts equals in order."""
    total: Number | float = 0.0
    for scorer in SCORERS:
        total = total + scorer(after)
    return total + tie


def cost_of(fleet: Fleet, kind: TaskClass, row: int, same_job: int) -> float:
    """Return the cost of one machine for one more task, or ``UNFIT`` when there is no room.

    Only room is looked at: the running pass changes nothing else.
    """
    free = fleet.free
    for number, amount in kind.needs:
        if free.item(number, row) < amount:
            return UNFIT
    inverse = fleet.inverse
    after = After(
        (free.item(CPU, row) - kind.cpu) * inverse.item(CPU, row),
        (free.item(RAM, row) - kind.ram) * inverse.item(RAM, row),
        same_job,
    )
    return cost(after, fleet.tie.item(row))


def costs_of(fleet: Fleet, kind: TaskClass, rows: Rows = ALL) -> FloatArray:
    """Return the costs of machines for a task whose job has none there, ``UNFIT`` where it cannot go."""
    fits = feasible(fleet, kind, rows)
    if np.count_nonzero(fits) * FEW_SHARE > len(fits):
        most: FloatArray = np.where(fits, _costs(fleet, kind, rows), UNFIT)
        return most
    costs, fitting = np.full(len(fits), UNFIT), np.flatnonzero(fits)
    costs[fitting] = _costs(fleet, kind, fitting if isinstance(rows, slice) else rows[fitting])
    return costs


def _costs(fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
    """Return the costs of machines as if the task fitted on each."""
    after = After(
        (fleet.free[CPU][rows] - kind.cpu) * fleet.inverse[CPU][rows],
        (fleet.free[RAM][rows] - kind.ram) * fleet.inverse[RAM][rows],
        0,
    )
    return cost(after, fleet.tie[rows])


class ScoreCache:
    """Keeps the costs of the classes used last; computes again only rows that changed."""

    def __init__(self) -> None:
        self._kept: dict[TaskClass, None] = {}

    def costs(self, fleet: Fleet, kind: TaskClass) -> FloatArray:
        """Return the costs of all rows for a class, as they are now. They are not to be written to."""
        self._keep(kind)
        if kind.costs is None or len(kind.costs) != len(fleet.names):
            kind.costs = costs_of(fleet, kind)
        elif kind.costs_version != fleet.version:
            rows = np.flatnonzero(fleet.changed > kind.costs_version)
            if len(rows) * RENEW_SHARE > len(kind.costs):
                kind.costs = costs_of(fleet, kind)
            else:
                kind.costs[rows] = costs_of(fleet, kind, rows)
        kind.costs_version = fleet.version
        return kind.costs

    def _keep(self, kind: TaskClass) -> None:
        self._kept.pop(kind, None)
        self._kept[kind] = None
        if len(self._kept) > VECTORS_KEPT:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            oldest.costs = None
