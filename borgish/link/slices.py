"""Work that comes together is done in slices, with all else that the loop has to do in between."""

import asyncio
from collections import deque
from collections.abc import Callable

from borgish.clock import Clock

SLICE_SECONDS = 0.01


class Slices:
    """Runs callbacks in their order, for some milliseconds at a time.

    A thousand machines may answer at once. What comes of that takes longer than somebody who asks should
    wait, who would be behind all of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_running = False

    def add(self, callback: Callable[[], None]) -> None:
        """Have a callback run soon."""
        self._waiting.append(callback)
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until = self._clock.now().mono + SLICE_SECONDS
        try:
            while self._waiting and self._clock.now().mono <= until:
                self._waiting.popleft()()
        finally:  # also where one raises, which the loop's handler logs: the others go on
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._run)
            else:
                self._is_running = False
