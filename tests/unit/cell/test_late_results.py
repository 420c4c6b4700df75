"""Results of attempts that were lost with their machines, and came when the machine was back."""

import msgspec
import pytest

from borgish.cell.commands import (
    JoinMachine,
    KillTasks,
    LoseMachine,
    Observe,
    PlaceTasks,
    RemoveMachine,
    RestartTasks,
    ScaleJob,
    SeenAttempt,
    SetMachineDown,
    SubmitJob,
)
from borgish.cell.model import LOST_ATTEMPTS_MAX
from borgish.cell.observed import SeenMachine
from borgish.errors import Conflict
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import Ending, Phase, RestartPolicy, State
from tests.unit.cell.lived import Lived
from tests.unit.cell.lived import spec as lived_spec
from tests.unit.cell.test_decide import Desk, machine, spec

BATCH = Restart(RestartPolicy.ON_FAILURE, attempts=3)


class Losing(Desk):
    """A desk with two machines, and a job of one task that ran on the first and was lost with it."""

    def __init__(self, job: JobSpec | None = None) -> None:
        super().__init__()
        self.do(JoinMachine(machine("m2"), "i2", known=False))
        self.do(SubmitJob(job or spec(tasks=1, restart=BATCH)))
        self.lost = self.place("m1")
        self.give_up("m1")

    @property
    def task(self) -> object:
        return self.cell.jobs["ann/web"].tasks[0]

    def place(self, on: str) -> int:
        self.do(PlaceTasks("ann/web", (0,), (on,)))
        return self.cell.jobs["ann/web"].tasks[0].attempt

    def give_up(self, name: str) -> None:
        self.do(SetMachineDown(name, "no answer"))
        self.do(LoseMachine(name, "no answer", 0.0))

    def says(
        self, attempt: int, ended: Ending | None, code: int | None = 0, on: str = "m1", boot: str = "b1"
    ) -> None:
        text = f"exit code {code}"
        seen = SeenAttempt("ann/web/0", attempt, Phase.STOPPING, ended=ended, exit_code=code, reason=text)
        self.do(Observe(on, boot, f"i-{on}", (seen,), whole=True), on)

    def fields(self) -> tuple[object, ...]:
        task = self.cell.jobs["ann/web"].tasks[0]
        return task.state, task.ending, task.exit_code, task.attempt, task.machine


@pytest.mark.parametrize(("ended", "code"), [(Ending.FINISH, 0), (Ending.FAIL, 3)])
def test_a_task_that_waits_has_the_result_of_its_lost_attempt(ended: Ending, code: int) -> None:
    desk = Losing()
    desk.says(desk.lost, ended, code)
    assert desk.fields() == (State.DEAD, ended, code, desk.lost, "m1")
    assert not desk.cell.waiting


def test_a_later_attempt_is_left_for_the_result_of_the_lost_one() -> None:
    desk = Losing()
    later = desk.place("m2")
    desk.says(desk.lost, Ending.FINISH)
    assert desk.fields() == (State.DEAD, Ending.FINISH, 0, desk.lost, "m1")
    task = desk.cell.jobs["ann/web"].tasks[0]
    assert (task.previous_attempt, task.previous_machine) == (later, "m2")
    assert not desk.cell.placed["m2"]
    assert not desk.cell.is_current("m2", "ann/web/0", later)
    desk.says(later, Ending.FINISH, on="m2")  # before it heard of the stop
    assert desk.fields() == (State.DEAD, Ending.FINISH, 0, desk.lost, "m1")


def test_a_result_that_is_there_is_final() -> None:
    desk = Losing()
    later = desk.place("m2")
    desk.says(later, Ending.FAIL, 7, on="m2")
    desk.says(desk.lost, Ending.FINISH)
    assert desk.fields() == (State.DEAD, Ending.FAIL, 7, later, "m2")


