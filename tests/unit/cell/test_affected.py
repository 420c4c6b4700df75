"""How many running tasks a command may stop unasked, and what it says when these are more."""

import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    FreezeCell,
    KillTasks,
    LoseMachine,
    RemoveMachine,
    RestartTasks,
    ScaleJob,
    SetMachineDown,
    SubmitJob,
    TaintMachine,
)
from borgish.cell.limits.affected import FEW
from borgish.cell.model import Rules
from borgish.cell.observed import SeenMachine
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.spec.job import Toleration
from borgish.vocabulary import TaintEffect
from tests.unit.cell.test_decide import Desk, spec


def full(tasks: int, others: int = 0) -> Desk:
    desk = Desk()
    tolerant = (Toleration("repair"),)
    for name, count in (("web", tasks), ("other", others)):
        if count:
            job = spec(name, count, resources=Resources(10, 1024), tolerations=tolerant * (name == "other"))
            desk.submit_and_place(job)
    return desk


STOPPING: list[Command] = [
    KillTasks("ann/web"),
    RestartTasks("ann/web", hurried=True),
    TaintMachine("m1", "repair", effect=TaintEffect.EVICT),
]


@pytest.mark.parametrize("command", STOPPING)
def test_more_than_a_share_has_to_be_said(command: Command) -> None:
    desk = full(FEW + 1, 20)
    with pytest.raises(Conflict, match=r"would stop 11 of 31 running tasks, which is more than 20 %") as no:
        desk.do(command)
    assert no.value.hint == "look at what it would do; `--max-affected 11` allows it"


@pytest.mark.parametrize("command", STOPPING)
@pytest.mark.parametrize(("tasks", "others"), [(FEW, 0), (11, 44)])
def test_a_few_or_a_small_share_need_no_word(command: Command, tasks: int, others: int) -> None:
    assert full(tasks, others).do(command)[1] == 1


def test_no_more_than_was_said_are_stopped() -> None:
    desk = full(FEW + 1)
    with pytest.raises(Conflict, match=r"11 of 11 running tasks, and --max-affected allows 10"):
        desk.do(KillTasks("ann/web", max_affected=10))
    with pytest.raises(Conflict, match=r"1 of 11 running tasks, and --max-affected allows 0"):
        desk.do(KillTasks("ann/web", (3,), max_affected=0))
    assert desk.do(KillTasks("ann/web", max_affected=11))[1] == 1


def test_a_restart_a_few_at_a_time_needs_no_word() -> None:
    assert full(FEW + 1).do(RestartTasks("ann/web"))[1] == 1


def test_the_share_is_the_cells_own() -> None:
    desk = full(FEW + 1)
    desk.cell.rules = Rules(affected_share_max=1.0)
    assert desk.do(KillTasks("ann/web"))[1] == 1


def test_taints_that_evict_nobody_ask_nothing() -> None:
    assert full(FEW + 1).do(TaintMachine("m1", "repair", effect=TaintEffect.REFUSE))[1] == 1
    assert full(0, FEW + 1).do(TaintMachine("m1", "repair", effect=TaintEffect.EVICT))[1] == 1


def test_a_machine_that_is_down_and_holds_much_is_let_go_of_when_it_is_said() -> None:
    desk = full(FEW + 1)
    desk.do(SetMachineDown("m1", "silent"))
    desk.observed.machines["m1"] = SeenMachine(watched_since=-100.0)
    with pytest.raises(Conflict, match="11 of 11 running tasks"):
        desk.do(RemoveMachine("m1"))
    assert desk.do(RemoveMachine("m1", max_affected=11))[1] == 2


def test_what_the_cell_loses_by_itself_is_no_command_of_anybody() -> None:
    desk = full(FEW + 1)
    desk.do(SetMachineDown("m1", "silent"))
    assert desk.do(LoseMachine("m1", "silent", 1.0))[1] == 2


def test_fewer_tasks_have_to_be_said_when_many_stop() -> None:
    desk = full(FEW + 2, 20)
    with pytest.raises(Conflict, match=r"would stop 11 of 32 running tasks"):
        desk.do(ScaleJob("ann/web", 1))
    assert desk.do(ScaleJob("ann/web", 1, max_affected=FEW + 1))[1] == 1


def test_a_freeze_holds_that_tasks_are_taken_from_a_job() -> None:
    desk = full(3)
    desk.do(FreezeCell("holidays"))
    for command in (ScaleJob("ann/web", 2), SubmitJob(spec("web", 2, resources=Resources(10, 1024)))):
        with pytest.raises(Conflict, match=r"would stop 1 task of ann/web, and the cell is frozen") as no:
            desk.do(command)
        assert "`borgctl job scale ann/web 2 --now` does it all the same" in no.value.hint
    desk.do(ScaleJob("ann/web", 4))  # more of them harm nobody
    desk.do(ScaleJob("ann/web", 3))  # nor does it to take back what does not run yet
    assert desk.do(ScaleJob("ann/web", 2, hurried=True))[1] == 1
