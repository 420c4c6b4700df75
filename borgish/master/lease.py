"""How long a master may act as the leader: its lease, the guard asked before anything leaves, and the
renewal.

On SQLite a master leads as long as its process lives, which has the lock. On Postgres the lease stands in the
database, on the database's clock, and another master may lead when it is over. ``Lease`` is the master's own
side of it, on its monotonic clock, and ends sooner: so it has stopped before another begins, as long as its
clock is not slower by half. (A lease covers what a leader leaves behind when its session ends unseen; one
that is killed is followed at once, see ``store/leadership.py``.)
"""

import asyncio
import threading
from collections.abc import Callable

import msgspec

from borgish.clock import Clock
from borgish.errors import BorgishError, Fenced
from borgish.store.base import Store

LOOP_SILENT_SECONDS_MAX = 30.0
BEAT_SECONDS = 0.5


class LeaseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In seconds: how long a lease lasts, how often it is renewed, and after how long without that a master
    stops itself. The same in all masters of a cell."""

    ttl_seconds: float = 6.0
    renew_seconds: float = 1.5
    deadline_seconds: float = 4.0


class Lease:
    """The lease of one who leads. Readings are of one monotonic clock."""

    def __init__(self, settings: LeaseSettings, asked: float) -> None:
        self._settings = settings
        self._asked = asked

    def renewed(self, asked: float) -> None:
        """Note that it was renewed. ``asked``: when the question left, as it may have been answered then."""
        self._asked = max(self._asked, asked)

    def left(self, now: float) -> float:
        """Return the seconds until it has to be given up; 0 or less when it has to be now."""
        return self._asked + self._settings.deadline_seconds - now

    def due_in(self, now: float) -> float:
        """Return the seconds until it is to be renewed, 0 when it is late."""
        return max(0.0, self._asked + self._settings.renew_seconds - now)


def wrong_with(settings: LeaseSettings) -> str:
    """Return what is wrong with some settings, "" when nothing is."""
    if not 0 < settings.renew_seconds < settings.deadline_seconds < settings.ttl_seconds < 3600:
        return (
            f"renew_seconds {settings.renew_seconds:g}, deadline_seconds {settings.deadline_seconds:g} and "
            f"ttl_seconds {settings.ttl_seconds:g} do not grow in this order, from above 0 to below 3600"
        )
    return ""


class LeaderGuard:
    """Says whether this master may still act. Without a lease it always may.

    It is asked where things leave: before a poll is written to its socket, before a commit, before answers. A
    process that was stopped beyond its lease finds it over at the first of these. Only a lease ends; on
    SQLite the lock lasts as long as its process, so a paused master is still the leader when it wakes.
    """

    def __init__(self, clock: Clock, lease: Lease | None = None) -> None:
        self._clock = clock
        self.lease = lease
        self._resigned = False

    def resign(self) -> None:
        """Act no more: another may lead from now on."""
        self._resigned = True

    def check(self) -> None:
        """Return if this master may act now. Raises Fenced otherwise, from then on each time."""
        if self._resigned:
            raise Fenced("This borgmaster no longer leads; it ends", "Ask the one that leads now")
        if self.lease is None:
            return
        left = self.lease.left(self._clock.now().mono)
        if left <= 0:
            raise Fenced(
                f"The lease could not be renewed for {-left:.1f} s longer than a master goes on without",
                "Another master may lead by now; nothing was sent or written since. Start again as a standby",
            )

    @property
    def is_over(self) -> bool:
        """Whether this master may not act any more."""
        return self.lease is not None and self.lease.left(self._clock.now().mono) <= 0


class Renewal:
    """Renews the lease of one who leads, beside its loop: a step that takes seconds must not cost the lead.

    Only while the loop has shown life in the last ``LOOP_SILENT_SECONDS_MAX``, which is much longer than any
    step takes: of one that does not another master can do better. ``step`` is called again and again, by a
    thread or a timer; ``failed`` is called there, with what ended it.
    """

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
        """Renew no more; one renewal may be under way, whose failure is not reported."""
        self._is_stopped = True

    def step(self) -> float | None:
        """Renew the lease if that is due. Return the seconds until it is again, and None when the lease is
        over, or will be."""
        asked = self._clock.now().mono
        if self._is_stopped:
            return None
        if due_in := self._lease.due_in(asked):
            return due_in
        if asked - self._alive > LOOP_SILENT_SECONDS_MAX or self._lease.left(asked) <= 0:
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
