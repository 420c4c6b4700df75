"""Jobs that start after others, and end with another."""

from itertools import pairwise
from typing import Any

import pytest

from borgish.api.views.order import order_refusal, order_sentences
from borgish.api.views.why import why_task
from borgish.cell.apps.order import UP_SECONDS, check_order, is_met, order_notes, why_unmet
from borgish.cell.commands import (
    ForgetJob,
    KillTasks,
    RestartTasks,
    ScaleJob,
    SubmitJob,
    UndoUpdate,
)
from borgish.cell.diff import difference
from borgish.cell.model import Cell, Rollout, Snapshot
from borgish.cell.observed import MISSES_MAX, Miss
from borgish.errors import Conflict, NotFound
from borgish.master.core import STALL_SECONDS, Core
from borgish.master.step import PollsMissed
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.spec.job import After, Disruption, Health, JobSpec, Restart, Update
from borgish.spec.shares import Share
from borgish.vocabulary import Ending, RestartPolicy, State, Until
from tests.sentences import check_refusal, check_sentence
from tests.unit.cell.lived import CRASHES, LOOPS, Lived, spec

DB, WEB = "ann/db", "ann/web"
ONCE = Restart(RestartPolicy.ON_FAILURE)
PENDING, RUNNING, DEAD = State.PENDING, State.RUNNING, State.DEAD


def web(until: Until | None = None, within_seconds: float = 0.0, **changes: Any) -> JobSpec:
    return spec(after=(After(DB, until, within_seconds),), **changes)


def db(**changes: Any) -> JobSpec:
    return spec("db", **{"tasks": 1, **changes})


def waits(lived: Lived, job: str = WEB) -> bool:
    return lived.cell.jobs[job].waits is not None


def starts(lived: Lived, steps_max: int = 10, job: str = WEB) -> int:
    """Return after how many steps a job does not wait any more."""
    for number in range(steps_max):
        if not waits(lived, job):
            return number
        lived.step()
    raise AssertionError("it waits on")


# What is waited for


def test_a_job_waits_for_one_that_comes_later() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.settle()
    assert lived.states() == [PENDING] * 3
    assert lived.cell.waiting == {}
    lived.do(SubmitJob(db()))
    assert starts(lived) <= UP_SECONDS + 2
    assert lived.states() == [RUNNING] * 3


def test_what_has_finished_and_is_to_go_counts_for_nobody() -> None:
    """A rollback may leave a job more tasks for a while than it is to have."""
    lived = Lived()
    lived.do(SubmitJob(db(restart=ONCE, tasks=3)))
    for index in (1, 2):
        lived.ended(DB, index, Ending.FINISH)
    job = lived.cell.jobs[DB]
    job.rollout = Rollout({1: job.tasks[1].attempt}, 1, {}, hurried=False, reason="rolled back")
    after = After(DB, Until.FINISHED)
    assert job.finished > job.tasks_wanted
    assert not is_met(lived.cell, lived.core.observed, after, lived.now)


def test_what_is_there_already_is_not_waited_for() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.settle()
    lived.do(SubmitJob(web()))
    assert lived.states() == [RUNNING] * 3  # in the same step


def test_a_probe_that_answers_counts_at_once() -> None:
    lived = Lived()
    lived.do(SubmitJob(web(Until.HEALTHY)))
    lived.do(SubmitJob(db(health=Health(command=("true",)))))
    assert starts(lived) <= 2


@pytest.mark.parametrize("until", [Until.UP, None])
def test_what_is_not_heard_any_more_is_not_up(until: Until | None) -> None:
    lived = Lived(("m1", "m2", "m3"))
    lived.do(SubmitJob(db()))
    lived.settle()
    lived.silent = {lived.cell.jobs[DB].tasks[0].machine}
    missed = PollsMissed(dict.fromkeys(lived.silent, Miss("no answer", polls=MISSES_MAX)))
    lived.core.step([missed], lived.now)
    lived.do(SubmitJob(web(until)))
    why = why_unmet(lived.cell, lived.core.observed, After(DB, until), lived.now)
    assert why == f"task 0 of ann/db: {min(lived.silent)} does not answer"
    lived.silent.clear()
    assert starts(lived) == 1


