"""Renews the lease of one who leads, in a thread of its own: a step that takes long must not cost the lead.

A loop that shows no life for much longer than any step takes does: another master can do better.
"""

import threading
from collections.abc import Callable

from borgish.clock import Clock
from borgish.errors import BorgishError
from borgish.master.lease import Lease
from borgish.store.base import Store

LIFELESS_SECONDS_MAX = 30.0


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

    def beat(self) -> None:
        """Show that the loop lives."""
        self._alive = self._clock.now().mono

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
