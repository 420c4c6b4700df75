"""Which jobs wait for which, which end with which, and which are of one application: an index that follows
from the records."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from borgish.spec.job import JobSpec
from borgish.vocabulary import Until


class Since(Protocol):
    """That a job waits, since a time in seconds since 1970."""

    @property
    def since(self) -> float: ...


class Linked(Protocol):
    """What of a job is of interest here."""

    @property
    def spec(self) -> JobSpec: ...

    @property
    def waits(self) -> Since | None: ...

    @property
    def app(self) -> str: ...


class Link(NamedTuple):
    """The jobs that one looks at, by key, and the application that it belongs to."""

    awaited: tuple[tuple[str, Until | None], ...] = ()  # while it waits, and until what
    parent: str = ""
    deadline: float = 0.0  # when the first thing waited for is overdue; 0: never
    app: str = ""


_NONE = Link()


class Links:
    """The jobs that wait, or have a parent, by the jobs that they look at, and those of applications.
    ``settle`` keeps it."""

    def __init__(self, jobs: Mapping[str, Linked]) -> None:
        # By job: those that wait for it, by until what.
        self.followers: dict[str, dict[Until | None, set[str]]] = {}
        self.children: dict[str, set[str]] = {}  # by job: those that end with it
        self.of_app: dict[str, set[str]] = {}  # by application: those that belong to it
        self.deadlines: dict[str, float] = {}  # by job that waits and is not to wait for good
        self._of: dict[str, Link] = {}
        self.settle(jobs, jobs)

    def of(self, job: str) -> Link:
        """Return what a job looks at."""
        return self._of.get(job, _NONE)

    def settle(self, jobs: Mapping[str, Linked], changed: Iterable[str]) -> None:
        """Take in jobs that were written to or are gone."""
        for key in changed:
            job = jobs.get(key)
            fresh = _link(job) if job is not None else _NONE
            before = self._of.get(key, _NONE)
            if fresh == before:
                continue
            for name, until in before.awaited:
                _discard(self.followers[name], until, key)
                if not self.followers[name]:
                    del self.followers[name]
            if before.parent:
                _discard(self.children, before.parent, key)
            if before.app:
                _discard(self.of_app, before.app, key)
            for name, until in fresh.awaited:
                self.followers.setdefault(name, {}).setdefault(until, set()).add(key)
            if fresh.parent:
                self.children.setdefault(fresh.parent, set()).add(key)
            if fresh.app:
                self.of_app.setdefault(fresh.app, set()).add(key)
            self.deadlines.pop(key, None)
            if fresh.deadline:
                self.deadlines[key] = fresh.deadline
            self._of.pop(key, None)
            if fresh != _NONE:
                self._of[key] = fresh


def _link(job: Linked) -> Link:
    spec, waits = job.spec, job.waits
    if waits is None:
        return Link(parent=spec.parent, app=job.app) if spec.parent or job.app else _NONE
    bounds = [waits.since + each.within_seconds for each in spec.after if each.within_seconds]
    awaited = tuple((each.job, each.until) for each in spec.after)
    return Link(awaited, spec.parent, min(bounds, default=0.0), job.app)


K = TypeVar("K")


def _discard(index: dict[K, set[str]], key: K, job: str) -> None:
    there = index[key]
    there.discard(job)
    if not there:
        del index[key]
