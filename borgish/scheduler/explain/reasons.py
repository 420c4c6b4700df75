"""All reasons that keep a class of tasks off machines, and how many there are against each machine."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.feasibility import FILTERS, Reason
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.task_class import TaskClass

CountArray = npt.NDArray[np.int8]


class Failures:
    """The reasons, in the order of the filters, that rule out some machine.

    ``counts`` are how many each rules out, and ``against`` how many there are against each machine, by row.
    """

    def __init__(self, fleet: Fleet, kind: TaskClass) -> None:
        found = [each for part in FILTERS if part.applies(kind) for each in part.explain(fleet, kind)]
        counts = [int(np.count_nonzero(each.fails & fleet.present)) for each in found]
        self.all = [each for each, count in zip(found, counts, strict=True) if count]
        self.counts = [count for count in counts if count]
        self.present = fleet.present
        self.against: CountArray = np.zeros(len(fleet.names), dtype=np.int8)
        for each in self.all:
            self.against += each.fails

    def reasons(self) -> dict[str, int]:
        """Return how many machines each reason rules out."""
        return {each.key: count for each, count in zip(self.all, self.counts, strict=True)}

    def only(self, reasons: Sequence[Reason]) -> BoolArray:
        """Return which machines nothing but these reasons rules out."""
        others = self.against.copy()
        for each in reasons:
            others -= each.fails
        found: BoolArray = (others == 0) & self.present
        return found

    def short(self) -> list[Reason]:
        """Return the reasons that are about too little of a resource."""
        return [each for each in self.all if each.resource is not None]


def shortage(available: dict[int, FloatArray], kind: TaskClass) -> FloatArray:
    """Return how much is short on each machine, each resource as a share of what is asked for."""
    short: FloatArray = sum(
        (np.maximum(0.0, amount - available[number]) / amount for number, amount in kind.needs), np.zeros(1)
    )
    return short


def can_come_free(fleet: Fleet, kind: TaskClass, rows: IntArray, staying: FloatArray) -> BoolArray:
    """Return which machines would have enough for a task if all left but what is ``staying``."""
    enough: BoolArray = np.ones(len(rows), dtype=np.bool_)
    for number, amount in kind.needs:
        enough &= fleet.capacity[number][rows] - staying[number][rows] >= amount
    if kind.fixed_ports:  # all tasks of a job want the same ones
        enough &= ~(staying[:, rows] > 0).any(axis=0)
    return enough