def test_what_is_on_a_machine_that_is_down_is_not_up() -> None:
    lived = Lived()  # both are down, and nobody is moved
    lived.do(SubmitJob(db()))
    lived.settle()
    lived.silent = {"m1", "m2"}
    for _ in range(15):
        lived.step()
    lived.do(SubmitJob(web(Until.UP)))
    machine = lived.cell.jobs[DB].tasks[0].machine
    why = why_unmet(lived.cell, lived.core.observed, After(DB, Until.UP), lived.now)
    assert (waits(lived), why) == (True, f"task 0 of ann/db: {machine} is down")


def test_a_master_that_was_held_up_lets_nobody_go_before_it_hears_again() -> None:
    """What it has seen is as old as that: a machine may have joined again since, without what ran there."""
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.settle()
    lived.now = lived.now.later(STALL_SECONDS + 1.0)
    lived.silent = {"m1", "m2"}
    lived.do(SubmitJob(web()))
    lived.step()
    assert waits(lived)
    lived.silent.clear()
    assert starts(lived) == 1


@pytest.mark.parametrize("program", [CRASHES, LOOPS])
def test_what_crashes_is_not_up(program: tuple[str, ...]) -> None:
    lived = Lived()
    lived.do(SubmitJob(web(Until.UP)))
    lived.do(SubmitJob(db(run=program)))
    for _ in range(60):
        lived.step()
    assert waits(lived)


def test_finished_is_waited_for_where_a_job_runs_to_completion() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.do(SubmitJob(db(restart=ONCE, tasks=2)))
    for _ in range(10):
        lived.step()
    lived.ended(DB, 0, Ending.FINISH)
    assert waits(lived)
    lived.ended(DB, 1, Ending.FINISH)
    assert not waits(lived)
    assert lived.states() == [RUNNING] * 3


def test_one_that_failed_holds_it_until_it_is_mended_and_run_again() -> None:
    lived = Lived()
    lived.do(SubmitJob(db(restart=ONCE)))
    lived.step()
    lived.do(SubmitJob(web(Until.FINISHED)))
    lived.ended(DB, 0, Ending.FAIL, 3)
    lived.settle()
    view = order_refusal(lived.cell, lived.core.observed, lived.cell.jobs[WEB])
    assert view is not None
    assert view.text == "after ann/db (finished): task 0 of ann/db: failed (exit code 3)"
    assert "goes on by itself when ann/db is mended and run again" in view.hint
    lived.do(SubmitJob(db(restart=ONCE, run=("mended",))))
    lived.step()
    assert waits(lived)
    lived.ended(DB, 0, Ending.FINISH)
    assert not waits(lived)


def test_all_of_them_are_waited_for() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(after=(After(DB), After("ann/cache")))))
    lived.do(SubmitJob(db()))
    lived.settle()
    assert waits(lived)
    lived.do(SubmitJob(spec("cache")))
    assert starts(lived) <= UP_SECONDS + 2


def test_a_new_master_goes_on_with_it() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.do(SubmitJob(db()))
    lived.core = Core(Cell(lived.cell.snapshot()), ReconcileSettings(), lived.now)
    lived.entries += lived.core.begin(2, "other", lived.now).entries
    assert waits(lived)
    assert starts(lived) <= UP_SECONDS + 3


def test_of_many_that_wait_some_are_let_go_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.reconcilers.order.STARTED_MAX", 2)
    lived = Lived()
    jobs = [f"w{number}" for number in range(5)]
    for name in jobs:
        lived.do(SubmitJob(web(name=name, tasks=1)))
    lived.do(SubmitJob(db()))
    counts = []
    for _ in range(9):
        lived.step()
        counts.append(sum(waits(lived, f"ann/{name}") for name in jobs))
    assert counts[-1] == 0
    assert {before - after for before, after in pairwise(counts)} == {0, 1, 2}


# When it is over


