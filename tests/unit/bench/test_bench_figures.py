"""How a figure is judged and printed."""

import msgspec
import pytest

from tests.bench.figure import Figure, Goal, at_least, at_most, quantile, short


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (at_most(50), 50, True),
        (at_most(50), 50.1, False),
        (at_least(150), 150, True),
        (at_least(150), 149, False),
    ],
)
def test_a_goal_is_met_on_its_own_side(goal: Goal, value: float, met: bool) -> None:
    figure = Figure("restart.process", "ms", [value], goal)
    assert figure.record().met is met
    assert ("MISSED" in figure.line()) is not met


def test_a_figure_says_its_median_and_its_range() -> None:
    record = Figure("a", "ms", [3.0, 1.0, 2.0, 40.0], peer="runit: 9 ms").record()
    assert msgspec.to_builtins(record) == {
        "name": "a",
        "value": 2.5,
        "unit": "ms",
        "goal": "",
        "peer": "runit: 9 ms",
        "n": 4,
        "min": 1.0,
        "max": 40.0,
    }


def test_what_was_not_measured_says_why_and_has_no_value() -> None:
    figure = Figure("submit.containers", "tasks/s", goal=at_least(9), absent="no Docker engine answers")
    assert figure.line().endswith("not measured: no Docker engine answers")
    record = figure.record()
    assert record.value is None
    assert record.n == 0
    assert record.met is None


def test_quantiles_are_samples_but_for_the_median() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert quantile(samples, 0.5) == 50.5
    assert quantile(samples, 0.99) == 100.0
    assert quantile(samples, 1.0) == 100.0


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346"), (12.345, "12.3"), (0.01234, "0.0123")])
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert short(value) == text
