"""When a machine that does not answer is down: by silence, and by refused connections."""

import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    ReleaseMachine,
    SetMachineDown,
    SetMachineUp,
)
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import (
    MISSES_MAX,
    Miss,
    Observed,
    SeenMachine,
    record_answers,
    record_misses,
    watch,
)
from borgish.clock import Now
from borgish.reconcilers import machines
from borgish.reconcilers.settings import OVERDUE_SHARE, ReconcileSettings
from tests.unit.cell.test_decide import machine

BEGAN = 1000.0
SETTINGS = ReconcileSettings()


def wanted(
    seen: SeenMachine, seconds: float, *, up: bool = True, settings: ReconcileSettings = SETTINGS
) -> list[Command]:
    cell, observed = Cell(Snapshot("c")), Observed()
    cell.machines["m1"] = machine("m1")
    cell.machines["m1"].up = up
    observed.machines["m1"] = seen
    return list(machines.reconcile(cell, observed, settings, Now(0.0, BEGAN + seconds)))


@pytest.mark.parametrize(
    ("refused_after", "down_from"),
    [
        (None, 10.0),  # silence alone
        (4.0, 14.0),  # refused once, then silence: it counts from the refusal
        (59.0, 60.0),  # refused to the end
    ],
)
def test_when_it_is_down(refused_after: float | None, down_from: float) -> None:
    seen = SeenMachine(heard=BEGAN, watched_since=BEGAN)
    seen.refused = 0.0 if refused_after is None else BEGAN + refused_after
    assert wanted(seen, down_from) == []
    at = BEGAN + down_from + 0.1
    assert wanted(seen, down_from + 0.1) == [SetMachineDown("m1", f"no answer for {down_from:.0f} s", at)]
    seen.trouble = "connection refused"
    assert wanted(seen, down_from + 0.1) == [
        SetMachineDown("m1", f"no answer for {down_from:.0f} s (connection refused)", at)
    ]


def test_one_of_which_nothing_is_known_keeps_nobody_else_up() -> None:
    cell, observed = Cell(Snapshot("c")), Observed()
    cell.machines |= {name: machine(name) for name in ("m1", "m2")}
    observed.machines["m2"] = SeenMachine(heard=BEGAN, watched_since=BEGAN)
    found = machines.reconcile(cell, observed, SETTINGS, Now(0.0, BEGAN + 11))
    assert list(found) == [SetMachineDown("m2", "no answer for 11 s", BEGAN + 11)]


def test_going_down_with_half_of_the_cell_does_not_count_as_flapping() -> None:
    cell, observed = Cell(Snapshot("c")), Observed()
    for number in range(5):
        cell.machines[f"m{number}"] = machine(f"m{number}")
        observed.machines[f"m{number}"] = SeenMachine(heard=BEGAN, misses=MISSES_MAX * (number < 3))
    now = Now(0.0, BEGAN + 11)
    observed.machines["m3"].heard = observed.machines["m4"].heard = now.mono
    assert [each.at for each in down_by(cell, observed, now)] == [0.0, 0.0, 0.0]
    observed.machines["m2"].heard, observed.machines["m2"].misses = now.mono, 0
    assert [each.at for each in down_by(cell, observed, now)] == [now.mono, now.mono]


def test_who_missed_one_poll_and_was_silent_for_long_counts_towards_a_mass_failure() -> None:
    """As where polls are held long: of machines that fail together, the first is down before the others have
    missed two."""
    cell, observed = Cell(Snapshot("c")), Observed()
    now, overdue_seconds = Now(0.0, BEGAN + 11), OVERDUE_SHARE * SETTINGS.down_after_seconds
    for number in range(6):
        cell.machines[f"m{number}"] = machine(f"m{number}")
        observed.machines[f"m{number}"] = SeenMachine(heard=now.mono)
    first, *others = list(observed.machines.values())[:3]
    first.heard, first.misses = BEGAN, MISSES_MAX
    for seen in others:
        seen.heard, seen.misses = now.mono - overdue_seconds - 0.1, 1
    assert [each.at for each in down_by(cell, observed, now)] == [0.0]
    others[0].misses = 0  # its poll is still held
    assert [each.at for each in down_by(cell, observed, now)] == [now.mono]
    others[0].heard, others[0].misses = now.mono - overdue_seconds + 0.1, 1  # one may be lost on the way
    assert [each.at for each in down_by(cell, observed, now)] == [now.mono]


def down_by(cell: Cell, observed: Observed, now: Now) -> list[SetMachineDown]:
    return [c for c in machines.reconcile(cell, observed, SETTINGS, now) if isinstance(c, SetMachineDown)]


def test_a_quarantine_ends_by_itself() -> None:
    cell = Cell(Snapshot("c"))
    cell.machines["m1"] = machine("m1")
    cell.machines["m1"].quarantined_until = BEGAN + 100
    assert not list(machines.reconcile(cell, Observed(), SETTINGS, Now(0.0, BEGAN + 99)))
    found = machines.reconcile(cell, Observed(), SETTINGS, Now(0.0, BEGAN + 100))
    assert list(found) == [ReleaseMachine("m1")]


def test_a_refusal_of_long_ago_does_not_shorten_what_silence_has() -> None:
    seen = SeenMachine(heard=BEGAN, watched_since=BEGAN, refused=BEGAN - 50)
    assert wanted(seen, 9.9) == []
    assert wanted(seen, 10.1)


def test_a_minute_of_refusals_begins_anew_with_each_master() -> None:
    seen = SeenMachine(heard=BEGAN - 100, watched_since=BEGAN, refused=BEGAN + 59)
    assert wanted(seen, 59.9) == []
    assert wanted(seen, 60.1)


def test_who_is_known_to_live_never_has_less_than_who_is_silent() -> None:
    seen = SeenMachine(heard=BEGAN, watched_since=BEGAN, refused=BEGAN + 299)
    settings = ReconcileSettings(down_after_seconds=300.0)
    assert wanted(seen, 299.0, settings=settings) == []
    assert wanted(seen, 301.0, settings=settings)


def test_what_answers_is_up_again() -> None:
    assert wanted(SeenMachine(heard=BEGAN), 1.0, up=False) == [SetMachineUp("m1")]


def test_polls_missed_in_a_row_are_counted_until_there_is_an_answer() -> None:
    observed = Observed()
    watch(observed, ["m1"], Now(0.0, BEGAN))
    seen = observed.machines["m1"]
    assert record_misses(observed, {"m1": Miss("lost")}) == set()
    assert record_misses(observed, {"m1": Miss("lost", refused=BEGAN + 1)}) == {"m1"}
    assert not seen.is_answering
    assert record_misses(observed, {"m1": Miss("lost")}) == set()  # it is known already
    assert (seen.misses, seen.refused, seen.trouble) == (MISSES_MAX + 1, BEGAN + 1, "lost")
    assert record_answers(observed, {"m1": BEGAN + 3}) == {"m1"}
    assert (seen.is_answering, seen.trouble) == (True, "")
    assert record_answers(observed, {"m1": BEGAN + 4}) == set()


def test_misses_of_one_step_are_taken_together() -> None:
    assert Miss("reset", 7.0).then(Miss("no answer")) == Miss("no answer", 7.0, 2)


def test_the_steady_clock_is_the_wall_clock_that_nobody_sets() -> None:
    settings = ReconcileSettings(led_since=100.0, led_since_wall=5000.0)
    assert settings.steady_wall(Now(9999.0, 130.0)) == 5030.0