def test_what_is_evicted_later_does_not_wait_again() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.settle()
    lived.do(SubmitJob(web()))
    lived.do(KillTasks(DB))
    lived.do(RestartTasks(WEB, hurried=True))
    lived.settle()
    assert lived.states() == [RUNNING] * 3


def test_killed_tasks_that_come_back_wait_and_the_others_run_on() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.settle()
    lived.do(SubmitJob(web()))
    lived.settle()
    lived.do(KillTasks(DB))
    lived.do(KillTasks(WEB, (1,)))
    lived.do(SubmitJob(web()))
    lived.settle()
    assert lived.states() == [RUNNING, PENDING, RUNNING]
    lived.do(RestartTasks(WEB, (0,), hurried=True))  # that one does not wait
    lived.settle()
    assert lived.states() == [RUNNING, PENDING, RUNNING]
    lived.do(SubmitJob(db()))
    lived.settle()
    assert lived.states() == [RUNNING] * 3


def test_a_restart_starts_it_without_the_others() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    assert lived.do(RestartTasks(WEB)) == (
        "0 tasks of ann/web restarted; 3 tasks waited for other jobs and start without them"
    )
    lived.settle()
    assert lived.states() == [RUNNING] * 3


def test_an_update_without_after_ends_the_wait() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.do(SubmitJob(spec()))
    assert lived.states() == [RUNNING] * 3


def test_tasks_that_are_more_wait_with_the_others_and_a_killed_job_waits_no_more() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    lived.do(ScaleJob(WEB, 5))
    assert lived.cell.deferred == {WEB: {0, 1, 2, 3, 4}}
    lived.do(KillTasks(WEB))
    assert (lived.cell.deferred, waits(lived)) == ({}, False)
    lived.do(SubmitJob(web()))
    assert lived.cell.deferred == {WEB: {0, 1, 2}}
    lived.do(KillTasks(WEB))
    lived.do(ForgetJob(WEB))
    assert lived.cell.links.followers == {}


def test_tasks_that_are_more_wait_with_those_that_come_back_where_nothing_else_is_left() -> None:
    lived = Lived()
    lived.do(SubmitJob(web(tasks=2)))
    lived.do(KillTasks(WEB, (0,)))
    lived.do(SubmitJob(web(tasks=1)))  # of those that waited none is left
    lived.do(ScaleJob(WEB, 3))
    assert lived.cell.deferred == {WEB: {0, 1, 2}}


def test_what_waits_too_long_fails_and_says_for_what() -> None:
    lived = Lived()
    lived.do(SubmitJob(web(Until.UP, 10.0)))
    for _ in range(8):
        lived.step()
    assert lived.states() == [PENDING] * 3
    for _ in range(4):
        lived.step()
    task = lived.cell.jobs[WEB].tasks[0]
    assert (task.state, task.ending) == (DEAD, Ending.FAIL)
    assert task.reason == "waited 10s for ann/db (up): there is no job ann/db"


def test_a_time_that_passes_while_nobody_knows_is_none() -> None:
    """The master is held up, and what is waited for is up when it hears its machine again."""
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.step()
    lived.do(SubmitJob(web(Until.UP, 4.0)))
    assert waits(lived)
    lived.now = lived.now.later(STALL_SECONDS + 1.0)
    lived.silent = {"m1", "m2"}
    lived.step()
    assert waits(lived)
    lived.silent.clear()
    assert starts(lived) == 1
    assert lived.states() == [RUNNING] * 3


def test_a_new_master_hears_how_the_cell_is_before_it_fails_what_waited() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.do(SubmitJob(web(Until.UP, 3.0)))
    assert waits(lived)
    lived.now = lived.now.later(10.0)
    lived.core = Core(Cell(lived.cell.snapshot()), ReconcileSettings(), lived.now)
    lived.core.begin(2, "other", lived.now)
    assert starts(lived) <= UP_SECONDS + 2
    assert lived.states() == [RUNNING] * 3


