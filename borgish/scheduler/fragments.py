"""How much of what is free on a machine is of no use to typical tasks.

For one kind of device. A *state* is what is free on one machine: now, or after a task was placed. Two
measures, both the mean over typical shapes of what is free of the devices and cannot be used by it:

- ``fragments``, as published (FGD, ATC 2023): all, where the shape cannot run; else what is free on
  devices that are too small for it.
- ``stranded``: all but what as many tasks of the shape would use as fit together. A machine with eight
  free devices and cpu for one such task strands seven.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.feasibility import suitable
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.policy import Shape

TYPICAL_SHARE = 0.95
"""The most frequent shapes are looked at that make up so much of all tasks."""

LEAST = 1e-9  # in place of a need of nothing, which is no limit


class States(NamedTuple):
    """What is free on machines: one state a column, of the machine in ``rows``."""

    cpu: FloatArray
    ram: FloatArray
    free: FloatArray  # by device, in thousandths; 0 where there is no such device
    rows: IntArray

    def part(self, start: int, stop: int) -> "States":
        """Return some of them."""
        few = slice(start, stop)
        return States(self.cpu[few], self.ram[few], self.free[:, few], self.rows[few])


class Fits(NamedTuple):
    """How typical shapes fare in states, all [shape, state] but ``total``, which is [state]."""

    can: BoolArray  # at least one task fits
    small: FloatArray  # free on devices too small for it
    copies: FloatArray  # as many tasks as the devices take
    total: FloatArray  # free on all devices


class Typical:
    """The most frequent shapes, as arrays, for one kind of device. ``weight`` is a shape's share of tasks.

    ``rest`` is the share of shapes that need no such device: to them all that is free of it is of no use.
    """

    def __init__(self, shapes: Sequence[Shape], device: str, *, with_ram: bool) -> None:
        users = [shape for shape in shapes if device in dict(shape.kind.devices)]
        everything = sum(shape.tasks for shape in shapes) or 1
        self.weight: FloatArray = np.array([shape.tasks / everything for shape in users])
        self.rest = 1.0 - float(self.weight.sum())
        self.cpu: FloatArray = _column([max(shape.kind.cpu, LEAST) for shape in users])
        self.ram: FloatArray = _column([max(shape.kind.ram if with_ram else 0.0, LEAST) for shape in users])
        needed = [dict(shape.kind.devices)[device] for shape in users]
        self.millis: FloatArray = np.array(needed, dtype=np.float64)
        self.wholes: FloatArray = _column([max(1, millis // DEVICE_MILLIS) for millis in needed])
        levels = sorted({min(millis, DEVICE_MILLIS) for millis in needed})
        self._levels: FloatArray = np.array(levels, dtype=np.float64).reshape(-1, 1, 1)
        self._level: IntArray = np.array(
            [levels.index(min(millis, DEVICE_MILLIS)) for millis in needed], dtype=np.int64
        )
        wanted = list(dict.fromkeys(shape.kind.wanted for shape in users))
        self._wanted: IntArray = np.array(
            [wanted.index(shape.kind.wanted) for shape in users], dtype=np.int64
        )
        self._kinds = [next(s.kind for s in users if s.kind.wanted == each) for each in wanted]
        self._suitable: BoolArray = np.zeros((0, 0), dtype=np.bool_)
        self._groups: IntArray = np.zeros(0, dtype=np.int64)
        self._facts_version = -1

    def fits(self, fleet: Fleet, states: States) -> Fits:
        """Return how the shapes fare."""
        free = states.free[np.newaxis]
        large = free >= self._levels
        small = np.where(large, 0.0, free).sum(axis=1)[self._level]
        per_level = np.floor(free / self._levels).sum(axis=1)
        copies = np.floor(per_level[self._level] / self.wholes)
        can = (copies >= 1.0) & (states.cpu >= self.cpu) & (states.ram >= self.ram)
        can &= self._may(fleet)[self._wanted][:, states.rows]
        return Fits(can, small, copies, states.free.sum(axis=0))

    def fragments(self, fits: Fits) -> FloatArray:
        """Return the published measure, by state, in thousandths of a device."""
        found: FloatArray = self.weight @ np.where(fits.can, fits.small, fits.total) + self.rest * fits.total
        return found

    def stranded(self, fits: Fits, states: States) -> FloatArray:
        """Return what as many tasks as fit together would leave, by state, in thousandths.

        Cpu and ram are not rounded down to whole tasks: what one shape leaves of them others use.
        """
        together = np.minimum(np.minimum(states.cpu / self.cpu, states.ram / self.ram), fits.copies)
        used: FloatArray = (self.weight * self.millis) @ np.where(fits.can, together, 0.0)
        return fits.total - used

    def groups(self, fleet: Fleet) -> IntArray:
        """Return a number for each row: machines that are right for the same shapes have the same."""
        self._may(fleet)
        return self._groups

    def _may(self, fleet: Fleet) -> BoolArray:
        """Return for what is wanted of machines which are right, whatever is free there."""
        if self._facts_version != fleet.facts_version or self._suitable.shape[1] != len(fleet.names):
            rows = [suitable(fleet, kind) for kind in self._kinds]
            self._suitable = np.array(rows, dtype=np.bool_).reshape(len(rows), len(fleet.names))
            self._groups = np.unique(self._suitable, axis=1, return_inverse=True)[1].reshape(-1)
            self._facts_version = fleet.facts_version
        return self._suitable


def most_frequent(shapes: Sequence[Shape]) -> list[Shape]:
    """Return the first shapes that make up ``TYPICAL_SHARE`` of all tasks."""
    left = TYPICAL_SHARE * sum(shape.tasks for shape in shapes)
    chosen = []
    for shape in shapes:
        if left <= 0:
            break
        chosen.append(shape)
        left -= shape.tasks
    return chosen


def _column(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64).reshape(-1, 1)
