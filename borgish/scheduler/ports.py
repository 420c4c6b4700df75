"""The ports of one machine: which are taken, and which come next.

The search goes on where it last ended, so that a port rests as long as possible before another
task gets it.
"""

import msgspec


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

    def free_count(self) -> int:
        """Return how many are free."""
        return self.size - sum(self.low <= port <= self.high for port in self.taken)

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
