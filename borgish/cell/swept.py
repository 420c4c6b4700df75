"""Which jobs reconcilers look at each second: an index that follows from the records, so that nobody walks
over the thousands of which nothing is to be done."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from borgish.spec.job import JobSpec
from borgish.vocabulary import Recheck


class Sweepable(Protocol):
    """What of a job is of interest here."""

    @property
    def spec(self) -> JobSpec: ...

    @property
    def running(self) -> int: ...

    @property
    def dead_since(self) -> float | None: ...

    @property
    def has_too_many_failures(self) -> bool: ...


class Swept:
    """The jobs that are dead, may have to leave their machines, or failed too often. ``settle`` keeps it."""

    def __init__(self, jobs: Mapping[str, Sweepable]) -> None:
        self.dead_since: dict[str, float] = {}  # by job: since when, in seconds since 1970
        self.rechecked: set[str] = set()  # jobs that run, and leave machines that do not suit them any more
        self.over_max_failures: set[str] = set()  # jobs that are not dead, and are to be
        self.settle(jobs, jobs)

    def settle(self, jobs: Mapping[str, Sweepable], changed: Iterable[str]) -> None:
        """Take in jobs that were written to or are gone."""
        for key in changed:
            job = jobs.get(key)
            since = None if job is None else job.dead_since
            if since is None:
                self.dead_since.pop(key, None)
            else:
                self.dead_since[key] = since
            if job is not None and job.running and job.spec.recheck is Recheck.EVICT:
                self.rechecked.add(key)
            else:
                self.rechecked.discard(key)
            if job is not None and since is None and job.has_too_many_failures:
                self.over_max_failures.add(key)
            else:
                self.over_max_failures.discard(key)
