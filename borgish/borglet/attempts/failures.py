"""How failures are counted: ends of programs, with the back-off that follows, and probes missed in a row.

Restarts are local first: the borglet restarts where the task is, so the common death costs milliseconds
and no decision of the master. Back-off doubles from 1 s to 5 min: Kubernetes' CrashLoopBackOff.
"""

from collections.abc import Iterable
from math import inf
from signal import Signals

import msgspec

from borgish.clock import Now
from borgish.spec.job import ExitRule, Health, Restart
from borgish.vocabulary import OnExit, RestartPolicy
from borgish.wire.link import Exit

DELAY_SECONDS_MAX = 300.0
GOOD_RUN_SECONDS = 600.0
PERMANENT_FAILURES_MAX = 3
"""How often a start that cannot work here (no such command, no such image) is tried in all."""
FIRST_PROBE_SECONDS = 0.1


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
        within = inf if restart.counts_for_life else restart.within_seconds
        recent = [f for f in self.failures if now.mono - f.mono < within]
        return msgspec.structs.replace(self, failures=(*recent, now)[-restart.attempts :])

    def exhausted(self, restart: Restart, before: int = 0) -> bool:
        """Whether the failures, with those of attempts before, reach the limit, straight after ``failed``."""
        return 0 < restart.attempts <= len(self.failures) + before

    def delay_seconds(self, restart: Restart) -> float:
        """Return how long to wait: doubling to the bound, of a service not at all after the first end."""
        # A service is missed. What runs to completion mostly fails by its input, or by something it needs.
        waits = self.ends - (restart.policy is RestartPolicy.ALWAYS)
        if waits <= 0:
            return 0.0
        doublings = min(waits - 1, 30)  # 2**30 s is past any bound; keeps the number small
        return float(min(restart.backoff_seconds * 2**doublings, DELAY_SECONDS_MAX))


# -- What an exit means -------------------------------------------------------------------------------------


def what_follows(rules: Iterable[ExitRule], exit_: Exit) -> OnExit | None:
    """Return what the first rule that matches makes of the end of a program; None when none does."""
    for rule in rules:
        if exit_.code is not None and any(codes.low <= exit_.code <= codes.high for codes in rule.codes):
            return rule.do
        if exit_.signal is not None and signal_name(exit_.signal) in rule.signals:
            return rule.do
    return None


def signal_name(number: int) -> str:
    """Return a signal's name without SIG; its number when it has none."""
    try:
        return Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


# -- Health probes of one run -------------------------------------------------------------------------------


class ProbeState(msgspec.Struct, frozen=True):
    """``since`` and ``due`` are in seconds of the monotonic clock. ``misses`` are those in a row that
    count."""

    since: float
    due: float
    delay_seconds: float = FIRST_PROBE_SECONDS
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
    return ProbeState(now.mono, now.mono + FIRST_PROBE_SECONDS, answered=answered)
