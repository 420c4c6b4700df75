"""Disruption budgets across jobs, which jobs they are about, and the freeze: what ``disruption`` holds beside
the budgets of the jobs themselves."""

from collections.abc import Iterable, Mapping, Set
from typing import Protocol

import msgspec

from borgish.spec.job import Constraint, JobSpec
from borgish.spec.selectors import selects
from borgish.spec.shares import Share
from borgish.text import instant


class Specified(Protocol):
    """A job, as far as budgets know it."""

    @property
    def spec(self) -> JobSpec: ...


class Budget(msgspec.Struct, frozen=True):
    """How many tasks may be down at once of all jobs whose labels meet all of ``where`` (a label selector),
    before any of them is taken down on purpose. It holds beside the jobs' own (``JobSpec.disruption``)."""

    name: str
    where: tuple[Constraint, ...]
    max_unavailable: Share
    generation: int = 0  # see ``cell.generations``

    @property
    def terms(self) -> tuple[tuple[Constraint, ...], Share]:
        """What was decided."""
        return self.where, self.max_unavailable

    def chooses(self, spec: JobSpec) -> bool:
        """Return whether a job is one of those it is about."""
        return selects(self.where, spec.labels)

    @property
    def selector(self) -> str:
        """What it is about, in words."""
        return ", ".join(map(str, self.where))


class Freeze(msgspec.Struct, frozen=True):
    """Nothing is taken down on purpose, ``since`` this time in seconds since 1970."""

    by: str
    since: float
    reason: str = ""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"frozen by {self.by} since {instant(self.since)}{why}"


class Members:
    """Which jobs each budget is about, by the labels that they have now.

    It follows from jobs and budgets. ``apply`` names what it wrote to, so that nobody has to walk over jobs.
    """

    def __init__(self, jobs: Mapping[str, Specified], budgets: Iterable[Budget]) -> None:
        self._jobs: dict[str, set[str]] = {}  # by budget
        self._budgets: dict[str, tuple[str, ...]] = {}  # by job
        self._labels: dict[str, dict[str, str]] = {}  # by job: as they were when that was found out
        for budget in budgets:
            self.change(budget.name, budget, jobs)

    def of(self, budget: str) -> Set[str]:
        """Return the jobs that a budget is about. The set changes with them, and is another with it."""
        return self._jobs[budget]

    def budgets_of(self, job: str) -> tuple[str, ...]:
        """Return the names of the budgets that are about a job."""
        return self._budgets.get(job, ())

    def change(self, name: str, budget: Budget | None, jobs: Mapping[str, Specified]) -> None:
        """Take in a budget that is new, other than it was, or gone."""
        for key in self._jobs.pop(name, ()):
            self._budgets[key] = tuple(each for each in self._budgets[key] if each != name)
        if budget is None:
            return
        found = self._jobs[name] = {key for key, job in jobs.items() if budget.chooses(job.spec)}
        for key in found:
            self._budgets[key] = tuple(sorted((*self._budgets.get(key, ()), name)))

    def settle(
        self, jobs: Mapping[str, Specified], budgets: Mapping[str, Budget], changed: Iterable[str]
    ) -> None:
        """Take in jobs that were written to or are gone."""
        if not budgets:
            self._labels.clear()
            self._budgets.clear()
            return
        for key in changed:
            job = jobs.get(key)
            if job is not None and self._labels.get(key) is job.spec.labels:
                continue
            for name in self._budgets.pop(key, ()):
                self._jobs[name].discard(key)
            if job is None:
                self._labels.pop(key, None)
                continue
            self._labels[key] = job.spec.labels
            names = tuple(name for name in sorted(budgets) if budgets[name].chooses(job.spec))
            for name in names:
                self._jobs[name].add(key)
            if names:
                self._budgets[key] = names
