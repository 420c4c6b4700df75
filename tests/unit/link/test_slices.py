"""What comes together is done a little at a time, with others in between."""

import asyncio
from functools import partial

from borgish.clock import Now
from borgish.link.slices import SLICE_SECONDS, Slices


class Clock:
    """Goes on by what is done."""

    def __init__(self) -> None:
        self.mono = 0.0

    def now(self) -> Now:
        return Now(0.0, self.mono)


async def test_others_have_their_turn_between_slices() -> None:
    clock, done = Clock(), list[int]()
    slices = Slices(clock)

    def work(number: int) -> None:
        done.append(number)
        clock.mono += SLICE_SECONDS / 4

    for number in range(12):
        slices.add(partial(work, number))
    seen = []
    while len(done) < 12:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert done == list(range(12))
    assert seen == [5, 10, 12]


async def test_what_work_brings_about_comes_after_what_waits() -> None:
    done = list[str]()
    slices = Slices(Clock())

    def first() -> None:
        done.append("first")
        slices.add(partial(done.append, "third"))

    slices.add(first)
    slices.add(partial(done.append, "second"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["first", "second", "third"]
    slices.add(partial(done.append, "later"))
    await asyncio.sleep(0)
    assert done[-1] == "later"
