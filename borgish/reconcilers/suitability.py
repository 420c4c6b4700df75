"""Tasks leave machines that stopped meeting their constraints, where their job says ``recheck: evict``.

Those of other jobs stay, and that they should not is shown. Within the budgets of their jobs
(``cell.disruption``), and a few at each resync, so that there is a rate: one changed file can change the
attributes of all machines.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    BeginHandovers,
    EvictTasks,
)
from borgish.cell.machines.suitability import why_unsuitable
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import Departures
from borgish.clock import Now
from borgish.reconcilers.settings import EVICTIONS_MAX, ReconcileSettings
from borgish.vocabulary import Eviction, HandoverCause, State


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Evict what its machine no longer suits and may be disrupted, in order of jobs."""
    room, departures = EVICTIONS_MAX, Departures(cell, observed, now, settings.judged(now))
    for key in sorted(cell.swept.rechecked):
        for reason, indexes in _leaving(cell, cell.jobs[key]).items():
            if room <= 0:
                return
            going, replaced = departures.split(key, indexes, room)
            if going:
                yield EvictTasks(key, tuple(going), Eviction.UNSUITABLE, reason)
            if replaced:
                yield BeginHandovers(key, tuple(replaced), HandoverCause.UNSUITABLE, reason)
            room -= len(going) + len(replaced)


def _leaving(cell: Cell, job: Job) -> dict[str, list[int]]:
    """Return the indexes of the tasks that have to leave, by the reason."""
    reasons: dict[str, str] = {}  # by machine: most tasks of a large job share theirs
    leaving: dict[str, list[int]] = {}
    for task in job.tasks:
        if task.state is not State.RUNNING:
            continue
        if task.machine not in reasons:
            reasons[task.machine] = why_unsuitable(job.spec, cell.machines[task.machine])
        if reasons[task.machine]:
            leaving.setdefault(reasons[task.machine], []).append(task.index)
    return leaving
