import msgspec
import pytest

from borgish.api.views.jobs import job_view
from borgish.api.views.why import why_job, why_task
from borgish.cell.commands import SeenAttempt
from borgish.cell.model import FailedOn, Held, Task
from borgish.cell.observed import Observed
from borgish.spec.job import JobSpec
from borgish.text import instant
from borgish.vocabulary import Ending, Eviction, Phase, State
from borgish.wire.api import EventView
from tests.unit.api.cells import NOW, dead, job, see, small_cell, small_observed, small_refusals


def text_of(index: int, key: str = "ann/web", observed: Observed | None = None) -> str:
    cell = small_cell()
    found = cell.jobs[key]
    refusals = small_refusals().get(key, ())
    return why_task(cell, observed or small_observed(), found, index, refusals, (), NOW).text


def test_a_pending_task_is_explained_by_its_refusal_and_hint() -> None:
    text = text_of(2)
    assert text.startswith("ann/web/2 waits for a machine since ")
    assert "2 have too little ram free, 1 is down." in text
    assert text.endswith("With 64MiB it would fit on m1.")


def test_a_pending_task_without_refusal_was_not_looked_at_yet() -> None:
    cell = small_cell()
    task = cell.jobs["ann/web"].tasks[2]
    task.reason, task.machine = Eviction.MACHINE_LOST, "m3"
    text = why_task(cell, small_observed(), cell.jobs["ann/web"], 2, (), (), NOW).text
    assert "It was sent back from m3: machine lost." in text
    assert "has not evaluated it" in text


def test_what_a_pending_task_waits_for_is_said_once() -> None:
    cell = small_cell()
    (refusal,) = small_refusals()["ann/web"]
    for waits_for, hint in (
        ("room on m1", "fits 1 machine with cpu <= 1"),
        ("room on m1", "waits for room on m1"),
    ):
        refused = msgspec.structs.replace(refusal, waits_for=waits_for, hint=hint)
        text = why_task(cell, small_observed(), cell.jobs["ann/web"], 2, (refused,), (), NOW).text
        assert text.lower().count("waits for room on m1.") == 1


def test_a_task_that_failed_names_the_machines_that_it_avoids() -> None:
    cell = small_cell()
    task = cell.jobs["ann/web"].tasks[2]
    over, ahead = FailedOn("m1", NOW.wall, 1), FailedOn("m2", NOW.wall + 60.0, 2)
    task.failed = (over, ahead)
    text = why_task(cell, small_observed(), cell.jobs["ann/web"], 2, (), (), NOW).text
    assert f"It failed twice on m2, which is avoided until {instant(ahead.until)}." in text
    assert "on m1, which is avoided" not in text


def test_a_held_job_says_why_and_what_ends_it() -> None:
    cell = small_cell()
    found = cell.jobs["ann/web"]
    found.held = Held("task 0 failed 3 times on 2 machines", NOW.wall, NOW.wall + 60.0)
    text = why_job(cell, small_observed(), found, (), (), NOW).text
    assert "It is held since " in text
    assert "for it fails wherever it is: task 0 failed 3 times on 2 machines." in text
    assert "`borgctl job restart ann/web` tries all of it now" in text
    assert instant(found.held.trial_at) not in text  # it is in the past while a trial is under way
    reason = job_view(cell, small_observed(), found, ()).reason
    assert reason == "held, since it fails wherever it is: task 0 failed 3 times on 2 machines"


def test_a_held_job_says_what_is_tried_and_what_is_restarted() -> None:
    cell = small_cell()
    found = cell.jobs["ann/web"]
    running = next(task for task in found.tasks if task.state is State.RUNNING)
    found.held = Held("why", NOW.wall, NOW.wall - 60.0, running.index, running.attempt)
    trial, minute = f"Task {running.index} has its trial on {running.machine}.", "is tried once a minute"
    text = why_job(cell, small_observed(), found, (), (), NOW).text
    assert f"{trial} What ends is restarted where it is, after waits that grow up to 5 minutes." in text
    assert minute not in text

    waiting = next(task for task in found.tasks if task.state is State.PENDING)
    waiting.failed = (FailedOn("m1", NOW.wall + 60.0, 1),)
    found.held = Held("why", NOW.wall, NOW.wall + 60.0)
    text = why_job(cell, small_observed(), found, (), (), NOW).text
    assert minute in text
    assert trial not in text


