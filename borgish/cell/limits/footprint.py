"""What the records of each user take up, in bytes. A bound on it keeps one user from filling the memory of a
master and, with each checkpoint, its disk (Kubernetes' quota on counts of objects, etcd's on its size)."""

from collections.abc import Iterable, Mapping, Sized
from typing import Protocol, TypeVar

import msgspec

from borgish.spec.job import JobSpec

FOOTPRINT_BYTES_MAX = 128 * 1024**2
TASK_BYTES = 256
"""What a task counts for, whatever it does: about what its record takes in memory."""

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode


def encoded_bytes(record: object) -> int:
    """Return how large a record is where it is stored."""
    return len(_encode(record))


def spec_bytes(spec: JobSpec, tasks: int) -> int:
    """Return what a job of this specification and so many tasks counts for."""
    return encoded_bytes(spec) + TASK_BYTES * tasks


def latest_versions(earlier: Mapping[int, T], count: int, bytes_max: int) -> dict[int, T]:
    """Return the latest of these versions, in order of their numbers: so many at the most, and no larger
    together, but the last one whatever its size."""
    kept, size = dict[int, T](), 0
    for number in sorted(earlier, reverse=True)[:count]:
        size += encoded_bytes(earlier[number])
        if kept and size > bytes_max:
            break
        kept[number] = earlier[number]
    return dict(reversed(kept.items()))


class Sizable(Protocol):
    """A job, as far as its size goes. A specification and ``earlier`` are replaced, never written to."""

    @property
    def spec(self) -> JobSpec: ...
    @property
    def earlier(self) -> Mapping[int, object]: ...
    @property
    def tasks(self) -> Sized: ...
    @property
    def pending(self) -> int: ...
    @property
    def running(self) -> int: ...


class SizableApp(Protocol):
    """An application, as far as its size goes."""

    @property
    def present(self) -> object: ...
    @property
    def earlier(self) -> Mapping[int, object]: ...


class SizableCron(Protocol):
    """A cron, as far as its size goes."""

    @property
    def spec(self) -> object: ...


class _Counted(msgspec.Struct, frozen=True, gc=False):
    """A job as it was counted."""

    spec: JobSpec
    earlier: Mapping[int, object]
    tasks: int
    is_dead: bool
    spec_bytes: int
    earlier_bytes: int

    @property
    def present(self) -> int:
        return self.spec_bytes + TASK_BYTES * self.tasks


class Footprint:
    """Bytes by user: of jobs with their tasks, of applications and of crons as they are. Earlier versions and
    dead jobs, which make room by themselves, are counted apart. It follows from the records.

    ``apply`` names each job that it wrote to and settles once an entry, as with ``quotas.Demand``.
    """

    def __init__(
        self,
        jobs: Mapping[str, Sizable],
        apps: Mapping[str, SizableApp],
        crons: Mapping[str, SizableCron],
    ) -> None:
        self._present: dict[str, int] = {}
        self._earlier: dict[str, int] = {}
        self._dead: dict[str, int] = {}
        self._jobs: dict[str, _Counted] = {}
        self._apps: dict[str, tuple[int, int]] = {}  # as they are, and earlier versions
        self._crons: dict[str, int] = {}
        self.settle(jobs, jobs)
        for key, app in apps.items():
            self.note_app(key, app)
        for key, cron in crons.items():
            self.note_cron(key, cron)

    @property
    def totals(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """What there is of each user: records as they are, earlier versions, and dead jobs."""
        return dict(self._present), dict(self._earlier), dict(self._dead)

    def of(self, user: str) -> int:
        """Return what the records of a user take up as they are, but for dead jobs."""
        return self._present.get(user, 0)

    def of_earlier(self, user: str) -> int:
        """Return what the earlier versions of a user's records take up."""
        return self._earlier.get(user, 0)

    def of_dead(self, user: str) -> int:
        """Return what the dead jobs of a user take up."""
        return self._dead.get(user, 0)

    def of_job(self, key: str) -> int:
        """Return what a job takes up, with its earlier versions."""
        counted = self._jobs.get(key)
        return counted.present + counted.earlier_bytes if counted is not None else 0

    def of_cron(self, key: str) -> int:
        """Return what a cron takes up."""
        return self._crons.get(key, 0)

    def has_room(self, user: str, record: object, bytes_max: int) -> bool:
        """Return whether one more record of a user leaves what there is within a bound."""
        return self.of(user) + self.of_earlier(user) + encoded_bytes(record) <= bytes_max

    def settle(self, jobs: Mapping[str, Sizable], changed: Iterable[str]) -> None:
        """Count the jobs anew that were written to or are gone."""
        for key in changed:
            job, before = jobs.get(key), self._jobs.get(key)
            now = _counted(job, before) if job is not None else None
            if now is before:
                continue
            if before is not None:
                del self._jobs[key]
                self._add(key, before, -1)
            if now is not None:
                self._jobs[key] = now
                self._add(key, now, 1)

    def note_app(self, key: str, app: SizableApp | None) -> None:
        """Let an application be this; None: it is gone."""
        present, earlier = self._apps.pop(key, (0, 0))
        _add(self._present, key, -present)
        _add(self._earlier, key, -earlier)
        if app is not None:
            self._apps[key] = present, earlier = encoded_bytes(app.present), _sum(app.earlier)
            _add(self._present, key, present)
            _add(self._earlier, key, earlier)

    def note_cron(self, key: str, cron: SizableCron | None) -> None:
        """Let a cron be this; None: it is gone."""
        _add(self._present, key, -self._crons.pop(key, 0))
        if cron is not None:
            self._crons[key] = encoded_bytes(cron.spec)
            _add(self._present, key, self._crons[key])

    def _add(self, key: str, job: _Counted, sign: int) -> None:
        _add(self._dead if job.is_dead else self._present, key, sign * job.present)
        _add(self._dead if job.is_dead else self._earlier, key, sign * job.earlier_bytes)


def _counted(job: Sizable, before: _Counted | None) -> _Counted:
    tasks, is_dead = len(job.tasks), not (job.pending or job.running)
    if before is None or before.spec is not job.spec or before.earlier is not job.earlier:
        return _Counted(job.spec, job.earlier, tasks, is_dead, encoded_bytes(job.spec), _sum(job.earlier))
    if (before.tasks, before.is_dead) == (tasks, is_dead):
        return before
    return msgspec.structs.replace(before, tasks=tasks, is_dead=is_dead)


def _sum(earlier: Mapping[int, object]) -> int:
    return sum(map(encoded_bytes, earlier.values()))


def _add(sizes: dict[str, int], key: str, size: int) -> None:
    user = key.partition("/")[0]
    total = sizes.get(user, 0) + size
    if total:
        sizes[user] = total
    else:
        sizes.pop(user, None)
