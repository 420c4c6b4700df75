"""Places tasks inside alloc sets: the ordinary pass, on rows that are allocs.

A set's allocs are placed with everything else. What runs inside comes after that and takes nothing from
anybody but its alloc (and ports from its machine), so it need not wait for its turn among the others.
Nobody is preempted inside an alloc.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from borgish.cell.allocs import is_alloc_set
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.scheduler.fleet import AllocFleet, Fleet
from borgish.scheduler.passes import Memory, Pass
from borgish.scheduler.plan import Placement, Plan, Preemption, Refusal
from borgish.scheduler.preemption import NoPreemptions
from borgish.vocabulary import split_task_name, task_name

ALLOC_SETS_KEPT = 64
"""Rows of so many alloc sets are kept from pass to pass; of others they are made anew."""


class AllocSet:
    """One alloc set: its rows, and all that a pass keeps. ``stale`` are machines to read again."""

    def __init__(self, fleet: AllocFleet, memory: Memory) -> None:
        self.fleet, self.memory = fleet, memory
        self.stale: set[str] = set()

    def plan(
        self, cell: Cell, observed: Observed, jobs: list[str], leaving: list[str], budget: int
    ) -> tuple[Plan, int]:
        """Return where waiting tasks of jobs go, in allocs but those leaving, and the budget that is left."""
        self.fleet.read_on(cell, observed, sorted(self.stale))
        self.stale.clear()
        self.fleet.close(cell, leaving)
        run = Pass(cell, self.memory, NoPreemptions(), budget, jobs)
        plan = run.plan(frozenset())
        self.memory.classes.forget_unused(run.used)
        placements = tuple(_in_allocs(cell, each) for each in plan.placements)
        return msgspec.structs.replace(plan, placements=placements), run.budget_left


def _in_allocs(cell: Cell, placement: Placement) -> Placement:
    """Return where tasks go: on the machines of the allocs that are named."""
    allocs = tuple(split_task_name(name)[1] for name in placement.machines)
    tasks = cell.jobs[cell.jobs[placement.job].spec.inside].tasks
    machines = tuple(tasks[alloc].machine for alloc in allocs)
    return msgspec.structs.replace(placement, machines=machines, allocs=allocs)


class AllocSets:
    """The alloc sets in use."""

    def __init__(self, machines: Fleet, memory_of: Callable[[Fleet], Memory]) -> None:
        """Use the rows of all machines; ``memory_of`` makes what is kept for the rows of one set."""
        self._machines, self._memory_of = machines, memory_of
        self._alloc_sets: dict[str, AllocSet] = {}  # those used last come last

    def refresh(self, machines: Iterable[str]) -> None:
        """Read the allocs on these machines again, when they are next asked for."""
        names = set(machines)
        for alloc_set in self._alloc_sets.values():
            alloc_set.stale |= names

    def retry_failed(self) -> None:
        """Take nothing as known to fail."""
        for alloc_set in self._alloc_sets.values():
            alloc_set.memory.classes.retry_failed()

    def plans(
        self,
        cell: Cell,
        observed: Observed,
        waiting: dict[str, list[str]],
        preempted: Iterable[Preemption],
        budget: int,
    ) -> Iterator[Plan]:
        """Yield a plan for each alloc set that jobs wait to run in; ``preempted`` are about to leave."""
        leaving: dict[str, list[str]] = {}
        for each in preempted:
            leaving.setdefault(each.job, []).extend(task_name(each.job, index) for index in each.indexes)
        for key in sorted(waiting):
            gone = leaving.get(key, [])
            if nowhere := _nowhere(cell, key, len(gone)):
                yield Plan(refusals={job: _refusals(cell, job, *nowhere) for job in sorted(waiting[key])})
                continue
            alloc_set = self._alloc_set(cell, key)
            plan, budget = alloc_set.plan(cell, observed, waiting[key], gone, budget)
            self.refresh(name for placement in plan.placements for name in placement.machines)
            yield plan

    def _alloc_set(self, cell: Cell, key: str) -> AllocSet:
        alloc_set = self._alloc_sets.pop(key, None)
        if alloc_set is None:
            fleet = AllocFleet(self._machines, key)
            alloc_set = AllocSet(fleet, self._memory_of(fleet))
            alloc_set.stale = {task.machine for task in cell.jobs[key].tasks if task.machine}
        self._alloc_sets[key] = alloc_set
        if len(self._alloc_sets) > ALLOC_SETS_KEPT:
            del self._alloc_sets[next(iter(self._alloc_sets))]
        return alloc_set


def _nowhere(cell: Cell, key: str, leaving: int) -> tuple[str, str] | None:
    """Return why nothing can run in an alloc set, and the way out; None when it has allocs that stay."""
    allocs = cell.jobs.get(key)
    if allocs is None:
        return f"there is no alloc set {key} any more", "submit it again, or kill this job"
    if not is_alloc_set(allocs):
        return f"{key} is a job now and no alloc set", "submit the alloc set again, or kill this job"
    if allocs.running > leaving:
        return None
    if not allocs.pending + leaving:
        return f"the alloc set {key} is dead", f"`borgctl job restart {key}` brings it back"
    return f"no alloc of {key} has a place yet", f"`borgctl why {key}` says what they wait for"


def _refusals(cell: Cell, job: str, text: str, hint: str) -> tuple[Refusal, ...]:
    return (Refusal(job, tuple(sorted(cell.waiting[job])), 0, {}, text, hint),)