def test_a_service_that_ends_by_itself_is_told_what_is_for_that() -> None:
    observed = small_observed()
    attempt = SeenAttempt("bob/db/0", 14, Phase.CRASH_LOOPING, restarts=4, exit_code=0, early_ends=4)
    see(observed, "m2", "bob/db", 0, attempt)
    hint = "A service is to run on: a program that ends when it is done has `restart: {policy: on_failure}`."
    assert hint in text_of(0, "bob/db", observed)
    see(observed, "m2", "bob/db", 0, msgspec.structs.replace(attempt, exit_code=3))
    assert hint not in text_of(0, "bob/db", observed)


def leave(observed: Observed, on: str, *names: str) -> None:
    for attempt, name in enumerate(names, 30):
        see(observed, on, *_job_and_index(name), SeenAttempt(name, attempt, Phase.STOPPING))


def _job_and_index(name: str) -> tuple[str, int]:
    job, _, index = name.rpartition("/")
    return job, int(index)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("bob/low/0",), "Place kept on m1 until bob/low/0 has ended."),
        (("bob/low/1", "bob/low/0"), "Place kept on m1 until bob/low/0 and bob/low/1 have ended."),
        (
            tuple(f"bob/low/{n}" for n in range(5)),
            "Place kept on m1 until bob/low/0, bob/low/1, bob/low/2 and 2 more have ended.",
        ),
        ((), "Place kept on m1, where nobody is left to leave: it goes there in the next pass."),
    ],
)
def test_a_kept_place_names_who_has_yet_to_leave(names: tuple[str, ...], words: str) -> None:
    cell, observed = small_cell(), small_observed()
    cell.jobs["ann/web"].tasks[2].promised = "m1"
    leave(observed, "m1", *names)
    view = why_task(cell, observed, cell.jobs["ann/web"], 2, (), (), NOW)
    assert words in view.text
    assert view.tasks[0].reason == "place kept on m1 while others leave it"


def test_a_job_tells_of_its_first_kept_places() -> None:
    cell = small_cell()
    web = cell.jobs["ann/web"]
    web.tasks = [Task(index, promised="m1") for index in range(5)]
    web.pending, web.running = 5, 0
    text = why_job(cell, small_observed(), web, (), (), NOW).text
    assert "Task 0 has its place kept on m1" in text
    assert text.endswith("So have 2 more.")


def test_an_unhealthy_task_is_explained_with_its_last_exit_and_where_to_look() -> None:
    text = text_of(1)
    assert "fails its probe" in text
    assert "probe: 3 misses." in text
    assert "restarted 2 times there; its program last ended with exit code 7." in text
    assert "`borgctl task logs --previous ann/web/1`" in text


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.STARTING, "is being started on m1"),
        (Phase.UP, "Its probe has not answered yet"),
        (Phase.HEALTHY, "answers its probe"),
        (Phase.STOPPING, "was asked to stop"),
        (Phase.UNKILLABLE, "was killed on m1 and goes on, so that machine takes nothing new"),
    ],
)
def test_each_phase_has_words(phase: Phase, words: str) -> None:
    observed = small_observed()
    see(observed, "m1", "ann/web", 0, SeenAttempt("ann/web/0", 11, phase))
    assert words in text_of(0, observed=observed)


def test_what_cannot_start_is_not_being_started() -> None:
    observed = small_observed()
    failed = SeenAttempt("ann/web/0", 11, Phase.STARTING, reason="cannot start: no image; tries again in 4 s")
    see(observed, "m1", "ann/web", 0, failed)
    text = text_of(0, observed=observed)
    assert "has its place on m1, where it could not be started yet. Cannot start: no image" in text
    assert "is being started" not in text


