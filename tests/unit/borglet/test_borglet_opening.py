"""Opening runtimes: whatever is in the way of one is said and tried again, and stops no other."""

import logging

import pytest

from borgish.borglet.opening import Opener
from borgish.borglet.runtimes.base import RunState, TaskRuntime
from borgish.vocabulary import Runtime


class Heard:
    """Who hears of runtimes."""

    def __init__(self) -> None:
        self.opened: list[TaskRuntime] = []

    def runtime_opened(self, runtime: TaskRuntime, runs: list[RunState]) -> None:
        self.opened.append(runtime)

    def runtime_changed(self, runtime: TaskRuntime, key: str) -> None: ...


def faulty(_cell: str) -> TaskRuntime:
    raise TypeError("a fault of its code")


async def test_a_fault_in_a_runtimes_code_is_said(caplog: pytest.LogCaptureFixture) -> None:
    opener = Opener({Runtime.FAKE: faulty}, Heard())
    with caplog.at_level(logging.WARNING):
        await opener.begin("local")  # and does not wait its longest for what will not come
    opener.stop()
    assert "runtime fake: TypeError: a fault of its code. Tried again each" in caplog.text
    assert "slow to answer" not in caplog.text
