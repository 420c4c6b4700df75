"""What each user asks for in each band at a time: the limits of all their tasks that are not dead.

It follows from the jobs. ``apply`` names each job that it wrote to and settles once an entry, so that
admission reads a sum instead of walking over jobs. A job in an alloc set asks for nothing: the set does.
"""

from collections.abc import Mapping, Sequence

from borgish.bands import Bands
from borgish.cell.model import Job, quota_key
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import State

_Claim = tuple[str, Resources, int]
"""What one job asks for: whose quota that is of, amounts, and how many times."""

NOTHING = Resources()


class Demand:
    """Sums by quota key (``user/band``). Who asks for nothing has none."""

    def __init__(self, jobs: Mapping[str, Job], bands: Bands) -> None:
        self._sums: dict[str, _Sum] = {}
        self._claims: dict[str, _Claim] = {}  # by job: what of it is in the sums
        self._changed: set[str] = set(jobs)
        self.settle(jobs, bands)

    def of(self, key: str) -> Resources:
        """Return what a user asks for in a band."""
        found = self._sums.get(key)
        return found.amounts() if found else NOTHING

    @property
    def totals(self) -> dict[str, Resources]:
        """What is asked for, by quota key."""
        return {key: found.amounts() for key, found in self._sums.items()}

    def mark_changed(self, job: str) -> None:
        """Note that a job is, or is about to be, written to or gone."""
        self._changed.add(job)

    def settle(self, jobs: Mapping[str, Job], bands: Bands) -> None:
        """Count the jobs anew that were doubted."""
        for key in self._changed:
            job = jobs.get(key)
            before, now = self._claims.get(key), _claim(job, bands) if job else None
            if before != now:
                self._replace(key, before, now)
        self._changed.clear()

    def _replace(self, job: str, before: _Claim | None, now: _Claim | None) -> None:
        if before is not None:
            del self._claims[job]
            self._add(before, -1)
        if now is not None:
            self._claims[job] = now
            self._add(now, 1)

    def _add(self, claim: _Claim, sign: int) -> None:
        key, amounts, times = claim
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sum()
        found.add(amounts, sign * times)
        if not found:
            del self._sums[key]


class _Sum:
    """Amounts that are added to in place: a cell that is read has 100,000 jobs to add up."""

    __slots__ = ("_cpu_millis", "_devices", "_disk_bytes", "_named", "_ram_bytes")

    def __init__(self) -> None:
        self._cpu_millis = self._ram_bytes = self._disk_bytes = 0
        self._named: dict[str, int] = {}
        self._devices: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._cpu_millis or self._ram_bytes or self._disk_bytes or self._named or self._devices)

    def add(self, amounts: Resources, times: int) -> None:
        self._cpu_millis += times * amounts.cpu_millis
        self._ram_bytes += times * amounts.ram_bytes
        self._disk_bytes += times * amounts.disk_bytes
        if amounts.named:
            _add_named(self._named, amounts.named, times)
        if amounts.devices:
            _add_named(self._devices, amounts.devices, times)

    def amounts(self) -> Resources:
        return Resources(
            self._cpu_millis, self._ram_bytes, self._disk_bytes, dict(self._named), dict(self._devices)
        )


def _add_named(total: dict[str, int], amounts: Mapping[str, int], times: int) -> None:
    for name, amount in amounts.items():
        now = total.get(name, 0) + times * amount
        if now:
            total[name] = now
        else:
            total.pop(name, None)


def asked_by(spec: JobSpec, indexes: Sequence[int]) -> Resources:
    """Return what these tasks of a job ask for: the sum of their limits."""
    if spec.inside:
        return NOTHING
    own = [index for index in indexes if index in spec.overrides] if spec.overrides else []
    total = NOTHING.plus(spec.resources, len(indexes) - len(own))
    for index in own:
        total = total.plus(spec.needs(index))
    return total


def _claim(job: Job, bands: Bands) -> _Claim | None:
    spec, live = job.spec, job.pending + job.running
    if not live or spec.inside:
        return None
    key = quota_key(spec.user, bands.of(spec.priority))
    own = [
        override.resources
        for index, override in spec.overrides.items()
        if override.resources and index < len(job.tasks) and job.tasks[index].state is not State.DEAD
    ]
    if not own:
        return key, spec.resources, live
    total = NOTHING.plus(spec.resources, live - len(own))
    for amounts in own:
        total = total.plus(amounts)
    return key, total, 1
