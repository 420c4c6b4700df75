"""Tasks on machines that are down go elsewhere: they are evicted, and the scheduler does the rest.

Only of machines that this master itself has found silent: the one before may have set a machine down
that has come back since. And not in the first minute of a master's life unless half of the machines
have answered it.

Not when so much is silent that the fault is more likely ours: with all machines, or with half and at
least three of them, unreachable, everything is left as it is (Borg section 4 limits the rate for this
reason: mass failure and partition look alike). When such a failure ends, machines come back one after
another; so one that has just come back counts as unreachable a little longer, or the first to return
would cost the others their tasks.
"""

import math
from collections.abc import Iterator

from borgish.cell.commands import Command, EvictTasks
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import Eviction

FROZEN_SHARE = 0.5
FROZEN_MACHINES_MIN = 3


def reconcile(
    cell: Cell, observed: Observed, names: frozenset[str] | None, settings: ReconcileSettings, now: Now
) -> Iterator[Command]:
    """Evict what stands on machines that are down."""
    looked_at = cell.placed if names is None else sorted(names & cell.placed.keys())
    lost = now.mono - settings.down_after_seconds
    stranded = [name for name in looked_at if cell.placed[name] and _is_lost(cell, observed, name, lost)]
    if (
        not stranded
        or is_frozen(cell, observed, settings, now)
        or not _has_settled(cell, observed, settings, now)
    ):
        return
    for name in sorted(stranded):
        reason = f"{name} is down: {cell.machines[name].reason}"
        for job, indexes in _by_job(cell.placed[name]).items():
            yield EvictTasks(job, tuple(indexes), Eviction.MACHINE_LOST, reason)


def is_frozen(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> bool:
    """Return whether so many machines are down, or were a moment ago, that none of their tasks is moved."""
    thawed = now.mono - settings.thaw_seconds
    failed = sum(
        not machine.up or _returned(observed, name) > thawed for name, machine in cell.machines.items()
    )
    return failed == len(cell.machines) or (
        failed >= FROZEN_MACHINES_MIN and failed >= FROZEN_SHARE * len(cell.machines)
    )


def _returned(observed: Observed, name: str) -> float:
    seen = observed.machines.get(name)
    return seen.returned if seen and seen.returned else -math.inf


def _is_lost(cell: Cell, observed: Observed, name: str, lost: float) -> bool:
    """Return whether a machine is down and was not heard since ``lost`` (monotonic), though asked."""
    seen = observed.machines[name]
    return not cell.machines[name].up and max(seen.heard, seen.watched_since) < lost


def _has_settled(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> bool:
    if now.mono - settings.led_since >= settings.election_grace_seconds:
        return True
    answered = sum(1 for name in cell.machines if name in observed.machines and observed.machines[name].heard)
    return 2 * answered >= len(cell.machines)


def _by_job(placed: set[tuple[str, int]]) -> dict[str, list[int]]:
    jobs: dict[str, list[int]] = {}
    for job, index in sorted(placed):
        jobs.setdefault(job, []).append(index)
    return jobs
