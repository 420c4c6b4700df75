"""Renews the lease of one who leads, in a thread of its own: a step that takes long must not cost the lead.

A loop that shows no life for much longer than any step takes does: another master can do better.
"""

import asyncio
import threading
from collections.abc import Callable

from borgish.clock import Clock
from borgish.errors import BorgishError
from borgish.master.lease import Lease
from borgish.store.base import Store

LIFELESS_SECONDS_MAX = 30.0
BEAT_SECONDS = 0.5


class Renewal:
    """``failed`` is called, in that thread, with what ended it."""

    def __init__(
        self, store: Store, lease: Lease, clock: Clock, failed: Callable[[BorgishError], object]
    ) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._failed = failed
        self._alive = clock.now().mono
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin. The thread holds up nobody's end."""
        threading.Thread(target=self._run, name="lease", daemon=True).start()

    async def over(self) -> None:
        """Return when the lease is over. As long as somebody waits here the loop counts as alive."""
        while (left := self._lease.left(self._clock.now().mono)) > 0:
            self._alive = self._clock.now().mono
            await asyncio.sleep(min(left, BEAT_SECONDS))

    def stop(self) -> None:
        """Renew no more; one renewal may be under way."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._lease.due_in(self._clock.now().mono)):
            asked = self._clock.now().mono
            if asked - self._alive > LIFELESS_SECONDS_MAX or self._lease.left(asked) <= 0:
                return  # it is over, or will be: the loop sees that first of all when it goes on
            try:
                self._store.renew()
            except BorgishError as error:
                if not self._stopped.is_set():
                    self._failed(error)
                return
            self._lease.renewed(asked)
