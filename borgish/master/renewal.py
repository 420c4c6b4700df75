"""Renews the lease of one who leads, beside its loop: a step that takes long must not cost the lead.

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
    """``step`` is called again and again, by a thread or a timer; ``failed`` is called there, with what
    ended it."""

    def __init__(
        self, store: Store, lease: Lease, clock: Clock, failed: Callable[[BorgishError], object]
    ) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._failed = failed
        self._alive = clock.now().mono
        self._is_stopped = False

    async def over(self) -> None:
        """Return when the lease is over. As long as somebody waits here the loop counts as alive."""
        while (left := self._lease.left(self._clock.now().mono)) > 0:
            self._alive = self._clock.now().mono
            await asyncio.sleep(min(left, BEAT_SECONDS))

    def stop(self) -> None:
        """Renew no more; one renewal may be under way, of which nobody is told."""
        self._is_stopped = True

    def step(self) -> float | None:
        """Renew the lease if that is due. Return the seconds until it is again, and None when the lease is
        over, or will be."""
        asked = self._clock.now().mono
        if self._is_stopped:
            return None
        if due_in := self._lease.due_in(asked):
            return due_in
        if asked - self._alive > LIFELESS_SECONDS_MAX or self._lease.left(asked) <= 0:
            return None  # the loop sees that first of all when it goes on
        try:
            self._store.renew()
        except BorgishError as error:
            if not self._is_stopped:
                self._failed(error)
            return None
        self._lease.renewed(asked)
        return self._lease.due_in(self._clock.now().mono)


def in_thread(step: Callable[[], float | None]) -> Callable[[], None]:
    """Call a step again and again in a thread of its own, after as many seconds as it returned; return what
    ends that. One call may be under way then. The thread holds up nobody's end."""
    ended = threading.Event()

    def run() -> None:
        pause_seconds: float | None = 0.0
        while pause_seconds is not None and not ended.wait(pause_seconds):
            pause_seconds = step()

    threading.Thread(target=run, name="lease", daemon=True).start()
    return ended.set
