"""Relaxed randomisation: machines are looked at in a random order until enough are found that fit
(section 3.4 of the Borg paper). How many are enough is not published; the share is Kubernetes'.
"""

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from borgish.scheduler.arrays import IntArray
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet

ENOUGH_MIN = 100
PARTS = 8  # looked at one after the other


class Sampler:
    """Draws machines in an order that follows from a seed, and begins elsewhere for each class."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._order: IntArray = np.zeros(0, dtype=np.int64)

    def enough(self, machines: int) -> int:
        """Return how many machines that fit are enough."""
        share = max(0.05, 0.5 - machines / 12_500)
        return max(ENOUGH_MIN, int(machines * share))

    def samples(self, fleet: Fleet, kind: TaskClass) -> Iterator[IntArray]:
        """Yield all rows, some at a time."""
        size = len(fleet.names)
        if len(self._order) != size:
            self._order = np.random.default_rng(self._seed).permutation(size)
        start = crc32(repr(kind.key.needs).encode()) % size if size else 0
        order = np.roll(self._order, -start)
        yield from np.array_split(order, PARTS)
