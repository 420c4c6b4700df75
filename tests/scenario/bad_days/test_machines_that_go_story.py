"""Machines are lost, or are all to be empty, while a job is changed."""

import pytest

from borgish.cell.events import MachineDown
from tests.scenario.bad_days.conftest import Days
from tests.scenario.bad_days.day import (
    CHANGED,
    DRAINED,
    MOST,
    SETTLE_SECONDS,
    TASKS,
    UNSEEN_SECONDS,
    Day,
    web,
)

LOST = CHANGED._replace(unseen_seconds=UNSEEN_SECONDS)
FULL = 4
"""Cpu of a task of which two fill a machine."""


def is_noted_down(day: Day) -> bool:
    return any(isinstance(event, MachineDown) for event in day.events())


# A machine is lost


def test_a_lost_machine_uses_the_budget_up_until_its_tasks_are_placed_elsewhere(days: Days) -> None:
    day = days(LOST, later=1)
    day.submit(web(1, cpu=FULL))
    day.wait(15.0)
    day.submit(web(2, cpu=FULL))
    day.wait(7.0)
    day.tell("m2 loses its power")
    day.world.machines["m2"].lose_programs()
    day.until(lambda: is_noted_down(day))
    stops = day.stops()
    day.wait(1.0)
    assert "now      waits: task 2 waits for a machine" in day.status()
    day.wait(40.0)
    why = day.why()
    assert "It goes on by itself when all that it changed is up" in why
    assert day.stops() == stops  # it waits: both that may be down are
    assert len(day.releases()) == TASKS - MOST
    day.tell("m5 joins")
    day.world.machines["m5"].begin()
    day.until(lambda: len(day.releases()) == TASKS)
    assert day.stops() == stops  # what came up has yet to settle
    day.until(day.is_over)
    assert day.releases() == ["2"] * TASKS
    assert max(day.stops()) == 1
    day.status()
    day.machines()
    day.history()
    day.end("machine-lost", is_at_rest=False)


@pytest.mark.parametrize("cpu", [1, FULL])
@pytest.mark.parametrize("tenths", range(0, 200, 23))
def test_lost_at_any_moment_of_an_update(days: Days, tenths: int, cpu: int) -> None:
    day = days(LOST)
    day.submit(web(1, cpu=cpu))
    day.wait(15.0)
    day.submit(web(2, cpu=cpu))
    day.wait(tenths / 10.0)
    lost = [task.machine == "m2" for task in day.job().tasks]
    day.world.machines["m2"].lose_programs()
    day.until(lambda: is_noted_down(day))
    stops = day.stops()
    day.wait(40.0)
    if cpu == FULL:
        assert len(day.releases()) == TASKS - MOST
        assert day.stops() == stops
    day.world.machines["m2"].begin()
    day.until(day.is_over)
    day.until(lambda: not day.core.cell.waiting)
    day.wait(SETTLE_SECONDS)
    assert day.releases() == ["2"] * TASKS
    # What was given up begins again with its machine, and is stopped since it is placed anew.
    assert all(n <= 1 + was_lost for n, was_lost in zip(day.stops(), lost, strict=True))
    day.end()


def test_a_machine_that_was_only_silent_is_not_stopped_twice(days: Days) -> None:
    day = days(LOST)
    day.submit(web(1))
    day.wait(15.0)
    day.submit(web(2))
    day.wait(7.0)
    machine = day.world.machines["m2"]
    machine.cut_off(cut=True)
    day.until(lambda: is_noted_down(day))
    day.wait(20.0)
    machine.cut_off(cut=False)
    day.until(day.is_over)
    day.wait(20.0)
    assert day.releases() == ["2"] * TASKS
    day.end()


# All machines are to be empty


def test_where_all_machines_are_drained_all_serve_on_until_there_is_room(days: Days) -> None:
    day = days(DRAINED, later=2)
    day.submit(web(1))
    day.wait(15.0)
    day.types("borgctl machine drain m1 m2 m3 m4")
    day.wait(60.0)
    staying = day.machines()
    assert all("no machine that takes new tasks has room for it" in line for (line,) in staying.values())
    assert "m4 is to be empty: drained by ann. It stays for now: no machine" in day.why("ann/web/0")
    assert day.stops() == [0] * TASKS
    assert day.releases() == ["1"] * TASKS
    day.tell("m5 and m6 join")
    for name in ("m5", "m6"):
        day.world.machines[name].begin()
    day.until(lambda: not any(day.core.cell.placed[f"m{number}"] for number in range(1, 5)))
    day.wait(SETTLE_SECONDS)
    day.machines()
    assert day.stops() == [1] * TASKS
    assert day.releases() == ["1"] * TASKS
    day.history()
    day.end("all-drained")


def test_an_update_where_all_machines_are_drained_costs_what_may_be_down_and_says_so(days: Days) -> None:
    day = days(DRAINED, later=0)
    day.submit(web(1))
    day.wait(15.0)
    day.types("borgctl machine drain m1 m2 m3 m4")
    day.wait(5.0)
    day.submit(web(2))
    day.wait(60.0)
    assert "waits for a machine: 0 of 4 machines fit: 4 are drained" in day.status()
    day.why()
    staying = day.machines()
    held = "at most 2 of 8 tasks may be down (max_unavailable 2), and down are tasks 0 (pending), 1 (pending)"
    assert all(held in line for (line,) in staying.values())
    assert day.releases() == ["1"] * (TASKS - MOST)
    day.types("borgctl machine undrain m1 m2 m3 m4")
    day.until(day.is_over)
    assert day.releases() == ["2"] * TASKS
    assert day.stops() == [1] * TASKS
    day.status()
    day.history()
    day.end("all-drained-updated")


@pytest.mark.parametrize("tenths", range(0, 200, 17))
def test_drained_at_any_moment_of_an_update(days: Days, tenths: int) -> None:
    day = days(DRAINED, machines=8)
    for number in range(5, 9):
        day.types(f"borgctl machine drain m{number}")
    day.submit(web(1))
    day.wait(15.0)
    day.submit(web(2))
    day.wait(tenths / 10.0)
    day.types("borgctl machine undrain m5 m6 m7 m8")
    day.types("borgctl machine drain m1 m2 m3 m4")
    day.until(day.is_over)
    day.until(lambda: not any(day.core.cell.placed[f"m{number}"] for number in range(1, 5)))
    day.wait(SETTLE_SECONDS)
    assert day.releases() == ["2"] * TASKS
    assert max(day.stops()) <= 2
    day.end()
