"""What a borglet remembers over its own restart: one entry an attempt, and one head for the machine.

Times are seconds since 1970. Of those that ages are judged by, the monotonic clock is kept as well;
``moment`` and ``past_moment`` turn them back into moments of the next process.
"""

import msgspec

from borgish.borglet.attempts.attempt import KILL_AGAIN_SECONDS, Attempt
from borgish.borglet.attempts.failures import Backoff, first_probe
from borgish.borglet.attempts.transitions import Purpose, Stage
from borgish.clock import Now
from borgish.vocabulary import Ending
from borgish.wire.link import UNKNOWN, AttemptSpec, Exit, Leader, attempt_key


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt, or one program beside its main one, as the ledger keeps it. ``spec`` is None when only
    its run was found."""

    task: str
    attempt: int
    spec: AttemptSpec | None
    stage: Stage
    run: int = 0
    started_at: float = 0.0
    started_mono: float = 0.0
    first_started_at: float = 0.0
    first_started_mono: float = 0.0
    due_at: float = 0.0
    end_by_at: float = 0.0
    asked_at: float = 0.0
    asked_mono: float = 0.0
    deregister_seconds: float = 0.0
    purpose: Purpose = Purpose.NONE
    why: str = ""
    backoff_ends: int = 0
    failures: tuple[float, ...] = ()
    hopeless: int = 0
    port_in_use: int = 0
    answered: bool = False  # its probe, in this run
    last_exit: Exit | None = None
    ended: Ending | None = None
    reason: str = ""
    program: str = ""
    kills: int = 0

    @property
    def key(self) -> str:
        return attempt_key(self.task, self.attempt, self.program)


class Head(msgspec.Struct, frozen=True):
    """Whose ledger it is, and the newest master and assignment it has obeyed."""

    machine: str
    timeline: int = 0
    epoch: int = 0
    generation: int = 0
    leader: Leader = UNKNOWN

    @property
    def term(self) -> tuple[int, int]:
        """What distinguishes masters; the higher one leads."""
        return self.timeline, self.epoch


def moment(at: float, now: Now) -> Now:
    """Return the moment that was ``at`` seconds since 1970; a time not known (0) is now."""
    return now.later(at - now.wall) if at else now


def past_moment(at: float, mono: float, now: Now) -> Now | None:
    """Return a moment of the past by what was kept of both its clocks; None when it is not known (0).

    The monotonic clock of a Linux host goes on from process to process, so while the host runs the age is
    true whatever the wall clock did. After a boot it is less than the truth at most, or lies ahead.
    """
    if not at:
        return None
    return Now(at, mono) if 0 < mono <= now.mono else moment(at, now)


# -- Attempts to entries and back: what of an attempt outlives its borglet ----------------------------------


def to_entry(attempt: Attempt) -> Entry:
    """Return what the ledger keeps. A start that was asked for and not answered is asked for again."""
    starting = attempt.stage is Stage.STARTING
    return Entry(
        task=attempt.task,
        attempt=attempt.attempt,
        spec=attempt.spec,
        stage=Stage.WAITING if starting else attempt.stage,
        run=attempt.run,
        started_at=_wall(attempt.started),
        started_mono=_mono(attempt.started),
        first_started_at=_wall(attempt.first_started),
        first_started_mono=_mono(attempt.first_started),
        due_at=_wall(attempt.due),
        end_by_at=_wall(attempt.end_by),
        asked_at=_wall(attempt.asked),
        asked_mono=_mono(attempt.asked),
        deregister_seconds=attempt.deregister_seconds,
        purpose=attempt.purpose,
        why=attempt.why,
        backoff_ends=attempt.backoff.ends,
        failures=tuple(f.wall for f in attempt.backoff.failures),
        hopeless=attempt.permanent_failures,
        port_in_use=attempt.port_in_use,
        answered=attempt.probe is not None and attempt.probe.answered,
        last_exit=attempt.last_exit,
        ended=attempt.ended,
        reason=attempt.reason,
        program=attempt.program,
        kills=attempt.kills,
    )


def from_entry(entry: Entry, now: Now) -> Attempt:
    """Return the attempt as it was; its runtime has yet to report what became of its run."""
    due = moment(entry.due_at, now)
    late = now.later(_wait_seconds_max(entry))
    timed = bool(entry.due_at) or (entry.stage is Stage.WAITING and entry.spec is not None)
    probed = entry.stage is Stage.UP and entry.spec is not None and entry.spec.health is not None
    return Attempt(
        task=entry.task,
        attempt=entry.attempt,
        spec=entry.spec,
        stage=entry.stage,
        run=entry.run,
        started=past_moment(entry.started_at, entry.started_mono, now),
        first_started=past_moment(entry.first_started_at, entry.first_started_mono, now),
        due=min(due, late, key=lambda t: t.mono) if timed else None,
        end_by=moment(entry.end_by_at, now) if entry.end_by_at else None,
        asked=past_moment(entry.asked_at, entry.asked_mono, now),
        deregister_seconds=entry.deregister_seconds,
        purpose=entry.purpose,
        why=entry.why,
        backoff=Backoff(entry.backoff_ends, tuple(moment(f, now) for f in entry.failures)),
        permanent_failures=entry.hopeless,
        port_in_use=entry.port_in_use,
        probe=first_probe(now, answered=entry.answered) if probed else None,
        last_exit=entry.last_exit,
        ended=entry.ended,
        reason=entry.reason,
        program=entry.program,
        kills=entry.kills,
    )


def _wait_seconds_max(entry: Entry) -> float:
    """Return how long what is due may have to wait in all. After a restart it waits no longer than that,
    whatever the wall clock did meanwhile."""
    if entry.spec is None:
        return 0.0
    if entry.stage is Stage.STOPPING:
        return max(entry.spec.stop.grace_seconds, KILL_AGAIN_SECONDS)
    return Backoff(entry.backoff_ends).delay_seconds(entry.spec.restart)


def _wall(at: Now | None) -> float:
    return at.wall if at else 0.0


def _mono(at: Now | None) -> float:
    return at.mono if at else 0.0
