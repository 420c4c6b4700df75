"""Tasks leave machines with a taint that evicts: at once, or when the time that they tolerate is over. To
empty a machine whatever its tasks tolerate is a drain.

Within the budgets of their jobs (``cell.disruption``), and a few at each resync, so that there is a rate:
whoever taints a whole row of machines wants them emptied, not everything stopped at once.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    BeginHandovers,
    EvictTasks,
)
from borgish.cell.machines.suitability import evict_at
from borgish.cell.model import Cell, Machine
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import Departures
from borgish.clock import Now
from borgish.reconcilers.settings import EVICTIONS_MAX, ReconcileSettings
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, HandoverCause, TaintEffect


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Evict what may not stay and may be disrupted, in order of machines and jobs."""
    room, departures = EVICTIONS_MAX, Departures(cell, observed, now, settings.judged(now))
    tainted = [machine for machine in cell.machines.values() if machine.taints]  # seldom any of very many
    evicting = (m for m in tainted if any(taint.effect is TaintEffect.EVICT for taint in m.taints))
    for machine in sorted(evicting, key=lambda machine: machine.name):
        for (job, reason), indexes in leaving(cell, machine, now).items():
            if room <= 0:
                return
            going, replaced = departures.split(job, indexes, room)
            if going:
                yield EvictTasks(job, tuple(going), Eviction.TAINTED, reason)
            if replaced:
                yield BeginHandovers(job, tuple(replaced), HandoverCause.TAINTED, reason)
            room -= len(going) + len(replaced)


def leaving(cell: Cell, machine: Machine, now: Now) -> dict[tuple[str, str], list[int]]:
    """Return the tasks whose time on a machine is over, by their job and the reason."""
    leaving: dict[tuple[str, str], list[int]] = {}
    for key, index in sorted(cell.placed[machine.name]):
        job = cell.jobs[key]
        reason = _why(job.spec, machine, job.tasks[index].since, now)
        if reason:
            leaving.setdefault((key, reason), []).append(index)
    return leaving


def _why(spec: JobSpec, machine: Machine, placed_at: float, now: Now) -> str:
    for taint in machine.taints:
        at = evict_at(spec.tolerations, (taint,), placed_at)
        if at is not None and at <= now.wall:
            return f"{machine.name} is tainted {taint}"
    return ""
