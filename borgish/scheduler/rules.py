"""What spread and affinity of a job come to: rules on how many tasks of whom are on a machine, or on all
machines that share a value with it.

A rule looks at one counter over one attribute. It may forbid a value, and it may like some values
better than others. Rules whose counter counts the very tasks that are placed by them are *own*: they
change with each placement.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec
import numpy as np

from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.topology import Choice, Counter, Labelled, OfJob, Repelling
from borgish.spec.constraints import matches
from borgish.spec.job import MACHINE, Affinity, JobSpec

UNFIT = float("inf")
EVEN_COST = 100.0  # of each task of the job that is there already: above all that is only liked
WEIGHT_COST = 0.1  # of one unit of a user's weight, beside packing, which is between 0 and 1


class Values(Protocol):
    """Where the values of machines' attributes are to be had."""

    def codes(self, attribute: str) -> IntArray:
        """Return the number of each row's value; rows without the attribute share one."""
        ...

    def absent(self, attribute: str) -> int:
        """Return the number that stands for no value."""
        ...

    def at_values(self, by_machine: IntArray, attribute: str) -> IntArray:
        """Return counts of machines by value."""
        ...

    def at_rows(self, by_value: FloatArray, attribute: str) -> FloatArray:
        """Return what is known by value, by row."""
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
        """Return the number of each row's value, by which ``counts`` are."""
        return values.codes(self.over)

    def counts(self, values: Values) -> IntArray:
        """Return the count at each value. It is not to be written to."""
        return values.at_values(self.counter.by_row, self.over)

    def costs(self, counts: IntArray) -> FloatArray:
        """Return the cost of one more task at each value, ``UNFIT`` where none may go."""
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
        """Return the cost of one more task on each row."""
        costs = values.at_rows(self.costs(self.counts(values)), self.over)
        if self.keyed and self.over != MACHINE:
            costs = np.where(values.codes(self.over) == values.absent(self.over), UNFIT, costs)
        return costs

    def fails(self, values: Values) -> BoolArray:
        """Return which rows it forbids."""
        fails: BoolArray = self.by_row(values) == UNFIT
        return fails


class Counters(Protocol):
    """Where counters are to be had."""

    def counter(self, choice: Choice) -> Counter: ...

    def terms(self) -> Iterator[Affinity]:
        """Yield the hard terms of ``apart`` of jobs that have tasks somewhere, or are about to."""
        ...


def rules_of(spec: JobSpec, counters: Counters) -> tuple[Rule, ...]:
    """Return the rules that hold for a job's tasks, its own and those that others' terms make for it."""
    return (*_spreads(spec, counters), *_affinities(spec, counters), *_repelled(spec, counters))


def has_rules(spec: JobSpec) -> bool:
    """Return whether a job itself asks for any."""
    return bool(spec.spread or spec.near or spec.apart)


def _spreads(spec: JobSpec, counters: Counters) -> Iterator[Rule]:
    for spread in spec.spread:
        counter = counters.counter(OfJob(spec.key))
        below = float(spread.max or UNFIT)
        # Over machines each job is spread anyway.
        each = 0.0 if spread.over == MACHINE else EVEN_COST
        most = f", at most {spread.max}" * bool(spread.max)
        reason = f"spread over {spread.over}{most}"
        keyed = bool(spread.max)
        yield Rule(counter, spread.over, True, reason, below, spread.max, keyed=keyed, each=each)


def _affinities(spec: JobSpec, counters: Counters) -> Iterator[Rule]:
    for term in spec.near:
        counter, own = counters.counter(Labelled(term.labels)), selects(term, spec)
        reason = f"near {term_words(term)}"
        if term.weight:
            yield Rule(counter, term.over, own, reason, miss=term.weight * WEIGHT_COST)
        else:
            yield Rule(counter, term.over, own, reason, some=True, keyed=True)
    for term in spec.apart:
        counter, own = counters.counter(Labelled(term.labels)), selects(term, spec)
        reason = f"apart from {term_words(term)}"
        if term.weight:
            yield Rule(counter, term.over, own, reason, hit=term.weight * WEIGHT_COST)
        else:
            yield Rule(counter, term.over, own, reason, below=1.0)


def _repelled(spec: JobSpec, counters: Counters) -> Iterator[Rule]:
    for term in counters.terms():
        if selects(term, spec):
            reason = f"apart from what must be apart from {term_words(term)}"
            own = term in spec.apart
            yield Rule(counters.counter(Repelling(term)), term.over, own, reason, below=1.0)


def selects(term: Affinity, spec: JobSpec) -> bool:
    """Return whether a term is about the tasks of a job."""
    return all(matches(constraint, spec.labels) for constraint in term.labels)


def term_words(term: Affinity) -> str:
    """Write a term for people: ``app == db over rack``."""
    return f"{' and '.join(map(str, term.labels))} over {term.over}"
