"""Days of the scenarios of changes: each is over at the end of its test, however that ends."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.anew import recorded_and_compared
from tests.scenario.bad_days.day import Day
from tests.scenario.bad_days.judge import Bound

START_SECONDS, STOP_SECONDS = 1.5, 0.5
Days = Callable[..., Day]


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Iterator[Days]:
    """Begins a day, on which programs take their time to start and to end.

    What the journal keeps of each command is read back and compared.
    """
    monkeypatch.setattr("borgish.sim.runtime.START_SECONDS", START_SECONDS)
    monkeypatch.setattr("borgish.sim.runtime.STOP_SECONDS", STOP_SECONDS)
    monkeypatch.setattr("borgish.master.core.record", recorded_and_compared)
    monkeypatch.setattr("borgish.cell.recorded.record", recorded_and_compared)
    begun: list[Day] = []

    def begin(*bounds: Bound, **options: Any) -> Day:
        begun.append(Day(*bounds, **options))
        return begun[-1]

    yield begin
    for day in begun:
        day.world.close()
