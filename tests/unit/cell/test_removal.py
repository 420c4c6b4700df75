"""Machines that are taken out of the cell: which may go, and what becomes of what they held."""

import msgspec
import pytest

from borgish.cell.commands import (
    CordonMachine,
    JoinMachine,
    KillTasks,
    Observe,
    RemoveMachine,
    SeenAttempt,
    SetMachineDown,
    SubmitJob,
)
from borgish.cell.machines.decide import SILENT_SECONDS
from borgish.cell.observed import SeenMachine
from borgish.errors import Conflict, NotFound
from borgish.vocabulary import Phase, State
from tests.unit.cell.lived import Lived, machine, spec
from tests.unit.cell.test_decide import NOW, Desk


def lost(lived: Lived, *names: str) -> None:
    """Have machines keep silent until they count as down."""
    lived.silent |= set(names)
    while any(lived.cell.machines[name].up for name in names):
        lived.step()


def test_an_empty_machine_goes() -> None:
    lived = Lived()
    assert "joins again" in lived.do(RemoveMachine("m2"))
    assert set(lived.cell.machines) == {"m1"}
    assert set(lived.cell.placed) == {"m1"}
    assert set(lived.core.observed.machines) == {"m1"}
    lived.do(SubmitJob(spec(tasks=4)))
    assert {task.machine for task in lived.cell.jobs["ann/web"].tasks} == {"m1"}
    assert set(lived.then(lived.position).machines) == {"m1"}


def test_an_empty_machine_goes_before_this_master_has_heard_it() -> None:
    desk = Desk()
    assert desk.observed.machines == {}
    desk.do(RemoveMachine("m1"))
    assert desk.cell.machines == {}


def test_one_that_another_master_set_down_stays_until_this_one_found_it_silent() -> None:
    desk = Desk()
    desk.submit_and_place(spec())
    desk.observed.machines.clear()
    desk.do(SetMachineDown("m1", "silent"))
    for seconds in (None, SILENT_SECONDS - 0.1):
        if seconds is not None:
            desk.observed.machines["m1"] = SeenMachine(watched_since=NOW.mono - seconds)
        with pytest.raises(Conflict, match="m1 counts as down and holds tasks, but was not silent for 10 s"):
            desk.do(RemoveMachine("m1"))
    desk.observed.machines["m1"].watched_since = NOW.mono - SILENT_SECONDS
    assert "3 tasks of it run elsewhere" in desk.do(RemoveMachine("m1"))[0]


def test_one_that_is_up_and_runs_something_stays() -> None:
    lived = Lived(("m1",))
    lived.do(SubmitJob(spec()))
    with pytest.raises(Conflict, match="m1 is up and runs 3 tasks"):
        lived.do(RemoveMachine("m1"))
    lived.do(KillTasks("ann/web", (0, 1)))
    with pytest.raises(Conflict, match=r"m1 is up and runs 1 task\b"):
        lived.do(RemoveMachine("m1"))


def test_one_where_something_is_still_ending_stays() -> None:
    lived = Lived(("m1",))
    lived.do(SubmitJob(spec(tasks=1)))
    seen = SeenAttempt("ann/web/0", lived.attempts()[0], Phase.UP)
    lived.do(Observe("m1", "b1", "i", (seen,)))
    lived.silent = {"m1"}
    lived.do(KillTasks("ann/web"))
    with pytest.raises(Conflict, match="have not ended: 1"):
        lived.do(RemoveMachine("m1"))
    ended = msgspec.structs.replace(seen, phase=Phase.STOPPING)
    lived.do(Observe("m1", "b1", "i", (), gone=((ended.task, ended.attempt),)))
    lived.do(RemoveMachine("m1"))


def test_what_a_machine_that_is_down_held_runs_elsewhere() -> None:
    lived = Lived()
    lived.do(CordonMachine("m2"))
    lived.do(SubmitJob(spec()))
    lost(lived, "m1", "m2")  # all of them: nothing is moved
    assert lived.states() == [State.RUNNING] * 3
    assert "3 tasks of it run elsewhere" in lived.do(RemoveMachine("m1"))
    assert lived.states() == [State.PENDING] * 3
    assert lived.cell.jobs["ann/web"].tasks[0].reason == "m1 is down: it was removed from the cell"


def test_it_can_come_again_as_a_newcomer() -> None:
    lived = Lived()
    lived.do(CordonMachine("m2", "old"))
    lived.do(RemoveMachine("m2"))
    lived.do(JoinMachine(machine("m2"), "i", known=True))
    assert not lived.cell.machines["m2"].cordoned
    assert set(lived.core.observed.machines) == {"m1", "m2"}


def test_what_it_still_says_is_nobodys_concern() -> None:
    lived = Lived()
    lived.do(RemoveMachine("m2"))
    lived.do(Observe("m2", "b1", "i", (SeenAttempt("ann/web/0", 1, Phase.UP),)))
    assert set(lived.core.observed.machines) == {"m1"}


def test_it_must_be_there() -> None:
    with pytest.raises(NotFound, match="there is no machine m9"):
        Lived().do(RemoveMachine("m9"))


def test_a_machine_removed_since_does_not_come_back_with_a_rollback() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec()))
    good = lived.position
    lived.do(KillTasks("ann/web"))
    lived.do(RemoveMachine("m2"))
    lived.roll_back(good)
    lived.settle()
    assert set(lived.cell.machines) == {"m1"}
    assert lived.states() == [State.RUNNING] * 3
