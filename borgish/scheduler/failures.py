"""All reasons that keep a class of tasks off machines, and how many there are against each machine."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from borgish.scheduler.arrays import BoolArray
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.feasibility import FILTERS, Failing
from borgish.scheduler.fleet import Fleet

CountArray = npt.NDArray[np.int8]


class Failures:
    """The reasons, in the order of the filters, that rule out some machine.

    ``counts`` are how many each rules out, and ``against`` how many there are against each machine, by row.
    """

    def __init__(self, fleet: Fleet, kind: TaskClass) -> None:
        found = [each for part in FILTERS if part.concerns(kind) for each in part.explain(fleet, kind)]
        counts = [int(np.count_nonzero(each.fails & fleet.present)) for each in found]
        self.all = [each for each, count in zip(found, counts, strict=True) if count]
        self.counts = [count for count in counts if count]
        self.present = fleet.present
        self.against: CountArray = np.zeros(len(fleet.names), dtype=np.int8)
        for each in self.all:
            self.against += each.fails

    def reasons(self) -> dict[str, int]:
        """Return how many machines each reason rules out."""
        return {each.reason: count for each, count in zip(self.all, self.counts, strict=True)}

    def only(self, reasons: Sequence[Failing]) -> BoolArray:
        """Return which machines nothing but these reasons rules out."""
        others = self.against.copy()
        for each in reasons:
            others -= each.fails
        found: BoolArray = (others == 0) & self.present
        return found

    def short(self) -> list[Failing]:
        """Return the reasons that are about too little of a resource."""
        return [each for each in self.all if each.kind is not None]
