"""Usage over time, and when that was."""

import pytest

from borgish.dashboard.charts import usage_lines
from borgish.resources import Resources
from borgish.text import clock_time
from borgish.wire.api_figures import UsagePoint, UsageSeries


@pytest.mark.parametrize("count", [1, 2, 9, 10, 40, 500])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_times_of_the_first_and_the_last_sample_stand_apart(count: int, width: int) -> None:
    points = tuple(UsagePoint(f"2026-01-02T03:00:{i % 60:02d}.000Z", i, i, 1) for i in range(count))
    lines = usage_lines(UsageSeries(points, 30.0), Resources(500, 1000), width)
    times = "".join(piece.text for piece in lines[-1])
    assert len(times) == width
    assert times.split() == [clock_time(points[0].at), clock_time(points[-1].at)]