def test_what_waits_for_nobody_that_comes_fails_under_a_new_master_too() -> None:
    lived = Lived()
    lived.do(SubmitJob(web(Until.UP, 3.0)))
    lived.core = Core(Cell(lived.cell.snapshot()), ReconcileSettings(), lived.now)
    lived.core.begin(2, "other", lived.now)
    for _ in range(62):
        lived.step()
    assert lived.states() == [DEAD] * 3


def test_a_time_that_passed_while_it_came_is_none() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(after=(After(DB, None, 10.0), After("ann/cache")))))
    lived.do(SubmitJob(db()))
    for _ in range(20):
        lived.step()
    assert (lived.states(), waits(lived)) == ([PENDING] * 3, True)


# Rollbacks


def test_a_rollback_lets_wait_who_waited_then_and_what_runs_run_on() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    waited = lived.position
    lived.do(SubmitJob(db()))
    lived.settle()
    running = lived.position
    lived.do(KillTasks(WEB))
    lived.roll_back(waited, only=frozenset({WEB}))
    assert not waits(lived)  # its db is there
    lived.settle()
    lived.do(KillTasks(WEB))
    lived.do(KillTasks(DB))
    lived.roll_back(waited, only=frozenset({WEB}))
    lived.settle()
    assert lived.states() == [PENDING] * 3
    found = difference(lived.then(running), lived.cell)["jobs"]
    assert any("start: waits for other jobs" in change.lines for change in found)


def test_a_rollback_of_a_job_takes_its_children_along() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.do(SubmitJob(spec(parent=DB)))
    there = lived.position
    lived.do(KillTasks(DB))
    lived.settle()
    assert lived.states() == [DEAD] * 3
    assert "ann/db with ann/web is rolled back" in lived.roll_back(there, only=frozenset({DB}))
    lived.settle()
    assert lived.states() == [RUNNING] * 3


def test_a_rollback_of_some_jobs_makes_no_circle() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.do(SubmitJob(web()))
    lived.settle()
    there = lived.position
    lived.do(SubmitJob(spec()))
    lived.do(SubmitJob(db(after=(After(WEB),))))
    lived.settle()
    with pytest.raises(Conflict, match=r"^ann/web waits for ann/db, which waits for ann/web\."):
        lived.roll_back(there, only=frozenset({WEB}))
    lived.roll_back(there, only=frozenset({WEB, DB}))
    assert lived.cell.jobs[DB].spec.after == ()


# Circles and parents


def linked(*pairs: tuple[str, str]) -> dict[str, JobSpec]:
    """Return jobs that wait for each other: ``("a", "b")`` is a, which comes after b."""
    made: dict[str, list[After]] = {}
    for name, before in pairs:
        made.setdefault(name, []).append(After(f"ann/{before}"))
    return {f"ann/{name}": spec(name, after=tuple(after)) for name, after in made.items()}


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((("a", "a"),), "ann/a waits for ann/a"),
        ((("a", "b"), ("b", "a")), "ann/a waits for ann/b, which waits for ann/a"),
        (
            (("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("c", "a")),
            "ann/a waits for ann/b, which waits for ann/c, which waits for ann/a",
        ),
    ],
)
def test_a_circle_is_named(pairs: tuple[tuple[str, str], ...], words: str) -> None:
    with pytest.raises(Conflict) as caught:
        check_order(Cell(Snapshot("test")), linked(*pairs))
    check_refusal(caught.value)
    assert caught.value.message == words


def test_a_circle_over_many_is_cut() -> None:
    around = linked(*((f"j{n}", f"j{(n + 1) % 500}") for n in range(500)))
    with pytest.raises(Conflict, match="and so on over 492 more, which waits for ann/j0"):
        check_order(Cell(Snapshot("test")), around)


