"""When a program that ended may be started again: the arithmetic, nothing else.

Restarts are local first: the borglet restarts where the task is, so the common death costs milliseconds
and no decision of the master. Back-off doubles from 1 s to 5 min.
"""

import msgspec

from borgish.clock import Now
from borgish.spec.job import Restart

DELAY_SECONDS_MAX = 300.0
GOOD_RUN_SECONDS = 600.0
PERMANENT_FAILURES_MAX = 3
"""How often a start that cannot work here (no such command, no such image) is tried in all."""


class Backoff(msgspec.Struct, frozen=True):
    """The ends of one attempt's programs. ``ends`` counts those in a row with no good run between;
    ``failures`` are the latest ones that count against ``restart.attempts``, oldest first."""

    ends: int = 0
    failures: tuple[Now, ...] = ()

    def ended(self, ran_seconds: float) -> "Backoff":
        """Return this with one more end, after a run of so many seconds (0: it did not start)."""
        ends = 1 if ran_seconds >= GOOD_RUN_SECONDS else self.ends + 1
        return msgspec.structs.replace(self, ends=ends)

    def failed(self, restart: Restart, now: Now) -> "Backoff":
        """Return this with one more failure that counts; keeps no more than the limit can ask about."""
        if not restart.attempts:
            return self
        recent = [f for f in self.failures if now.mono - f.mono < restart.within_seconds]
        return msgspec.structs.replace(self, failures=(*recent, now)[-restart.attempts :])

    def exhausted(self, restart: Restart) -> bool:
        """Whether the failures reach the limit, straight after ``failed``."""
        return 0 < restart.attempts <= len(self.failures)

    def delay_seconds(self, restart: Restart) -> float:
        """Return how long to wait: nothing after the first end, then doubling to the bound."""
        if self.ends <= 1:
            return 0.0
        doublings = min(self.ends - 2, 30)  # 2**30 s is past any bound; keeps the number small
        return float(min(restart.backoff_seconds * 2**doublings, DELAY_SECONDS_MAX))
