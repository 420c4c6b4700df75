"""Sums over the tasks of a cell, kept so that a reading costs what changed since the one before.

Whoever keeps a tally tells it what changed. One that nobody tells must not outlive one reading.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf

from borgish.api.views.sums import CellSums, total
from borgish.api.views.tasks import is_up, phase_of, seen_attempt
from borgish.cell.model import Cell, Job, Task
from borgish.cell.moves import Cursor
from borgish.cell.observed import Observed
from borgish.cell.ordered import Ordered
from borgish.cell.touched import Touched
from borgish.resources import Resources
from borgish.vocabulary import State, task_name

JOBS_BEHIND_MAX = 100_000
"""Of so many jobs a tally knows that they changed, where nobody reads for long; after more it begins anew."""

TASKS_BEHIND_MAX = 2_000
"""Sums that are behind by more than so many tasks would hold others up where somebody reads them."""


class Committed:
    """The limits of what is placed on one machine. What is in an alloc is in that alloc's."""

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._placed = Resources()

    def of(self, cell: Cell, machine: str) -> Resources:
        """Return the sum, at the cost of what moved since the last call."""
        moves = self._cursor.news(cell.moves.get(machine))
        if moves is None:
            jobs = cell.jobs
            placed = ((jobs[key], jobs[key].tasks[index]) for key, index in cell.placed.get(machine, ()))
            self._placed = total(
                (job.spec_of(task).needs(task.index), 1) for job, task in placed if task.alloc < 0
            )
        elif moves:
            came = ((each.spec.needs(each.index), each.tasks) for each in moves if each.alloc < 0)
            self._placed = total([(self._placed, 1), *came])
        arriving = cell.arriving.get(machine)
        if not arriving:
            return self._placed
        return total([(self._placed, 1), *((cell.jobs[key].spec.needs(index), 1) for key, index in arriving)])


