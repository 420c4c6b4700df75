"""A job that runs gets another specification: tasks change a few at a time, and what does not come up is held
or undone."""

from typing import Any

import msgspec
import pytest

from borgish.cell.commands import (
    CordonMachine,
    FreezeCell,
    JoinMachine,
    KillTasks,
    Observe,
    PauseUpdate,
    RestartTasks,
    ResumeUpdate,
    ScaleJob,
    SeenAttempt,
    SetQuota,
    SubmitJob,
    UndoUpdate,
)
from borgish.cell.events import RolloutFinished, RolloutPaused
from borgish.cell.model import EARLIER_VERSIONS_BYTES_MAX, VERSIONS_KEPT, Rollout
from borgish.cell.updates.decide import update_plan
from borgish.cell.updates.rollout import TRY_ON_SECONDS, not_ready
from borgish.errors import Conflict, NotFound, OverQuota
from borgish.master.core import Core
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.changes import TaskChange
from borgish.spec.job import Constraint, Disruption, Health, JobSpec, Override, Restart, Stop, Update
from borgish.spec.shares import Share
from borgish.vocabulary import (
    Band,
    Ending,
    Hold,
    JobKind,
    OnFailure,
    Phase,
    RestartPolicy,
    RolloutKind,
    State,
)
from borgish.wire.api import Accepted
from tests.unit.cell.lived import CRASHES, FIVE, GIB, LOOPS, Lived, machine, spec

JOB = "ann/web"
NEW = ("new",)


def web(**changes: Any) -> JobSpec:
    return spec(**{"tasks": FIVE, "update": Update(settle_seconds=2.0), **changes})


@pytest.fixture
def lived() -> Lived:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.settle()
    return lived


def up(lived: Lived) -> int:
    """Return how many tasks are up."""
    seen = lived.core.observed
    found = (seen.attempt(t.machine, f"{JOB}/{t.index}", t.attempt) for t in lived.cell.jobs[JOB].tasks)
    return sum(each is not None and each.phase in (Phase.UP, Phase.HEALTHY) for each in found)


def versions(lived: Lived) -> list[int]:
    return [task.version for task in lived.cell.jobs[JOB].tasks]


def runs(lived: Lived) -> set[tuple[str, ...]]:
    job = lived.cell.jobs[JOB]
    return {job.spec_of(task).run for task in job.tasks if task.state is State.RUNNING}


def rollout(lived: Lived) -> Rollout:
    found = lived.cell.jobs[JOB].rollout
    assert found is not None
    return found


# What changes how


def test_it_reaches_one_task_after_the_other(lived: Lived) -> None:
    text = lived.do(SubmitJob(web(run=NEW)))
    assert text == "ann/web is updated to version 2: 5 tasks to restart, a few at a time"
    changed = {versions(lived).count(2)}
    while lived.cell.rolling:
        lived.step()
        changed.add(versions(lived).count(2))
        assert up(lived) >= FIVE - 1
    assert changed == {1, 2, 3, 4, 5}
    assert runs(lived) == {NEW}
    last = lived.cell.jobs[JOB].last_rollout
    assert last is not None
    assert (last.kind, last.version, last.outcome, last.skipped) == (RolloutKind.UPDATE, 2, "complete", ())


@pytest.mark.parametrize(("at_a_time", "most"), [(Share(2), 2), (Share(percent=60), 3), (Share(5), 5)])
def test_as_many_at_a_time_as_it_says(lived: Lived, at_a_time: Share, most: int) -> None:
    lived.do(SubmitJob(web(run=NEW, update=Update(at_a_time, settle_seconds=3.0))))
    least = FIVE
    while lived.cell.rolling:
        lived.step()
        least = min(least, up(lived))
    assert least >= FIVE - most
    assert runs(lived) == {NEW}


