"""Jobs that have to be near to what does not run, and those among them that wait for each other.

A job waits in a circle when, for one of its terms, every job that could meet it cannot begin before it.
"""

from collections.abc import Iterator
from functools import cached_property

from borgish.cell.state import Cell
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.rules import Rule, selects
from borgish.scheduler.topology import Labelled
from borgish.spec.job import Affinity, Constraint, JobSpec

WAITING_MAX = 200  # with more jobs that wait in this way, circles are not looked for


def nobody_near(kind: TaskClass) -> Rule | None:
    """Return the first rule by which the class has to be near to tasks that run nowhere."""
    for rule in kind.rules:
        if rule.some and not rule.own and not rule.counter.total:
            return rule
    return None


class Circles:
    """The circles of a cell at one moment; nothing is computed before it is asked for."""

    def __init__(self, cell: Cell, fleet: Fleet) -> None:
        self._cell, self._fleet = cell, fleet

    def words(self, job: str) -> str:
        """Return that a job waits for others that wait for it, and the way out; "": it does not."""
        circle = self.find(job)
        if not circle:
            return ""
        way_out = "give one of them a weight in its near"
        round_about = " in a circle" * (len(circle) > 2)
        return f"{', '.join(circle[:-1])} and {circle[-1]} wait for each other{round_about}: {way_out}"

    def find(self, job: str) -> list[str]:
        """Return the jobs of a circle, beginning with this one; each has to be near to the next."""
        before: dict[str, str] = {}
        to_do = [job]
        for here in to_do:
            for there in (key for term in self._stuck.get(here, ()) for key in term):
                if there == job:
                    return _way(before, job, here)
                if there not in before:
                    before[there] = here
                    to_do.append(there)
        return []

    @cached_property
    def _stuck(self) -> dict[str, list[list[str]]]:
        """By job that cannot begin: for each of its terms that nothing meets, the jobs that would."""
        waits = self._waiting()
        while True:
            free = {k for k, terms in waits.items() if all(any(o not in waits for o in t) for t in terms)}
            if not free:
                return waits
            waits = {key: terms for key, terms in waits.items() if key not in free}

    def _waiting(self) -> dict[str, list[list[str]]]:
        pending = [job.spec for job in self._cell.jobs.values() if job.pending]
        unmet = {spec.key: terms for spec in pending if (terms := tuple(self._unmet(spec)))}
        if len(unmet) > WAITING_MAX:
            return {}
        by_label: dict[tuple[str, str], list[JobSpec]] = {}
        for spec in pending:
            for label in spec.labels.items():
                by_label.setdefault(label, []).append(spec)
        return {
            key: [[spec.key for spec in _with_label(term, by_label) if selects(term, spec)] for term in terms]
            for key, terms in unmet.items()
        }

    def _unmet(self, spec: JobSpec) -> Iterator[Affinity]:
        """Yield the terms that nothing meets, of those that name a label's value: others go for met."""
        for term in spec.near:
            if term.weight or selects(term, spec) or _named(term) is None:
                continue
            if not self._fleet.counter(self._cell, Labelled(term.labels)).total:
                yield term


def _named(term: Affinity) -> Constraint | None:
    """Return the first of a term's conditions that says which values a label may have."""
    return next((each for each in term.labels if each.op in ("==", "in")), None)


def _with_label(term: Affinity, by_label: dict[tuple[str, str], list[JobSpec]]) -> Iterator[JobSpec]:
    named = _named(term)
    for value in dict.fromkeys(named.values) if named else ():
        yield from by_label.get((named.attribute, value), ()) if named else ()


def _way(before: dict[str, str], start: str, end: str) -> list[str]:
    way = [end]
    while way[0] != start:
        way.insert(0, before[way[0]])
    return way
