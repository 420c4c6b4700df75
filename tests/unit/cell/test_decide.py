"""What commands bring about, and what they are refused for."""

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    Decision,
    EvictTasks,
    ForgetJob,
    JoinMachine,
    KillTasks,
    Observe,
    PlaceTasks,
    PromisePlaces,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SetMachineDown,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry, TasksEnded, TasksRestarted
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.cell.observed import Observed, SeenMachine, record_report
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound
from borgish.resources import Resources
from borgish.spec.job import JobSpec, Override, Restart
from borgish.vocabulary import Ending, Eviction, Phase, RestartPolicy, Runtime, State
from tests.sentences import check_sentence, refusals_checked

NOW = Now(1000.0, 10.0)
GIB = 1024**3


def machine(name: str = "m1") -> Machine:
    return Machine(
        name=name,
        host="127.0.0.1",
        port=7500,
        tls=False,
        capacity=Resources(4000, 8 * GIB, 100 * GIB),
        attributes={"arch": "amd64"},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20009,
        boot_id="b1",
        joined_at=1.0,
        port_next=20000,
    )


def spec(name: str = "web", tasks: int = 2, **changes: object) -> JobSpec:
    return msgspec.structs.replace(JobSpec(name, "ann", tasks, ("sleep", "1")), **changes)


class Desk:
    """A cell with somebody who decides and applies, one entry per command."""

    def __init__(self) -> None:
        self.cell = Cell(Snapshot("test"))
        self.observed = Observed()
        self.do(JoinMachine(machine(), "i1", known=False))

    def do(self, command: Command, actor: str = "ann") -> tuple[str, int]:
        with refusals_checked():
            decision = decide(self.cell, self.observed, command, actor, NOW)
        for text in (decision.text, *decision.notes):
            check_sentence(text)
        self.apply(decision, type(command).__name__, actor)
        if isinstance(command, Observe):
            record_report(self.cell, self.observed, command, NOW)
        elif isinstance(command, PlaceTasks):  # what something is placed on has been heard
            for name in command.machines:
                found = self.observed.machines.setdefault(name, SeenMachine())
                found.instance = found.instance or "i1"
        assert violations(self.cell) == []
        return decision.text, len(decision.events)

    def apply(self, decision: Decision, cause: str, actor: str = "ann") -> None:
        if decision.events:
            position, subject = self.cell.position + 1, decision.subject
            entry = Entry(position, NOW.wall, 1, 1, actor, cause, decision.events, subject=subject)
            apply_entry(self.cell, entry)

    def submit_and_place(self, job: JobSpec) -> None:
        self.do(SubmitJob(job))
        self.do(PlaceTasks(job.key, tuple(range(job.tasks)), ("m1",) * job.tasks))

    def states(self, job: str = "ann/web") -> list[State]:
        return [task.state for task in self.cell.jobs[job].tasks]

    def report(self, *attempts: SeenAttempt, **more: object) -> None:
        self.do(msgspec.structs.replace(Observe("m1", "b1", "i1", attempts), **more), "m1")


@pytest.fixture
def desk() -> Desk:
    return Desk()


def seen(desk: Desk, index: int = 0, **changes: object) -> SeenAttempt:
    attempt = desk.cell.jobs["ann/web"].tasks[index].attempt
    return msgspec.structs.replace(SeenAttempt(f"ann/web/{index}", attempt, Phase.UP), **changes)


def test_a_new_job_is_pending(desk: Desk) -> None:
    assert desk.do(SubmitJob(spec())) == ("ann/web submitted: 2 tasks", 1)
    assert desk.states() == [State.PENDING] * 2
    assert desk.cell.waiting == {"ann/web": {0, 1}}


