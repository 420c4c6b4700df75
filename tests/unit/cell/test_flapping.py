"""When a machine that goes down again and again is quarantined, for how long, and how it ends."""

import pytest

from borgish.cell.commands import (
    CordonMachine,
    ReleaseMachine,
    SetMachineDown,
    SetMachineUp,
    UncordonMachine,
)
from borgish.cell.machines.flapping import (
    FORGOTTEN_SECONDS,
    QUARANTINE_SECONDS,
    QUARANTINE_SECONDS_MAX,
    WITHIN_SECONDS,
    is_over,
)
from borgish.cell.model import Machine
from tests.unit.cell.test_decide import Desk

T = 1000.0


def flap(desk: Desk, *at: float) -> Machine:
    for each in at:
        desk.do(SetMachineDown("m1", "silent", each))
        desk.do(SetMachineUp("m1"))
    return desk.cell.machines["m1"]


def test_three_times_in_ten_minutes() -> None:
    desk = Desk()
    assert flap(desk, T, T + 20).quarantined_until == 0.0
    assert flap(desk, T + 40).quarantined_until == T + 40 + QUARANTINE_SECONDS


def test_three_times_in_a_longer_time_is_nothing() -> None:
    machine = flap(Desk(), *(T + number * WITHIN_SECONDS / 2 for number in range(9)))
    assert machine.quarantined_until == 0.0


def test_what_does_not_count_is_nothing() -> None:
    assert flap(Desk(), 0.0, 0.0, 0.0, 0.0).quarantined_until == 0.0


def test_going_down_meanwhile_begins_its_time_anew() -> None:
    assert flap(Desk(), T, T + 1, T + 2, T + 99).quarantined_until == T + 99 + QUARANTINE_SECONDS


def test_the_next_ones_are_longer_up_to_a_bound_and_a_quiet_time_forgets() -> None:
    desk, at, found = Desk(), T, []
    for _ in range(6):
        machine = flap(desk, at, at + 1, at + 2)
        found.append(machine.quarantined_until - at - 2)
        at = machine.quarantined_until
        desk.do(ReleaseMachine("m1"))
    assert found == [600, 1200, 2400, 4800, 7200, QUARANTINE_SECONDS_MAX]
    at += FORGOTTEN_SECONDS
    assert flap(desk, at, at, at).quarantined_until == at + QUARANTINE_SECONDS


@pytest.mark.parametrize(
    ("at", "over"), [(T + 601, False), (T + 602, True), (T - 5, False), (T - 7000.0, True)]
)
def test_it_is_over_by_itself_and_when_the_clock_was_set_back(at: float, *, over: bool) -> None:
    assert is_over(flap(Desk(), T, T + 1, T + 2), at) is over


def test_uncordon_ends_it_and_forgets() -> None:
    desk = Desk()
    flap(desk, T, T + 1, T + 2)
    desk.do(CordonMachine("m1"))
    desk.do(UncordonMachine("m1"))
    machine = flap(desk, T + 3, T + 4)
    assert (machine.cordoned, machine.quarantined_until) == (False, 0.0)
