"""Topology spread, affinity and anti-affinity (``near``, ``apart``): counters of tasks by machine, and the
rules of jobs that read them.

A *counter* counts the tasks of those jobs that some condition chooses, on each machine, and is kept up to
date as tasks come and go. What it counts of racks or zones is summed from there when asked. A change on a
machine costs as much as there are jobs that changed on it; no task is ever searched for.

A *rule* reads one counter over one attribute. It may forbid a value, and it may prefer some values to
others. Rules whose counter counts the very tasks that are placed by them are *own*: they change with
each placement.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
import numpy as np

from borgish.cell.model import Cell
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, copied, widened
from borgish.spec.constraints import matches
from borgish.spec.job import MACHINE, Affinity, Constraint, JobSpec
from borgish.vocabulary import State

COUNTERS_KEPT = 4096  # of more those are forgotten that nobody uses


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
    """How many of the chosen tasks are on each machine. ``version`` grows with each change, and goes back
    when one is undone."""

    def __init__(self, choice: Choice, rows: int) -> None:
        self.choice = choice
        self.by_row: IntArray = np.zeros(rows, dtype=np.int64)
        self.total = 0
        self.version = 0

    def add(self, row: int, tasks: int, *, undoes: bool = False) -> None:
        """Count so many more, or fewer, on a machine."""
        self.by_row[row] += tasks
        self.total += tasks
        self.version += -1 if undoes else 1


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
        self._shared_jobs: set[str] = set()  # those of them that are another's, until they have to change
        self._counters_max = COUNTERS_KEPT
        self._terms: dict[Affinity, int] = {}  # of how many jobs with tasks somewhere
        self._expected: frozenset[Affinity] = frozenset()  # of jobs that wait
        self.terms: tuple[Affinity, ...] = ()  # hard terms of ``apart`` of both, in a fixed order
        self.terms_version = 0

    def copy(self) -> "Topology":
        """Return the same, to be changed apart from this. Its counters are filled anew when asked for."""
        other = copied(self)
        other._shared_jobs = set(self._jobs)
        other._counters, other._selecting = {}, []
        return other

    def widen(self, rows: int) -> None:
        """Make room for more machines."""
        self._rows = rows
        for counter in self._counters.values():
            counter.by_row = widened(counter.by_row, rows)

    def read(self, cell: Cell, row: int, before: dict[str, int], after: dict[str, int]) -> None:
        """Note how many tasks of each job are on a machine, and were before."""
        if before == after:
            return
        for key in before.keys() | after.keys():
            more = after.get(key, 0) - before.get(key, 0)
            if more:
                counted = self._jobs.get(key)
                self.add(counted.spec if counted else cell.jobs[key].spec, key, (row,), more)

    def add(self, spec: JobSpec, key: str, rows: Sequence[int], tasks: int, *, undoes: bool = False) -> None:
        """Count so many more tasks of a job, or fewer, on each of the machines. ``undoes``: as they were not
        long before, when no class has failed since. A gang that does not fit helps nobody."""
        counted = self._own(key)
        if counted is None:
            counted = self._jobs[key] = Counted(spec)
            self._note_terms(spec, 1)
        counted.tasks += tasks * len(rows)
        if counted.counters is None:
            found = [each for each in self._selecting if each.choice.chooses(counted.spec)]
            own = self._counters.get(OfJob(key))
            counted.counters = (*found, own) if own else tuple(found)
        for counter in counted.counters:
            for row in rows:
                counter.add(row, tasks, undoes=undoes)
        if not counted.tasks:
            del self._jobs[key]
            self._note_terms(counted.spec, -1)

    def know_spec(self, spec: JobSpec, rows: Callable[[], Sequence[int]]) -> None:
        """Note what a job asks for now: those of its tasks that are on machines, on ``rows``, count by that,
        and its terms keep others off, also while a rolling update is under way."""
        counted = self._own(spec.key)
        if counted is None or counted.spec is spec:
            return
        before, counted.spec = counted.spec, spec
        if before.labels == spec.labels and before.apart == spec.apart:
            return
        counted.counters = None
        self._note_terms(before, -1)
        self._note_terms(spec, 1)
        for counter in self._selecting:
            more = counter.choice.chooses(spec) - counter.choice.chooses(before)
            for row in rows() if more else ():
                counter.add(row, more)

    def placed_jobs(self) -> list[str]:
        """Return the jobs with tasks on machines."""
        return list(self._jobs)

    def _own(self, key: str) -> Counted | None:
        """Return what is counted of a job, to be changed."""
        counted = self._jobs.get(key)
        if counted is not None and key in self._shared_jobs:
            self._shared_jobs.discard(key)
            counted = self._jobs[key] = Counted(counted.spec, counted.tasks)
        return counted

    def _note_terms(self, spec: JobSpec, by: int) -> None:
        for term in repelling(spec):
            self._terms[term] = self._terms.get(term, 0) + by
            if not self._terms[term]:
                del self._terms[term]
        if spec.apart:
            self._know_terms()

    def expect(self, expected: frozenset[Affinity]) -> None:
        """Note the terms of the jobs that are about to be placed: these keep others off from now on."""
        if expected != self._expected:
            self._expected = expected
            self._know_terms()

    def _know_terms(self) -> None:
        known = tuple(sorted(self._terms.keys() | self._expected, key=repr))
        if known != self.terms:
            self.terms = known
            self.terms_version += 1

    def counter(
        self, choice: Choice, cell: Cell, rows: dict[str, int], jobs: Sequence[dict[str, int]]
    ) -> Counter:
        """Return the counter of a choice.

        ``rows`` is the row of each machine by name, ``jobs`` how many tasks of which jobs are there, by row.
        """
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

        What the running pass has placed is not in the cell yet; then all rows are scanned.
        """
        known = self._jobs.get(key)
        if known is None:
            return []
        tasks = cell.jobs[key].tasks if key in cell.jobs else ()
        running = [task.machine for task in tasks if task.state is State.RUNNING]
        running += [each.machine for each in cell.handovers.get(key, {}).values() if each.attempt]
        running += [task.promised for task in tasks if task.promised]
        there = [rows[machine] for machine in running if machine in rows]
        if len(there) != known.tasks:
            there = [row for row, at in enumerate(jobs) for _ in range(at.get(key, 0))]
        return there

    def forget_unused(self, used: Callable[[], Iterable["Rule"]]) -> None:
        """Drop counters that none of these rules reads, when there are many. All other rules are to be made
        anew when they are asked for."""
        if len(self._counters) <= self._counters_max:
            return
        kept = {rule.counter.choice for rule in used()}
        self._counters = {choice: each for choice, each in self._counters.items() if choice in kept}
        self._selecting = [each for key, each in self._counters.items() if not isinstance(key, OfJob)]
        for counted in self._jobs.values():
            counted.counters = None
        self._counters_max = max(COUNTERS_KEPT, 2 * len(self._counters))  # where more are in use
        self.terms_version += 1


