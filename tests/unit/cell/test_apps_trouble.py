"""Bad days of applications: what is refused, by whom it is used, and what a rollback makes of it."""

from typing import Any

import msgspec
import pytest

from borgish.cell.apps.decide import plan_apply
from borgish.cell.apps.order import UP_SECONDS
from borgish.cell.commands import (
    ApplyApp,
    FreezeCell,
    KillTasks,
    PlaceTasks,
    RemoveCron,
    RollBack,
    SetCron,
    SetQuota,
    SubmitJob,
    UndoApp,
    UnfreezeCell,
)
from borgish.cell.generations import Outdated, Thing, ThingKind
from borgish.errors import Conflict, NotFound, OverQuota
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec
from borgish.spec.job import After, JobSpec
from borgish.vocabulary import Band, Ending, JobKind, Overlap, State, Until
from tests.unit.cell.crons import cron
from tests.unit.cell.lived import CRASHES, Lived, spec
from tests.unit.cell.test_apps import KEY, applied, batch, document, end
from tests.unit.cell.test_apps import desk as desk  # a fixture
from tests.unit.cell.test_decide import Desk

DB, WEB = "ann/db", "ann/web"
ROOM = spec("room", 1, run=(), kind=JobKind.ALLOC_SET)
USERS: dict[str, tuple[JobSpec, dict[str, Any]]] = {
    "in": (ROOM, {"inside": ROOM.key}),
    "after": (spec("db", 1), {"after": (After(DB, Until.UP),)}),
    "parent": (spec("db", 1), {"parent": DB}),
}
WITH_USER = pytest.mark.parametrize(
    ("used", "user"),
    [pytest.param(used, spec("web", 1, **how), id=name) for name, (used, how) in USERS.items()],
)


def as_it_was(desk: Desk, command: ApplyApp, error: type[Exception], match: str) -> None:
    """Have an apply refused, which leaves no trace."""
    before = msgspec.json.encode(desk.cell.snapshot())
    with pytest.raises(error, match=match):
        desk.do(command)
    assert msgspec.json.encode(desk.cell.snapshot()) == before


# What others use


@WITH_USER
def test_what_a_job_of_nobodys_application_uses_is_not_pruned(
    desk: Desk, used: JobSpec, user: JobSpec
) -> None:
    rest = document(spec("rest", 1))
    desk.do(applied(rest, document(used)))
    desk.do(SubmitJob(user))
    what = f"{used.key} is used by ann/web, which is not of ann/shop"
    as_it_was(desk, applied(rest, prune=True), Conflict, what)
    desk.do(applied(rest))  # what is not pruned stays


@WITH_USER
def test_what_the_files_use_themselves_is_not_pruned(desk: Desk, used: JobSpec, user: JobSpec) -> None:
    """The job that uses it would end with it, or wait for good, and the files say that it is to run."""
    web = document(user)
    desk.do(applied(web, document(used)))
    what = f"{used.key} has no document any more and would end, and ann/web uses it"
    as_it_was(desk, applied(web, prune=True), Conflict, what)
    # Without the one that uses it both go, and with one that does not only the other.
    desk.do(applied(document(spec("web", 1, inside=user.inside)), document(used)))
    if not user.inside:
        desk.do(applied(document(spec("web", 1)), prune=True))
        assert desk.cell.jobs[used.key].state is State.DEAD
    desk.do(applied(document(spec("rest", 1)), prune=True))
    assert desk.cell.jobs["ann/web"].state is State.DEAD


def test_what_a_cron_uses_is_not_pruned(desk: Desk) -> None:
    room, rest = document(ROOM), document(spec("rest", 1))
    nightly = CronSpec("0 2 * * *", batch("nightly", inside=ROOM.key))
    desk.do(applied(rest, room, crons=(nightly,)))
    what = "ann/room has no document any more and would end, and the cron ann/nightly uses it"
    as_it_was(desk, applied(rest, crons=(nightly,), prune=True), Conflict, what)
    desk.do(SetCron(CronSpec("0 3 * * *", batch("weekly", inside=ROOM.key))))
    what = "ann/room is used by the cron ann/weekly, which is not of ann/shop"
    as_it_was(desk, applied(rest, prune=True), Conflict, what)
    desk.do(RemoveCron("ann/weekly"))
    desk.do(applied(rest, prune=True))
    assert (desk.cell.jobs[ROOM.key].state, desk.cell.crons) == (State.DEAD, {})


