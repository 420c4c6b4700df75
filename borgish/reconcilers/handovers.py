"""Incoming attempts that have settled take over, and those that will not are given up.

When that is so says ``cell/updates/handover.py``. Who is to be replaced is asked for by those who want it:
rollouts, drains, taints, suitability.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    EndHandovers,
    EndIncoming,
    HandOverTasks,
)
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import (
    incoming_of,
    is_still_wanted,
    is_up,
    may_take_over,
    why_given_up,
    why_not_there,
)
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Go on with every handover, in order of jobs."""
    judged = settings.judged(now)
    for key, handovers in sorted(cell.handovers.items()):
        job = cell.jobs[key]
        ready: list[tuple[int, int, int]] = []
        unwanted: list[int] = []
        for index, handover in sorted(handovers.items()):
            machine = cell.machines.get(handover.machine)
            if not is_still_wanted(cell, job, job.tasks[index], handover):
                unwanted.append(index)
            elif machine is not None and (why := why_not_there(job, machine)):
                yield EndIncoming(key, (index,), (handover.attempt,), why)
            elif is_up(cell, observed, job, index, handover, now):
                if may_take_over(job, handover):
                    seen = incoming_of(observed, job, index, handover)
                    ready.append((index, handover.attempt, seen.restarts if seen is not None else 0))
            elif why := why_given_up(observed, job, index, handover, judged):
                yield EndIncoming(key, (index,), (handover.attempt,), why, has_failed=True)
        if ready:
            indexes, attempts, restarts = zip(*ready, strict=True)
            yield HandOverTasks(key, indexes, attempts, restarts)
        if unwanted:
            yield EndHandovers(key, tuple(unwanted), "it need not be replaced any more")
