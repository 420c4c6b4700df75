"""A job is changed in a cell that is full: what only starts again does so where it is, and what needs more
says why it waits, and how to get out."""

from collections.abc import Callable

import pytest

from tests.scenario.bad_days.conftest import Days
from tests.scenario.bad_days.day import CHANGED, MOST, TASKS, Day, web

FULL, MORE = 4, 5
"""Cpu of a task of which two fill a machine; of one that is alone on its machine."""


def full(day: Day) -> None:
    day.submit(web(1, cpu=FULL))
    day.wait(15.0)
    assert len(day.releases()) == TASKS


def test_what_starts_again_where_it_is_goes_through(days: Days) -> None:
    day = days(CHANGED)
    full(day)
    before = [task.machine for task in day.job().tasks]
    day.submit(web(2, cpu=FULL))
    day.until(day.is_over)
    assert [task.machine for task in day.job().tasks] == before
    assert day.releases() == ["2"] * TASKS
    assert day.stops() == [1] * TASKS
    day.status()
    day.end("full-in-place")


def undo(day: Day) -> str:
    day.takes("borgctl job update undo ann/web")
    return "1"


def smaller(day: Day) -> str:
    """What is said to fit."""
    assert "Fits 2 machines with cpu <= 4" in day.told[-1]
    day.submit(web(3, cpu=FULL))
    return "3"


def room(day: Day) -> str:
    day.tell("m5 to m8 join")
    for number in range(5, 9):
        day.world.machines[f"m{number}"].begin()
    return "2"


@pytest.mark.parametrize("way_out", [undo, smaller, room])
@pytest.mark.parametrize("waited_seconds", [40.0, 700.0], ids=["waits", "failed"])
def test_what_needs_more_says_why_it_waits_and_how_to_get_out(
    days: Days, way_out: Callable[[Day], str], waited_seconds: float
) -> None:
    day = days(CHANGED, later=4)
    full(day)
    day.submit(web(2, cpu=MORE))
    day.wait(waited_seconds)
    has_failed = waited_seconds > 600.0
    said = day.status()
    word = "paused" if has_failed else "waits"
    assert f"now      {word}: task 0 waits for a machine: 0 of 4 machines fit" in said
    assert "too little cpu free (needs 5, most free 4)" in said
    assert day.releases() == ["1"] * (TASKS - MOST)
    day.why("ann/web/0")
    release = way_out(day)
    if has_failed and release == "2":
        day.wait(10.0)
        day.status()
        day.takes("borgctl job update resume ann/web")
    day.until(day.is_over)
    assert day.releases() == [release] * TASKS
    day.status()
    day.history()
    day.end(f"full-{word}-{way_out.__name__}")
