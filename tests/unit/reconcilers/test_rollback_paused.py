"""A rollback waits for what it changed to be up, says why it does, and locks nobody out meanwhile."""

from typing import Any

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    AdvanceRollouts,
    CordonMachine,
    KillTasks,
    Observe,
    RestartTasks,
    RollBack,
    ScaleJob,
    SeenAttempt,
    SubmitJob,
    UncordonMachine,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry, RolloutPaused
from borgish.cell.limits.availability import RECOVERED_SECONDS
from borgish.cell.model import Job, Rollout, Task
from borgish.cell.updates.rollback import RollbackTarget
from borgish.cell.updates.rollout import (
    PAUSED_AFTER_SECONDS,
    STEADY_SECONDS,
    NotReady,
    not_ready,
)
from borgish.clock import Now
from borgish.errors import Conflict
from borgish.master.core import Core
from borgish.reconcilers.rollout import _room, reconcile, reconcile_hurried
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import Health, JobSpec, Override, Restart
from borgish.vocabulary import Ending, JobKind, Phase, RestartPolicy, State
from tests.unit.cell.lived import CRASHES, FIVE, GIB, Lived, crashed_before, deploy, spec, wanted_of

RUNS, DEAD = State.RUNNING, State.DEAD


def up(lived: Lived, job: str = "ann/web") -> int:
    """Return how many tasks of a job do their work."""
    seen = (
        lived.core.observed.attempt(task.machine, f"{job}/{task.index}", task.attempt)
        for task in lived.cell.jobs[job].tasks
        if task.state is RUNS
    )
    return sum(found is not None and found.phase in (Phase.UP, Phase.HEALTHY) for found in seen)


def rollout(lived: Lived, job: str = "ann/web") -> Rollout:
    found = lived.cell.jobs[job].rollout
    assert found is not None
    return found


def reason(lived: Lived, job: str = "ann/web") -> str:
    found = not_ready(lived.cell, lived.core.observed, lived.cell.jobs[job], lived.now)
    return found.reason if found else ""


def pauses(lived: Lived) -> list[RolloutPaused]:
    return [e for entry in lived.entries for e in entry.events if isinstance(e, RolloutPaused)]


# It waits


def test_a_version_that_crashes_costs_one_task_of_five() -> None:
    lived, bad = crashed_before()
    lived.roll_back(bad)
    for _ in range(120):
        lived.step()
        assert up(lived) >= FIVE - 1
    assert len(rollout(lived).attempts) == FIVE - 1
    on = lived.cell.jobs["ann/web"].tasks[0].machine
    assert rollout(lived).paused == f"task 0 was restarted once on {on} (exit code 1)"
    assert [paused.job for paused in pauses(lived)] == ["ann/web"]  # told once, not once a second


@pytest.mark.parametrize("tasks", range(1, 6))
def test_a_small_job_goes_one_at_a_time(tasks: int) -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=tasks)))
    good = lived.position
    deploy(lived, tasks=tasks, run=("other",))
    lived.settle()
    lived.roll_back(good)
    while lived.cell.rolling:
        lived.step()
        assert up(lived) >= tasks - 1
    lived.settle()
    assert up(lived) == tasks
    assert pauses(lived) == []


def test_in_a_hurry_it_looks_at_nothing() -> None:
    lived, bad = crashed_before()
    lived.roll_back(bad, hurried=True)
    assert lived.cell.rolling == set()


def test_it_goes_on_by_itself_when_what_it_waits_for_is_up() -> None:
    lived, bad = crashed_before()
    lived.roll_back(bad)
    lived.settle()
    lived.crashes = False  # as when what it depends on is there again
    for _ in range(int(RECOVERED_SECONDS)):
        lived.step()
        assert len(rollout(lived).attempts) == FIVE - 1
    lived.step()
    lived.step()
    assert len(rollout(lived).attempts) == FIVE - 2
    assert rollout(lived).paused == ""
    lived.settle()
    assert lived.cell.rolling == set()


def test_a_new_master_comes_to_the_same() -> None:
    lived, bad = crashed_before()
    lived.roll_back(bad)
    lived.settle()
    before = rollout(lived)
    lived.core = Core(lived.cell, ReconcileSettings(), lived.now)
    lived.entries += lived.core.begin(2, "another", lived.now).entries
    for _ in range(60):
        lived.step()
    assert rollout(lived) == before