def test_what_is_no_circle_is_none() -> None:
    check_order(Cell(Snapshot("test")), linked(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")))


def test_a_circle_is_refused_at_submit_and_at_update() -> None:
    lived = Lived()
    lived.do(SubmitJob(web()))
    with pytest.raises(Conflict, match="ann/db waits for ann/web, which waits for ann/db"):
        lived.do(SubmitJob(db(after=(After(WEB),))))
    lived.do(SubmitJob(db()))
    with pytest.raises(Conflict, match="ann/db waits for ann/web, which waits for ann/db"):
        lived.do(SubmitJob(db(after=(After(WEB),))))


def test_an_undo_does_not_bring_a_circle_back() -> None:
    lived = Lived()
    lived.do(SubmitJob(db(after=(After(WEB),))))
    lived.do(SubmitJob(db()))
    lived.do(SubmitJob(web()))
    with pytest.raises(Conflict, match="ann/db waits for ann/web"):
        lived.do(UndoUpdate(DB))


@pytest.mark.parametrize("ending", ["killed", "finished", "forgotten"])
def test_a_job_ends_with_its_parent(ending: str) -> None:
    lived = Lived()
    lived.do(SubmitJob(db(restart=ONCE)))
    lived.do(SubmitJob(spec(parent=DB)))
    lived.do(SubmitJob(spec("inner", parent=WEB)))
    lived.settle()
    if ending == "finished":
        lived.ended(DB, 0, Ending.FINISH)
    else:
        lived.do(KillTasks(DB))
    lived.step()
    assert lived.states() == lived.states("ann/inner") == [DEAD] * 3
    assert lived.cell.jobs[WEB].tasks[0].reason == "its parent ann/db ended"
    assert lived.cell.jobs[WEB].tasks[0].ending is Ending.KILL
    for again in (SubmitJob(spec(parent=DB)), RestartTasks(WEB)):
        with pytest.raises(Conflict, match="ann/web would end with ann/db, and that is dead"):
            lived.do(again)


def test_the_children_of_one_that_was_never_placed_end_with_it() -> None:
    """Of a child that runs its machine reports that it ended; of this one nobody says anything."""
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.do(SubmitJob(spec(parent=DB, resources=Resources(10**6))))
    lived.do(SubmitJob(spec("inner", parent=WEB)))
    lived.do(KillTasks(DB))
    for _ in range(2):
        lived.step()
    assert lived.states() == lived.states("ann/inner") == [DEAD] * 3


def test_a_parent_has_to_be_there_and_is_nobodys_child_in_the_end() -> None:
    lived = Lived()
    with pytest.raises(NotFound, match="ann/web would end with ann/db, and there is no such job"):
        lived.do(SubmitJob(spec(parent=DB)))
    lived.do(SubmitJob(db()))
    lived.do(SubmitJob(spec(parent=DB)))
    with pytest.raises(Conflict, match="ann/db ends with ann/web, which ends with ann/db"):
        lived.do(SubmitJob(db(parent=WEB)))
    with pytest.raises(Conflict, match="would start when ann/db has finished, and end with it"):
        lived.do(SubmitJob(spec(parent=DB, after=(After(DB, Until.FINISHED),))))
    check_order(lived.cell, {"ann/p": spec("p"), "ann/c": spec("c", parent="ann/p")})


def test_children_of_children_are_bounded() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("j0", tasks=1)))
    for number in range(1, 8):
        lived.do(SubmitJob(spec(f"j{number}", tasks=1, parent=f"ann/j{number - 1}")))
    with pytest.raises(Conflict, match="would be the child of 8 jobs"):
        lived.do(SubmitJob(spec("j8", tasks=1, parent="ann/j7")))


# Updates


def test_an_update_waits_for_that_of_a_job_before_it() -> None:
    lived = Lived()
    lived.do(SubmitJob(db(tasks=3)))
    lived.settle()
    lived.do(SubmitJob(web()))
    lived.settle()
    lived.step(SubmitJob(web(run=("new",))), SubmitJob(db(tasks=3, run=("new",))))
    old = lived.attempts()
    while (rollout := lived.cell.jobs[DB].rollout) is not None:
        assert lived.attempts() == old
        lived.step()
    lived.settle()
    assert all(now > before for now, before in zip(lived.attempts(), old, strict=True))
    assert rollout is None