def test_a_restart_stays_on_its_machine_with_its_ports(lived: Lived) -> None:
    before = [task.machine for task in lived.cell.jobs[JOB].tasks]
    lived.do(SubmitJob(web(run=NEW)))
    lived.settle()
    assert [task.machine for task in lived.cell.jobs[JOB].tasks] == before
    assert versions(lived) == [2] * FIVE


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 7},
        {"labels": {"app": "web"}},
        {"annotations": {"note": "x"}},
        {"restart": Restart(attempts=3)},
        {"update": Update(canaries=1)},
        {"update": Update(handover=True)},
        {"stop": Stop(deregister_seconds=5.0)},
        {"constraints": (Constraint("arch", "==", ("amd64",)),)},
        {"disruption": Disruption(Share(2))},
    ],
)
def test_what_needs_no_stop_is_changed_in_place(lived: Lived, changes: dict[str, Any]) -> None:
    attempts = lived.attempts()
    text = lived.do(SubmitJob(web(**changes)))
    assert text == "ann/web is updated to version 2: nothing has to be restarted for it"
    assert lived.cell.rolling == set()
    assert versions(lived) == [2] * FIVE
    lived.settle()
    assert lived.attempts() == attempts


def test_what_its_machine_does_not_suit_any_more_moves() -> None:
    lived = Lived(())
    for name, arch in (("m1", "amd64"), ("m2", "arm64")):
        lived.do(JoinMachine(machine(name, attributes={"arch": arch}), name, known=True))
    lived.do(SubmitJob(web(constraints=(Constraint("arch", "==", ("amd64",)),))))
    lived.settle()
    lived.do(SubmitJob(web(constraints=(Constraint("arch", "==", ("arm64",)),))))
    lived.settle()
    assert {task.machine for task in lived.cell.jobs[JOB].tasks} == {"m2"}


def test_limits_that_no_longer_fit_there_move_a_task() -> None:
    lived = Lived(("m1", "m2"))
    lived.do(SubmitJob(spec("other", 1, resources=Resources(4000, GIB, 0))))
    lived.do(SubmitJob(web(tasks=2, resources=Resources(3500, GIB, 0))))
    lived.settle()
    lived.do(SubmitJob(web(tasks=1, resources=Resources(7000, GIB, 0))))
    lived.settle()
    (task,) = lived.cell.jobs[JOB].tasks
    (other,) = lived.cell.jobs["ann/other"].tasks
    assert task.state is State.RUNNING
    assert task.machine != other.machine


@pytest.mark.parametrize(
    ("more", "change"), [(-1, TaskChange.RESTART), (0, TaskChange.RESTART), (1, TaskChange.MOVE)]
)
def test_it_is_foreseen_who_moves_for_limits(more: int, change: TaskChange) -> None:
    lived = Lived(("m1",))
    lived.do(SubmitJob(spec("other", 1, resources=Resources(4000, GIB, 0))))
    lived.do(SubmitJob(web(tasks=1, resources=Resources(500, GIB, 0))))
    lived.settle()
    beside_other = lived.cell.machines["m1"].capacity.cpu_millis - 4000
    wanted = web(tasks=1, resources=Resources(beside_other + more, GIB, 0))
    assert update_plan(lived.cell, lived.cell.jobs[JOB], wanted).changes == {change: (0,)}


def test_of_one_task_only_that_one_restarts(lived: Lived) -> None:
    attempts = lived.attempts()
    lived.do(SubmitJob(web(overrides={3: Override(env={"ROLE": "first"})})))
    lived.settle()
    changed = [index for index, attempt in enumerate(lived.attempts()) if attempt != attempts[index]]
    assert changed == [3]
    assert versions(lived) == [2] * FIVE


@pytest.mark.parametrize(("tasks", "text"), [(7, "7 tasks instead of 5"), (3, "3 tasks instead of 5")])
def test_with_another_number_of_tasks(lived: Lived, tasks: int, text: str) -> None:
    assert text in lived.do(SubmitJob(web(tasks=tasks, run=NEW)))
    lived.settle()
    assert lived.states() == [State.RUNNING] * tasks
    assert versions(lived) == [2] * tasks