def test_what_is_over_already_is_nobodys_loss(desk: Desk) -> None:
    desk.do(applied(document(batch("load"))))
    desk.do(PlaceTasks("ann/load", (0,), ("m1",)))
    end(desk, "ann/load", Ending.FINISH)
    desk.do(SubmitJob(spec("late", 1, after=(After("ann/load"),))))
    desk.do(applied(document(spec("rest", 1)), prune=True))
    assert (desk.cell.jobs["ann/load"].app, desk.cell.jobs["ann/load"].finished) == ("", 1)


# Two people


def test_who_is_second_is_told_of_the_application() -> None:
    assert Outdated(Thing(ThingKind.APP, KEY), 3, 5, "ann/shop killed by bob").message == (
        "the application ann/shop was changed since you looked (generation 3, now 5): ann/shop killed by bob"
    )


# One of many is refused


def test_one_of_twenty_over_quota_refuses_all(desk: Desk) -> None:
    priority = desk.cell.rules.bands.floor(Band.BATCH)
    desk.do(SetQuota("ann", Band.BATCH, Resources(1950, 1 << 40)), "admin")
    jobs = [document(spec(f"job-{n}", 1, priority=priority), "priority") for n in range(20)]
    as_it_was(desk, applied(*jobs), OverQuota, "quota 1.95, used 0: 50m cpu missing")
    desk.do(applied(*jobs[:19]))
    assert len(desk.cell.jobs) == 19


def test_mistakes_of_several_kinds_are_told_together(desk: Desk) -> None:
    jobs = [
        document(spec("a", 1, inside="ann/none")),
        document(spec("b", 1, after=(After("ann/c"),))),
        document(spec("c", 1, after=(After("ann/b"),))),
    ]
    both = "2 of 3 jobs are refused: ann/a needs the alloc set ann/none.*; ann/b waits for ann/c, which"
    as_it_was(desk, applied(*jobs), NotFound, both)


# Undo


def test_undo_of_an_undo_brings_back_what_was_undone(desk: Desk) -> None:
    first, second = document(spec("web")), document(spec("web", run=("sleep", "2")))
    desk.do(applied(first))
    desk.do(applied(second, document(spec("db", 1))))
    undone, _ = desk.do(UndoApp(KEY))
    assert undone == "ann/shop is version 1 again, as version 3: 1 updated, 1 ended"
    again, _ = desk.do(UndoApp(KEY))
    assert again == "ann/shop is version 2 again, as version 4: 1 updated, 1 started again"
    assert desk.cell.jobs[WEB].spec.run == ("sleep", "2")
    assert (desk.cell.jobs[DB].state, desk.cell.jobs[DB].app) == (State.PENDING, KEY)


# Rollbacks of the cell


def shop(*jobs: JobSpec, prune: bool = False) -> ApplyApp:
    documents = tuple(Document(job, ("name", "run", "tasks")) for job in jobs)
    return ApplyApp(AppSpec("shop", "ann"), documents, prune, max_affected=100)


def test_a_rollback_to_before_an_apply_takes_all_of_it_back_and_can_be_taken_back() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec("other", 1)))
    before = lived.position
    lived.do(shop(spec("web", 2), spec("db", 1)))
    lived.settle()
    applied_at = lived.position
    attempts = lived.attempts("ann/other")
    lived.roll_back(before)
    lived.settle()
    assert (set(lived.cell.jobs), lived.cell.apps) == ({"ann/other"}, {})
    assert lived.attempts("ann/other") == attempts, "what is not of it runs on"
    lived.roll_back(applied_at)
    lived.settle()
    assert lived.states() == [State.RUNNING] * 2
    assert {job.app for job in lived.cell.jobs.values()} == {"", KEY}
    assert lived.do(shop(spec("web", 2), spec("db", 1))) == "ann/shop is there already, exactly like this"


