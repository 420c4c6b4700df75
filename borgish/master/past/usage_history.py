"""What was used over time, added up from the samples that the sampler kept, for who looks back.

Blocks are read and added up in a thread, one series at a time. Of a long time only some samples are read, at
even distances, so that an answer costs as much for a week as for an hour.
"""

import asyncio
from collections.abc import Callable

from borgish.api.services import UsageOf
from borgish.clock import Clock
from borgish.store.base import Store
from borgish.store.usage import UsageBlock, UsageSum, sum_usage
from borgish.text import instant
from borgish.wire.api_figures import UsagePoint, UsageSeries

POINTS_MAX = 60
"""Of 10,000 machines each costs some 25 ms in a thread."""
_PARTS_AT_ONCE = 64


class UsageHistory:
    """Reads a running master's samples."""

    def __init__(self, store: Store, clock: Clock, sample_seconds: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._sample_seconds = sample_seconds
        self._one_at_a_time = asyncio.Lock()

    async def series(self, of: UsageOf, since: float) -> UsageSeries:
        """Return what was used from a time on, in seconds since 1970, at up to ``POINTS_MAX`` times."""
        now, seconds = self._clock.now().wall, self._sample_seconds()
        distance = max(0.0, (now - since) / POINTS_MAX - seconds)
        points: list[UsagePoint] = []
        key = (since, -1)
        async with self._one_at_a_time:
            while blocks := await self._at_one_time(key, now):
                point = await asyncio.to_thread(_point, blocks, of)
                points.append(point)
                at = blocks[0].at
                # Just after this time, or so much later as leaves out what there is no room for.
                key = (at + distance, -1) if distance else (at, blocks[-1].part)
        return UsageSeries(tuple(points), seconds)

    async def _at_one_time(self, key: tuple[float, int], until: float) -> list[UsageBlock]:
        """Return the blocks of the first time after a key."""
        found: list[UsageBlock] = []
        while True:
            some = await asyncio.to_thread(self._store.usage, key, until, _PARTS_AT_ONCE)
            first = found[0].at if found else some[0].at if some else until
            same = [block for block in some if block.at == first]
            found += same
            if len(same) < _PARTS_AT_ONCE:
                return found
            key = (first, same[-1].part)


def _point(blocks: list[UsageBlock], of: UsageOf) -> UsagePoint:
    sums: list[UsageSum] = [sum_usage(block, of.job, of.index, of.machine) for block in blocks]
    return UsagePoint(
        instant(blocks[0].at),
        sum(each.cpu_millis for each in sums),
        sum(each.ram_bytes for each in sums),
        sum(each.tasks for each in sums),
    )
