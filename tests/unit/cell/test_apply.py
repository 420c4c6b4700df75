"""What an entry leaves behind, field by field, and that one which cannot be right is not taken in by half."""

import copy

import pytest

from borgish.cell import apply
from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    ForgetJob,
    KillTasks,
    PlaceTasks,
    PromisePlaces,
    RemoveQuota,
    RestartTasks,
    ScaleJob,
    SetQuota,
    SubmitJob,
)
from borgish.cell.events import (
    AnyEvent,
    Entry,
    JobSubmitted,
    MachineLost,
    PlacesPromised,
    TasksEvicted,
    TasksPlaced,
    TasksRestarted,
)
from borgish.cell.lifecycle import IllegalTransition
from borgish.cell.model import LOSSES_KEPT_SECONDS, Answer, LostAttempt
from borgish.resources import Resources
from borgish.vocabulary import Band, Eviction, State
from tests.unit.cell.test_decide import Desk, spec

AT = 5000.0


@pytest.fixture
def desk() -> Desk:
    """Both tasks of a job run."""
    desk = Desk()
    desk.submit_and_place(spec())
    return desk


def happen(desk: Desk, *events: AnyEvent, request_id: str = "") -> None:
    entry = Entry(desk.cell.position + 1, AT, 1, 1, "ann", "test", events, request_id, "digest", "it", "text")
    apply_entry(desk.cell, entry)


def test_a_request_is_answered_with_what_was_kept_of_it(desk: Desk) -> None:
    happen(desk, request_id="r1")
    answer = Answer("digest", desk.cell.position, "it", "text")
    assert desk.cell.answer_to("ann", "r1") == answer
    assert desk.cell.answer_to("bob", "r1") is None, "the ids of each are their own"
    assert desk.cell.answer_to("ann", "") is None


def test_a_request_of_an_older_checkpoint_is_answered_too(desk: Desk) -> None:
    answer = desk.cell.requests["r0"] = Answer("digest", 1, "it", "text")
    assert desk.cell.answer_to("ann", "r0") == answer


def test_the_oldest_answers_go(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "REQUESTS_KEPT", 2)
    for request_id in ("r1", "r2", "r3"):
        happen(desk, request_id=request_id)
    assert list(desk.cell.requests) == ["ann r2", "ann r3"]


def test_long_answers_push_out_more_of_the_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "REQUESTS_BYTES_KEPT", 3 * len("text") - 1)
    for request_id in ("r1", "r2", "r2", "r3"):
        happen(desk, request_id=request_id)
    assert list(desk.cell.requests) == ["ann r2", "ann r3"]
    kept = desk.cell.answer_bytes
    desk.cell.reindex()
    assert desk.cell.answer_bytes == kept == 2 * len("text")


def test_what_is_known_of_an_attempt_that_may_yet_end_by_itself(desk: Desk) -> None:
    placed = TasksPlaced("ann/web", (0,), ("m1",), ((20007,),), (("gpu:0",),), (3,))
    happen(desk, TasksEvicted("ann/web", (0,), Eviction.RESTART), placed)
    task = desk.cell.jobs["ann/web"].tasks[0]
    task.restarts, attempt = 4, task.attempt
    happen(desk, TasksEvicted("ann/web", (0,), Eviction.MACHINE_LOST, "m1 is down", results_count=True))
    assert task.lost == (LostAttempt(attempt, "m1", (20007,), ("gpu:0",), 3, 4),)
    assert (task.state, task.since, task.reason) == (State.PENDING, AT, "m1 is down")


def test_what_is_asked_for_again_waits_since_then(desk: Desk) -> None:
    desk.do(KillTasks("ann/web"))
    since = desk.cell.jobs["ann/web"].tasks[0].since
    desk.do(RestartTasks("ann/web", hurried=True))
    assert {task.since for task in desk.cell.jobs["ann/web"].tasks} == {since}


@pytest.mark.parametrize(
    "event",
    [
        PlacesPromised("ann/web", (0, 1), ("m1",)),
        TasksRestarted("ann/web", (0, 1), (1,), (None,), (None,), ("why",)),
    ],
)
def test_rows_that_do_not_go_together_are_a_bug(desk: Desk, event: AnyEvent) -> None:
    with pytest.raises(ValueError, match="shorter"):
        happen(desk, event)


def test_a_job_that_lives_is_not_submitted_over(desk: Desk) -> None:
    before = copy.deepcopy(desk.cell.jobs["ann/web"].tasks)
    with pytest.raises(IllegalTransition, match="submit does not go with ann/web, which is running"):
        happen(desk, JobSubmitted(spec()))
    assert desk.cell.jobs["ann/web"].tasks == before


def test_of_a_job_that_was_forgotten_nothing_is_left(desk: Desk) -> None:
    desk.do(KillTasks("ann/web"))
    desk.do(ForgetJob("ann/web"))
    assert (desk.cell.jobs, desk.cell.waiting, desk.cell.placed["m1"]) == ({}, {}, set())
    desk.do(SubmitJob(spec()))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    assert desk.states() == [State.RUNNING, State.PENDING]


def test_what_is_gone_between_two_writings_is_noted_from_the_lowest_index_on(desk: Desk) -> None:
    desk.cell.take_touched()
    for tasks in (1, 5, 4):
        desk.do(ScaleJob("ann/web", tasks))
    assert desk.cell.take_touched().tasks_gone == {"ann/web": 1}


def test_quotas_that_come_and_go_are_noted(desk: Desk) -> None:
    desk.cell.take_touched()
    for command in (SetQuota("ann", Band.BATCH, Resources(1, 2)), RemoveQuota("ann", Band.BATCH)):
        desk.do(command)
        assert desk.cell.take_touched().quotas == {"ann/batch"}


def test_losses_of_machines_are_known_for_a_while(desk: Desk) -> None:
    moments = (100.0, 130.0, 100.0 + LOSSES_KEPT_SECONDS, 50.0 - LOSSES_KEPT_SECONDS)
    kept = []
    for at in moments:
        happen(desk, MachineLost("m1", at))
        kept.append(desk.cell.losses)
    assert kept == [moments[:1], moments[:2], moments[1:3], moments[3:]]


def test_what_is_to_be_written_is_noted(desk: Desk) -> None:
    desk.cell.take_touched()
    desk.do(KillTasks("ann/web", (1,)))
    touched = desk.cell.take_touched()
    assert (touched.jobs, touched.tasks) == ({"ann/web"}, {"ann/web": {1}})
    assert touched.placements == {"m1"}
    desk.do(RestartTasks("ann/web", (1,), hurried=True))
    desk.do(PromisePlaces("ann/web", (1,), ("m1",)))
    desk.cell.take_touched()
    desk.do(KillTasks("ann/web", (1,)))
    assert desk.cell.take_touched().placements == {"m1"}
    assert desk.cell.promised == {}