def test_what_finds_no_place_pauses_it_after_a_while() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=2, resources=Resources(100, 100 * GIB, 0))))  # fits nowhere
    bad = lived.position
    deploy(lived, tasks=2)
    lived.settle()
    lived.roll_back(bad)
    lived.step()
    assert reason(lived).startswith("task 0 waits for a machine")
    assert pauses(lived) == []
    for _ in range(int(PAUSED_AFTER_SECONDS) + 1):
        lived.step()
    (paused,) = pauses(lived)
    refused = lived.core.refusals["ann/web"][0].text
    assert refused
    assert paused.reason == f"task 0 waits for a machine: {refused}"
    assert lived.cell.jobs["ann/web"].running == 1


@pytest.mark.parametrize("tasks", [20, 40])
def test_a_tenth_of_a_large_job_is_not_up_at_most(tasks: int) -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=tasks)))
    good = lived.position
    deploy(lived, tasks=tasks, run=("other",))
    lived.settle()
    lived.roll_back(good)
    least = tasks
    while lived.cell.rolling:
        lived.step()
        least = min(least, up(lived))
    assert least == tasks - tasks // 10
    assert pauses(lived) == []


def test_some_without_a_place_do_not_hold_up_a_large_job() -> None:
    lived = Lived()
    fits_nowhere = Override(resources=Resources(100, 100 * GIB, 0))
    lived.do(SubmitJob(spec(tasks=20, overrides={7: fits_nowhere})))
    good = lived.position
    deploy(lived, tasks=20)
    lived.settle()
    lived.roll_back(good)
    for _ in range(300):
        lived.step()
    job = lived.cell.jobs["ann/web"]
    assert (job.running, job.pending, job.rollout) == (19, 1, None)


def test_others_go_on_at_their_own_pace() -> None:
    lived, bad = crashed_before()
    lived.do(SubmitJob(spec("late", 3)))
    lived.roll_back(bad)
    lived.settle()
    assert "ann/late" not in lived.cell.jobs
    assert len(rollout(lived).attempts) == FIVE - 1


@pytest.mark.parametrize(
    ("waits", "more"),
    [
        (None, 3),
        (NotReady("", failed=False, since=0.0, tasks=1), 2),
        (NotReady("", failed=False, since=0.0, tasks=4), 0),
        (NotReady("", failed=True, since=0.0, tasks=1), 0),
    ],
)
def test_how_many_more_of_thirty_may_be_stopped(waits: NotReady | None, more: int) -> None:
    """None while one has failed, however many may be not up."""
    tasks = [Task(index, RUNS) for index in range(30)]
    assert _room(Job("ann/web", 1, spec(tasks=30), 0.0, "ann", tasks=tasks), waits) == more


def test_all_jobs_together_are_stopped_at_one_pace() -> None:
    lived = Lived()
    for name in ("a", "b"):
        lived.do(SubmitJob(spec(name, 1)))
    good = lived.position
    for name in ("a", "b"):
        deploy(lived, name, tasks=1, run=("other",))
    lived.settle()
    cell, observed = lived.then(lived.position), lived.core.observed
    at = lived.entries[good - 1].at
    command = RollBack(good, at, max_affected=2)
    decision = decide(cell, observed, command, "ann", lived.now, RollbackTarget(lived.then(good)))
    apply_entry(cell, Entry(cell.position + 1, lived.now.wall, 2, 1, "ann", "test", decision.events))
    (asked,) = reconcile(cell, observed, ReconcileSettings(rollout_stops_max=1), lived.now)
    assert asked == AdvanceRollouts({"ann/a": (0,)})


def test_it_says_that_what_it_is_to_stop_is_out_of_reach(lived: Lived) -> None:
    good = lived.position
    deploy(lived, tasks=1, run=("other",))
    lived.silent = {"m1", "m2"}
    for _ in range(12):
        lived.step()
    lived.roll_back(good)
    lived.do(KillTasks("ann/web", (1, 2)))
    on = lived.cell.jobs["ann/web"].tasks[0].machine
    assert reason(lived) == f"task 0 is to be stopped, and {on}, where it runs, is down"


# What is up


def waited_for(
    spec: JobSpec, task: Task, seen: SeenAttempt | None, mono: float, *, is_up: bool = True
) -> NotReady | None:
    """Return what a rollback at position 5 waits for in a job of one task, seen at some time."""
    lived = Lived(("m1",))
    cell, observed = lived.cell, lived.core.observed
    behind = Rollout({1: 2}, 2, {}, hurried=False, reason="", position=5)
    job = Job("ann/web", 1, spec, 0.0, "ann", tasks=[task, Task(1, RUNS, 2, "m1")], rollout=behind)
    cell.machines["m1"].up = is_up
    if seen is not None:
        observed.machines["m1"].put(seen)
    return not_ready(cell, observed, job, Now(mono + 1000.0, mono))