def test_the_first_of_two_lost_results_counts() -> None:
    desk = Losing()
    second = desk.place("m2")
    desk.give_up("m2")
    desk.says(second, Ending.FINISH, on="m2")
    desk.says(desk.lost, Ending.FAIL, 1)
    assert desk.fields() == (State.DEAD, Ending.FINISH, 0, second, "m2")


def test_two_lost_results_of_one_report() -> None:
    desk = Losing()
    desk.says(desk.lost, None)  # up again, and still running it
    second = desk.place("m1")
    desk.give_up("m1")
    ends = tuple(
        SeenAttempt("ann/web/0", attempt, Phase.STOPPING, ended=Ending.FINISH, exit_code=0)
        for attempt in (second, desk.lost)
    )
    desk.do(Observe("m1", "b1", "i", ends, whole=True), "m1")
    assert desk.fields() == (State.DEAD, Ending.FINISH, 0, desk.lost, "m1")


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (None, None),  # it runs, and is told to stop
        (Ending.KILL, 0),  # it was told to stop
        (Ending.LOST, None),
        (Ending.FAIL, None),  # how it ended is not known, as after a boot
    ],
)
def test_what_is_no_result_changes_nothing(ended: Ending | None, code: int | None) -> None:
    desk = Losing()
    later = desk.place("m2")
    desk.says(desk.lost, ended, code)
    assert desk.fields() == (State.RUNNING, None, None, later, "m2")


def test_a_service_has_no_result() -> None:
    desk = Losing(spec(tasks=1))
    later = desk.place("m2")
    desk.says(desk.lost, Ending.FAIL, 1)
    assert desk.fields() == (State.RUNNING, None, None, later, "m2")


def test_whoever_asked_for_a_fresh_attempt_gets_one() -> None:
    desk = Losing()
    desk.place("m2")
    desk.do(RestartTasks("ann/web", hurried=True))
    desk.says(desk.lost, Ending.FINISH)
    assert desk.states() == [State.PENDING]


def test_what_was_killed_stays_killed() -> None:
    desk = Losing()
    desk.do(KillTasks("ann/web"))
    desk.says(desk.lost, Ending.FINISH)
    assert desk.cell.jobs["ann/web"].tasks[0].ending is Ending.KILL


def test_a_job_submitted_again_knows_nothing_of_it() -> None:
    desk = Losing()
    desk.do(KillTasks("ann/web"))
    desk.do(SubmitJob(spec(tasks=1, restart=BATCH, run=("other",))))
    desk.says(desk.lost, Ending.FINISH)
    assert desk.states() == [State.PENDING]


def test_a_job_that_is_scaled_still_runs_the_same() -> None:
    desk = Losing()
    desk.do(ScaleJob("ann/web", 3))
    desk.says(desk.lost, Ending.FINISH)
    assert desk.states() == [State.DEAD, State.PENDING, State.PENDING]


def test_another_machine_cannot_bring_it() -> None:
    desk = Losing()
    desk.says(desk.lost, Ending.FINISH, on="m2")
    assert desk.states() == [State.PENDING]


def test_a_machine_that_was_removed_and_joins_again_brings_it() -> None:
    desk = Desk()
    desk.do(SubmitJob(spec(tasks=1, restart=BATCH)))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    attempt = desk.cell.jobs["ann/web"].tasks[0].attempt
    desk.do(SetMachineDown("m1", "no answer"))
    desk.observed.machines["m1"] = SeenMachine(heard=-1e9, watched_since=-1e9)
    desk.do(RemoveMachine("m1"))
    desk.do(JoinMachine(machine(), "i1", known=True))
    seen = SeenAttempt("ann/web/0", attempt, Phase.STOPPING, ended=Ending.FINISH, exit_code=0)
    desk.report(seen)
    assert desk.states() == [State.DEAD]


def test_so_many_are_remembered_and_no_more() -> None:
    desk = Losing()
    for _ in range(LOST_ATTEMPTS_MAX):
        desk.place("m2")
        desk.give_up("m2")
        desk.do(Observe("m2", "b1", "i2", ()), "m2")
    assert len(desk.cell.jobs["ann/web"].tasks[0].lost) == LOST_ATTEMPTS_MAX
    desk.says(desk.lost, Ending.FINISH)
    assert desk.states() == [State.PENDING]


