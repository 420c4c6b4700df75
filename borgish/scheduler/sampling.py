"""Relaxed randomisation: machines are looked at until enough are found that fit, and of these the best is
taken (section 3.4 of the Borg paper, which does not say how many are enough).

What is looked at is every so-many-th row, from another one on for another class: so racks and sizes of
machine are among them as they are in the cell, and the same machines are looked at again while they do.
"""

from collections.abc import Iterator

from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet

LOOKED_AT_MIN = 1024  # rows
DENSER = 3  # how many times as many are looked at next
ENOUGH_MIN = 64
ENOUGH_EACH = 4  # for each task to be placed


def enough(tasks: int) -> int:
    """Return how many machines that fit are enough for so many tasks."""
    return max(ENOUGH_MIN, ENOUGH_EACH * tasks)


class Sampler:
    """Says which machines are looked at, as follows from a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def samples(self, fleet: Fleet, kind: TaskClass, tasks: int) -> Iterator[slice]:
        """Yield more and more rows, with start and step. None are yielded where all had to be looked at."""
        step = len(fleet.names) // max(LOOKED_AT_MIN, enough(tasks))
        start = self._seed + int(kind.cpu) + int(kind.ram) // 2**20
        while step > 1:
            yield slice(start % step, None, step)
            step //= DENSER