def check(spec: JobSpec, task: Task, seen: SeenAttempt | None, mono: float) -> str:
    found = waited_for(spec, task, seen, mono)
    return found.reason if found else ""


SERVICE, BATCH = spec(), spec(restart=Restart(RestartPolicy.ON_FAILURE))
PROBED = spec(health=Health(command=("true",)))
PLACED = Task(0, RUNS, 7, "m1")


def seen(phase: Phase, **more: Any) -> SeenAttempt:
    return SeenAttempt("ann/web/0", 7, phase, since=100.0, **more)


@pytest.mark.parametrize(
    ("job", "report", "after", "waits"),
    [
        (SERVICE, None, 60.0, "task 0 was placed on m1, which has not reported it yet"),
        (SERVICE, seen(Phase.STARTING), 60.0, "task 0 is starting on m1"),
        (SERVICE, seen(Phase.STARTING, reason="pulls"), 60.0, "task 0 is starting on m1: pulls"),
        (SERVICE, seen(Phase.UP), STEADY_SECONDS - 1, "task 0 has only just come up on m1"),
        (SERVICE, seen(Phase.UP), STEADY_SECONDS, ""),
        (SERVICE, seen(Phase.UP, restarts=2, signal=9), 9.0, "task 0 was restarted 2 times on m1 (signal 9)"),
        (SERVICE, seen(Phase.UP, restarts=2, signal=9), RECOVERED_SECONDS, ""),
        (SERVICE, seen(Phase.UP, restarts=1), 9.0, "task 0 was restarted once on m1"),
        (
            SERVICE,
            seen(Phase.UP, restarts=1, exit_reason="oom"),
            9.0,
            "task 0 was restarted once on m1 (oom)",
        ),
        (PROBED, seen(Phase.UP), 60.0, "task 0 runs on m1 and its probe has not answered yet"),
        (PROBED, seen(Phase.UNHEALTHY, reason="no"), 60.0, "task 0 is unhealthy on m1: no"),
        (PROBED, seen(Phase.HEALTHY), STEADY_SECONDS, ""),
        (BATCH, seen(Phase.UP), STEADY_SECONDS, ""),
        (BATCH, seen(Phase.STOPPING, ended=Ending.FINISH), 0.0, ""),
    ],
)
def test_what_it_takes_to_be_up(job: JobSpec, report: SeenAttempt | None, after: float, waits: str) -> None:
    assert check(job, PLACED, report, 100.0 + after) == waits


@pytest.mark.parametrize(
    ("task", "waits"),
    [
        (Task(0, DEAD, 7, "m1", ending=Ending.FINISH), ""),
        (Task(0, DEAD, 7, "m1", ending=Ending.KILL), ""),  # somebody wants it so
        (Task(0, DEAD, 7, "m1", ending=Ending.FAIL, exit_code=3), "task 0 failed (exit code 3)"),
        (Task(0, DEAD, 7, "m1", ending=Ending.FAIL, signal=9), "task 0 failed (signal 9)"),
        (Task(0, DEAD, 7, "m1", ending=Ending.FAIL, reason="no image"), "task 0 failed (no image)"),
        (Task(0, DEAD, 4, "m1", ending=Ending.FAIL, exit_code=3), ""),  # before the rollback
        (Task(0, RUNS, 4, "m1"), ""),  # untouched by it
        (Task(0), "task 0 waits for a machine"),
    ],
)
def test_what_it_waits_for_is_what_it_changed(task: Task, waits: str) -> None:
    assert check(BATCH, task, None, 100.0) == waits


def test_of_several_the_first_that_failed_is_named_and_the_others_are_counted() -> None:
    lived = Lived(("m1",))
    waits, fails, untouched = (
        Task(0),
        Task(1, DEAD, 8, "m1", ending=Ending.FAIL, exit_code=3),
        Task(2, RUNS, 4, "m1"),
    )
    behind = Rollout({3: 2}, 4, {}, hurried=False, reason="", position=5)
    found = []
    for third in (untouched, Task(2)):
        job = Job("ann/web", 1, SERVICE, 0.0, "ann", tasks=[waits, fails, third], rollout=behind)
        found.append(not_ready(lived.cell, lived.core.observed, job, lived.now))
    assert found == [
        NotReady(
            "task 1 failed (exit code 3); 1 more is not up", failed=True, since=0.0, tasks=2, fatal=True
        ),
        NotReady(
            "task 1 failed (exit code 3); 2 more are not up", failed=True, since=0.0, tasks=3, fatal=True
        ),
    ]


