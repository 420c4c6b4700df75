"""What was used over time, from the samples that are kept."""

from itertools import pairwise

from borgish.api.services import UsageOf
from borgish.clock import Now
from borgish.master.past.usage_history import POINTS_MAX, UsageHistory
from borgish.store.memory import MemoryStore
from borgish.store.usage import encode_usage
from borgish.text import instant
from borgish.wire.api_figures import UsagePoint

NOW = 1e9
MINUTE = 60.0


class Standing:
    """A clock that stands."""

    def now(self) -> Now:
        return Now(NOW, 1000.0)


def history(minutes: int, parts: int = 1) -> UsageHistory:
    """Return that of a cell in which each minute each of so many machines used as many units as it is ago."""
    store = MemoryStore("c")
    store.lead("me", "here")
    for ago in range(minutes, 0, -1):
        store.save_usage(
            [
                encode_usage(
                    NOW - ago * MINUTE, part, [(f"m{part}", {(f"ann/web/{part}", 7): (ago, 10 * ago)})]
                )
                for part in range(parts)
            ]
        )
    return UsageHistory(store, Standing(), lambda: MINUTE)


async def test_samples_of_one_time_are_one_point() -> None:
    found = await history(3, parts=70).series(UsageOf(), NOW - 2.5 * MINUTE)
    assert found.sample_seconds == MINUTE
    assert found.items == (
        UsagePoint(instant(NOW - 2 * MINUTE), 140, 1400, 70),
        UsagePoint(instant(NOW - MINUTE), 70, 700, 70),
    )


async def test_of_one_job_task_or_machine() -> None:
    asked = history(1, parts=3)
    for of in (UsageOf("ann/web", 2), UsageOf(machine="m2")):
        assert [each.cpu_millis for each in (await asked.series(of, 0.0)).items] == [1]
    assert [each.tasks for each in (await asked.series(UsageOf("ann/web"), 0.0)).items] == [3]
    assert [each.tasks for each in (await asked.series(UsageOf("bob/db"), 0.0)).items] == [0]


async def test_of_a_long_time_some_points_at_even_distances() -> None:
    minutes = 10 * POINTS_MAX
    found = (await history(minutes).series(UsageOf(), NOW - minutes * MINUTE - 1)).items
    ago = [each.cpu_millis for each in found]
    assert POINTS_MAX * 0.9 <= len(ago) <= POINTS_MAX
    assert {one - other for one, other in pairwise(ago)} <= {9, 10, 11}


async def test_where_none_was_kept_there_is_none() -> None:
    assert (await history(0).series(UsageOf(), 0.0)).items == ()
