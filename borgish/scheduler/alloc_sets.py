"""Places tasks inside alloc sets: the ordinary pass, on rows that are allocs.

A set's allocs are placed with everything else. What runs inside comes after that and takes nothing from
anybody but its alloc (and ports from its machine), so it need not wait for its turn among the others.
Nobody is preempted inside an alloc.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import is_alloc_set
from borgish.clock import Now
from borgish.scheduler.fleet import AllocFleet, Fleet
from borgish.scheduler.passes import Memory, Pass
from borgish.scheduler.pending import PendingQueue
from borgish.scheduler.plan import Placement, Plan, Preemption, Refusal
from borgish.scheduler.preemption import Preemptions
from borgish.vocabulary import split_task_name, task_name

ALLOC_SETS_KEPT = 64
"""Rows of so many alloc sets are kept from pass to pass; of others they are made anew."""


class AllocSet(msgspec.Struct):
    """One alloc set: its rows, and all that is kept of it. ``stale`` are machines to read again."""

    fleet: AllocFleet
    memory: Memory
    stale: set[str]


class AllocSets:
    """The alloc sets in use."""

    def __init__(self, memory_of: Callable[[Fleet], Memory]) -> None:
        """``memory_of`` makes what is kept for the rows of one set."""
        self._memory_of = memory_of
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
        now: Now,
        machines: Fleet,
        waiting: Mapping[str, Collection[str]],
        preempted: Iterable[Preemption],
        budget: int,
    ) -> Iterator[Plan]:
        """Yield a plan for each alloc set that jobs wait to run in; ``preempted`` are about to leave.

        ``machines`` are the rows of all machines, which hold what allocs share.
        """
        leaving: dict[str, list[str]] = {}
        for each in preempted:
            leaving.setdefault(each.job, []).extend(task_name(each.job, index) for index in each.indexes)
        for key in sorted(waiting):
            gone = leaving.get(key, [])
            if nowhere := _nowhere(cell, key, len(gone)):
                yield Plan(refusals={job: _refusals(cell, job, *nowhere) for job in sorted(waiting[key])})
                continue
            alloc_set = self._alloc_set(cell, machines, key)
            fleet = alloc_set.fleet
            fleet.read_on(cell, observed, sorted(alloc_set.stale))
            alloc_set.stale.clear()
            fleet.close(cell, gone)
            queue = PendingQueue(waiting[key])  # inside allocs few wait: it is made anew
            run = Pass(cell, alloc_set.memory, Preemptions(cell, fleet, now), budget, queue, now)
            plan = run.plan(leaving=frozenset())
            placements = tuple(_on_machines(cell.jobs[key], each) for each in plan.placements)
            self.refresh(name for placement in placements for name in placement.machines)
            budget = run.budget_left
            yield msgspec.structs.replace(plan, placements=placements)

    def _alloc_set(self, cell: Cell, machines: Fleet, key: str) -> AllocSet:
        """Return what is kept of a set, as the one used last."""
        found = self._alloc_sets.pop(key, None)
        if found is None:
            fleet = AllocFleet(machines, key)
            stale = {task.machine for task in cell.jobs[key].tasks if task.machine}
            found = AllocSet(fleet, self._memory_of(fleet), stale)
        self._alloc_sets[key] = found
        if len(self._alloc_sets) > ALLOC_SETS_KEPT:
            del self._alloc_sets[next(iter(self._alloc_sets))]
        return found


def _on_machines(allocs: Job, placement: Placement) -> Placement:
    """Return a placement in allocs, which are named, as one on their machines."""
    numbers = tuple(split_task_name(name)[1] for name in placement.machines)
    machines = tuple(allocs.tasks[alloc].machine for alloc in numbers)
    return msgspec.structs.replace(placement, machines=machines, allocs=numbers)


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
