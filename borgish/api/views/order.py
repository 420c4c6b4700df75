"""Jobs that start after others, and end with another, as the API shows them."""

from collections.abc import Iterator

from borgish.cell.apps.order import LATER, deferred, needs_somebody, unmet, wait_line, ways_on, why_unmet
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.resources import show_seconds
from borgish.text import instant, show_indexes
from borgish.wire.api import RefusalView


def order_refusal(cell: Cell, observed: Observed, job: Job) -> RefusalView | None:
    """Return for which jobs tasks of this one wait; None where they do not."""
    indexes = deferred(cell, job)
    if job.waits is None or not indexes:
        return None
    left = unmet(cell, observed, job)
    return RefusalView(
        job=job.key,
        tasks=len(indexes),
        indexes=show_indexes(indexes),
        text=wait_line(cell, observed, job),
        reasons={},
        hint=ways_on(cell, job, left),
        since=instant(job.waits.since),
        impossible=any(needs_somebody(cell, each) for each in left),
        in_order=True,
    )


def order_sentences(cell: Cell, observed: Observed, job: Job) -> Iterator[str]:
    """Say what a job waits for, since when and for how long at most; and what ends it."""
    waits = job.waits
    if waits is None:
        return
    left = unmet(cell, observed, job)
    yield f"It waits for other jobs since {instant(waits.since)}: it starts {wait_line(cell, observed, job)}."
    for each in left[1:]:
        if why := why_unmet(cell, observed, each, LATER):
            yield f"For {each.job}: {why}."
    yield from deadline_sentence(cell, observed, job)
    hint = ways_on(cell, job, left)
    yield f"{hint[:1].upper()}{hint[1:]}."


def deadline_sentence(cell: Cell, observed: Observed, job: Job) -> Iterator[str]:
    """Say when a job has waited for too long, if it ever has."""
    left = unmet(cell, observed, job) or job.spec.after
    bounds = [each for each in left if each.within_seconds]
    if job.waits is None or not bounds:
        return
    first = min(bounds, key=lambda each: each.within_seconds)
    at = instant(job.waits.since + first.within_seconds)
    yield f"It fails at {at}, when it has waited {show_seconds(first.within_seconds)} for {first.job}."
