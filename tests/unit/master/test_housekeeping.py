"""Periodic work by APScheduler."""

import asyncio

import pytest

from borgish.master.daemon import ScheduledHousekeeping


@pytest.mark.parametrize("is_lambda", [False, True])
def test_work_is_awaited_whatever_kind_of_callable_it_is(*, is_lambda: bool) -> None:
    async def scenario() -> None:
        done = asyncio.Event()

        async def work() -> None:
            done.set()

        housekeeping = ScheduledHousekeeping()
        housekeeping.begin({"look": (lambda: work()) if is_lambda else work}, {"look": 0.01})
        try:
            await asyncio.wait_for(done.wait(), 10)
        finally:
            housekeeping.end()

    asyncio.run(scenario())
