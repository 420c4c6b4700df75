"""Whether a placement that is in the journal is one that today's scheduler would allow.

Which of the allowed ones it chose depended on what machines had said just then, which is not journalled.
What they said can only have forbidden more, so that what is forbidden here was so then.
"""

from collections.abc import Iterable

from borgish.cell.events import Entry, TasksPlaced
from borgish.cell.invariants import is_overfull
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.scheduler.equivalence import Classes
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import SchedulerSettings
from borgish.scheduler.scoring import ScoreCache
from borgish.vocabulary import task_name


class Allowed:
    """The scheduler's rows of one cell, kept up with it."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._fleet = Fleet.of(cell, Observed(), 0, 0.0)
        self._classes = Classes(shared=True)
        self._scores = ScoreCache(POLICIES[SchedulerSettings().policy](0))
        self._stale: set[str] = set()

    def objections(self, entry: Entry) -> list[str]:
        """Return what is wrong with the placements of an entry that the cell has not taken in yet."""
        placed = [event for event in entry.events if isinstance(event, TasksPlaced)]
        if placed:
            self._read()
        return [text for event in placed for text in self._of(event)]

    def taken_in(self, machines: Iterable[str]) -> list[str]:
        """Take note of machines that changed; return which of them hold more than they have."""
        there = {name for name in machines if name in self._cell.machines}
        self._stale |= set(machines)
        return [f"{name} holds more than it has" for name in sorted(there) if is_overfull(self._cell, name)]

    def _read(self) -> None:
        self._fleet.read(self._cell, Observed(), sorted(self._stale), 0.0)
        self._stale = set()

    def _of(self, event: TasksPlaced) -> list[str]:
        job = self._cell.jobs.get(event.job)
        if job is None or job.spec.inside:  # in an alloc its own room is told by the alloc
            return []
        found = []
        for index, machine in zip(event.indexes, event.machines, strict=True):
            row = self._fleet.row.get(machine, -1)
            kind = self._classes.of(self._cell, job.spec, index, self._fleet)
            if row < 0 or not self._scores.suits(self._fleet, kind, row):
                found.append(f"{task_name(event.job, index)} may not run on {machine}")
            elif not self._is_kept(machine) and not self._scores.takes(self._fleet, kind, row):
                found.append(f"{task_name(event.job, index)} has no room on {machine}")
        return found

    def _is_kept(self, machine: str) -> bool:
        """Return whether places are kept there, perhaps for these tasks: the rows count them as taken."""
        return bool(self._cell.promised.get(machine))
