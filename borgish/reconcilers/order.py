"""Jobs start when those that they come after are as they are to be, or fail when they have waited too long
(``cell.order`` has the rules).

Of ten thousand jobs that wait, those are looked at again of whose predecessors something has changed: who
tells of that is the master's step (``cell.availability``). What only time can make so, as a program that has
just come up, and deadlines are looked at once a second.
"""

from collections.abc import Iterator

from borgish.cell.apps.order import after_words, is_met, is_settling, is_unheard, overdue_words
from borgish.cell.command import Command
from borgish.cell.commands import (
    EndWaits,
    FailWaits,
)
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import After
from borgish.vocabulary import Until

_Met = dict[tuple[str, Until | None], bool]

STARTED_MAX = 1000
"""So many jobs are let go at one step, at most."""


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Let go of what may start, and give up what has waited too long."""
    yield from _let_go(cell, observed, now, is_resync=True)
    late = {
        key: why
        for key in sorted(_overdue(cell, now))
        if not _is_early(cell.jobs[key], settings, now) and (why := _why_late(cell, observed, key, now))
    }
    if late:
        yield FailWaits(late)


def reconcile_between(
    cell: Cell, observed: Observed, _settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Let go of what may start since something of another job has changed."""
    return _let_go(cell, observed, now, is_resync=False)


def _let_go(cell: Cell, observed: Observed, now: Now, *, is_resync: bool) -> Iterator[Command]:
    known = observed.availability
    reasons: dict[str, str] = {}
    met: _Met = {}
    for key in _looked_at(cell, observed, is_resync=is_resync):
        for until, followers in cell.links.followers[key].items():
            if not _is_met(cell, observed, After(key, until), met, now):
                if known is not None and is_settling(cell, key, until):
                    known.settling.add(key)
                continue
            for job in sorted(followers):
                if len(reasons) >= STARTED_MAX:
                    break
                waited_for = cell.jobs[job].spec.after
                if all(_is_met(cell, observed, each, met, now) for each in waited_for):
                    words = ", ".join(after_words(cell, each) for each in waited_for)
                    reasons[job] = f"{words} {'is' if len(waited_for) == 1 else 'are'} there"
    if reasons:
        if known is not None:  # those that are left; and should it come to nothing, it is tried again
            known.changed.update(each.job for job in reasons for each in cell.jobs[job].spec.after)
        yield EndWaits(reasons)


def _looked_at(cell: Cell, observed: Observed, *, is_resync: bool) -> list[str]:
    """Return the jobs of which something has changed, of those that others wait for."""
    known, followers = observed.availability, cell.links.followers
    if known is None:
        return sorted(followers)
    found = known.changed & followers.keys()
    known.changed.clear()
    if is_resync:
        found |= known.settling & followers.keys()
        known.settling.clear()
    return sorted(found - known.settling)


def _is_met(cell: Cell, observed: Observed, after: After, met: _Met, now: Now) -> bool:
    asked = after.job, after.until
    if asked not in met:
        met[asked] = is_met(cell, observed, after, now)
    return met[asked]


def _overdue(cell: Cell, now: Now) -> Iterator[str]:
    return (key for key, deadline in cell.links.deadlines.items() if deadline <= now.wall)


def _is_early(job: Job, settings: ReconcileSettings, now: Now) -> bool:
    """Return whether a job began to wait under another master, and this one may not know yet how it is."""
    is_new = now.mono - settings.led_since < settings.election_grace_seconds
    return is_new and job.waits is not None and job.waits.since < settings.led_since_wall


def _why_late(cell: Cell, observed: Observed, key: str, now: Now) -> str:
    """Return for what a job has waited too long; "" where that is there meanwhile."""
    job = cell.jobs[key]
    assert job.waits is not None
    for each in job.spec.after:
        is_late = each.within_seconds and now.wall - job.waits.since >= each.within_seconds
        if is_late and not is_met(cell, observed, each, now) and not is_unheard(cell, observed, each):
            return overdue_words(cell, observed, each, now)
    return ""
