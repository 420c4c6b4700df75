"""Time that moves from one planned thing to the next, as fast as they can be done."""

import heapq
import itertools
from collections.abc import Callable

from borgish.clock import Now

WALL_AT_START = 1_750_000_000.0


class VirtualClock:
    """A clock and what is planned on it. Things planned for the same moment happen in order of planning."""

    def __init__(self, wall_at_start: float = WALL_AT_START) -> None:
        self._wall_at_start = wall_at_start
        self._mono = 0.0
        self._stepped_seconds = 0.0  # what the wall clock was set on, or back, in all
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def now(self) -> Now:
        """Return this moment."""
        return Now(self._wall_at_start + self._stepped_seconds + self._mono, self._mono)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock on, or back; nothing that is planned moves."""
        self._stepped_seconds += seconds

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Plan something for ``seconds`` from now."""
        heapq.heappush(self._planned, (self._mono + max(0.0, seconds), next(self._numbers), call))

    def run_until(self, mono: float) -> None:
        """Let everything happen that is planned up to a moment, and make it that moment."""
        while self._planned and self._planned[0][0] <= mono:
            at, _, call = heapq.heappop(self._planned)
            self._mono = at
            call()
        self._mono = mono
