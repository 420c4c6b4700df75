"""Incoming attempts that have settled take over, and those that will not are given up (``cell/handover.py``).

Who is to be replaced is asked for by those who want it: rollouts, drains, taints, suitability.
"""

from collections.abc import Iterator

from borgish.cell.commands import Command, EndHandovers, EndIncoming, HandOverTasks
from borgish.cell.handover import is_still_wanted, is_up, may_take_over, why_given_up
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Go on with every handover, in order of jobs."""
    # A clock that leaps ahead must not have an incoming attempt miss its deadline.
    wall = now.wall_unless_set_on(Now(settings.led_since_wall, settings.led_since))
    judged = Now(wall, now.mono) if settings.led_since_wall else now
    for key, handovers in sorted(cell.handovers.items()):
        job = cell.jobs[key]
        ready: list[tuple[int, int]] = []
        unwanted: list[int] = []
        for index, handover in sorted(handovers.items()):
            machine = cell.machines.get(handover.machine)
            if not is_still_wanted(cell, job, job.tasks[index], handover):
                unwanted.append(index)
            elif machine is not None and machine.is_draining:
                reason = f"{machine.name} is to be empty"
                yield EndIncoming(key, (index,), (handover.attempt,), reason)
            elif is_up(observed, job, index, handover, now):
                if may_take_over(job, handover):
                    ready.append((index, handover.attempt))
            elif why := why_given_up(observed, job, index, handover, judged):
                yield EndIncoming(key, (index,), (handover.attempt,), why, has_failed=True)
        if ready:
            yield HandOverTasks(key, tuple(i for i, _ in ready), tuple(attempt for _, attempt in ready))
        if unwanted:
            yield EndHandovers(key, tuple(unwanted), "it need not be replaced any more")