def test_an_apply_says_that_a_rollback_ends_what_it_would_bring_back() -> None:
    lived = Lived()
    lived.do(shop(spec("web", 2)))
    lived.settle()
    lived.do(KillTasks("ann/web", (1,)))
    lived.settle()
    killed = lived.position
    lived.do(shop(spec("web", 2)))
    lived.settle()
    lived.do(FreezeCell())
    lived.roll_back(killed)
    (change,) = plan_apply(lived.cell, shop(spec("web", 2)), "ann", lived.now).changes
    assert change.notes == (
        f"1 task still to end, as it was rolled back to position {killed}: apply again when that is over",
    )
    lived.do(UnfreezeCell())
    lived.settle()
    assert lived.states() == [State.RUNNING, State.DEAD]
    lived.do(shop(spec("web", 2)))
    lived.settle()
    assert lived.states() == [State.RUNNING] * 2


def test_a_rollback_leaves_what_crons_have_dealt_with() -> None:
    """The application goes, what was due stays dealt with: no run begins for it a second time."""
    lived = Lived()
    nightly = cron(schedule="* * * * *", overlap=Overlap.ALLOW)
    lived.do(SetCron(nightly))
    before = lived.position
    lived.do(shop(spec("web", 1)))
    while not lived.cell.runs:
        lived.step()
    last, runs = lived.cell.crons[nightly.key].last, set(lived.cell.runs[nightly.key])
    lived.roll_back(before)
    assert WEB not in lived.cell.jobs
    assert (lived.cell.crons[nightly.key].last, set(lived.cell.runs[nightly.key])) == (last, runs)
    for _ in range(5):
        lived.step()
    assert set(lived.cell.runs[nightly.key]) == runs


def test_a_rollback_of_a_job_alone_leaves_its_application() -> None:
    """Of what it is then the files of the application know nothing: the next apply says whose it is."""
    lived = Lived()
    lived.do(shop(spec("web", 2)))
    lived.settle()
    first = lived.position
    second = spec("web", 2, run=("sleep", "2"))
    lived.do(shop(second))
    lived.settle()
    lived.do(RollBack(first, lived.entries[first - 1].at, frozenset({WEB}), max_affected=10))
    lived.settle()
    assert lived.cell.jobs[WEB].spec.run == ("sleep", "1")
    assert lived.cell.apps[KEY].present.documents[0].spec == second
    assert lived.do(shop(second)) == "ann/shop applied, version 2: 1 updated"


# Predecessors


def test_one_that_flaps_lets_nobody_start_and_takes_nobody_down_again() -> None:
    lived = Lived()
    lived.do(shop(spec("db", 1, run=CRASHES), spec("web", 2, after=(After(DB, Until.UP),))))
    for _ in range(30):
        lived.step()
    assert lived.states() == [State.PENDING] * 2
    lived.crashes = False  # it stays up for a moment longer than a crash takes, then it flaps again
    for _ in range(int(UP_SECONDS) - 1):
        lived.step()
    lived.crashes = True
    for _ in range(5):
        lived.step()
    assert lived.states() == [State.PENDING] * 2
    lived.crashes = False
    while State.PENDING in lived.states():
        lived.step()
    attempts = lived.attempts()
    lived.crashes = True
    for _ in range(30):
        lived.step()
    assert (lived.states(), lived.attempts()) == ([State.RUNNING] * 2, attempts)


def test_an_apply_beside_one_that_never_comes_fails_when_its_time_is_over() -> None:
    lived = Lived()
    lived.do(shop(spec("web", 2, after=(After(DB, Until.UP, 10.0),)), spec("db", 1, run=CRASHES)))
    for _ in range(15):
        lived.step()
    assert lived.states() == [State.DEAD] * 2
    task = lived.cell.jobs[WEB].tasks[0]
    assert task.reason.startswith("waited 10s for ann/db (up): task 0 of ann/db: ")
    assert lived.states(DB) == [State.RUNNING]
    lived.do(shop(spec("web", 2), spec("db", 1)))  # mended: it waits for nobody
    lived.settle()
    assert lived.states() == [State.RUNNING] * 2
