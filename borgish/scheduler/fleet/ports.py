"""The ports of machines: which are taken, and which come next.

The search goes on where it last ended, so that a port rests as long as possible before another
task gets it.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from borgish.scheduler.arrays import BoolArray, IntArray, Rows, copied, widened


class PortRange(msgspec.Struct):
    """Ports ``low`` to ``high`` of one machine; ``following`` is where the search goes on."""

    low: int
    high: int
    following: int
    taken: set[int]

    @property
    def size(self) -> int:
        """How many ports there are."""
        return max(0, self.high - self.low + 1)

    def count(self, ports: Iterable[int]) -> int:
        """Return how many of some ports are among them."""
        return sum([self.low <= port <= self.high for port in ports])

    def free_count(self) -> int:
        """Return how many are free."""
        return self.size - self.count(self.taken)

    def take(self, count: int) -> tuple[int, ...]:
        """Take that many free ports. There must be as many, or LookupError."""
        found: list[int] = []
        port = self.following if self.low <= self.following <= self.high else self.low
        for _ in range(self.size):
            if len(found) == count:
                break
            if port not in self.taken:
                found.append(port)
            port = port + 1 if port < self.high else self.low
        if len(found) < count:
            raise LookupError(f"{count} ports wanted, {len(found)} free in {self.low}-{self.high}")
        self.taken.update(found)
        self.following = port
        return tuple(found)


class FixedPorts:
    """Which machines have a port taken, for those ports that some job wants by number."""

    def __init__(self) -> None:
        self._low: IntArray = np.zeros(0, dtype=np.int64)  # of each machine's range
        self._high: IntArray = np.zeros(0, dtype=np.int64)
        self._rows: list[set[int]] = []
        self._taken: dict[int, BoolArray] = {}

    def copy(self, rows: list[set[int]]) -> "FixedPorts":
        """Return the same with copies of the rows' taken ports, which others may hold as well."""
        other = copied(self)
        other._rows = list(rows)
        other._taken = {port: taken.copy() for port, taken in self._taken.items()}
        return other

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self._rows += [set() for _ in range(rows - len(self._rows))]
        self._taken = {port: widened(taken, rows) for port, taken in self._taken.items()}
        self._low, self._high = widened(self._low, rows), widened(self._high, rows)

    def read(self, row: int, of: PortRange) -> bool:
        """Note which ports of one machine are taken; return whether one that somebody wants changed."""
        changed, ports = False, of.taken
        self._low[row], self._high[row] = of.low, of.high
        for port, taken in self._taken.items():
            changed |= bool(taken[row] != (port in ports))
            taken[row] = port in ports
        self._rows[row] = ports
        return changed

    def taken(self, port: int) -> BoolArray:
        """Return which machines have it taken. It is not to be written to."""
        found = self._taken.get(port)
        if found is None:
            found = np.array([port in ports for ports in self._rows], dtype=np.bool_)
            self._taken[port] = found
        return found

    def own(self, port: int, rows: Rows) -> BoolArray:
        """Return of which of the rows a port is in the range from which others are given theirs."""
        found: BoolArray = (self._low[rows] <= port) & (port <= self._high[rows])
        return found

    def note(self, rows: Iterable[int], ports: Iterable[int]) -> None:
        """Note for those who want ports by number that these are taken; the rows' sets have them already."""
        for port in ports:
            taken = self._taken.get(port)
            if taken is not None:
                for row in rows:
                    taken[row] = True

    def set(self, rows: Iterable[int], port: int, *, taken: bool) -> None:
        """Note that the running pass takes a port on machines, or gives it back."""
        of_port = self.taken(port)
        for row in rows:
            of_port[row] = taken
            (self._rows[row].add if taken else self._rows[row].discard)(port)
