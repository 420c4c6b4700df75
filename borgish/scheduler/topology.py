"""How many tasks of whom are where: what spread and affinity look at, kept up to date as tasks come and go.

A *counter* counts the tasks of those jobs that some condition chooses, on each machine. What it says
of racks or zones is summed from there when asked. A change on a machine costs as much as there are
jobs that changed on it; no task is ever looked for.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from borgish.cell.state import Cell
from borgish.scheduler.arrays import IntArray, copied, widened
from borgish.spec.constraints import matches
from borgish.spec.job import Affinity, Constraint, JobSpec
from borgish.vocabulary import State

COUNTERS_KEPT = 4096  # more are forgotten when a pass had no use for them


class OfJob(msgspec.Struct, frozen=True):
    """The tasks of one job, by its key."""

    job: str

    def chooses(self, spec: JobSpec) -> bool:
        return spec.key == self.job


class Labelled(msgspec.Struct, frozen=True):
    """The tasks of jobs whose labels meet all of these."""

    labels: tuple[Constraint, ...]

    def chooses(self, spec: JobSpec) -> bool:
        return all(matches(constraint, spec.labels) for constraint in self.labels)


class Repelling(msgspec.Struct, frozen=True):
    """The tasks of jobs that must be apart from what a term selects: they keep others off, too."""

    term: Affinity

    def chooses(self, spec: JobSpec) -> bool:
        return self.term in spec.apart


Choice = OfJob | Labelled | Repelling


def repelling(spec: JobSpec) -> Iterator[Affinity]:
    """Yield the terms by which a job keeps others off."""
    return (term for term in spec.apart if not term.weight)


class Counter:
    """How many of the chosen tasks are on each machine. ``version`` grows with each change."""

    def __init__(self, choice: Choice, rows: int) -> None:
        self.choice = choice
        self.by_row: IntArray = np.zeros(rows, dtype=np.int64)
        self.total = 0
        self.version = 0

    def add(self, row: int, tasks: int) -> None:
        """Count so many more, or fewer, on a machine."""
        self.by_row[row] += tasks
        self.total += tasks
        self.version += 1


class Counted(msgspec.Struct):
    """A job with tasks on machines: how many in all, and the counters they are in."""

    spec: JobSpec
    tasks: int = 0
    counters: tuple[Counter, ...] | None = None  # None: not looked up since counters came


class Topology:
    """All counters in use."""

    def __init__(self) -> None:
        self._rows = 0
        self._counters: dict[Choice, Counter] = {}
        self._selecting: list[Counter] = []  # those not of a single job
        self._jobs: dict[str, Counted] = {}
        self._lent: set[str] = set()  # those of them that are another's, until they have to change
        self._used: set[Choice] = set()
        self._terms: dict[Affinity, int] = {}  # of how many jobs with tasks somewhere
        self._expected: frozenset[Affinity] = frozenset()  # of jobs that wait
        self.terms: tuple[Affinity, ...] = ()  # hard terms of ``apart`` of both, in a fixed order
        self.terms_version = 0

    def copy(self) -> "Topology":
        """Return the same, to be changed apart from this. Its counters are filled anew when asked for."""
        other = copied(self)
        other._lent = set(self._jobs)
        other._counters, other._selecting = {}, []
        return other

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self._rows = rows
        for counter in self._counters.values():
            counter.by_row = widened(counter.by_row, rows)

    def read(self, cell: Cell, row: int, before: dict[str, int], after: dict[str, int]) -> None:
        """Take in which jobs have how many tasks on a machine, and had before."""
        if before == after:
            return
        for key in before.keys() | after.keys():
            more = after.get(key, 0) - before.get(key, 0)
            if more:
                counted = self._jobs.get(key)
                self.add(counted.spec if counted else cell.jobs[key].spec, key, (row,), more)

    def add(self, spec: JobSpec, key: str, rows: Sequence[int], tasks: int) -> None:
        """Count so many more tasks of a job, or fewer, on each of the machines."""
        counted = self._own(key)
        if counted is None:
            counted = self._jobs[key] = Counted(spec)
            self._note_terms(spec, 1)
        counted.tasks += tasks * len(rows)
        for counter in self._counters_of(counted):
            for row in rows:
                counter.add(row, tasks)
        if not counted.tasks:
            del self._jobs[key]
            self._note_terms(counted.spec, -1)

    def _own(self, key: str) -> Counted | None:
        """Return what is counted of a job, to be changed."""
        counted = self._jobs.get(key)
        if counted is not None and key in self._lent:
            self._lent.discard(key)
            counted = self._jobs[key] = Counted(counted.spec, counted.tasks)
        return counted

    def _note_terms(self, spec: JobSpec, by: int) -> None:
        for term in repelling(spec):
            self._terms[term] = self._terms.get(term, 0) + by
            if not self._terms[term]:
                del self._terms[term]
        if spec.apart:
            self._know_terms()

    def expect(self, specs: Iterable[JobSpec]) -> None:
        """Take in which jobs are about to be placed: their terms keep others off from now on."""
        expected = frozenset(term for spec in specs if spec.apart for term in repelling(spec))
        if expected != self._expected:
            self._expected = expected
            self._know_terms()

    def _know_terms(self) -> None:
        known = tuple(sorted(self._terms.keys() | self._expected, key=repr))
        if known != self.terms:
            self.terms = known
            self.terms_version += 1

    def _counters_of(self, counted: Counted) -> tuple[Counter, ...]:
        if counted.counters is None:
            found = [each for each in self._selecting if each.choice.chooses(counted.spec)]
            own = self._counters.get(OfJob(counted.spec.key))
            counted.counters = (*found, own) if own else tuple(found)
        return counted.counters

    def counter(
        self, choice: Choice, cell: Cell, rows: dict[str, int], jobs: Sequence[dict[str, int]]
    ) -> Counter:
        """Return the counter of a choice.

        ``rows`` is the row of each machine by name, ``jobs`` how many tasks of which jobs are there, by row.
        """
        self._used.add(choice)
        counter = self._counters.get(choice)
        if counter is None:
            counter = self._counters[choice] = Counter(choice, self._rows)
            if not isinstance(choice, OfJob):
                self._selecting.append(counter)
            self._fill(counter, cell, rows, jobs)
        return counter

    def _fill(
        self, counter: Counter, cell: Cell, rows: dict[str, int], jobs: Sequence[dict[str, int]]
    ) -> None:
        """Count what is there already."""
        keys = [counter.choice.job] if isinstance(counter.choice, OfJob) else list(self._jobs)
        for key in keys:
            known = self._jobs.get(key)
            if known is None or not counter.choice.chooses(known.spec):
                continue
            if counted := self._own(key):
                counted.counters = None
            for row in self.rows_of(key, cell, rows, jobs):
                counter.add(row, 1)

    def rows_of(
        self, key: str, cell: Cell, rows: dict[str, int], jobs: Sequence[dict[str, int]]
    ) -> list[int]:
        """Return the row of each task of a job that is on a machine; none where it has none anywhere.

        What the running pass has placed is not in the cell yet; then all rows are looked at.
        """
        known = self._jobs.get(key)
        if known is None:
            return []
        tasks = cell.jobs[key].tasks if key in cell.jobs else ()
        running = [task.machine for task in tasks if task.state is State.RUNNING]
        there = [rows[machine] for machine in running if machine in rows]
        if len(there) != known.tasks:
            there = [row for row, at in enumerate(jobs) for _ in range(at.get(key, 0))]
        return there

    def forget_unused(self) -> None:
        """Drop counters that no pass asked for since the last call, when there are many."""
        if len(self._counters) > COUNTERS_KEPT:
            self._counters = {key: each for key, each in self._counters.items() if key in self._used}
            self._selecting = [each for key, each in self._counters.items() if not isinstance(key, OfJob)]
            for counted in self._jobs.values():
                counted.counters = None
        self._used.clear()