def test_the_same_job_again_changes_nothing(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    assert desk.do(SubmitJob(spec()))[1] == 0


def test_another_specification_of_a_live_job_updates_it(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    text, _ = desk.do(SubmitJob(spec(tasks=5, run=("other",))))
    assert text == "ann/web is updated to version 2: 5 tasks instead of 2"
    assert (desk.cell.jobs["ann/web"].version, len(desk.states())) == (2, 5)


def test_the_same_job_again_brings_back_killed_tasks_only(desk: Desk) -> None:
    batch = spec(tasks=5, restart=Restart(RestartPolicy.ON_FAILURE))
    desk.submit_and_place(batch)
    desk.report(
        seen(desk, 0, ended=Ending.FINISH, exit_code=0), seen(desk, 1, ended=Ending.FAIL, exit_code=3)
    )
    desk.do(KillTasks("ann/web", (2, 4)))
    text = "ann/web is there already, exactly like this; 2 tasks that were killed are pending again"
    assert desk.do(SubmitJob(batch)) == (text, 1)
    assert desk.states() == [State.DEAD, State.DEAD, State.PENDING, State.RUNNING, State.PENDING]
    assert [task.ending for task in desk.cell.jobs["ann/web"].tasks[:2]] == [Ending.FINISH, Ending.FAIL]
    assert desk.do(SubmitJob(batch)) == ("ann/web is there already, exactly like this", 0)


def test_a_dead_job_can_be_submitted_again(desk: Desk) -> None:
    desk.do(SubmitJob(spec(tasks=3)))
    desk.do(KillTasks("ann/web"))
    assert desk.cell.jobs["ann/web"].state is State.DEAD
    desk.do(SubmitJob(spec(tasks=1)))
    assert desk.states() == [State.PENDING]
    assert desk.cell.touched.tasks_gone["ann/web"] == 0


def test_placing_gives_the_position_as_the_attempts_id(desk: Desk) -> None:
    desk.submit_and_place(spec())
    assert {task.attempt for task in desk.cell.jobs["ann/web"].tasks} == {desk.cell.position}
    assert desk.cell.jobs["ann/web"].state is State.RUNNING


def test_a_stale_placement_is_dropped(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    desk.do(KillTasks("ann/web", (0,)))
    desk.do(PlaceTasks("ann/web", (0, 1), ("m1", "m1")))
    assert desk.states() == [State.DEAD, State.RUNNING]
    assert desk.do(PlaceTasks("ann/web", (1,), ("m1",)))[1] == 0
    assert desk.do(PlaceTasks("ann/gone", (1,), ("m1",)))[1] == 0


def test_nothing_is_placed_on_a_cordoned_or_down_machine(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    desk.do(CordonMachine("m1", "disk"))
    assert desk.do(PlaceTasks("ann/web", (0,), ("m1",)))[1] == 0
    desk.do(UncordonMachine("m1"))
    desk.do(SetMachineDown("m1", "silent"))
    assert desk.do(PlaceTasks("ann/web", (0,), ("m1",)))[1] == 0


def test_scaling_up_and_down(desk: Desk) -> None:
    desk.submit_and_place(spec())
    desk.do(ScaleJob("ann/web", 4))
    assert desk.states() == [State.RUNNING, State.RUNNING, State.PENDING, State.PENDING]
    assert desk.do(ScaleJob("ann/web", 4)) == ("ann/web has 4 tasks already", 0)
    desk.do(ScaleJob("ann/web", 1))
    assert desk.states() == [State.RUNNING]
    assert not desk.cell.waiting


def test_what_was_said_of_single_tasks_goes_with_them(desk: Desk) -> None:
    overrides = {index: Override(run=("sleep", str(index))) for index in range(3)}
    desk.do(SubmitJob(spec(tasks=3, overrides=overrides)))
    desk.do(ScaleJob("ann/web", 2))
    assert desk.cell.jobs["ann/web"].spec.overrides.keys() == {0, 1}


def test_who_waits_no_more_is_promised_nothing(desk: Desk) -> None:
    desk.submit_and_place(spec())
    assert desk.do(PromisePlaces("ann/web", (0,), ("m1",))) == ("nothing left to promise", 0)


@pytest.mark.parametrize("tasks", [0, -1, 10_001])
def test_scaling_outside_the_limits_is_refused(desk: Desk, tasks: int) -> None:
    desk.do(SubmitJob(spec()))
    with pytest.raises(Invalid, match="outside 1 to 10000"):
        desk.do(ScaleJob("ann/web", tasks))


def test_a_dead_job_is_not_scaled(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    desk.do(KillTasks("ann/web"))
    with pytest.raises(Conflict, match="ann/web is dead") as refused:
        desk.do(ScaleJob("ann/web", 5))
    assert refused.value.hint == "submit it again to bring it back"


def test_a_machine_that_joins_again_keeps_what_was_decided_about_it(desk: Desk) -> None:
    desk.do(CordonMachine("m1", "dust"))
    desk.do(TaintMachine("m1", "disk"))
    desk.cell.machines["m1"].port_next = 20007
    before = desk.cell.machines["m1"]
    again = msgspec.structs.replace(machine(), port=7600, joined_at=9.0, boot_id="b2", port_next=20001)
    desk.do(JoinMachine(again, "i2", known=True))
    assert desk.cell.machines["m1"] == msgspec.structs.replace(before, port=7600)


def test_an_answer_says_how_many_tasks_it_is_about(desk: Desk) -> None:
    desk.submit_and_place(spec(tasks=3))
    said = [
        desk.do(command)[0]
        for command in (
            RestartTasks("ann/web", (0, 1), hurried=True),
            PromisePlaces("ann/web", (0,), ("m1",)),
            PlaceTasks("ann/web", (0, 1), ("m1", "m9")),
            EvictTasks("ann/web", (0, 2), Eviction.OUT_OF_RESOURCES),
            KillTasks("ann/web", (1,)),
            RestartTasks("ann/web", hurried=True),
            ScaleJob("ann/web", 1),
        )
    ]
    assert said == [
        "2 tasks of ann/web restarted",
        "places for 1 task of ann/web promised",
        "1 task of ann/web placed",
        "2 tasks of ann/web evicted: out of resources",
        "1 task of ann/web killed",
        "1 task of ann/web restarted",
        "ann/web scaled from 3 to 1 task",
    ]


def test_killing_is_final_until_restarted(desk: Desk) -> None:
    desk.submit_and_place(spec())
    assert desk.do(KillTasks("ann/web", (1,)), "bob")[0] == "1 task of ann/web killed"
    task = desk.cell.jobs["ann/web"].tasks[1]
    assert (task.state, task.ending, task.reason) == (State.DEAD, Ending.KILL, "killed by bob")
    assert desk.do(KillTasks("ann/web", (1,)))[1] == 0
    desk.do(RestartTasks("ann/web", hurried=True))
    assert desk.states() == [State.PENDING, State.PENDING]


@pytest.mark.parametrize(
    "command",
    [
        ScaleJob("ann/no", 1),
        KillTasks("ann/no"),
        RestartTasks("ann/no", hurried=True),
        EvictTasks("ann/no", (0,), Eviction.DRAIN),
        ForgetJob("ann/no"),
        CordonMachine("m9"),
        UncordonMachine("m9"),
        SetMachineDown("m9", ""),
    ],
)
def test_what_is_not_there_is_said(desk: Desk, command: Command) -> None:
    with pytest.raises(NotFound, match=r"there is no (job ann/no|machine m9)"):
        desk.do(command)


def test_an_index_that_is_not_there_is_said(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    with pytest.raises(NotFound, match="no task 2") as refused:
        desk.do(KillTasks("ann/web", (0, 2)))
    assert "0 to 1" in refused.value.hint
    assert desk.states() == [State.PENDING] * 2


def test_only_dead_jobs_are_forgotten(desk: Desk) -> None:
    desk.do(SubmitJob(spec()))
    with pytest.raises(Conflict, match="ann/web is pending"):
        desk.do(ForgetJob("ann/web"))
    desk.do(KillTasks("ann/web"))
    desk.do(ForgetJob("ann/web"))
    assert not desk.cell.jobs
    assert desk.cell.touched.jobs_gone == {"ann/web"}


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (Ending.FINISH, State.DEAD),
        (Ending.FAIL, State.DEAD),
        (Ending.KILL, State.PENDING),  # somebody else stopped it: it is still wanted
        (Ending.LOST, State.PENDING),
    ],
)
def test_reported_ends(desk: Desk, ended: Ending, state: State) -> None:
    desk.submit_and_place(spec())
    desk.report(seen(desk, ended=ended, exit_code=3))
    assert desk.states() == [state, State.RUNNING]
    if state is State.DEAD:
        assert desk.cell.jobs["ann/web"].tasks[0].exit_code == 3


def test_reported_restarts_count_once(desk: Desk) -> None:
    desk.submit_and_place(spec())
    desk.report(seen(desk, restarts=2, signal=9))
    position = desk.cell.position
    desk.report(seen(desk, restarts=2, signal=9, phase=Phase.HEALTHY))
    assert desk.cell.position == position
    assert (desk.cell.jobs["ann/web"].tasks[0].restarts, desk.cell.jobs["ann/web"].tasks[0].signal) == (2, 9)


def test_a_restart_reported_with_the_end_says_nothing_of_how_the_end_was(desk: Desk) -> None:
    desk.submit_and_place(spec())
    attempt = seen(
        desk, restarts=2, ended=Ending.FAIL, exit_code=5, reason="the limit of its restart.attempts"
    )
    report = Observe("m1", "b1", "i1", (attempt,))
    restarted, ended = decide(desk.cell, desk.observed, report, "m1", NOW).events
    assert restarted == TasksRestarted("ann/web", (0,), (2,), (None,), (None,), ("",))
    assert ended == TasksEnded("ann/web", (0,), Ending.FAIL, (attempt.reason,), (5,), (None,), (0.0,))


def test_restarts_before_the_end_count_though_told_with_it(desk: Desk) -> None:
    desk.submit_and_place(spec())
    desk.report(seen(desk, restarts=2, ended=Ending.FAIL, exit_code=5))
    task = desk.cell.jobs["ann/web"].tasks[0]
    assert (task.state, task.restarts, task.exit_code) == (State.DEAD, 2, 5)


def test_a_superseded_attempt_has_no_consequences(desk: Desk) -> None:
    desk.submit_and_place(spec())
    old = seen(desk)
    desk.do(RestartTasks("ann/web", (0,), hurried=True))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    desk.report(msgspec.structs.replace(old, ended=Ending.FINISH, exit_code=0))
    assert desk.states() == [State.RUNNING, State.RUNNING]


def test_a_port_held_by_a_stranger_moves_the_task(desk: Desk) -> None:
    desk.submit_and_place(spec())
    desk.report(seen(desk, port_in_use=20000))
    assert desk.states()[0] is State.PENDING
    assert "20000" in desk.cell.jobs["ann/web"].tasks[0].reason
    assert 20000 in desk.observed.machines["m1"].ports_blocked


def test_what_a_machine_no_longer_has_is_placed_again(desk: Desk) -> None:
    desk.submit_and_place(spec())
    attempt = desk.cell.jobs["ann/web"].tasks[0].attempt
    desk.report(gone=(("ann/web/0", attempt), ("ann/web/1", attempt - 1)))
    assert desk.states() == [State.PENDING, State.RUNNING]


def test_a_report_brings_a_machine_up(desk: Desk) -> None:
    desk.do(SetMachineDown("m1", "silent"))
    desk.report()
    assert desk.cell.machines["m1"].up


def test_a_report_of_a_stranger_changes_nothing(desk: Desk) -> None:
    assert desk.do(Observe("m9", "b", "i", ()))[1] == 0


def test_an_attempt_from_the_future_is_an_orphan(desk: Desk) -> None:
    desk.report(SeenAttempt("ann/web/0", 999, Phase.UP), SeenAttempt("ann/old/0", 1, Phase.UP))
    assert list(desk.observed.machines["m1"].orphans) == [("ann/web/0", 999)]


def test_a_name_that_is_held_is_refused(desk: Desk) -> None:
    desk.observed.machines["m1"] = SeenMachine(instance="i1")
    with pytest.raises(Conflict, match="m1 is in this cell and answers"):
        desk.do(JoinMachine(machine(), "i2", known=False))
    assert desk.do(JoinMachine(machine(), "i2", known=True))[1] == 0
    desk.do(SetMachineDown("m1", "silent"))
    with pytest.raises(Conflict, match="machine invite m1"):
        desk.do(JoinMachine(machine(), "i1", known=False))


def test_joining_again_keeps_the_cordon(desk: Desk) -> None:
    desk.do(CordonMachine("m1", "disk"))
    moved = msgspec.structs.replace(machine(), port=7999)
    desk.do(JoinMachine(moved, "i2", known=True))
    assert desk.cell.machines["m1"].cordoned
    assert desk.cell.machines["m1"].port == 7999


def test_what_images_a_machine_has_is_seen_and_not_journalled(desk: Desk) -> None:
    position = desk.cell.position
    desk.report(images={"busybox:1": "amd64"})
    desk.report()
    assert desk.observed.machines["m1"].images == {"busybox:1": "amd64"}
    desk.report(images={})
    assert (desk.observed.machines["m1"].images, desk.cell.position) == ({}, position)
