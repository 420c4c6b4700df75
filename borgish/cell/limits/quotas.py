"""Quotas, and what users ask for at a time: what admission compares."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from borgish.bands import Bands
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, State


class HasState(Protocol):
    """A task, as far as quotas know it."""

    @property
    def state(self) -> State: ...


class Asking(Protocol):
    """A job, as far as quotas know it."""

    @property
    def spec(self) -> JobSpec: ...
    @property
    def tasks(self) -> Sequence[HasState]: ...
    @property
    def pending(self) -> int: ...
    @property
    def running(self) -> int: ...


class Quota(msgspec.Struct, frozen=True):
    """How much one user's jobs in one band may ask for at a time (section 2.5)."""

    user: str
    band: Band
    limits: Resources
    until: float = 0.0  # seconds since 1970, from then on it is nothing; 0: without end
    generation: int = 0  # see ``cell.generations``

    @property
    def terms(self) -> tuple[Resources, float]:
        """What was decided."""
        return self.limits, self.until

    @property
    def key(self) -> str:
        return quota_key(self.user, self.band)


def quota_key(user: str, band: Band) -> str:
    """Return the name of a user's quota in a band: ``user/band``."""
    return f"{user}/{band}"


def split_quota_key(key: str) -> tuple[str, str]:
    """Return the user and the band in a quota's name."""
    user, _, band = key.partition("/")
    return user, band


_Claim = tuple[str, Resources, int]
"""What one job asks for: whose quota that is of, amounts, and how many times."""

NOTHING = Resources()


class Demand:
    """What each user asks for in each band at a time: sums by quota key (``user/band``), of limits of all
    tasks that are not dead. Who asks for nothing has none.

    It follows from the jobs. ``apply`` names each job that it wrote to and settles once an entry, so that
    admission reads a sum instead of walking over jobs. A job in an alloc set asks for nothing: the set does.
    """

    def __init__(self, jobs: Mapping[str, Asking], bands: Bands) -> None:
        self._sums: dict[str, _Sum] = {}
        self._claims: dict[str, _Claim] = {}  # by job: what of it is in the sums
        self.changed: set[str] = set(jobs)  # jobs that are, or are about to be, written to or gone
        self.settle(jobs, bands)

    def of(self, key: str) -> Resources:
        """Return what a user asks for in a band."""
        found = self._sums.get(key)
        return found.amounts() if found else NOTHING

    @property
    def totals(self) -> dict[str, Resources]:
        """What is asked for, by quota key."""
        return {key: found.amounts() for key, found in self._sums.items()}

    def settle(self, jobs: Mapping[str, Asking], bands: Bands) -> None:
        """Count the jobs anew that were ``changed``."""
        for key in self.changed:
            job = jobs.get(key)
            before, now = self._claims.get(key), _claim(job, bands) if job else None
            if before == now:
                continue
            if before is not None:
                del self._claims[key]
                self._add(before, -1)
            if now is not None:
                self._claims[key] = now
                self._add(now, 1)
        self.changed.clear()

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


def _claim(job: Asking, bands: Bands) -> _Claim | None:
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
