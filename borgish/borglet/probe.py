"""How one run stands with its health probe: when to ask next, and what the answers add up to.

Until its first good answer a run is asked often (0.1 s, doubling to the interval), so that a task
that comes up is seen within a moment; ``borglet/health.py`` does the asking.
"""

import msgspec

from borgish.clock import Now
from borgish.spec.job import Health

FIRST_SECONDS = 0.1


class ProbeState(msgspec.Struct, frozen=True):
    """``due`` is on the monotonic clock. ``misses`` are those in a row that count."""

    since: float
    due: float
    delay_seconds: float = FIRST_SECONDS
    asked: bool = False  # and not yet answered
    answered: bool = False  # well, at least once in this run
    misses: int = 0
    text: str = ""  # of the last miss; "" after a good answer

    def ask(self) -> "ProbeState":
        """Return this with a probe under way."""
        return msgspec.structs.replace(self, asked=True)

    def hit(self, health: Health, now: Now) -> "ProbeState":
        """Return this after a good answer."""
        due = now.mono + health.interval_seconds
        return ProbeState(self.since, due, answered=True)

    def miss(self, health: Health, text: str, now: Now) -> "ProbeState":
        """Return this after a bad answer, or none in time."""
        counts = self.answered or now.mono - self.since >= health.grace_seconds
        delay = health.interval_seconds
        if not counts:
            delay = min(self.delay_seconds * 2, health.interval_seconds)
        return msgspec.structs.replace(
            self,
            due=now.mono + delay,
            delay_seconds=delay,
            asked=False,
            misses=self.misses + counts,
            text=text,
        )

    def unhealthy(self, health: Health) -> bool:
        """Whether enough misses came in a row."""
        return self.misses >= health.failures


def first_probe(now: Now, *, answered: bool = False) -> ProbeState:
    """Return the state of a run that just began, or was found alive (``answered``: before, too)."""
    return ProbeState(now.mono, now.mono + FIRST_SECONDS, answered=answered)
