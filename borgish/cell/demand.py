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
    """Sums by quota key (``user/band``); who asks for nothing is not in ``totals``."""

    def __init__(self, jobs: Mapping[str, Job], bands: Bands) -> None:
        self.totals: dict[str, Resources] = {}
        self._claims: dict[str, _Claim] = {}  # by job: what of it is in the totals
        self._doubted: set[str] = set(jobs)
        self.settle(jobs, bands)

    def of(self, key: str) -> Resources:
        """Return what a user asks for in a band."""
        return self.totals.get(key, NOTHING)

    def doubt(self, job: str) -> None:
        """Note that a job is, or is about to be, written to or gone."""
        self._doubted.add(job)

    def settle(self, jobs: Mapping[str, Job], bands: Bands) -> None:
        """Count the jobs anew that were doubted."""
        for key in self._doubted:
            job = jobs.get(key)
            before, now = self._claims.get(key), _claim(job, bands) if job else None
            if before != now:
                self._replace(key, before, now)
        self._doubted.clear()

    def _replace(self, job: str, before: _Claim | None, now: _Claim | None) -> None:
        if before is not None:
            del self._claims[job]
            self._add(before, -1)
        if now is not None:
            self._claims[job] = now
            self._add(now, 1)

    def _add(self, claim: _Claim, sign: int) -> None:
        key, amounts, times = claim
        total = _without_zeros(self.of(key).plus(amounts, sign * times))
        if total == NOTHING:
            self.totals.pop(key, None)
        else:
            self.totals[key] = total


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


def _without_zeros(amounts: Resources) -> Resources:
    named, devices = amounts.named, amounts.devices
    if all(named.values()) and all(devices.values()):
        return amounts
    return Resources(
        amounts.cpu_millis,
        amounts.ram_bytes,
        amounts.disk_bytes,
        {name: amount for name, amount in named.items() if amount},
        {name: amount for name, amount in devices.items() if amount},
    )