class Tally:
    """The sums of a whole cell. The master keeps one, and tells it what each turn changed."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.sums = CellSums()
        self._committed: dict[str, Committed] = {}  # by machine
        self._fullness: dict[str, float] = {}  # by machine
        self._stale_machines: set[str] | None = None  # to be looked at again; None: all
        self._behind = 0  # about so many tasks changed since
        self._rest: list[tuple[str, int]] = []  # jobs whose tasks, from an index on, were never looked at
        self._up: dict[str, set[int]] = {}  # by job: the indexes of those that are up
        self._jobs: Ordered[tuple[bool, int, str]] = Ordered()  # by whether they need a look, and by age
        self._names: Ordered[str] = Ordered()  # of all jobs
        self._stale: dict[str, set[int]] | None = None  # by job: to be looked at again; None: all

    def note(self, touched: Touched, seen: Mapping[str, Iterable[int]]) -> None:
        """Note what a step changed; ``seen`` are tasks, as indexes by job, of which something else was
        seen."""
        self.sums.note(touched)
        if (stale := self._stale) is None or self._stale_machines is None:
            return
        self._stale_machines.update(touched.placements, touched.machines, touched.machines_gone)
        for key in touched.jobs:
            stale.setdefault(key, set())
        for tasks in (touched.tasks, seen):
            for key, indexes in tasks.items():
                self._note(stale, key, indexes)
        for key in (*touched.jobs_gone, *touched.tasks_gone):
            self._note(stale, key, self._up.get(key, ()))
        if len(stale) > JOBS_BEHIND_MAX:
            self._begin()

    def _note(self, stale: dict[str, set[int]], key: str, indexes: Iterable[int]) -> None:
        known = stale.setdefault(key, set())
        self._behind -= len(known)
        known.update(indexes)
        self._behind += len(known)

    @property
    def is_behind(self) -> bool:
        """Whether so much has changed that a reading would hold others up."""
        return self._stale is None or bool(self._rest) or self._behind > TASKS_BEHIND_MAX

    def fill(self, cell: Cell, observed: Observed) -> None:
        """Bring the sums up to date."""
        self.fill_some(cell, observed, inf)

    def fill_some(self, cell: Cell, observed: Observed, tasks_max: float) -> None:
        """Bring them nearer to it: look at about so many tasks."""
        self.sums.fill(cell, tasks_max)
        if self._stale is None or self._stale_machines is None:
            self._stale, self._stale_machines = {}, set(cell.machines)
            self._rest = [(key, 0) for key in cell.jobs]
        left = tasks_max - self._fill_machines(cell, self._stale_machines, tasks_max)
        changed = set[str]()
        while self._stale and left > 0:
            key, indexes = self._stale.popitem()
            if len(indexes) > left:
                looked_at = set(islice(indexes, int(left)))
                self._stale[key] = indexes - looked_at
                indexes = looked_at
            changed.add(key)
            self._behind -= len(indexes)
            left -= 1 + len(indexes)
            if there := cell.jobs.get(key):
                self._look_again(observed, there, indexes)
            else:
                self._up.pop(key, None)
        while self._rest and left > 0:
            key, begin = self._rest.pop()
            changed.add(key)
            if (there := cell.jobs.get(key)) is None:
                continue
            end = int(max(begin, min(len(there.tasks), begin + left)))
            self._look_again(observed, there, range(begin, end))
            left -= 1 + end - begin
            if end < len(there.tasks):
                self._rest.append((key, end))
        self._jobs.change({key: self._rank(cell, observed, key) for key in changed})
        self._names.change({key: key if key in cell.jobs else None for key in changed})

    def _fill_machines(self, cell: Cell, stale: set[str], tasks_max: float) -> int:
        """Look again at machines until about so many tasks were looked at; return how many were."""
        looked = 0
        while stale and looked < tasks_max:
            name = stale.pop()
            looked += 1 if name in self._committed else 1 + len(cell.placed.get(name, ()))
            if machine := cell.machines.get(name):
                self._fullness[name] = fullness(self.committed(cell, name), machine.capacity)
            else:
                self._fullness.pop(name, None)
                self._committed.pop(name, None)
        return looked

    def _rank(self, cell: Cell, observed: Observed, key: str) -> tuple[bool, int, str] | None:
        """Return where a job stands; None for one that is gone."""
        job = cell.jobs.get(key)
        return (self.needs_look(cell, observed, job), job.uid, key) if job is not None else None

    def needs_look(self, cell: Cell, observed: Observed, job: Job) -> bool:
        """Return whether tasks of a job wait for a place, are not up as far as that is known, or failed."""
        if job.failed or job.pending > len(cell.deferred.get(job.key, ())):
            return True
        return observed.known and self.up(job.key) < job.running

    def _look_again(self, observed: Observed, job: Job, indexes: Iterable[int]) -> None:
        up = self._up.setdefault(job.key, set())
        for index in indexes:
            is_there = index < len(job.tasks) and task_is_up(observed, job, job.tasks[index])
            (up.add if is_there else up.discard)(index)
        if not up:
            del self._up[job.key]

    def committed(self, cell: Cell, machine: str) -> Resources:
        """Return the limits of what is placed on one machine."""
        found = self._committed.get(machine)
        if found is None:
            found = self._committed[machine] = Committed()
        return found.of(cell, machine)

    def fullness(self, machine: str) -> float:
        """Return how full a machine is. Call ``fill`` before."""
        return self._fullness[machine]

    def jobs(self, limit: int) -> list[str]:
        """Return the jobs that need a look, then the others, of both the latest first. Call ``fill``
        before."""
        return [key for _, _, key in islice(self._jobs.last_first(), limit)]

    def jobs_after(self, name: str) -> Iterator[str]:
        """Yield the jobs whose names follow this one, in order. Call ``fill`` before."""
        return self._names.after(name)

    def up(self, job: str) -> int:
        """Return how many tasks of a job are up. Call ``fill`` before."""
        return len(self._up.get(job, ()))

    def is_up(self, job: str, index: int) -> bool:
        """Return whether a task is up. Call ``fill`` before."""
        return index in self._up.get(job, ())

    @property
    def all_up(self) -> int:
        """How many tasks of all jobs are up. Call ``fill`` before."""
        return sum(map(len, self._up.values()))


def task_is_up(observed: Observed, job: Job, task: Task) -> bool:
    """Return whether a task runs and does its work: healthy, or up where nothing probes it."""
    if task.state is not State.RUNNING:
        return False
    phase = phase_of(job, task, seen_attempt(observed, task_name(job.key, task.index), task))
    return is_up(job, phase)


def fullness(used: Resources, capacity: Resources) -> float:
    """Return the share (0 to 1) that is taken of cpu or ram, whichever is taken more."""
    return max(used.cpu_millis / (capacity.cpu_millis or 1), used.ram_bytes / (capacity.ram_bytes or 1))
