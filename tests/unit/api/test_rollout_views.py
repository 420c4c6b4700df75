"""An update says what it waits for at this moment, how the last one came out, and who runs which version."""

from borgish.api.views.events import event_views
from borgish.api.views.jobs import job_detail
from borgish.api.views.tasks import task_view
from borgish.cell.commands import (
    PauseUpdate,
    SubmitJob,
)
from borgish.spec.job import Update
from borgish.vocabulary import Hold, OnFailure, RolloutKind
from borgish.wire.api import JobDetail
from tests.unit.cell.lived import LOOPS, Lived, spec

JOB = "ann/web"


def updated(on_failure: OnFailure = OnFailure.PAUSE, run: tuple[str, ...] = ("new",)) -> Lived:
    lived = Lived()
    update = Update(settle_seconds=3.0, on_failure=on_failure)
    lived.do(SubmitJob(spec(tasks=3, update=update)))
    lived.settle()
    lived.do(SubmitJob(spec(tasks=3, update=update, run=run)))
    return lived


def shown(lived: Lived) -> JobDetail:
    job = lived.cell.jobs[JOB]
    return job_detail(lived.cell, lived.core.observed, job, (), lived.now, secrets=True)


def test_what_it_waits_for_is_told_at_once() -> None:
    lived = updated()
    lived.step()
    rollout = shown(lived).rollout
    assert rollout is not None
    assert (rollout.kind, rollout.left, rollout.changed, rollout.at_a_time) == (RolloutKind.UPDATE, 2, 1, 1)
    machine = lived.cell.jobs[JOB].tasks[0].machine
    assert rollout.waits == f"task 0 has only just come up on {machine}"


def test_versions_of_tasks_and_how_it_came_out() -> None:
    lived = updated()
    lived.step()
    found = lived.cell.jobs[JOB]
    assert shown(lived).versions == {1: 2, 2: 1}
    assert [task_view(lived.core.observed, found, index).version for index in range(3)] == [2, 1, 1]
    lived.settle()
    last = shown(lived).last_rollout
    assert last is not None
    assert (last.version, last.outcome, last.reason) == (2, "complete", "updated to version 2")
    assert shown(lived).versions == {2: 3}


def test_who_paused_it_is_said_once() -> None:
    lived = updated()
    lived.do(PauseUpdate(JOB))
    rollout = shown(lived).rollout
    assert rollout is not None
    assert (rollout.hold, rollout.waits) == (Hold.PAUSED, "paused by ann")
    assert shown(lived).job.reason.count("paused") == 1
    line = next(event for entry in lived.entries for event in event_views(entry) if "paused" in event.text)
    assert line.text == "the update of ann/web is paused by ann"


def test_why_it_was_undone_outlives_it() -> None:
    lived = updated(OnFailure.UNDO, LOOPS)
    lived.settle()
    last = shown(lived).last_rollout
    assert last is not None
    assert last.reason.startswith("undone since task 0 was restarted ")
    assert last.reason.endswith(": version 3 is version 1 again")
    lines = [event.text for entry in lived.entries for event in event_views(entry) if event.kind == "changed"]
    assert lines[0] == "ann changed ann/web: version 2, 3 tasks"
    assert lines[1].endswith(f" changed ann/web: version 3, 3 tasks, {last.reason}")
