"""The right of one master to act: asked for before anything leaves that only a leader may say.

On SQLite it lasts as long as the process, which has the lock; on Postgres as long as its lease. A process
that was stopped for too long finds its mandate over before it has sent or written anything.
"""

from borgish.clock import Clock
from borgish.errors import Fenced
from borgish.master.lease import Lease


class Mandate:
    """Says whether this master may still act. Without a lease it always may."""

    def __init__(self, clock: Clock, lease: Lease | None = None) -> None:
        self._clock = clock
        self.lease = lease
        self._given_up = False

    def give_up(self) -> None:
        """Act no more: another may lead from now on."""
        self._given_up = True

    def expect(self) -> None:
        """Return if this master may act now. Raises Fenced otherwise, from then on each time."""
        if self._given_up:
            raise Fenced("This borgmaster leads no more; it ends", "Ask the one that leads now")
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
