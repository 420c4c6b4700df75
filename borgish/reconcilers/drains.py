"""Machines that are drained become empty: what runs there is evicted, and the scheduler places it elsewhere.

Who leaves when is ``cell.drains``; a few at each resync, so that there is a rate. Maintenance windows begin
to drain, and end, here. What is on a machine that is down is left to ``stranded``: it is either moved from
there, or decided on when the machine is back.
"""

from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import (
    BeginHandovers,
    EvictTasks,
    TurnWindows,
)
from borgish.cell.machines.drains import Drains, drain_words, turned
from borgish.cell.model import Cell, Machine
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import EVICTIONS_MAX, ReconcileSettings
from borgish.vocabulary import Eviction, HandoverCause

MACHINES_MAX = 500
"""So many machines are looked at in one resync, where more are drained those after them in the next: a cell
that is drained whole has 200,000 tasks that cannot leave."""


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Turn windows, and evict what has to leave and may, in order of machines and jobs."""
    marked = sorted((m for m in cell.machines.values() if m.drains), key=lambda machine: machine.name)
    if turning := tuple(machine.name for machine in marked if turned(machine, now) != machine.drains):
        yield TurnWindows(turning)
    room, drains = EVICTIONS_MAX, Drains(cell, observed, now, settings.judged(now))
    for machine in _in_turn([m for m in marked if m.is_draining and m.up and cell.placed[m.name]], now):
        going, replaced = dict[str, list[int]](), dict[str, list[int]]()
        for each in drains.leaving(machine):
            if not each.why and room > 0:
                (replaced if each.is_replaced else going).setdefault(each.job, []).append(each.index)
                room -= 1
        why = next(drain_words(drain) for drain in machine.drains if drain.begun)
        reason = f"{machine.name} is to be empty: {why}"
        for job, indexes in going.items():
            yield EvictTasks(job, tuple(indexes), Eviction.DRAIN, reason)
        for job, indexes in replaced.items():
            yield BeginHandovers(job, tuple(indexes), HandoverCause.DRAIN, reason)


def _in_turn(machines: list[Machine], now: Now) -> list[Machine]:
    first = int(now.mono) * MACHINES_MAX % len(machines) if len(machines) > MACHINES_MAX else 0
    return (machines[first:] + machines[:first])[:MACHINES_MAX]