UNFIT = float("inf")
EVEN_COST = 100.0  # of each task of the job that is there already: above all that is only preferred
WEIGHT_COST = 0.1  # of one unit of a user's weight, beside packing, which is between 0 and 1


class Values(Protocol):
    """Where the values of machines' attributes are to be had."""

    def codes(self, attribute: str) -> IntArray:
        """Return the number of each row's value: [row]. Rows without the attribute share one."""
        ...

    def absent(self, attribute: str) -> int:
        """Return the number that stands for no value."""
        ...

    def at_values(self, by_machine: IntArray, attribute: str) -> IntArray:
        """Return how many there are by value, [value], from how many there are by machine, [machine]."""
        ...

    def at_rows(self, by_value: FloatArray, attribute: str) -> FloatArray:
        """Return what is known by value, [value], by row: [row]."""
        ...


class Rule(msgspec.Struct, eq=False):
    """One rule. Costs are added for a machine by the count at its value."""

    counter: Counter
    over: str
    own: bool
    reason: str
    below: float = UNFIT  # there must be fewer than so many
    most: int = 0  # the same as a user gave it for a spread, who may give another; 0: nobody did
    some: bool = False  # there must be some, or nowhere any where the rule is own
    keyed: bool = False  # a machine without the attribute is not for these tasks
    each: float = 0.0  # cost of each task there
    hit: float = 0.0  # cost where there are some
    miss: float = 0.0  # cost where there are none

    @property
    def hard(self) -> bool:
        """Whether it forbids anything."""
        return self.below < UNFIT or self.some

    def values(self, values: Values) -> IntArray:
        """Return the number of each row's value [row], by which ``counts`` are."""
        return values.codes(self.over)

    def counts(self, values: Values) -> IntArray:
        """Return the count at each value [value]. It is not to be written to."""
        return values.at_values(self.counter.by_row, self.over)

    def costs(self, counts: IntArray) -> FloatArray:
        """Return the cost of one more task by its count [value], ``UNFIT`` where none may go."""
        costs = np.where(counts > 0, self.hit, self.miss) + self.each * counts.astype(np.float64)
        costs[counts >= self.below] = UNFIT
        if self.some and not (self.own and self.counter.total == 0):
            costs[counts == 0] = UNFIT
        return costs

    def cost(self, count: int) -> float:
        """Return the cost at a value with so many."""
        if count >= self.below or (self.some and not count and not (self.own and self.counter.total == 0)):
            return UNFIT
        return self.each * count + (self.hit if count else self.miss)

    def by_row(self, values: Values) -> FloatArray:
        """Return the cost of one more task on each machine, [row]."""
        costs = values.at_rows(self.costs(self.counts(values)), self.over)
        if self.keyed and self.over != MACHINE:
            costs = np.where(values.codes(self.over) == values.absent(self.over), UNFIT, costs)
        return costs

    def fails(self, values: Values) -> BoolArray:
        """Return which machines it forbids, [row]."""
        fails: BoolArray = self.by_row(values) == UNFIT
        return fails


