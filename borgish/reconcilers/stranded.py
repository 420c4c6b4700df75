"""Tasks on machines that are down go elsewhere: they are evicted, and the scheduler does the rest.

Not when so much is silent that the fault is more likely ours: with all machines, or with half and at
least three of them, unreachable, everything is left as it is (Borg section 4 limits the rate for this
reason: mass failure and partition look alike). And not in the first minute of a master's life unless
half of the machines have answered it.
"""

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
    stranded = [name for name in looked_at if cell.placed[name] and _is_down(cell, name)]
    if not stranded or is_frozen(cell) or not _has_settled(cell, observed, settings, now):
        return
    for name in sorted(stranded):
        reason = f"{name} is down: {cell.machines[name].reason}"
        for job, indexes in _by_job(cell.placed[name]).items():
            yield EvictTasks(job, tuple(indexes), Eviction.MACHINE_LOST, reason)


def is_frozen(cell: Cell) -> bool:
    """Return whether so many machines are down that none of their tasks is moved."""
    down = sum(not machine.up for machine in cell.machines.values())
    return down == len(cell.machines) or (
        down >= FROZEN_MACHINES_MIN and down >= FROZEN_SHARE * len(cell.machines)
    )


def _is_down(cell: Cell, name: str) -> bool:
    machine = cell.machines.get(name)
    return machine is None or not machine.up


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
