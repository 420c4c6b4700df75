"""Machines that are drained become empty: what runs there is evicted, and the scheduler places it elsewhere.

Who leaves when is ``cell.drains``; a few at each resync, so that there is a rate. Maintenance windows begin
to drain, and end, here. What is on a machine that is down is left to ``stranded``: it is either moved from
there, or decided on when the machine is back.
"""

from collections.abc import Iterator

from borgish.cell.commands import Command, EvictTasks, TurnWindows
from borgish.cell.drains import Drains, drain_words, turned
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import EVICTIONS_MAX, ReconcileSettings
from borgish.vocabulary import Eviction


def reconcile(cell: Cell, observed: Observed, _settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Turn windows, and evict what has to leave and may, in order of machines and jobs."""
    marked = sorted((m for m in cell.machines.values() if m.drains), key=lambda machine: machine.name)
    if turning := tuple(machine.name for machine in marked if turned(machine, now) != machine.drains):
        yield TurnWindows(turning)
    room, drains = EVICTIONS_MAX, Drains(cell, observed, now)
    for machine in marked:
        if not (machine.is_draining and machine.up):
            continue
        going: dict[str, list[int]] = {}
        for each in drains.leaving(machine):
            if not each.why and room > 0:
                going.setdefault(each.job, []).append(each.index)
                room -= 1
        why = next(drain_words(drain) for drain in machine.drains if drain.begun)
        for job, indexes in going.items():
            yield EvictTasks(job, tuple(indexes), Eviction.DRAIN, f"{machine.name} is to be empty: {why}")
