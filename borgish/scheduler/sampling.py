"""Relaxed randomisation: machines are looked at in a random order until enough are found that fit
(section 3.4 of the Borg paper). How many are enough is not published; the share is Kubernetes'.

The order is by stretches of rows, begun at another place for each class: a stretch is looked at as
fast as it is long, which rows picked one by one are not.
"""

from collections.abc import Iterator
from zlib import crc32

from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet

ENOUGH_MIN = 100
PARTS = 8  # looked at one after the other


class Sampler:
    """Draws machines in an order that follows from a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def enough(self, machines: int, tasks: int) -> int:
        """Return how many machines that fit are enough for so many tasks."""
        share = max(0.05, 0.5 - machines / 12_500)
        return max(ENOUGH_MIN, int(machines * share), 2 * tasks)

    def samples(self, fleet: Fleet, kind: TaskClass) -> Iterator[slice]:
        """Yield all rows, some at a time."""
        size = len(fleet.names)
        step = size // PARTS + 1
        first = crc32(repr(kind.key.needs).encode(), self._seed) % PARTS
        for part in range(PARTS):
            start = (first + part) % PARTS * step
            if start < size:
                yield slice(start, min(start + step, size))
