"""One pass over all that waits: which task goes where, and why the others do not.

The queue says whose turn it is. Tasks are placed in *windows*: a stretch of the queue whose tasks
need at most half of what is free, so that their order hardly decides who gets a place, and tasks of
one class in it can be placed together. As the cell fills, windows shrink to single tasks. (Where a
constraint makes a few machines scarce in a cell with much room, fairness is by window, not by task.)

This only plans. The arrays already hold what was planned; whoever carries the plan out says which
machines changed, and their rows are read again.
"""

from collections.abc import Iterable

from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.scheduler.equivalence import Classes
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.passes import Pass
from borgish.scheduler.plan import Plan
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.preemption import Budget, Preemptions
from borgish.scheduler.sampling import Sampler
from borgish.scheduler.scoring import ScoreCache
from borgish.scheduler.settings import SchedulerSettings

LOOK_AGAIN_SECONDS = 60.0
"""All that waits is looked at again so often, should a change that helps it have gone unseen."""


class Scheduler:
    """Plans passes. Keeps nothing but what follows from cell and observed."""

    def __init__(
        self, seed: int = 0, settings: SchedulerSettings | None = None, budget: Budget | None = None
    ) -> None:
        """Use a seed for ties; ``budget`` says whom preemption may disrupt: without one, everybody."""
        self._seed = seed
        self._settings = settings or SchedulerSettings()
        self._budget = budget
        self._mono = 0.0
        self.forget()

    def forget(self) -> None:
        """Drop all that is kept, as when the cell was replaced by another."""
        settings = self._settings
        self._fleet: Fleet | None = None
        self._policy = POLICIES[settings.policy](self._seed)
        self._classes = Classes(shared=settings.equivalence_classes)
        sampler = Sampler(self._seed) if settings.relaxed_randomisation else None
        self._scores = ScoreCache(self._policy, sampler, enabled=settings.score_cache)
        self._look_again_at = 0.0
        self._planned: set[str] = set()  # machines with placements that were planned, not yet seen done

    def refresh(self, cell: Cell, observed: Observed, machines: Iterable[str]) -> None:
        """Read these machines again: their record, their placements or what was seen there changed."""
        if self._fleet is not None:
            for name in sorted(machines):
                self._fleet.read(cell, observed, name, self._mono)
                self._planned.discard(name)

    def schedule(self, cell: Cell, observed: Observed, now: Now, budget: int = 20_000) -> Plan:
        """Return where waiting tasks go and why others wait; ``budget`` is how many tasks are tried."""
        self._mono = now.mono
        fleet = self._current(cell, observed)
        if now.mono >= self._look_again_at:
            self._look_again_at = now.mono + LOOK_AGAIN_SECONDS
            self._classes.look_again()
        preemptions = Preemptions(cell, fleet, now, self._budget)
        run = Pass(cell, fleet, self._classes, self._scores, self._policy, preemptions, budget)
        plan = run.plan(leaving(cell, observed))
        self._planned.update(name for placement in plan.placements for name in placement.machines)
        self._planned.update(name for promise in plan.promises for name in promise.machines if name)
        self._planned.update(cell.promised)
        self._classes.forget_unused(run.used)
        fleet.topology.forget_unused()
        return plan

    def _current(self, cell: Cell, observed: Observed) -> Fleet:
        """Return the rows as the cell has them: a plan that was not carried out leaves no trace."""
        if self._fleet is None:
            self._fleet = Fleet.of(cell, observed, self._seed, self._mono)
            self._planned.clear()
        fleet = self._fleet
        unblocked = {fleet.names[row] for row, until in fleet.blocked.items() if until <= self._mono}
        self.refresh(cell, observed, self._planned | unblocked)
        return fleet


def leaving(cell: Cell, observed: Observed) -> frozenset[str]:
    """Return the machines, of those where places are kept, that have attempts which have yet to end."""
    return frozenset(name for name in cell.promised if _has_leaving(cell, observed, name))


def _has_leaving(cell: Cell, observed: Observed, name: str) -> bool:
    seen = observed.machines.get(name)
    return seen is not None and any(
        attempt.ended is None and not cell.is_current(name, *key) for key, attempt in seen.attempts.items()
    )