def test_the_number_of_tasks_alone_is_no_version(lived: Lived) -> None:
    lived.do(SubmitJob(web(tasks=7)))
    assert (lived.cell.jobs[JOB].version, lived.cell.rolling) == (1, set())


def test_the_kind_of_a_job_cannot_be_changed(lived: Lived) -> None:
    with pytest.raises(Conflict, match="the kind of ann/web cannot be changed while it runs"):
        lived.do(SubmitJob(web(kind=JobKind.ALLOC_SET)))


def test_what_waits_takes_the_new_version_at_no_cost() -> None:
    lived = Lived()
    lived.do(SubmitJob(web(tasks=2, resources=Resources(100, 100 * GIB, 0))))  # fits nowhere
    lived.settle()
    lived.do(SubmitJob(web(tasks=2)))
    lived.settle()
    assert lived.states() == [State.RUNNING] * 2
    assert lived.cell.rolling == set()


def test_all_tasks_run_of_what_becomes_a_service() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=3, restart=Restart(RestartPolicy.NEVER))))
    lived.settle()
    lived.ended(JOB, 0, Ending.FINISH)
    lived.ended(JOB, 1, Ending.FAIL, 1)
    service = spec(tasks=2)
    lived.do(SubmitJob(service))
    lived.settle()
    assert lived.states() == [State.RUNNING] * 2
    assert lived.do(SubmitJob(service)) == "ann/web is there already, exactly like this"


def test_what_failed_or_was_killed_runs_again_and_what_finished_does_not() -> None:
    lived = Lived()
    once = Restart(RestartPolicy.NEVER)
    lived.do(SubmitJob(web(restart=once)))
    for index, ending in enumerate((Ending.FINISH, Ending.FAIL)):
        lived.ended(JOB, index, ending)
    lived.do(KillTasks(JOB, (2,)))
    assert "2 tasks pending again" in lived.do(SubmitJob(web(restart=once, run=NEW)))
    lived.settle()
    ran = State.RUNNING
    assert lived.states() == [State.DEAD, ran, ran, ran, ran]


@pytest.mark.parametrize("tasks", [FIVE, 60])
def test_a_gang_changes_as_a_whole(tasks: int) -> None:
    lived = Lived()
    lived.do(SubmitJob(web(tasks=tasks, gang=True)))
    lived.settle()
    lived.do(SubmitJob(web(tasks=tasks, gang=True, run=NEW)))
    while lived.cell.rolling:
        lived.step()
        assert set(versions(lived)) in ({1}, {2})
    assert runs(lived) == {NEW}


