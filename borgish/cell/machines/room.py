"""Whether some machine has room for a task that is about to leave another. Pure.

An upper bound, by what is cheap to know of the cell: what does not find room here would be refused by the
scheduler, too; what finds some may still be refused there, for ports, devices or rules of spreading.
"""

from borgish.cell.machines.suitability import unmet_constraints, untolerated
from borgish.cell.model import Cell, Job, Machine
from borgish.cell.tasks.allocs import priority_of
from borgish.clock import Now
from borgish.resources import Resources
from borgish.vocabulary import TaintEffect

LOOKS_MAX = 1000
"""So many machines are looked at in all, at a time: each second those after the ones before, in a large
cell. Only a cell that is full is looked through."""


class Room:
    """What is free for tasks that leave their machines. What is taken is free no more."""

    def __init__(self, cell: Cell, now: Now) -> None:
        self._cell, self._now = cell, now
        self._open: list[Machine] | None = None  # those that take new tasks
        self._free: dict[tuple[str, int], Resources] = {}  # by machine, for tasks of this priority
        self._none: set[tuple[str, int]] = set()  # there is no room for these: job, index of its own amounts
        self._looks = LOOKS_MAX

    def take(self, job: Job, index: int) -> bool:
        """Find room for a task, and take it."""
        alike = (job.key, index if index in job.spec.overrides else -1)
        if alike in self._none:
            return False
        needs, priority = job.spec.needs(index), priority_of(self._cell, job, index)
        for machine in self._machines():
            if self._looks <= 0:
                break
            self._looks -= 1
            if not _suits(job, machine):
                continue
            free = self._free_of(machine, priority)
            if needs.within(free):
                self._looks += 1  # what is found at once may be looked for as often as it takes
                for key in [key for key in self._free if key[0] == machine.name]:
                    self._free[key] = self._free[key].plus(needs, -1)
                return True
        self._none.add(alike)
        return False

    def _machines(self) -> list[Machine]:
        if self._open is None:
            there = [m for m in self._cell.machines.values() if m.up and m.takes_tasks]
            first = int(self._now.mono) * LOOKS_MAX % len(there) if len(there) > LOOKS_MAX else 0
            self._open = there[first:] + there[:first]
        return self._open

    def _free_of(self, machine: Machine, priority: int) -> Resources:
        """Return what a task could have, if it preempts all that it may."""
        least = min(priority, self._cell.rules.bands.production)
        if (machine.name, least) not in self._free:
            self._free[machine.name, least] = free_on(self._cell, machine, least)
        return self._free[machine.name, least]


def free_on(cell: Cell, machine: Machine, priority: int) -> Resources:
    """Return what no task of this priority or above has on a machine. Walks the tasks there."""
    free = machine.capacity
    for key, index in cell.placed[machine.name]:
        job = cell.jobs[key]
        task = job.tasks[index]
        if task.alloc < 0 and priority_of(cell, job, index) >= priority:
            free = free.plus(job.spec_of(task).needs(index), -1)
    for key, index in cell.arriving.get(machine.name, ()):  # which nobody preempts
        free = free.plus(cell.jobs[key].spec.needs(index), -1)
    return free


def _suits(job: Job, machine: Machine) -> bool:
    refusing = tuple(taint for taint in machine.taints if taint.effect is not TaintEffect.AVOID)
    return not any(unmet_constraints(job.spec, machine)) and not any(
        untolerated(job.spec.tolerations, refusing)
    )
