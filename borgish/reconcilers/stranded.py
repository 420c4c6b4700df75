"""Tasks on machines that are down go elsewhere: they are evicted, and the scheduler reschedules them.

Only of machines that this master itself has found without an answer: the one before may have set a machine
down that has come back since. And not in the first minute of a master's life unless half of the machines
have answered it.

Not when so much is silent that the fault is more likely ours: with all machines, or with half and at
least three of them, unreachable, everything is left as it is (Borg section 4 limits the rate for this
reason: mass failure and partition look alike). When machines fail one after another, most of them are not
down yet when the first is; so all that missed their last polls count. When such a failure ends, machines
come back one after another; so one that has just come back counts as unreachable a little longer, or the
first to return would cost the others their tasks.

And only a few machines at a time (the rate limit), those with most production first: what seems to be a few
dead machines may be the beginning of more, and whether it is a mass failure is judged again before the next
few. When machines were given up is in the journal (``MachineLost``), so a new master goes on at the same
rate, by a clock that no step of the wall clock moves. A machine is given up whole, in one decision.
"""

import math
from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import LoseMachine
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.reconcilers.settings import LOST_SECONDS, ReconcileSettings, is_mass_failure


def reconcile(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> Iterator[Command]:
    """Give up machines that are down."""
    down = (
        name
        for name, machine in cell.machines.items()
        if not machine.up and (cell.placed[name] or name in cell.arriving)
    )
    # This master, too, has to be without an answer: the one before may have set it down.
    lost = [name for name in down if settings.is_gone(observed.machines[name], now)]
    if (
        not lost
        or is_mass_failure(cell, observed, settings, now)
        or not _has_heard_half(cell, observed, settings, now)
    ):
        return
    at = settings.steady_wall(now)
    lost.sort(key=lambda name: (-_production(cell, name), name))
    for name in lost[: loss_budget(cell, settings, at)]:
        yield LoseMachine(name, cell.machines[name].reason, at)


def loss_budget(cell: Cell, settings: ReconcileSettings, at: float) -> int:
    """Return how many machines may be given up now. ``at`` is ``settings.steady_wall``."""
    share = math.floor(settings.lost_share_max * len(cell.machines) + 1e-9)  # 0.29 of 100 are 29
    recent = sum(abs(at - lost_at) < LOST_SECONDS for lost_at in cell.losses)
    return max(0, max(1, share) - recent)


def _has_heard_half(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> bool:
    if now.mono - settings.led_since >= settings.election_grace_seconds:
        return True
    answered = sum(1 for name in cell.machines if name in observed.machines and observed.machines[name].heard)
    return 2 * answered >= len(cell.machines)


def _production(cell: Cell, machine: str) -> int:
    """Return how many tasks of production, or above, a machine holds."""
    bands = cell.rules.bands
    return sum(bands.is_prod(cell.jobs[key].spec.priority) for key, _ in cell.placed[machine])