def test_more_than_the_quota_is_refused_and_less_is_not(lived: Lived) -> None:
    lived.do(SubmitJob(web(priority=100)))
    lived.do(SetQuota("ann", Band.BATCH, Resources(500, GIB, 0)))
    with pytest.raises(OverQuota, match="ann/web would ask for 550m cpu in batch"):
        lived.do(SubmitJob(web(priority=100, resources=Resources(110, GIB // 64, 0))))
    lived.do(SubmitJob(web(priority=100, resources=Resources(90, GIB // 64, 0))))


# What goes wrong


def test_a_version_that_crashes_is_held_and_costs_one_task(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=LOOPS)))
    lived.settle()
    found = rollout(lived)
    assert found.hold is Hold.FAILED
    assert found.paused == "task 0 was restarted 3 times on m2 (exit code 1)"
    assert versions(lived).count(2) == 1
    assert up(lived) == FIVE - 1


def test_resumed_it_is_tried_again_and_held_again(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=LOOPS)))
    lived.settle()
    assert lived.do(ResumeUpdate(JOB)) == "the update of ann/web goes on"
    for _ in range(int(TRY_ON_SECONDS) - 5):
        lived.step()
    assert rollout(lived).hold is None  # what was in its way may be gone, and it needs time to show
    assert versions(lived).count(2) == 1
    for _ in range(10):
        lived.step()
    assert rollout(lived).hold is Hold.FAILED


def test_a_mended_version_goes_on_from_where_it_is(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=LOOPS)))
    lived.settle()
    lived.do(SubmitJob(web(run=NEW)))
    while lived.cell.rolling:
        lived.step()
        assert up(lived) >= FIVE - 2  # the one that crashed, and one at a time
    assert runs(lived) == {NEW}
    assert versions(lived) == [3] * FIVE


def test_it_undoes_itself_where_its_job_says_so(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=LOOPS, update=Update(settle_seconds=2.0, on_failure=OnFailure.UNDO))))
    lived.settle()
    job = lived.cell.jobs[JOB]
    assert (job.version, job.spec.run, lived.cell.rolling) == (3, web().run, set())
    assert up(lived) == FIVE
    (text,) = (entry.text for entry in lived.entries if "undone" in entry.text)
    assert text.startswith(
        "ann/web is undone since task 0 was restarted 3 times on m2 (exit code 1): version 3"
    )


def test_an_undone_version_that_fails_as_well_is_held(lived: Lived) -> None:
    undoes = Update(settle_seconds=2.0, on_failure=OnFailure.UNDO)
    lived.do(SubmitJob(web(run=LOOPS, update=undoes)))
    while lived.cell.jobs[JOB].version < 3:
        lived.step()
    for name in ("m1", "m2"):
        lived.do(CordonMachine(name))
    lived.do(RestartTasks(JOB, (1,), hurried=True))  # what it goes back to does not come up either
    for _ in range(700):
        lived.step()
    assert (lived.cell.jobs[JOB].version, rollout(lived).hold) == (3, Hold.FAILED)


def test_what_does_not_come_up_in_time_has_failed() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.settle()
    late = Update(settle_seconds=2.0, deadline_seconds=60.0)
    lived.do(SubmitJob(web(resources=Resources(100, 100 * GIB, 0), update=late)))  # fits nowhere
    for _ in range(70):
        lived.step()
    assert rollout(lived).hold is Hold.FAILED
    assert "task 0 waits for a machine" in rollout(lived).paused
    assert rollout(lived).paused.endswith("for more than 60s")
    assert up(lived) == FIVE - 1
    lived.do(ResumeUpdate(JOB))  # as long again
    for _ in range(50):
        lived.step()
    assert rollout(lived).hold is None
    for _ in range(20):
        lived.step()
    assert rollout(lived).hold is Hold.FAILED


def test_what_had_settled_is_waited_for_again_when_it_fails(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    while versions(lived).count(2) < 2:
        lived.step()
    first = lived.cell.jobs[JOB].tasks[versions(lived).index(2)]
    lived.step()
    failed = SeenAttempt(f"{JOB}/{first.index}", first.attempt, Phase.UNHEALTHY)
    lived.step(Observe(first.machine, "b1", first.machine, (failed,)))
    found = not_ready(lived.cell, lived.core.observed, lived.cell.jobs[JOB], lived.now)
    assert found is not None
    assert (found.reason.split(" is ")[0], found.failed) == (f"task {first.index}", True)


def test_a_single_restart_is_given_time(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=CRASHES)))
    for _ in range(20):
        lived.step()
    assert rollout(lived).hold is None
    lived.crashes = False
    for _ in range(300):
        lived.step()
    assert (lived.cell.rolling, runs(lived)) == (set(), {CRASHES})


# Canaries