def test_who_waits_is_worth_a_report_after_a_while_and_what_failed_at_once() -> None:
    now = Now(100.0, 0.0)
    assert NotReady("", failed=True, since=100.0).pauses(now)
    assert NotReady("", failed=False, since=100.0 - PAUSED_AFTER_SECONDS).pauses(now)
    assert not NotReady("", failed=False, since=101.0 - PAUSED_AFTER_SECONDS).pauses(now)


def test_a_machine_that_is_down_is_no_place_to_be_up() -> None:
    report = seen(Phase.UP)
    placed = msgspec.structs.replace(PLACED, since=1190.0)
    reason = "task 0 was placed on m1, which is down"
    assert waited_for(SERVICE, placed, report, 200.0, is_up=False) == NotReady(
        reason, failed=False, since=1190.0
    )


def test_an_alloc_is_up_when_it_is_reserved() -> None:
    assert check(spec(kind=JobKind.ALLOC_SET), PLACED, None, 100.0) == ""


def test_a_break_begins_the_count_anew(lived: Lived) -> None:
    task = lived.cell.jobs["ann/web"].tasks[0]
    lived.step()

    def since() -> float:
        found = lived.core.observed.attempt(task.machine, "ann/web/0", task.attempt)
        assert found is not None
        return found.since

    first = since()
    report = SeenAttempt("ann/web/0", task.attempt, Phase.UP, pid=5)
    lived.report(task.machine, report)
    assert since() == first
    lived.report(task.machine, report, whole=True)  # as after a connection was lost
    assert since() == first
    lived.report(task.machine, msgspec.structs.replace(report, restarts=1))
    assert since() == lived.now.mono


# Nobody is locked out


def test_it_is_rolled_back_again_to_where_all_was_well() -> None:
    lived, bad = crashed_before()
    before, well = wanted_of(lived.cell), lived.attempts()
    undo = lived.position
    lived.roll_back(bad)
    lived.settle()
    assert "1 task to stop, 1 to start, 4 continue" in lived.roll_back(undo)
    lived.settle()
    assert wanted_of(lived.cell) == before
    assert lived.attempts()[1:] == well[1:]  # untouched
    assert (up(lived), lived.cell.rolling) == (FIVE, set())


def test_it_is_rolled_back_elsewhere_at_the_same_pace() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=FIVE, run=("first",), ports=("a", "b"))))
    first = lived.position
    deploy(lived, tasks=FIVE, run=CRASHES)
    bad = lived.position
    deploy(lived, tasks=FIVE, run=("third",), ports=("a",))
    lived.settle()
    lived.roll_back(bad)
    lived.settle()
    lived.roll_back(first)
    job = lived.cell.jobs["ann/web"]
    assert [job.spec_of(task).run for task in job.tasks[1:]] == [("third",)] * 4
    assert job.spec_of(job.tasks[0]).run != ("third",)
    while lived.cell.rolling:
        lived.step()
        assert up(lived) >= FIVE - 2  # the one that crashed, and one at a time
    lived.settle()
    assert {job.spec_of(task).run for task in lived.cell.jobs["ann/web"].tasks} == {("first",)}
    assert up(lived) == FIVE


def test_between_resyncs_only_what_has_no_pace_goes_on(lived: Lived) -> None:
    good = lived.position
    deploy(lived, run=("other",))
    lived.settle()
    lived.roll_back(good)
    args = lived.cell, lived.core.observed, ReconcileSettings(), lived.now
    assert rollout(lived).attempts
    assert list(reconcile_hurried(*args)) == []
    job = lived.cell.jobs["ann/web"]
    job.rollout = msgspec.structs.replace(rollout(lived), hurried=True)
    assert list(reconcile_hurried(*args)) == [AdvanceRollouts({"ann/web": tuple(job.rollout.attempts)})]


def test_asked_for_again_in_a_hurry_it_goes_on_at_once() -> None:
    lived, bad = crashed_before()
    lived.roll_back(bad)
    lived.settle()
    lived.roll_back(bad, hurried=True)
    assert lived.cell.rolling == set()
    assert lived.cell.jobs["ann/web"].spec.run == CRASHES


def test_it_is_killed_and_submitted_anew() -> None:
    lived, bad = crashed_before()
    lived.roll_back(bad)
    lived.settle()
    lived.do(KillTasks("ann/web"))
    lived.do(SubmitJob(spec(tasks=FIVE, run=("new",))))
    lived.settle()
    assert (up(lived), lived.cell.rolling) == (FIVE, set())


