"""Which machines are drained, for whom and until when: what people ask for, and what windows do."""

import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    CancelMaintenance,
    CordonMachine,
    DrainMachines,
    EvictTasks,
    JoinMachine,
    MaintainMachines,
    PlaceTasks,
    RemoveMachine,
    SubmitJob,
    TurnWindows,
    UndrainMachines,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry
from borgish.cell.generations import Outdated, check_generation
from borgish.cell.machines.decide_drains import WINDOWS_MAX
from borgish.cell.model import Drain
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound
from borgish.resources import Resources
from borgish.vocabulary import Eviction, State
from tests.unit.cell.lived import Lived
from tests.unit.cell.lived import machine as lived_machine
from tests.unit.cell.test_decide import NOW, Desk, machine, seen, spec

HOUR = 3600.0


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    for name in ("m2", "m3"):
        desk.do(JoinMachine(machine(name), name, known=False))
    return desk


def drains(desk: Desk, name: str = "m1") -> tuple[Drain, ...]:
    return desk.cell.machines[name].drains


def at(desk: Desk, now: Now, command: Command) -> str:
    """Decide a command at another time, and let it happen."""
    decision = decide(desk.cell, desk.observed, command, "ann", now)
    position = desk.cell.position + 1
    apply_entry(desk.cell, Entry(position, now.wall, 1, 1, "ann", "test", decision.events))
    return decision.text


def test_nothing_new_is_placed_on_a_machine_that_is_drained(desk: Desk) -> None:
    assert desk.do(DrainMachines(("m1",), reason="disk"))[0] == "m1 is drained: nothing runs there"
    desk.do(SubmitJob(spec(tasks=1)))
    assert desk.do(PlaceTasks("ann/web", (0,), ("m1",)))[1] == 0
    desk.do(UndrainMachines(("m1",)))
    assert desk.do(PlaceTasks("ann/web", (0,), ("m1",)))[1] == 1


def test_a_condition_names_all_that_are_meant_in_one_decision(desk: Desk) -> None:
    text, events = desk.do(DrainMachines(where="machine in (m1, m3)"))
    assert (text, events) == ("m1, m3 are drained: nothing runs there", 2)
    assert [name for name, each in desk.cell.machines.items() if each.is_draining] == ["m1", "m3"]


