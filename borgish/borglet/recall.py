"""Attempts to ledger entries and back: what of an attempt outlives its borglet."""

from borgish.borglet.attempt import KILL_AGAIN_SECONDS, Attempt
from borgish.borglet.backoff import Backoff
from borgish.borglet.entry import Entry, moment, past_moment
from borgish.borglet.probe import first_probe
from borgish.borglet.transitions import Stage
from borgish.clock import Now


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
    )


def from_entry(entry: Entry, now: Now) -> Attempt:
    """Return the attempt as it was; its runtime has yet to say what became of its run."""
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
