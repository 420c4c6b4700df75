"""Whether what failed before may fit now: only machines that changed since can help it."""

import numpy as np

from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.feasibility import feasible, suitable
from borgish.scheduler.fleet import Fleet


class Changed:
    """The machines that changed since a version of the rows: only these can help what failed then."""

    def __init__(self, fleet: Fleet, since: int) -> None:
        self.rows: IntArray = np.flatnonzero((fleet.changed > since) & fleet.usable())
        self._free = fleet.free[:, self.rows]
        self._with_lower: dict[int, FloatArray] = {}  # by reach: what is free, and held by lower tasks

    def help(self, fleet: Fleet, kind: TaskClass) -> bool:
        """Return whether one of them takes a task of the class, or may when lower ones leave it."""
        if _enough(self._free, kind).any() and feasible(fleet, kind, self.rows).any():
            return True
        lower = [held for priority, held in fleet.held.items() if priority < kind.reach]
        if not lower:
            return False
        there = self._with_lower.get(kind.reach)
        if there is None:
            there = self._free + np.sum([held[:, self.rows] for held in lower], axis=0)
            self._with_lower[kind.reach] = there
        room = _enough(there, kind)
        return bool(room.any() and (room & suitable(fleet, kind)[self.rows]).any())


def _enough(there: FloatArray, kind: TaskClass) -> BoolArray:
    """Return which columns hold what a task of the class needs."""
    passes = np.ones(there.shape[1], dtype=np.bool_)
    for number, amount in kind.needs:
        passes &= there[number] >= amount
    return passes
