"""Waits for news of a cell: the watch says *that* something changed, the caller reads *what*.

Whoever follows reads the state anew at each wake-up and at least each tick, so a lost message, a broken
watch or a restarted master costs one tick and never a wrong answer.
"""

import threading
from typing import TYPE_CHECKING

from borgish.clock import SystemClock
from borgish.errors import BorgishError

if TYPE_CHECKING:
    from borgish.client import Client

TICK_SECONDS = 0.5
TICK_WITHOUT_WATCH_SECONDS = 0.15
_GATHER_SECONDS = 0.03  # changes come in bursts: look once for all of them
_AGAIN_SECONDS = 1.0


class Changes:
    """A thread of its own reads the watch; ``wait`` returns when there may be something new."""

    def __init__(self, client: "Client", kinds: str, job: str = "") -> None:
        self._client = client
        self._params = {"kinds": kinds, "job": job}
        self._news = threading.Event()
        self._done = threading.Event()
        self._watching = False
        threading.Thread(target=self._read, name="watch", daemon=True).start()

    def wait(self, seconds_max: float) -> bool:
        """Wait for news, or for a tick, or for ``seconds_max`` if that is less; return whether there are."""
        tick = TICK_SECONDS if self._watching else TICK_WITHOUT_WATCH_SECONDS
        if is_news := self._news.wait(max(0.0, min(tick, seconds_max))):
            self._done.wait(max(0.0, min(_GATHER_SECONDS, seconds_max)))
        self._news.clear()
        return is_news

    def close(self) -> None:
        """Want no more news. The thread ends with its next message, or with the process."""
        self._done.set()

    def _read(self) -> None:
        while not self._done.is_set():
            try:
                for _ in self._client.watch(self._params):
                    self._watching = True
                    self._news.set()
                    if self._done.is_set():
                        return
            except BorgishError:
                pass  # the ticks go on, and show the error if there is one to show
            self._watching = False
            self._done.wait(_AGAIN_SECONDS)


class Deadline:
    """A moment on a clock that never jumps."""

    def __init__(self, seconds: float) -> None:
        self._clock = SystemClock()
        self._start = self._clock.now().mono
        self._seconds = seconds

    @property
    def left(self) -> float:
        """Seconds left; 0 when it is over."""
        return max(0.0, self._seconds - self.spent)

    @property
    def spent(self) -> float:
        """Seconds since it was set."""
        return self._clock.now().mono - self._start