def test_an_update_before_it_that_is_held_is_said() -> None:
    lived = Lived()
    lived.do(SubmitJob(db(tasks=3)))
    lived.settle()
    lived.do(SubmitJob(web()))
    lived.settle()
    old = lived.attempts()
    lived.do(SubmitJob(db(tasks=3, run=LOOPS)))
    lived.do(SubmitJob(web(run=("new",))))
    rollout = lived.cell.jobs[WEB].rollout
    assert rollout is not None
    assert rollout.paused == "waits for the update of ann/db"
    lived.settle()
    assert lived.attempts() == old
    rollout = lived.cell.jobs[WEB].rollout
    assert rollout is not None
    assert rollout.paused.startswith("waits for the update of ann/db, which waits for somebody: task ")
    lived.do(UndoUpdate(DB))
    lived.settle()
    assert lived.attempts() != old


def test_tasks_that_wait_do_not_hold_up_an_update() -> None:
    lived = Lived()
    lived.do(SubmitJob(db()))
    lived.settle()
    update: dict[str, Any] = {"update": Update(deadline_seconds=20.0), "disruption": Disruption(Share(3))}
    lived.do(SubmitJob(web(**update)))
    lived.settle()
    lived.do(KillTasks(WEB, (1,)))
    lived.do(KillTasks(DB))
    lived.do(SubmitJob(web(**update, run=("new",))))
    lived.settle()
    assert lived.cell.jobs[WEB].rollout is None
    assert lived.states() == [RUNNING, PENDING, RUNNING]


# Words


def test_the_reasons_are_sentences() -> None:
    lived = Lived()
    lived.do(SubmitJob(web(Until.UP, 600.0)))
    said = list(order_sentences(lived.cell, lived.core.observed, lived.cell.jobs[WEB]))
    assert "it starts after ann/db (up): there is no job ann/db." in said[0]
    assert said[1].endswith("when it has waited 10m for ann/db.")
    assert said[2] == "Submit ann/db, or `borgctl job restart ann/web` starts it without."
    view = order_refusal(lived.cell, lived.core.observed, lived.cell.jobs[WEB])
    assert view is not None
    check_sentence(view.hint)
    job, observed = lived.cell.jobs[WEB], lived.core.observed
    text = why_task(lived.cell, observed, job, 0, (view,), (), lived.now).text
    assert "ann/web/0 waits for other jobs since" in text
    assert text.endswith("when it has waited 10m for ann/db.")
    lived.do(SubmitJob(db(tasks=3, resources=Resources(10**6))))
    after = After(DB, Until.UP)
    why = why_unmet(lived.cell, lived.core.observed, after, lived.now)
    assert why == "task 0 of ann/db: pending; 2 more not up"
    assert not is_met(lived.cell, lived.core.observed, after, lived.now)
    finished = After(DB, Until.FINISHED)
    assert "never finishes" in why_unmet(lived.cell, lived.core.observed, finished, lived.now)


def test_what_comes_only_when_somebody_does_something_is_told_apart() -> None:
    lived = Lived()

    def needs_somebody() -> bool:
        view = order_refusal(lived.cell, lived.core.observed, lived.cell.jobs[WEB])
        assert view is not None
        return view.impossible

    lived.do(SubmitJob(web(Until.FINISHED)))
    assert needs_somebody()
    lived.do(SubmitJob(db()))
    assert needs_somebody(), "a service never finishes"
    lived.do(KillTasks(DB))
    lived.do(SubmitJob(db(restart=ONCE)))
    assert not needs_somebody()
    lived.settle()
    assert not needs_somebody()
    lived.ended(DB, 0, Ending.FAIL)
    assert needs_somebody()


@pytest.mark.parametrize(
    ("within_seconds", "end"), [(0.0, "submitted"), (600.0, "submitted, and fails after 10m")]
)
def test_who_waits_for_what_is_not_there_is_told_for_how_long(within_seconds: float, end: str) -> None:
    _, note = order_notes(Lived().cell, web(Until.UP, within_seconds))
    assert note == f"there is no job ann/db yet: it waits until that is {end}"
