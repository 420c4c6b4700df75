"""One pass over all that waits: which task goes where, and why the others do not.

The queue says whose turn it is. Tasks are placed in *windows*: a stretch of the queue whose tasks
need at most half of what is free, so that their order hardly decides who gets a place, and tasks of
one class in it can be placed together. As the cell fills, windows shrink to single tasks. (Where a
constraint makes a few machines scarce in a cell with much room, fairness is by window, not by task.)

This only plans. The arrays already hold what was planned; whoever carries the plan out says which
machines changed, and their rows are read again.
"""

from collections.abc import Iterable, Sequence

import msgspec

from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.scheduler.copies import copy_of
from borgish.scheduler.equivalence import Classes
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.passes import Pass
from borgish.scheduler.plan import Plan, joined
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.policy import Policy
from borgish.scheduler.preemption import Budget, Preemptions
from borgish.scheduler.queue import waiting_by_room
from borgish.scheduler.rooms import Rooms
from borgish.scheduler.sampling import Sampler
from borgish.scheduler.scoring import ScoreCache
from borgish.scheduler.settings import SchedulerSettings
from borgish.scheduler.trial import with_only
from borgish.spec.job import JobSpec

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
        self._fleet: Fleet | None = None
        self._rooms: Rooms | None = None
        self._use(POLICIES[self._settings.policy](self._seed))
        self._classes = Classes(shared=self._settings.equivalence_classes)
        self._look_again_at = 0.0
        self._planned: set[str] = set()  # machines with placements that were planned, not yet seen done

    def _use(self, policy: Policy) -> None:
        sampler = Sampler(self._seed) if self._settings.relaxed_randomisation else None
        self._policy = policy
        self._scores = ScoreCache(policy, sampler, enabled=self._settings.score_cache)

    def refresh(self, cell: Cell, observed: Observed, machines: Iterable[str]) -> None:
        """Read these machines again: their record, their placements or what was seen there changed."""
        if self._fleet is not None:
            names = sorted(set(machines))
            self._fleet.read(cell, observed, names, self._mono)
            self._planned.difference_update(names)
            if self._rooms is not None:
                self._rooms.refresh(names)

    def schedule(self, cell: Cell, observed: Observed, now: Now, budget: int = 20_000) -> Plan:
        """Return where waiting tasks go and why others wait; ``budget`` is how many tasks are tried."""
        self._mono = now.mono
        fleet = self._current(cell, observed)
        if now.mono >= self._look_again_at:
            self._look_again_at = now.mono + LOOK_AGAIN_SECONDS
            self._classes.look_again()
            if self._rooms is not None:
                self._rooms.look_again()
        waiting = waiting_by_room(cell)
        preemptions = Preemptions(cell, fleet, now, self._budget)
        run = Pass(
            cell, fleet, self._classes, self._scores, self._policy, preemptions, budget, waiting.pop("")
        )
        plan = run.plan(leaving(cell, observed))
        self._classes.forget_unused(run.used)
        self._note_planned(plan, cell)
        if waiting:
            plan = self._with_rooms(fleet, plan, cell, observed, waiting, run.budget_left)
        fleet.topology.forget_unused()
        return plan

    def _with_rooms(
        self,
        fleet: Fleet,
        plan: Plan,
        cell: Cell,
        observed: Observed,
        waiting: dict[str, list[str]],
        budget: int,
    ) -> Plan:
        """Return the plan, and what follows for tasks that are to run in alloc sets."""
        if self._rooms is None:
            self._rooms = Rooms(fleet, self._settings)
        self._rooms.refresh(self._planned)
        inner = list(self._rooms.plans(cell, observed, waiting, plan.preemptions, budget))
        for each in inner:
            self._note_planned(each, cell)
        allocs_come = any(placement.job in waiting for placement in plan.placements)
        whole = joined(plan, inner)
        return msgspec.structs.replace(whole, more=whole.more or allocs_come)

    def _note_planned(self, plan: Plan, cell: Cell) -> None:
        self._planned.update(name for placement in plan.placements for name in placement.machines)
        self._planned.update(name for promise in plan.promises for name in promise.machines if name)
        self._planned.update(cell.promised)

    def foresee(
        self,
        cell: Cell,
        observed: Observed,
        spec: JobSpec,
        unread: Iterable[str],
        now: Now,
        again: Sequence[int] = (),
    ) -> Plan:
        """Return the pass that would follow if a job were submitted now and nothing else waited.

        ``unread`` are machines that changed since they were refreshed; ``again`` are the dead tasks that
        the submission of a live job brings back, none for a new job. Nothing here changes.
        """
        other = Scheduler(self._seed, self._settings, self._budget)
        other._mono = now.mono
        other._use(self._policy.copy())
        if self._fleet is not None:
            other._fleet, other._planned = copy_of(self._fleet), set(self._planned)
            other.refresh(cell, observed, unread)
        other._current(cell, observed)
        return other.schedule(with_only(cell, spec, now, again), observed, now, budget=spec.tasks)

    def _current(self, cell: Cell, observed: Observed) -> Fleet:
        """Return the rows as the cell has them: a plan that was not carried out leaves no trace."""
        if self._fleet is None:
            self._fleet = Fleet.of(cell, observed, self._seed, self._mono)
            self._fleet.failure_domains = self._settings.failure_domains
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