@pytest.mark.parametrize("command", [DrainMachines, UndrainMachines, CancelMaintenance])
def test_a_condition_that_nothing_meets_does_nothing(desk: Desk, command: type[DrainMachines]) -> None:
    decision = decide(desk.cell, desk.observed, command(where="rack == r9"), "ann", NOW)
    assert decision.events == ()
    assert (decision.subject, decision.text) == ("", "0 machines matched rack == r9, nothing done")


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        (DrainMachines(), Invalid, "either named or chosen"),
        (DrainMachines(("m1",), "rack == r1"), Invalid, "either named or chosen"),
        (DrainMachines(where="rack = r1"), Invalid, "'==' is meant"),
        (DrainMachines(("m1", "m9")), NotFound, "no machine m9"),
        (UndrainMachines(("m9",)), NotFound, "no machine m9"),
        (MaintainMachines(("m1",), begins=500.0, ends=900.0), Invalid, "is over or before it begins"),
        (MaintainMachines(("m1",), begins=5000.0, ends=4000.0), Invalid, "is over or before it begins"),
    ],
)
def test_what_is_refused(desk: Desk, command: Command, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        desk.do(command)
    assert not any(each.drains for each in desk.cell.machines.values())


def test_the_same_again_changes_nothing_and_another_reason_does(desk: Desk) -> None:
    desk.do(DrainMachines(("m1",), reason="disk"))
    assert desk.do(DrainMachines(("m1",), reason="disk")) == ("m1 is drained already", 0)
    assert desk.do(DrainMachines(("m1",), reason="fan"))[1] == 1
    assert [each.reason for each in drains(desk)] == ["fan"]
    assert desk.do(UndrainMachines(("m2",))) == ("m2 is not drained", 0)


def test_force_says_how_many_it_stops_and_asks_for_that_number(desk: Desk) -> None:
    desk.submit_and_place(spec(tasks=3, resources=Resources(10, 1024)))
    with pytest.raises(Conflict, match=r"would stop 3 of 3 running tasks.*--max-affected 3"):
        desk.do(DrainMachines(("m1",), force=True, max_affected=2))
    desk.do(DrainMachines(("m1",), force=True, max_affected=3))
    desk.report(*(seen(desk, index) for index in range(3)), whole=True)
    desk.do(EvictTasks("ann/web", (0, 1, 2), Eviction.DRAIN))
    assert desk.states() == [State.PENDING] * 3


def test_without_force_decide_asks_the_budgets_again(desk: Desk) -> None:
    desk.submit_and_place(spec(tasks=3, resources=Resources(10, 1024)))
    desk.report(*(seen(desk, index) for index in range(3)), whole=True)
    desk.do(DrainMachines(("m1",)))
    desk.do(EvictTasks("ann/web", (0, 1, 2), Eviction.DRAIN))
    assert desk.states().count(State.PENDING) == 1


def test_a_drained_machine_that_joins_again_stays_drained(desk: Desk) -> None:
    desk.do(DrainMachines(("m1",), reason="disk"))
    desk.do(JoinMachine(machine(), "i1", known=True))
    assert [each.reason for each in drains(desk)] == ["disk"]
    desk.do(RemoveMachine("m1"))  # somebody took it out of the cell: it is another one after that
    desk.do(JoinMachine(machine(), "i1", known=False))
    assert drains(desk) == ()


# Windows


def test_a_window_drains_before_it_begins_and_gives_back_at_its_end(desk: Desk) -> None:
    asked = MaintainMachines(("m1",), begins=2 * HOUR, ends=3 * HOUR, lead_seconds=HOUR, reason="kernel")
    assert desk.do(asked)[0] == (
        "m1 is in maintenance 1970-01-01 02:00 UTC to 1970-01-01 03:00 UTC, drained from 1970-01-01 01:00 UTC"
    )
    assert not desk.cell.machines["m1"].is_draining
    assert desk.do(asked)[1] == 0
    for wall, is_draining, left in ((HOUR - 1, False, 1), (HOUR, True, 1), (3 * HOUR, False, 0)):
        at(desk, Now(wall, wall), TurnWindows(("m1", "gone")))
        assert (desk.cell.machines["m1"].is_draining, len(drains(desk))) == (is_draining, left)


def test_a_window_that_is_near_drains_at_once(desk: Desk) -> None:
    text, _ = desk.do(MaintainMachines(("m1",), begins=NOW.wall + 60.0, ends=HOUR))
    assert text.endswith("drained now")
    assert drains(desk)[0].deadline == NOW.wall + 60.0


def test_the_end_of_a_window_does_not_undo_what_a_person_wants(desk: Desk) -> None:
    desk.do(MaintainMachines(("m1",), begins=NOW.wall, ends=HOUR))
    desk.do(DrainMachines(("m1",), reason="disk"))
    at(desk, Now(HOUR, HOUR), TurnWindows(("m1",)))
    assert [each.reason for each in drains(desk)] == ["disk"]


def test_to_undrain_leaves_windows_and_cordons_and_says_so(desk: Desk) -> None:
    desk.do(MaintainMachines(("m1",), begins=NOW.wall, ends=HOUR))
    desk.do(DrainMachines(("m1", "m2")))
    desk.do(CordonMachine("m2"))
    text, _ = desk.do(UndrainMachines(("m1", "m2")))
    assert text == "m1, m2 are drained no more; cordoned or in maintenance still: m1, m2"
    assert desk.cell.machines["m1"].is_draining
    desk.do(CancelMaintenance(("m1",)))
    assert drains(desk) == ()


def test_windows_are_kept_in_order_and_not_without_bound(desk: Desk) -> None:
    for number in reversed(range(WINDOWS_MAX)):
        desk.do(MaintainMachines(("m1",), begins=HOUR * (number + 1), ends=HOUR * (number + 2)))
    begins = [each.window.begins for each in drains(desk) if each.window]
    assert begins == sorted(begins)
    with pytest.raises(Conflict, match="has 20 maintenance windows already"):
        desk.do(MaintainMachines(("m1",), begins=HOUR * 50, ends=HOUR * 51))


# Rollbacks


def test_a_rollback_takes_back_what_people_decided_since(lived: Lived) -> None:
    lived.do(JoinMachine(lived_machine("m3"), "m3", known=False))
    lived.do(DrainMachines(("m1",), reason="disk", deadline_seconds=600.0))
    lived.do(MaintainMachines(("m2",), begins=lived.now.wall + HOUR, ends=lived.now.wall + 2 * HOUR))
    position = lived.cell.position
    lived.do(UndrainMachines(("m1",)))
    lived.do(CancelMaintenance(("m2",)))
    lived.do(DrainMachines(("m3",), reason="oops"))
    lived.roll_back(position)
    machines = lived.cell.machines
    (again,) = machines["m1"].drains
    assert (again.reason, again.deadline - again.at) == ("disk", 600.0)
    assert [each.window is not None for each in machines["m2"].drains] == [True]
    assert machines["m3"].drains == ()


def test_a_rollback_never_brings_force_back_nor_a_window_that_is_over(lived: Lived) -> None:
    lived.do(DrainMachines(("m1",), force=True, max_affected=9))
    lived.do(MaintainMachines(("m2",), begins=lived.now.wall, ends=lived.now.wall + 5.0))
    position = lived.cell.position
    lived.do(UndrainMachines(("m1",)))
    lived.do(CancelMaintenance(("m2",)))
    lived.now = lived.now.later(60.0)
    lived.roll_back(position)
    assert [each.force for each in lived.cell.machines["m1"].drains] == [False]
    assert lived.cell.machines["m2"].drains == ()


def test_each_machine_that_was_decided_about_has_a_new_generation(desk: Desk) -> None:
    desk.do(DrainMachines(("m1", "m3")))
    position = desk.cell.position
    assert [desk.cell.machines[name].generation == position for name in ("m1", "m2", "m3")] == [1, 0, 1]
    asked = UndrainMachines(("m1",))
    check_generation(desk.cell, asked, position)
    with pytest.raises(Outdated, match="m1 was changed"):
        check_generation(desk.cell, asked, position - 1)
