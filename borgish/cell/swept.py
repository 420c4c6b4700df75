"""Which jobs reconcilers look at each second: an index that follows from the records, so that nobody walks
over the thousands of which nothing is to be done."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from borgish.cell.ordered import Ordered
from borgish.spec.job import JobSpec
from borgish.vocabulary import Recheck


class Sweepable(Protocol):
    """What of a job is of interest here."""

    @property
    def spec(self) -> JobSpec: ...

    @property
    def cron(self) -> str: ...

    @property
    def tasks(self) -> Sequence[object]: ...

    @property
    def running(self) -> int: ...

    @property
    def dead_since(self) -> float | None: ...

    @property
    def has_too_many_failures(self) -> bool: ...


class DeadJobs(msgspec.Struct):
    """The dead jobs of one user. Of those that are runs of crons no tasks count: each cron says how many it
    keeps."""

    by_age: Ordered[tuple[float, str]] = msgspec.field(default_factory=Ordered)  # since 1970, and the job
    tasks: dict[str, int] = {}  # by job: how many count
    total: int = 0  # of these

    def change(self, jobs: Mapping[str, tuple[float, int] | None]) -> None:
        """Take in jobs, each with since when it is dead, and how many tasks of it count; None: it is not."""
        self.by_age.change({key: None if dead is None else (dead[0], key) for key, dead in jobs.items()})
        for key, dead in jobs.items():
            self.total -= self.tasks.pop(key, 0)
            if dead is not None and dead[1]:
                self.tasks[key] = dead[1]
                self.total += dead[1]


class Swept:
    """The jobs that are dead, may have to leave their machines, or failed too often. ``settle`` keeps it."""

    def __init__(self, jobs: Mapping[str, Sweepable]) -> None:
        self.dead_jobs: dict[str, DeadJobs] = {}  # by user
        self.rechecked: set[str] = set()  # jobs that run, and leave machines that do not suit them any more
        self.over_max_failures: set[str] = set()  # jobs that are not dead, and are to be
        self.settle(jobs, jobs)

    def settle(self, jobs: Mapping[str, Sweepable], changed: Iterable[str]) -> None:
        """Take in jobs that were written to or are gone."""
        dead: dict[str, dict[str, tuple[float, int] | None]] = {}
        for key in changed:
            job = jobs.get(key)
            since = None if job is None else job.dead_since
            user = key.partition("/")[0]
            if job is not None and since is not None:
                dead.setdefault(user, {})[key] = since, 0 if job.cron else max(1, len(job.tasks))
            elif user in self.dead_jobs:
                dead.setdefault(user, {})[key] = None
            if job is not None and job.running and job.spec.recheck is Recheck.EVICT:
                self.rechecked.add(key)
            else:
                self.rechecked.discard(key)
            if job is not None and since is None and job.has_too_many_failures:
                self.over_max_failures.add(key)
            else:
                self.over_max_failures.discard(key)
        for user, changes in dead.items():
            self.dead_jobs.setdefault(user, DeadJobs()).change(changes)
            if not self.dead_jobs[user].by_age:
                del self.dead_jobs[user]
