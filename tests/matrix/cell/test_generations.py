"""Every command: whether somebody decides by it about a job, a machine or a quota, and then its generation
grows; by what borgish does by itself, and by what is seen, it does not."""

from collections.abc import Callable

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    CordonMachine,
    DrainMachines,
    EvictTasks,
    JoinMachine,
    KillApp,
    KillTasks,
    Observe,
    PauseCron,
    PauseUpdate,
    PlaceTasks,
    RemoveApp,
    RemoveBudget,
    RemoveCron,
    RemoveMachine,
    RemoveQuota,
    RestartTasks,
    ResumeCron,
    ResumeUpdate,
    RollBack,
    RunApp,
    RunCron,
    ScaleJob,
    SetBudget,
    SetCron,
    SetMachineDown,
    SetMachineUp,
    SetQuota,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndoApp,
    UndoUpdate,
    UntaintMachine,
)
from borgish.cell.generations import DECIDED_BY_PEOPLE, Outdated, Thing, ThingKind, check_generation, thing_of
from borgish.cell.generations import generation_of as generation
from borgish.cell.limits.budgets import Budget
from borgish.errors import Invalid
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import Constraint, JobSpec, Restart
from borgish.spec.shares import Share
from borgish.vocabulary import Band, Ending, Eviction, Phase, RestartPolicy
from tests.sentences import check_refusal
from tests.unit.cell.crons import cron
from tests.unit.cell.test_decide import Desk, machine, seen, spec

JOB = Thing(ThingKind.JOB, "ann/web")
MACHINE = Thing(ThingKind.MACHINE, "m1")
QUOTA = Thing(ThingKind.QUOTA, "ann/batch")
BUDGET = Thing(ThingKind.BUDGET, "web")
APP = Thing(ThingKind.APP, "ann/shop")
CRON = Thing(ThingKind.CRON, "ann/nightly")
THINGS = (JOB, MACHINE, QUOTA, BUDGET, APP, CRON)
LIMITS = Resources(1000, 1024**3)

WHERE = (Constraint("app", "==", ("web",)),)

OTHER = SubmitJob(spec(run=("other",)))
STAGE = spec("stage", 1, restart=Restart(RestartPolicy.ON_FAILURE))


def applied(job: JobSpec) -> ApplyApp:
    return ApplyApp(AppSpec("shop", "ann"), (Document(job, ("name", "run")),))


CHANGED = applied(msgspec.structs.replace(STAGE, run=("other",)))

DECISIONS: dict[str, tuple[Thing, list[Command], Command]] = {
    "SubmitJob": (JOB, [KillTasks("ann/web", (0,))], SubmitJob(spec())),
    "ScaleJob": (JOB, [], ScaleJob("ann/web", 3)),
    "KillTasks": (JOB, [], KillTasks("ann/web", (0,))),
    "RestartTasks": (JOB, [], RestartTasks("ann/web", (0,))),
    "UndoUpdate": (JOB, [OTHER], UndoUpdate("ann/web")),
    "PauseUpdate": (JOB, [OTHER], PauseUpdate("ann/web")),
    "ResumeUpdate": (JOB, [OTHER, PauseUpdate("ann/web")], ResumeUpdate("ann/web")),
    "CordonMachine": (MACHINE, [], CordonMachine("m1")),
    "UncordonMachine": (MACHINE, [CordonMachine("m1")], UncordonMachine("m1")),
    "TaintMachine": (MACHINE, [], TaintMachine("m1", "repair")),
    "UntaintMachine": (MACHINE, [TaintMachine("m1", "repair")], UntaintMachine("m1", "repair")),
    "RemoveMachine": (MACHINE, [KillTasks("ann/web")], RemoveMachine("m1")),
    "SetQuota": (QUOTA, [], SetQuota("ann", Band.BATCH, Resources(2000, 1024**3))),
    "RemoveQuota": (QUOTA, [], RemoveQuota("ann", Band.BATCH)),
    "SetBudget": (BUDGET, [], SetBudget(Budget("web", WHERE, Share(2)))),
    "SetCron": (CRON, [], SetCron(cron(keep=9))),
    "PauseCron": (CRON, [], PauseCron("ann/nightly")),
    "ResumeCron": (CRON, [PauseCron("ann/nightly")], ResumeCron("ann/nightly")),
    "RunCron": (CRON, [], RunCron("ann/nightly")),
    "RemoveCron": (CRON, [], RemoveCron("ann/nightly")),
    "RemoveBudget": (BUDGET, [], RemoveBudget("web")),
    "ApplyApp": (APP, [], CHANGED),
    "UndoApp": (APP, [CHANGED], UndoApp("ann/shop")),
    "RunApp": (APP, [KillApp("ann/shop")], RunApp("ann/shop")),
    "KillApp": (APP, [], KillApp("ann/shop")),
    "RemoveApp": (APP, [KillApp("ann/shop")], RemoveApp("ann/shop")),
}
BY_ITSELF: dict[str, Callable[[Desk], Command]] = {
    "evicted": lambda _: EvictTasks("ann/web", (0,), Eviction.TAINTED),
    "placed": lambda _: PlaceTasks("ann/web", (1,), ("m1",)),
    "down": lambda _: SetMachineDown("m1", "silent"),
    "up": lambda _: SetMachineUp("m1"),
    "joined again": lambda _: JoinMachine(machine(), "i2", known=True),
    "restarted": lambda desk: Observe("m1", "b1", "i1", (seen(desk, restarts=1),)),
    "ended": lambda desk: Observe("m1", "b1", "i1", (seen(desk, ended=Ending.FINISH, exit_code=0),)),
    "vanished": lambda desk: Observe("m1", "b1", "i1", (seen(desk, phase=Phase.UP, ended=Ending.LOST),)),
}