def test_a_task_on_a_silent_machine_says_so() -> None:
    cell = small_cell()
    cell.machines["m2"].up, cell.machines["m2"].reason = False, "not heard of for 10s"
    text = why_task(cell, Observed(), cell.jobs["bob/db"], 0, (), (), NOW).text
    assert "has not reported it yet" in text
    assert "m2 is down: not heard of for 10s." in text


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending.FINISH, "finished at"),
        (Ending.FAIL, "failed at"),
        (Ending.KILL, "was killed at"),
        (Ending.LOST, "was lost at"),
    ],
)
def test_each_ending_has_words(ending: Ending, words: str) -> None:
    cell = small_cell()
    only = job(JobSpec("x", "ann", 1, ("x",)), [dead(0, ending, "because", 3)], uid=9)
    text = why_task(cell, small_observed(), only, 0, (), (), NOW).text
    assert words in text
    assert "because; its program ended with exit code 3." in text
    assert ("borgctl job restart ann/x" in text) == (ending is not Ending.FINISH)


def test_a_job_is_explained_by_counts_refusals_and_examples() -> None:
    cell = small_cell()
    why = why_job(cell, small_observed(), cell.jobs["ann/web"], small_refusals()["ann/web"], (), NOW)
    assert why.state is State.RUNNING
    assert why.text.startswith("ann/web has 4 tasks: 1 up, 1 unhealthy, 1 pending, 1 killed.")
    assert "ann/web/1 runs on m1 but fails its probe" in why.text
    assert [task.name for task in why.tasks] == ["ann/web/1", "ann/web/2", "ann/web/3"]
    assert len(why.refusals) == 1


def test_a_job_in_order_needs_one_sentence() -> None:
    cell = small_cell()
    assert (
        why_job(cell, small_observed(), cell.jobs["bob/db"], (), (), NOW).text == "bob/db has 1 task: 1 up."
    )


def test_a_task_shows_only_events_about_it_or_its_whole_job() -> None:
    cell = small_cell()
    events = [
        EventView(1, "t", "submitted", "whole job", "ann/web"),
        EventView(2, "t", "placed", "another", "ann/web", (0,)),
        EventView(3, "t", "placed", "this", "ann/web", (1, 2)),
    ]
    why = why_task(cell, small_observed(), cell.jobs["ann/web"], 1, (), events, NOW)
    assert [event.text for event in why.events] == ["whole job", "this"]


@pytest.mark.parametrize(
    ("phase", "reason", "words"),
    [
        (
            Phase.BACKING_OFF,
            "exit code 3; restarts in 1 s",
            (
                "bob/db/0 is backing off on m2: it ended again, and waits for its next start. Exit code 3; "
                "restarts in 1 s. It was restarted 2 times there; its program last ended with exit code 3. "
                "See `borgctl task logs bob/db/0`."
            ),
        ),
        (
            Phase.CRASH_LOOPING,
            "exit code 3; restarts in 4 s",
            (
                "bob/db/0 is crash-looping on m2: it ended early 4 times in a row, and each time waits "
                "longer for its next start. Exit code 3; restarts in 4 s."
            ),
        ),
        (
            Phase.BACKING_OFF,
            "cannot start: no engine; tries again in 1 s",
            "bob/db/0 has its place on m2, where it could not be started yet. Cannot start: no engine;",
        ),
    ],
)
def test_what_is_held_back_between_its_starts_says_so(phase: Phase, reason: str, words: str) -> None:
    observed = small_observed()
    attempt = SeenAttempt(
        "bob/db/0", 14, phase, restarts=2, exit_code=3, exit_reason="", reason=reason, early_ends=4
    )
    see(observed, "m2", "bob/db", 0, attempt)
    assert text_of(0, "bob/db", observed).startswith(words)
    found = small_cell().jobs["bob/db"]
    assert why_job(small_cell(), observed, found, (), (), NOW).text.startswith(
        f"bob/db has 1 task: 1 {phase}."
    )