def has_rules(spec: JobSpec) -> bool:
    """Return whether a job itself asks for any."""
    return bool(spec.spread or spec.near or spec.apart)


def rules_of(
    spec: JobSpec, counter: Callable[[Choice], Counter], terms: Iterable[Affinity]
) -> tuple[Rule, ...]:
    """Return the rules that hold for a job's tasks, its own and those that others' terms make for it.

    ``terms`` are the hard ones of ``apart`` of jobs that have tasks somewhere, or are about to: a term keeps
    its own job off, and those it selects off where that job is, also when both wait in one pass.
    """
    rules = [
        Rule(
            counter(OfJob(spec.key)),
            spread.over,
            True,
            f"spread over {spread.over}" + f", at most {spread.max}" * bool(spread.max),
            float(spread.max or UNFIT),
            spread.max,
            keyed=bool(spread.max),
            # Over machines each job is spread anyway.
            each=0.0 if spread.over == MACHINE else EVEN_COST,
        )
        for spread in spec.spread
    ]
    for term in spec.near:
        rule = Rule(
            counter(Labelled(term.labels)), term.over, selects(term, spec), f"near {term_words(term)}"
        )
        if term.weight:
            rule.miss = term.weight * WEIGHT_COST
        else:
            rule.some = rule.keyed = True
        rules.append(rule)
    for term in spec.apart:
        rule = Rule(
            counter(Labelled(term.labels)), term.over, selects(term, spec), f"apart from {term_words(term)}"
        )
        if term.weight:
            rule.hit = term.weight * WEIGHT_COST
        else:
            rule.below = 1.0
        rules.append(rule)
    for term in terms:
        if selects(term, spec):
            reason = f"apart from what must be apart from {term_words(term)}"
            rules.append(Rule(counter(Repelling(term)), term.over, term in spec.apart, reason, below=1.0))
    return tuple(rules)


def selects(term: Affinity, spec: JobSpec) -> bool:
    """Return whether a term is about the tasks of a job."""
    return all(matches(constraint, spec.labels) for constraint in term.labels)


def term_words(term: Affinity) -> str:
    """Write a term for people: ``app == db over rack``."""
    return f"{' and '.join(map(str, term.labels))} over {term.over}"