def test_canaries_wait_until_somebody_likes_them(lived: Lived) -> None:
    two = Update(Share(5), settle_seconds=2.0, canaries=2)
    lived.do(SubmitJob(web(run=NEW, update=two)))
    lived.settle()
    assert versions(lived).count(2) == 2
    assert rollout(lived).hold is Hold.CANARY
    with pytest.raises(Conflict, match="waits for its canaries to be promoted"):
        lived.do(ResumeUpdate(JOB))
    lived.do(ResumeUpdate(JOB, promote=True))
    lived.settle()
    assert runs(lived) == {NEW}


def test_a_canary_that_crashes_is_undone(lived: Lived) -> None:
    careful = Update(settle_seconds=2.0, canaries=1, on_failure=OnFailure.UNDO)
    lived.do(SubmitJob(web(run=LOOPS, update=careful)))
    lived.settle()
    assert (lived.cell.jobs[JOB].version, lived.cell.rolling) == (3, set())
    assert runs(lived) == {web().run}


def test_without_canaries_there_is_nothing_to_promote(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    with pytest.raises(Conflict, match="ann/web has no canaries"):
        lived.do(ResumeUpdate(JOB, promote=True))


# People


def test_what_would_disrupt_too_much_is_skipped(lived: Lived) -> None:
    few = Update(settle_seconds=2.0, max_disruptions=2)
    lived.do(SubmitJob(web(run=NEW, update=few)))
    lived.settle()
    assert versions(lived).count(2) == 2
    last = lived.cell.jobs[JOB].last_rollout
    assert last is not None
    assert last.outcome == "complete but for 3 tasks: max_disruptions (2) reached"
    assert len(last.skipped) == 3
    lived.do(SubmitJob(web(run=NEW)))  # the rest, with the next version
    lived.settle()
    assert versions(lived) == [3] * FIVE


def test_paused_it_reaches_nobody_until_it_is_resumed(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.do(PauseUpdate(JOB), actor="bob")
    changed = versions(lived)
    lived.settle()
    assert versions(lived).count(2) == changed.count(2) or changed.count(2) == 0
    assert rollout(lived).paused == "paused by bob"
    lived.do(ResumeUpdate(JOB))
    lived.settle()
    assert runs(lived) == {NEW}


def test_without_an_update_there_is_nothing_to_steer(lived: Lived) -> None:
    for command in (PauseUpdate(JOB), ResumeUpdate(JOB)):
        with pytest.raises(Conflict, match="no update of ann/web is under way"):
            lived.do(command)


def test_undone_it_is_an_update_back(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.settle()
    text = lived.do(UndoUpdate(JOB))
    assert text.startswith("ann/web is undone by ann: version 3 is version 1 again")
    lived.settle()
    assert runs(lived) == {web().run}
    assert list(lived.cell.jobs[JOB].earlier) == [1, 2]
    assert lived.do(UndoUpdate(JOB, 2)).startswith("ann/web is undone by ann: version 4 is version 2 again")
    with pytest.raises(NotFound, match="version 9 of ann/web is not known"):
        lived.do(UndoUpdate(JOB, 9))
    with pytest.raises(Conflict, match="version 4 is what ann/web is already"):
        lived.do(UndoUpdate(JOB, 4))


def test_what_has_no_version_before_cannot_be_undone(lived: Lived) -> None:
    with pytest.raises(NotFound, match="ann/web has no version before"):
        lived.do(UndoUpdate(JOB))


def test_in_the_midst_it_is_undone_to_what_was_before_it(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    for _ in range(6):
        lived.step()
    lived.do(SubmitJob(web(run=("newer",))))
    lived.step()
    lived.do(UndoUpdate(JOB))
    lived.settle()
    assert runs(lived) == {web().run}


def test_undone_it_keeps_its_number_of_tasks(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.settle()
    lived.do(ScaleJob(JOB, 8))
    lived.do(UndoUpdate(JOB))
    lived.settle()
    assert lived.states() == [State.RUNNING] * 8


def test_so_many_versions_are_kept_and_those_that_run(lived: Lived) -> None:
    one = Update(Share(1))
    lived.do(SubmitJob(web(tasks=2 * VERSIONS_KEPT, update=one)))
    for number in range(VERSIONS_KEPT + 2):  # each reaches one task more
        lived.do(SubmitJob(web(tasks=2 * VERSIONS_KEPT, run=NEW, env={"N": str(number)}, update=one)))
    job = lived.cell.jobs[JOB]
    running = set(versions(lived))
    assert min(running) < job.version - VERSIONS_KEPT  # it is kept since it runs
    assert set(range(job.version - VERSIONS_KEPT + 1, job.version)) | running == {*job.earlier, job.version}


def test_large_versions_are_kept_up_to_so_many_bytes(lived: Lived) -> None:
    third = EARLIER_VERSIONS_BYTES_MAX // 3  # the one before the present one is kept however large it is
    for size, kept in ((third, 1), (third + 1, 2), (third, 3), (third + 1, 2), (4 * third, 2), (1, 1)):
        lived.do(SubmitJob(web(env={"N": "x" * size})))
        lived.settle()
        assert len(lived.cell.jobs[JOB].earlier) == kept


# What else happens meanwhile


def test_a_new_master_goes_on(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    for _ in range(4):
        lived.step()
    lived.core = Core(lived.then(lived.position), ReconcileSettings(), lived.now)
    lived.step()
    assert up(lived) == FIVE - 1 or versions(lived).count(2) <= 2
    lived.settle()
    assert runs(lived) == {NEW}


def test_a_rollback_of_the_cell_takes_its_place(lived: Lived) -> None:
    good = lived.position
    lived.do(SubmitJob(web(run=LOOPS)))
    lived.settle()
    lived.roll_back(good)
    lived.settle()
    assert (runs(lived), lived.cell.rolling) == ({web().run}, set())
    job = lived.cell.jobs[JOB]
    assert (job.version, versions(lived)) == (3, [3] * FIVE)


def test_a_rollback_leads_into_the_midst_of_an_update(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    for _ in range(4):
        lived.step()
    middle = lived.position
    lived.settle()
    lived.do(SubmitJob(web(run=("newer",))))
    lived.settle()
    lived.roll_back(middle)
    lived.settle()
    assert (runs(lived), lived.cell.rolling) == ({NEW}, set())


def test_killed_in_the_midst_it_is_over(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.step()
    lived.do(KillTasks(JOB))
    lived.settle()
    assert lived.cell.rolling == set()
    lived.do(SubmitJob(web(run=NEW)))
    lived.settle()
    assert (lived.cell.jobs[JOB].version, runs(lived)) == (2, {NEW})


def test_scaled_in_the_midst_it_goes_on(lived: Lived) -> None:
    for tasks in (9, 2):
        lived.do(SubmitJob(web(run=(str(tasks),))))
        lived.step()
        lived.do(ScaleJob(JOB, tasks))
        lived.settle()
        assert (runs(lived), len(lived.states())) == ({(str(tasks),)}, tasks)
        assert lived.cell.rolling == set()


def test_what_is_down_already_uses_the_budget_up(lived: Lived) -> None:
    for name in ("m1", "m2"):
        lived.do(CordonMachine(name))
    lived.do(RestartTasks(JOB, (0,), hurried=True))
    lived.do(SubmitJob(web(run=NEW)))
    for _ in range(40):
        lived.step()
    assert (up(lived), runs(lived)) == (FIVE - 1, {web().run})
    assert "task 0 waits for a machine" in rollout(lived).paused


# Restarts


def test_a_restart_in_a_frozen_cell_says_that_it_waits(lived: Lived) -> None:
    lived.do(FreezeCell("a sale"))
    before, frozen = lived.attempts(), f"waits: the cell is {lived.cell.freeze}"
    assert lived.do(RestartTasks(JOB, (0,))) == f"1 task of ann/web restarts; {frozen}"
    assert lived.do(RestartTasks(JOB)) == f"5 tasks of ann/web restart, a few at a time; {frozen}"
    for _ in range(5):
        lived.step()
    assert lived.attempts() == before


def test_a_restart_reaches_one_task_after_the_other(lived: Lived) -> None:
    before = lived.attempts()
    assert lived.do(RestartTasks(JOB)) == "5 tasks of ann/web restart, a few at a time"
    while lived.cell.rolling:
        lived.step()
        assert up(lived) >= FIVE - 1
    assert not set(before) & set(lived.attempts())
    assert lived.cell.jobs[JOB].version == 1


def test_restarted_in_the_midst_of_an_update_it_reaches_those_as_well(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    for _ in range(4):
        lived.step()
    middle = lived.attempts()
    lived.do(RestartTasks(JOB, (0,)))
    lived.settle()
    assert (runs(lived), lived.cell.rolling) == ({NEW}, set())
    assert lived.attempts()[0] != middle[0]


def test_an_update_says_once_why_it_waits_and_how_it_ended(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=LOOPS)))
    lived.settle()
    lived.do(UndoUpdate(JOB))
    lived.settle()
    events = [event for entry in lived.entries for event in entry.events]
    assert [event.hold for event in events if isinstance(event, RolloutPaused)] == [Hold.FAILED], events
    assert [event.outcome for event in events if isinstance(event, RolloutFinished)] == ["complete"]


def test_a_probe_has_to_answer(lived: Lived) -> None:
    probed = web(run=NEW, health=Health(http="/", port="http"), ports=("http",))
    lived.do(SubmitJob(probed))
    lived.settle()
    assert versions(lived) == [2] * FIVE


def test_the_journal_gives_the_same_cell_again(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.step()
    lived.do(SubmitJob(web(run=LOOPS)))
    lived.settle()
    lived.do(UndoUpdate(JOB))
    lived.settle()
    again = lived.then(lived.position)
    assert msgspec.json.encode(again.snapshot()) == msgspec.json.encode(lived.cell.snapshot())


def test_what_it_is_already_is_said_with_those_that_differ(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.settle()
    lived.do(UndoUpdate(JOB))
    lived.settle()
    with pytest.raises(Conflict, match="ann/web is just what it was in version 1") as refused:
        lived.do(UndoUpdate(JOB, 1))
    assert refused.value.hint == "earlier versions that differ: 2"


def test_a_restart_that_waits_for_somebody_says_so(lived: Lived) -> None:
    lived.do(SubmitJob(web(run=NEW)))
    lived.do(PauseUpdate(JOB))
    said = lived.core.step([CommandRequest(0, RestartTasks(JOB), "ann")], lived.now.later(1.0))
    ((_, reply),) = said.replies
    assert isinstance(reply, Accepted)
    assert reply.notes == (
        f"it waits for `borgctl job update resume {JOB}`, with the update that is under way",
    )


def test_limits_for_which_there_is_no_room_are_noted(lived: Lived) -> None:
    larger = web(resources=Resources(7900, GIB, 0))
    lived.do(SubmitJob(spec("other", tasks=2, resources=Resources(7000, GIB, 0))))
    lived.settle()
    ask = CommandRequest(0, SubmitJob(larger), "ann")
    ((_, reply),) = lived.core.step([ask], lived.now.later(1.0)).replies
    assert isinstance(reply, Accepted)
    assert "task 0 has to move, and no machine that takes new tasks has room for it now" in reply.notes


def test_an_update_of_tasks_that_wait_is_watched_where_one_loses_what_was_its_own() -> None:
    lived = Lived()
    large = web(tasks=2, resources=Resources(9000, GIB, 0))
    lived.do(SubmitJob(msgspec.structs.replace(large, overrides={1: Override(env={"A": "1"})})))
    lived.do(SubmitJob(large))
    assert rollout(lived).kind is RolloutKind.UPDATE