def test_a_submission_of_what_it_is_to_be_is_there_already() -> None:
    lived, bad = crashed_before()
    lived.do(ScaleJob("ann/web", 9))
    lived.roll_back(bad)
    assert len(lived.cell.jobs["ann/web"].tasks) == 9
    assert "there already" in lived.do(SubmitJob(spec(tasks=FIVE, run=CRASHES)))
    assert "has 5 tasks already" in lived.do(ScaleJob("ann/web", FIVE))


@pytest.mark.parametrize("tasks", [1, 3, 5, 7, 9, 12])
def test_it_is_scaled_meanwhile(tasks: int) -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=FIVE)))
    good = lived.position
    deploy(lived, tasks=9, run=("other",))
    lived.settle()
    lived.roll_back(good)
    lived.step()
    assert rollout(lived).attempts
    if tasks != FIVE:
        lived.do(ScaleJob("ann/web", tasks))
    lived.settle()
    job = lived.cell.jobs["ann/web"]
    assert lived.states() == [RUNS] * tasks
    assert {job.spec_of(task).run for task in job.tasks} == {spec().run}
    assert up(lived) == tasks


def test_a_restart_takes_the_new_version_sooner() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=2)))
    good = lived.position
    deploy(lived, tasks=4, run=("other",))
    lived.settle()
    lived.roll_back(good)
    with pytest.raises(Conflict, match="none of these tasks should run: ann/web was rolled back to position"):
        lived.do(RestartTasks("ann/web", (2, 3), hurried=True))
    lived.do(RestartTasks("ann/web", hurried=True))
    job = lived.cell.jobs["ann/web"]
    assert [job.spec_of(task).run for task in job.tasks[:2]] == [spec().run] * 2
    lived.settle()
    assert lived.states() == [RUNS] * 2


def test_a_job_that_goes_is_submitted_again_once_it_is_killed(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(spec("late", 8)))
    lived.roll_back(good)
    for command in (
        ScaleJob("ann/late", 9),
        SubmitJob(spec("late", 8)),
        RestartTasks("ann/late", hurried=True),
    ):
        with pytest.raises(Conflict, match="ann/late is being removed, as it was rolled back to position"):
            lived.do(command)
    lived.do(KillTasks("ann/late"))
    lived.do(SubmitJob(spec("late", 8)))
    lived.settle()
    assert lived.states("ann/late") == [RUNS] * 8


def test_a_job_that_was_to_lose_tasks_keeps_them_when_that_is_undone(lived: Lived) -> None:
    three = lived.position
    lived.do(ScaleJob("ann/web", 9))
    nine, attempts = lived.position, lived.attempts()
    lived.roll_back(three)
    assert len(lived.cell.jobs["ann/web"].tasks) == 9
    lived.roll_back(nine)
    lived.settle()
    assert lived.states() == [RUNS] * 9
    assert sum(a == b for a, b in zip(lived.attempts(), attempts, strict=True)) >= 7


def test_a_result_of_what_lagged_behind_is_not_taken_for_the_other_versions() -> None:
    """The machine reports the end in the very step in which somebody rolls back again."""
    batch = Restart(RestartPolicy.ON_FAILURE)
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=2, run=("first",), restart=batch)))
    first = lived.position
    deploy(lived, tasks=2, run=("second",), restart=batch)
    lived.settle()
    lived.roll_back(first)
    index = max(rollout(lived).attempts)
    task = lived.cell.jobs["ann/web"].tasks[index]
    done = SeenAttempt(f"ann/web/{index}", task.attempt, Phase.STOPPING, ended=Ending.FINISH)
    lived.step(Observe(task.machine, "b1", "i", (done,)), RollBack(first, 0.0, max_affected=9))
    lived.settle()
    assert lived.states() == [RUNS] * 2


def test_cordons_do_not_matter_to_what_is_up(lived: Lived) -> None:
    good = lived.position
    deploy(lived, run=("other",))
    lived.settle()
    for name in ("m1", "m2"):
        lived.do(CordonMachine(name))
    lived.roll_back(good, only=frozenset({"ann/web"}))
    lived.settle()
    assert reason(lived).startswith("task 0 waits for a machine: ")
    assert lived.cell.jobs["ann/web"].running == 2
    for name in ("m1", "m2"):
        lived.do(UncordonMachine(name))
    lived.settle()
    assert lived.states() == [RUNS] * 3
    assert lived.cell.rolling == set()