@pytest.fixture
def desk() -> Desk:
    """A machine, a quota, a budget, an application, and a job of which one task runs."""
    desk = Desk()
    desk.do(SetQuota("ann", Band.BATCH, LIMITS))
    desk.do(SetBudget(Budget("web", WHERE, Share())))
    desk.do(applied(STAGE))
    desk.do(SetCron(cron()))
    desk.do(SubmitJob(spec()))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    return desk


def generations(desk: Desk) -> dict[Thing, int]:
    return {thing: generation(desk.cell, thing) for thing in THINGS}


def test_every_decision_is_here() -> None:
    assert DECISIONS.keys() == DECIDED_BY_PEOPLE.keys()


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_gives_its_thing_the_next_generation(desk: Desk, name: str) -> None:
    thing, before, command = DECISIONS[name]
    for each in before:
        desk.do(each)
    assert thing_of(command) == thing
    earlier = generations(desk)
    check_generation(desk.cell, command, earlier[thing])
    with pytest.raises(Outdated) as caught:
        check_generation(desk.cell, command, earlier[thing] - 1)
    check_refusal(caught.value)
    assert caught.value.status == 412
    desk.do(command)
    gone = name.startswith("Remove")
    assert generations(desk) == {**earlier, thing: 0 if gone else desk.cell.position}
    with pytest.raises(Outdated, match="gone" if gone else "changed") as caught:
        check_generation(desk.cell, command, earlier[thing])
    check_refusal(caught.value)


@pytest.mark.parametrize("name", BY_ITSELF)
def test_what_happens_by_itself_is_no_decision(desk: Desk, name: str) -> None:
    before = generations(desk)
    desk.do(BY_ITSELF[name](desk))
    assert generations(desk) == before


def test_what_is_so_already_changes_no_generation(desk: Desk) -> None:
    before = generations(desk)
    for again in (SubmitJob(spec()), ScaleJob("ann/web", 2), SetQuota("ann", Band.BATCH, LIMITS)):
        desk.do(again)
    assert generations(desk) == before


def test_what_comes_again_goes_on_from_there(desk: Desk) -> None:
    """Else who has seen the former one could change the new one and not know."""
    before = generations(desk)
    leave: list[Command] = [KillTasks("ann/web"), RemoveQuota("ann", Band.BATCH), RemoveMachine("m1")]
    come: list[Command] = [SubmitJob(spec()), SetQuota("ann", Band.BATCH, LIMITS)]
    leave += [RemoveBudget("web"), KillApp("ann/shop"), RemoveApp("ann/shop")]
    come += [SetBudget(Budget("web", WHERE, Share())), applied(STAGE)]
    leave.append(RemoveCron("ann/nightly"))
    come.append(SetCron(cron()))
    for command in leave:
        desk.do(command)
    gone = desk.cell.position
    for command in come:
        desk.do(command)
    desk.do(JoinMachine(machine(), "i1", known=False))
    assert all(now > gone > before[thing] for thing, now in generations(desk).items())


def test_who_expects_nothing_is_told_that_something_came(desk: Desk) -> None:
    with pytest.raises(Outdated, match="came since you looked"):
        check_generation(desk.cell, SubmitJob(spec()), 0)
    check_generation(desk.cell, SubmitJob(spec("other")), 0)
    with pytest.raises(Outdated, match="is gone"):
        check_generation(desk.cell, KillTasks("ann/other"), 7)


def test_a_condition_on_several_would_not_hold(desk: Desk) -> None:
    for command in (RollBack(1, 0.0), DrainMachines(("m1", "m2"))):
        with pytest.raises(Invalid) as caught:
            check_generation(desk.cell, command, 1)
        check_refusal(caught.value)