# With a rollback


class LosingLife(Lived):
    """A life in which a batch task's first attempt was lost, and its second one runs."""

    def __init__(self) -> None:
        super().__init__()
        self.do(SubmitJob(lived_spec(tasks=1, restart=BATCH, run=("other",))))
        self.other_at = self.position
        self.do(KillTasks("ann/web"))
        self.do(SubmitJob(lived_spec(tasks=1, restart=BATCH)))
        self.first = self.cell.jobs["ann/web"].tasks[0]
        self.lost, self.on = self.first.attempt, self.first.machine
        self.running_at = self.position
        self.silent.add(self.on)
        while self.cell.jobs["ann/web"].tasks[0].attempt == self.lost:
            self.step()
        self.again_at = self.position

    def says_finished(self) -> None:
        self.silent.clear()
        seen = SeenAttempt("ann/web/0", self.lost, Phase.STOPPING, ended=Ending.FINISH, exit_code=0)
        self.step(Observe(self.on, "b1", "i", (seen,), whole=True), actor=self.on)


@pytest.mark.parametrize("back_to", ["running_at", "again_at"])
def test_a_late_result_is_known_after_a_rollback(back_to: str) -> None:
    lived = LosingLife()
    lived.says_finished()
    assert lived.states() == [State.DEAD]
    with pytest.raises(Conflict, match="nothing differs"):
        lived.roll_back(getattr(lived, back_to))


def test_the_result_of_another_version_is_of_no_use() -> None:
    lived = LosingLife()
    lived.roll_back(lived.other_at)
    lived.settle()
    attempt = lived.attempts()
    lived.says_finished()
    assert (lived.states(), lived.attempts()) == ([State.RUNNING], attempt)


# A machine that booted


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.BACKING_OFF, Phase.CRASH_LOOPING])
def test_what_a_boot_ended_is_evicted_by_the_first_report(phase: Phase) -> None:
    desk = Desk()
    for name in ("web", "runs", "fresh", "over", "done"):
        desk.do(SubmitJob(spec(name, 1, restart=BATCH)))
        desk.do(PlaceTasks(f"ann/{name}", (0,), ("m1",)))
    attempts = {name: job.tasks[0].attempt for name, job in desk.cell.jobs.items() if name != "ann/fresh"}
    desk.do(JoinMachine(msgspec.structs.replace(machine(), boot_id="b2", port=7501), "i2", known=True))
    assert desk.states() == [State.RUNNING]  # a joining machine does not say what it runs
    said = {
        "ann/web": SeenAttempt("", 0, phase, exit_reason="exit unknown"),
        "ann/runs": SeenAttempt("", 0, Phase.UP, pid=7, restarts=1, exit_reason="exit unknown"),
        "ann/over": SeenAttempt("", 0, Phase.STOPPING, ended=Ending.FAIL, exit_reason="exit unknown"),
        "ann/done": SeenAttempt("", 0, Phase.STOPPING, ended=Ending.FINISH, exit_code=0),
    }
    reports = tuple(
        msgspec.structs.replace(said[job], task=f"{job}/0", attempt=attempt)
        for job, attempt in attempts.items()
    )
    desk.do(Observe("m1", "b2", "i2", reports, whole=True), "m1")
    found = {job.spec.name: job.tasks[0] for job in desk.cell.jobs.values()}
    assert {name: task.state for name, task in found.items()} == {
        "web": State.PENDING,
        "runs": State.RUNNING,  # the borglet started it again before it was asked
        "over": State.PENDING,
        "done": State.DEAD,
        "fresh": State.RUNNING,  # placed since, and not heard of yet
    }
    assert found["web"].reason == "m1 was rebooted"
    assert desk.cell.machines["m1"].boot_id == "b2"
