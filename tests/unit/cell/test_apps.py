"""Applications: what an apply makes of their jobs, whose fields are whose, and what it is refused for."""

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.apps.decide import plan_apply
from borgish.cell.apps.owners import owners_after
from borgish.cell.commands import (
    ApplyApp,
    EndChildren,
    KillApp,
    KillTasks,
    PlaceTasks,
    RemoveApp,
    RemoveCron,
    RollBack,
    RunApp,
    RunCron,
    ScaleJob,
    SeenAttempt,
    SetCron,
    SetQuota,
    SubmitJob,
    UndoApp,
    UndoUpdate,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry
from borgish.cell.invariants import violations
from borgish.cell.model import APP_VERSIONS_KEPT, Cell, Snapshot
from borgish.cell.updates.rollback import RollbackTarget
from borgish.errors import Conflict, NotFound, OverQuota, TooLarge
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.file.documents import Source, read_documents
from borgish.spec.job import After, JobSpec, Restart
from borgish.vocabulary import Appclass, Band, Ending, JobKind, Ownership, Phase, RestartPolicy, State, Until
from tests.unit.cell.crons import cron
from tests.unit.cell.test_decide import NOW, Desk, spec

SHOP = AppSpec("shop", "ann", {"team": "shop"})
KEY = "ann/shop"


@pytest.fixture
def desk() -> Desk:
    return Desk()


def document(job: JobSpec, *named: str) -> Document:
    return Document(job, ("name", "run", *named))


def batch(name: str, **changes: object) -> JobSpec:
    return spec(name, 1, restart=Restart(RestartPolicy.ON_FAILURE), **changes)


def applied(*documents: Document, **changes: object) -> ApplyApp:
    return msgspec.structs.replace(ApplyApp(SHOP, documents), **changes)


WEB, DB = document(spec("web"), "tasks"), document(spec("db", 1), "tasks")


def end(desk: Desk, job: str, ending: Ending) -> None:
    attempt = desk.cell.jobs[job].tasks[0].attempt
    desk.report(SeenAttempt(f"{job}/0", attempt, Phase.UP, ended=ending))


def test_all_jobs_come_in_one_entry(desk: Desk) -> None:
    before = desk.cell.position
    text, events = desk.do(applied(WEB, DB))
    assert text == "ann/shop applied, version 1: 2 created"
    assert (desk.cell.position, events) == (before + 1, 3)
    assert {job.app for job in desk.cell.jobs.values()} == {KEY}
    assert desk.cell.apps[KEY].version == 1
    assert desk.cell.apps[KEY].generation == desk.cell.position


def test_an_application_of_very_many_tasks_is_refused(desk: Desk) -> None:
    jobs = [document(spec(f"web-{number}", 10_000), "tasks") for number in range(6)]
    with pytest.raises(TooLarge, match="ann/shop would have 60000 tasks; at most 50000 are applied together"):
        desk.do(applied(*jobs))


def test_the_same_again_changes_nothing(desk: Desk) -> None:
    desk.do(applied(WEB, DB))
    assert desk.do(applied(WEB, DB)) == ("ann/shop is there already, exactly like this", 0)


def test_a_changed_job_is_updated_and_the_others_are_left_alone(desk: Desk) -> None:
    desk.do(applied(WEB, DB))
    desk.do(applied(document(spec("web", run=("sleep", "2")), "tasks"), DB))
    jobs = desk.cell.jobs
    assert (jobs["ann/web"].version, jobs["ann/db"].version) == (2, 1)
    assert desk.cell.apps[KEY].version == 2


def test_one_refused_job_refuses_all_and_every_refusal_is_named(desk: Desk) -> None:
    bad = [document(spec(name, inside="ann/room")) for name in ("web", "db")]
    with pytest.raises(NotFound, match=r"2 of 3 jobs are refused: ann/web needs .*; ann/db needs"):
        desk.do(applied(*bad, document(spec("ok"))))
    with pytest.raises(NotFound, match=r"2 of 3 jobs and crons are refused: ann/web needs"):
        desk.do(applied(*bad, crons=(cron("nightly"),)))
    assert not desk.cell.jobs
    assert not desk.cell.apps


def test_every_circle_and_every_parent_that_lacks_is_named(desk: Desk) -> None:
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    jobs = [document(spec(name, after=(After(f"ann/{other}"),))) for name, other in pairs]
    words = (
        "3 of 5 jobs are refused: ann/a waits for ann/b, which waits for ann/a; ann/c waits for ann/d, "
        "which waits for ann/c; ann/e would end with ann/none, and there is no such job"
    )
    with pytest.raises(Conflict, match=words):
        desk.do(applied(*jobs, document(spec("e", parent="ann/none"))))


def test_who_waits_for_what_an_apply_changes_is_known(desk: Desk) -> None:
    stages = [batch("load"), batch("move", after=(After("ann/load", Until.FINISHED),))]
    stages += [batch("write", after=(After("ann/move"),)), batch("late", after=(After("ann/none"),))]
    desk.do(applied(*(document(stage, "after") for stage in stages)))
    desk.do(PlaceTasks("ann/load", (0,), ("m1",)))
    end(desk, "ann/load", Ending.FAIL)
    mended = batch("load", run=("mended",)), *stages[1:]
    plan = plan_apply(desk.cell, applied(*(document(stage, "after") for stage in mended)), "ann", NOW)
    assert plan.followers == ("ann/move", "ann/write")


def test_an_alloc_set_and_what_is_in_it_are_applied_together(desk: Desk) -> None:
    room = document(spec("room", 2, run=(), kind=JobKind.ALLOC_SET))
    desk.do(applied(document(spec("web", inside="ann/room")), room))
    assert set(desk.cell.jobs) == {"ann/web", "ann/room"}


def test_an_alloc_set_and_what_is_in_it_shrink_together(desk: Desk) -> None:
    """Each change alone evicts, or takes away, the same task."""

    def sized(count: int) -> ApplyApp:
        room = document(spec("room", count, run=(), kind=JobKind.ALLOC_SET), "tasks")
        inner = document(spec("inner", count, inside="ann/room"), "tasks")
        return applied(inner, room)

    desk.do(sized(3))
    desk.do(PlaceTasks("ann/room", (0, 1, 2), ("m1",) * 3))
    desk.do(PlaceTasks("ann/inner", (1, 0, 2), ("m1",) * 3, allocs=(0, 1, 2)))
    desk.do(sized(2))
    assert len(desk.states("ann/inner")) == len(desk.states("ann/room")) == 2
    assert desk.states("ann/inner") == [State.RUNNING, State.RUNNING]


def test_quotas_are_held_against_all_jobs_together(desk: Desk) -> None:
    band = Band.BATCH
    priority = desk.cell.rules.bands.floor(band)
    desk.do(SetQuota("ann", band, Resources(300, 1 << 40)), "admin")
    jobs = [document(spec(name, 2, priority=priority), "tasks") for name in ("web", "db")]
    with pytest.raises(OverQuota):
        desk.do(applied(*jobs))
    assert not desk.cell.jobs
    few = document(spec("db", 1, priority=priority), "tasks")
    desk.do(applied(jobs[0], few))
    # What one gives back another may ask for.
    desk.do(applied(document(spec("web", 1, priority=priority), "tasks"), jobs[1]))
    assert desk.cell.demand.of(f"ann/{band}").cpu_millis == 300


def test_who_starts_after_a_new_job_is_told_until_when(desk: Desk) -> None:
    waits = document(spec("web", after=(After("ann/step"), After("ann/db"), After("ann/other"))))
    jobs = document(batch("step")), document(spec("db")), waits
    web = plan_apply(desk.cell, applied(*jobs), "ann", NOW).changes[-1]
    assert web.notes[0] == "it starts after ann/step (finished), ann/db (up), ann/other"


def test_a_job_that_comes_to_wait_for_one_applied_with_it_misses_none(desk: Desk) -> None:
    desk.do(applied(WEB))
    waits = document(spec("web", after=(After("ann/db"),)))
    web = plan_apply(desk.cell, applied(DB, waits), "ann", NOW).changes[-1]
    assert (web.what, web.notes) == ("updated", ("it starts after ann/db (up)",))


def test_what_has_no_document_stays_unless_it_is_pruned(desk: Desk) -> None:
    desk.do(applied(WEB, DB))
    decision = decide(desk.cell, desk.observed, applied(WEB), "ann", NOW)
    assert decision.notes == ("not in the files, and left as it is: ann/db; --prune ends it",)
    desk.do(applied(WEB))
    assert desk.cell.jobs["ann/db"].app == KEY
    desk.do(applied(WEB, prune=True))
    assert (desk.cell.jobs["ann/db"].state, desk.cell.jobs["ann/db"].app) == (State.DEAD, "")
    assert desk.do(applied(WEB, prune=True))[1] == 0


def test_what_another_job_uses_is_not_pruned(desk: Desk) -> None:
    room = document(spec("room", 2, run=(), kind=JobKind.ALLOC_SET))
    desk.do(applied(WEB, room))
    desk.do(SubmitJob(spec("guest", inside="ann/room")))
    with pytest.raises(Conflict, match="ann/room is used by ann/guest, which is not of ann/shop"):
        desk.do(applied(WEB, prune=True))


def test_pruning_asks_beyond_a_share_of_the_cell(desk: Desk) -> None:
    many = document(spec("many", 12, resources=Resources(1, 1)), "tasks")
    desk.do(applied(WEB, many))
    tasks = tuple(range(12))
    desk.do(PlaceTasks("ann/many", tasks, ("m1",) * 12))
    with pytest.raises(Conflict, match="this would stop 12 of 12 running tasks"):
        desk.do(applied(WEB, prune=True))
    desk.do(applied(WEB, prune=True, max_affected=12))
    assert desk.cell.jobs["ann/many"].state is State.DEAD


def test_a_job_of_no_application_that_becomes_part_of_one_is_noted(desk: Desk) -> None:
    desk.do(SubmitJob(spec("web", 1)))
    desk.do(ScaleJob("ann/web", 2))
    note = "it was part of no application, and becomes part of ann/shop"
    without = document(spec("web", 1))
    assert plan_apply(desk.cell, applied(without), "ann", NOW).changes[0].notes == (note,)
    # To fewer tasks than its own user scaled it to; else that is refused.
    fewer = applied(document(spec("web", 1), "tasks"))
    decision = decide(desk.cell, desk.observed, fewer, "ann", NOW)
    assert decision.notes == (f"ann/web: {note}; the file changes tasks: 2 -> 1, which ann set by scale",)
    desk.do(fewer)
    assert not plan_apply(desk.cell, fewer, "ann", NOW).changes[0].notes


def test_a_job_that_is_over_becomes_part_of_an_application_without_a_note(desk: Desk) -> None:
    desk.do(SubmitJob(spec("web", 1)))
    desk.do(KillTasks("ann/web", (0,)))
    assert plan_apply(desk.cell, applied(document(spec("web", 1))), "ann", NOW).changes[0].notes == ()


def test_a_job_of_another_application_has_to_be_taken_over(desk: Desk) -> None:
    desk.do(applied(WEB))
    other = ApplyApp(AppSpec("other", "ann"), (WEB,))
    with pytest.raises(Conflict, match="ann/web belongs to the application ann/shop"):
        desk.do(other)
    taken = msgspec.structs.replace(other, take_over=True)
    (change,) = plan_apply(desk.cell, taken, "ann", NOW).changes
    assert change.notes == ("it belongs to the application ann/shop, and is taken from it",)
    desk.do(taken)
    assert not plan_apply(desk.cell, taken, "ann", NOW).changes[0].notes
    assert desk.cell.jobs["ann/web"].app == "ann/other"
    with pytest.raises(Conflict):
        desk.do(applied(WEB))


# Owned fields


def test_a_number_of_tasks_that_is_not_named_stays_as_it_is(desk: Desk) -> None:
    desk.do(applied(document(spec("web", 1))))
    desk.do(ScaleJob("ann/web", 5), "bob")
    assert desk.do(applied(document(spec("web", 1))))[1] == 0
    desk.do(applied(document(spec("web", 1, run=("sleep", "2")))))
    assert desk.cell.jobs["ann/web"].spec.tasks == 5


def test_what_somebody_else_set_is_a_conflict_that_names_both(desk: Desk) -> None:
    desk.do(applied(WEB))
    desk.do(ScaleJob("ann/web", 5), "bob")
    assert desk.cell.jobs["ann/web"].owners["tasks"].by == "bob"
    with pytest.raises(Conflict, match="ann/web: tasks: 5 -> 2, but bob set that by scale"):
        desk.do(applied(WEB))
    desk.do(applied(WEB, take_over=True))
    job = desk.cell.jobs["ann/web"]
    assert (job.spec.tasks, job.owners["tasks"].how) == (2, Ownership.APPLY)


def test_what_a_file_names_no_more_is_as_it_was_by_default(desk: Desk) -> None:
    desk.do(applied(document(spec("web", env={"A": "1"}, priority=7), "env.A", "priority")))
    desk.do(applied(document(spec("web"))))
    assert desk.cell.jobs["ann/web"].spec.env == {}
    assert desk.cell.jobs["ann/web"].spec.priority == 0
    assert "priority" not in desk.cell.jobs["ann/web"].owners


def test_labels_of_others_stay(desk: Desk) -> None:
    desk.do(applied(document(spec("web", labels={"app": "web"}), "labels.app")))
    job = desk.cell.jobs["ann/web"]
    desk.do(SubmitJob(msgspec.structs.replace(job.spec, labels={"app": "web", "on-call": "bob"})), "bob")
    assert job.owners["labels.on-call"].by == "bob"
    desk.do(applied(document(spec("web", labels={"app": "site"}), "labels.app")))
    assert job.spec.labels == {"app": "site", "on-call": "bob"}


PICKY = "name: web\nrun: [sleep, '1']\noverrides: {0: {resources: {ram: 1GiB}}, 1: {env: {A: b}}}\n"


def read_document(text: str) -> Document:
    (found,) = read_documents([Source("web.yaml", text)], "ann").jobs
    return found.document


def test_overrides_of_a_file_are_laid_over_the_resources_of_somebody_else(desk: Desk) -> None:
    picky = read_document(f"tasks: 2\n{PICKY}")
    desk.do(applied(picky))
    job = desk.cell.jobs["ann/web"]
    before = job.spec.resources
    larger = msgspec.structs.replace(before, cpu_millis=2000)
    desk.do(SubmitJob(msgspec.structs.replace(job.spec, resources=larger)), "bob")
    assert desk.do(applied(picky))[1] > 0
    assert job.spec.resources == larger
    assert job.spec.overrides[0].resources == msgspec.structs.replace(larger, ram_bytes=1024**3)
    assert job.spec.overrides[1].resources is None
    assert desk.do(applied(picky))[1] == 0
    desk.do(applied(read_document(f"tasks: 2\nresources: {{cpu: 1}}\n{PICKY}"), take_over=True))
    smaller = msgspec.structs.replace(before, cpu_millis=1000, ram_bytes=1024**3)
    assert job.spec.overrides[0].resources == smaller


def test_an_update_undone_by_hand_is_not_overwritten(desk: Desk) -> None:
    desk.do(applied(WEB))
    second = document(spec("web", run=("sleep", "2")), "tasks")
    desk.do(applied(second))
    desk.do(UndoUpdate("ann/web"), "bob")
    with pytest.raises(Conflict, match="but bob set that by undo"):
        desk.do(applied(second))


def test_who_applies_a_job_of_their_own_takes_it_over_by_that(desk: Desk) -> None:
    desk.do(SubmitJob(spec("web", priority=7)))
    desk.do(applied(document(spec("web", run=("sleep", "2")))))
    job = desk.cell.jobs["ann/web"]
    assert (job.spec.run, job.spec.priority) == (("sleep", "2"), 7)
    assert job.owners["priority"].how is Ownership.SUBMIT


def test_who_applies_what_somebody_else_submitted_is_asked(desk: Desk) -> None:
    desk.do(SubmitJob(spec("web")), "bob")
    with pytest.raises(Conflict, match="but bob set that by submit"):
        desk.do(applied(document(spec("web", run=("sleep", "2")))))


def test_owners_of_a_job_without_an_application_are_those_who_submit(desk: Desk) -> None:
    desk.do(SubmitJob(spec("web")))
    desk.do(ScaleJob("ann/web", 3), "bob")
    desk.do(SubmitJob(spec("web", 3, run=("sleep", "2"))))
    assert desk.cell.jobs["ann/web"].owners == {}


# What is over


def test_a_service_that_was_killed_comes_back(desk: Desk) -> None:
    desk.do(applied(WEB))
    desk.do(KillTasks("ann/web", (0,)))
    assert desk.do(applied(WEB))[0] == "ann/shop applied, version 1: 1 started again"
    desk.do(KillTasks("ann/web"))
    desk.do(applied(WEB))
    assert desk.states() == [State.PENDING] * 2


def test_what_ran_to_completion_runs_again_only_for_another_program(desk: Desk) -> None:
    desk.do(applied(document(batch("load"))))
    desk.do(PlaceTasks("ann/load", (0,), ("m1",)))
    end(desk, "ann/load", Ending.FAIL)
    assert desk.states("ann/load") == [State.DEAD]
    assert desk.do(applied(document(batch("load"))))[1] == 0
    desk.do(applied(document(batch("load", labels={"a": "b"}), "labels.a")))
    assert desk.states("ann/load") == [State.DEAD]
    desk.do(applied(document(batch("load", run=("true",)))))
    assert desk.states("ann/load") == [State.PENDING]


# Undo, run, kill, remove


def test_undo_brings_back_what_was_and_ends_what_came(desk: Desk) -> None:
    desk.do(applied(WEB))
    desk.do(applied(document(spec("web", run=("sleep", "2")), "tasks"), DB))
    text, _ = desk.do(UndoApp(KEY))
    assert text == "ann/shop is version 1 again, as version 3: 1 updated, 1 ended"
    assert desk.cell.jobs["ann/web"].spec.run == ("sleep", "1")
    assert desk.cell.jobs["ann/db"].state is State.DEAD
    desk.do(UndoApp(KEY, 2))
    assert desk.states("ann/db") == [State.PENDING]


def test_what_is_over_says_when_what_is_new_of_it_counts(desk: Desk) -> None:
    desk.do(applied(document(batch("step"))))
    desk.do(PlaceTasks("ann/step", (0,), ("m1",)))
    end(desk, "ann/step", Ending.FINISH)
    assert not plan_apply(desk.cell, applied(document(batch("step"))), "ann", NOW).changes[0].notes
    larger = applied(document(msgspec.structs.replace(batch("step"), tasks=3), "tasks"))
    (change,) = plan_apply(desk.cell, larger, "ann", NOW).changes
    assert (change.what, len(change.notes)) == ("unchanged", 1)
    assert "`borgctl app run ann/shop --from step`" in change.notes[0]
    desk.do(larger)
    desk.do(RunApp(KEY, "step"))
    assert len(desk.states("ann/step")) == 3


def test_an_undo_refused_for_what_others_set_names_no_file(desk: Desk) -> None:
    desk.do(applied(WEB))
    desk.do(applied(document(spec("web", run=("sleep", "2")), "tasks")))
    desk.do(SubmitJob(spec("web", run=("sleep", "3"))), "bob")
    with pytest.raises(Conflict, match="but bob set that") as refused:
        desk.do(UndoApp(KEY))
    assert "from the file" not in refused.value.hint
    assert refused.value.hint.startswith(
        "--take-over changes that back, too; to leave it as it is, apply a file"
    )
    desk.do(UndoApp(KEY, take_over=True))
    assert desk.cell.jobs["ann/web"].spec.run == ("sleep", "1")


def test_undo_leaves_what_was_left_then(desk: Desk) -> None:
    desk.do(applied(WEB, DB))
    desk.do(applied(WEB))  # without --prune: db runs on
    desk.do(applied(document(spec("web", run=("sleep", "2")), "tasks")))
    desk.do(UndoApp(KEY))
    assert desk.states("ann/db") == [State.PENDING]
    desk.do(applied(WEB, document(spec("cache", 1))))
    desk.do(applied(WEB))
    desk.do(UndoApp(KEY, version=1))
    assert desk.states("ann/cache") == [State.DEAD]  # it came since


def test_undo_names_what_there_is(desk: Desk) -> None:
    with pytest.raises(NotFound, match="there is no application ann/shop"):
        desk.do(UndoApp(KEY))
    desk.do(applied(WEB))
    with pytest.raises(NotFound, match="ann/shop has no version before"):
        desk.do(UndoApp(KEY))
    with pytest.raises(Conflict, match="version 1 is what ann/shop is already"):
        desk.do(UndoApp(KEY, 1))


def test_versions_are_kept_up_to_a_number(desk: Desk) -> None:
    for number in range(APP_VERSIONS_KEPT + 5):
        desk.do(applied(document(spec("web", run=("sleep", str(number))))))
    app = desk.cell.apps[KEY]
    assert app.version == APP_VERSIONS_KEPT + 5
    assert list(app.earlier) == list(range(6, app.version))


def test_stages_run_again_together_and_only_when_none_runs(desk: Desk) -> None:
    desk.do(applied(WEB, document(batch("load"))))
    with pytest.raises(Conflict, match="ann/load of ann/shop runs already"):
        desk.do(RunApp(KEY))
    desk.do(PlaceTasks("ann/load", (0,), ("m1",)))
    end(desk, "ann/load", Ending.FINISH)
    assert desk.do(RunApp(KEY))[0] == "ann/shop runs: load"
    assert (desk.cell.jobs["ann/load"].state, desk.cell.jobs["ann/load"].app) == (State.PENDING, KEY)
    with pytest.raises(NotFound, match="ann/shop has no stage web"):
        desk.do(RunApp(KEY, "web"))


def test_what_waits_for_a_stage_that_failed_goes_on_with_a_run_from_there(desk: Desk) -> None:
    stages = batch("load"), batch("write", after=(After("ann/load", Until.FINISHED),))
    desk.do(applied(*(document(stage, "after") for stage in stages)))
    with pytest.raises(Conflict, match="ann/load of ann/shop runs already"):
        desk.do(RunApp(KEY))
    desk.do(PlaceTasks("ann/load", (0,), ("m1",)))
    end(desk, "ann/load", Ending.FAIL)
    since = desk.cell.jobs["ann/write"].uid
    with pytest.raises(Conflict, match="all stages of ann/shop that this is about wait"):
        desk.do(RunApp(KEY, "write"))
    assert desk.do(RunApp(KEY, "load"))[0] == "ann/shop runs: load; write waits for that already"
    assert desk.states("ann/load") == [State.PENDING]
    assert desk.cell.jobs["ann/write"].uid == since
    assert desk.cell.deferred == {"ann/write": {0}}


def test_kill_ends_all_and_remove_forgets_the_rest(desk: Desk) -> None:
    desk.do(applied(WEB, DB))
    with pytest.raises(Conflict, match="ann/db; ann/web of ann/shop are not over"):
        desk.do(RemoveApp(KEY))
    assert desk.do(KillApp(KEY))[0] == "3 tasks of ann/shop killed"
    assert desk.do(KillApp(KEY))[1] == 0
    desk.do(RemoveApp(KEY))
    assert not desk.cell.apps
    assert {job.app for job in desk.cell.jobs.values()} == {""}


def test_a_job_of_an_application_that_is_submitted_stays_its_own(desk: Desk) -> None:
    desk.do(applied(WEB))
    desk.do(SubmitJob(spec("web", run=("sleep", "2"))), "bob")
    assert desk.cell.jobs["ann/web"].app == KEY
    desk.do(KillTasks("ann/web"))
    desk.do(SubmitJob(spec("web", run=("sleep", "3"))), "bob")
    job = desk.cell.jobs["ann/web"]
    assert (job.app, job.owners["run"].by) == (KEY, "bob")


# Rollback


def copied(cell: Cell) -> Cell:
    return Cell(msgspec.msgpack.decode(msgspec.msgpack.encode(cell.snapshot()), type=Snapshot))


def roll_back(desk: Desk, then: Cell, *only: str) -> None:
    command = RollBack(then.position, 1.0, frozenset(only), max_affected=100)
    decision = decide(desk.cell, desk.observed, command, "ann", NOW, RollbackTarget(then))
    apply_entry(desk.cell, Entry(desk.cell.position + 1, 5.0, 2, 1, "ann", "RollBack", decision.events))
    assert violations(desk.cell) == []


def test_a_rollback_restores_applications_under_new_numbers(desk: Desk) -> None:
    desk.do(applied(WEB))
    then = copied(desk.cell)
    desk.do(applied(WEB, DB))
    desk.do(ApplyApp(AppSpec("other", "ann"), (document(spec("x")),)))
    roll_back(desk, then)
    app = desk.cell.apps[KEY]
    assert (app.version, [each.key for each in app.present.documents]) == (3, ["ann/web"])
    assert set(desk.cell.apps) == {KEY}
    assert set(desk.cell.jobs) == {"ann/web"}


def test_a_rollback_brings_back_an_application_that_is_gone(desk: Desk) -> None:
    desk.do(applied(WEB))
    then = copied(desk.cell)
    desk.do(KillApp(KEY))
    desk.do(RemoveApp(KEY))
    roll_back(desk, then)
    assert desk.cell.apps[KEY].version == 1
    assert desk.cell.jobs["ann/web"].app == KEY


def test_a_job_alone_does_not_come_back_into_an_application_that_is_gone(desk: Desk) -> None:
    desk.do(applied(WEB))
    then = copied(desk.cell)
    desk.do(KillApp(KEY))
    desk.do(RemoveApp(KEY))
    roll_back(desk, then, "ann/web")
    assert desk.cell.jobs["ann/web"].app == ""


def test_owners_after_keeps_since_when_a_field_is_its_own(desk: Desk) -> None:
    desk.do(applied(WEB))
    job = desk.cell.jobs["ann/web"]
    assert owners_after(job, WEB, KEY, 9000.0)["tasks"].at == NOW.wall


def test_what_ended_with_its_parent_stays_over_while_that_is(desk: Desk) -> None:
    main, side = document(batch("main")), document(spec("side", 1, parent="ann/main"))
    pane = document(spec("pane", 1, parent="ann/side"))
    desk.do(applied(pane, main, side))
    desk.do(PlaceTasks("ann/main", (0,), ("m1",)))
    end(desk, "ann/main", Ending.FINISH)
    desk.do(EndChildren({"ann/side": "ann/main"}))
    desk.do(EndChildren({"ann/pane": "ann/side"}))
    assert desk.do(applied(pane, main, side))[1] == 0
    again = document(msgspec.structs.replace(main.spec, run=("sleep", "2")))
    assert "3 started again" in desk.do(applied(pane, again, side))[0]


def test_what_is_in_allocs_that_come_back_comes_back_with_them(desk: Desk) -> None:
    room = document(spec("room", 1, run=(), kind=JobKind.ALLOC_SET))
    web = document(spec("web", 2, inside="ann/room"))
    desk.do(applied(web, room))
    desk.do(KillTasks("ann/room"))
    desk.do(KillTasks("ann/web", (0,)))
    assert "2 started again" in desk.do(applied(web, room))[0]
    assert desk.states() == [State.PENDING] * 2


def test_a_run_leaves_to_others_what_they_have_set(desk: Desk) -> None:
    web = document(spec("web", priority=5), "priority")
    step = document(batch("step", priority=5, labels={"a": "file"}), "priority", "labels.a")
    desk.do(applied(web, step))
    desk.do(SubmitJob(spec("web", priority=7)), "bob")
    desk.do(KillTasks("ann/step"))
    desk.do(SubmitJob(batch("step", priority=8, labels={"a": "file"})), "bob")
    desk.do(KillTasks("ann/step"))
    desk.do(RunApp(KEY))
    jobs = desk.cell.jobs
    assert [jobs[key].owners["priority"].by for key in ("ann/web", "ann/step")] == ["bob", "bob"]
    assert jobs["ann/step"].spec.priority == 8
    assert jobs["ann/step"].owners["labels.a"].by == KEY
    with pytest.raises(Conflict, match="but bob set that by submit"):
        desk.do(applied(web, step))


def test_what_follows_from_the_field_of_another_is_as_the_file_names_it(desk: Desk) -> None:
    desk.do(applied(document(spec("web", appclass=Appclass.BATCH), "appclass")))
    desk.do(SubmitJob(batch("web", appclass=Appclass.BATCH)), "bob")
    desk.do(applied(document(spec("web", appclass=Appclass.LATENCY_SENSITIVE), "appclass")))
    job = desk.cell.jobs["ann/web"].spec
    assert (job.restart.policy, job.appclass) == (RestartPolicy.ON_FAILURE, Appclass.LATENCY_SENSITIVE)


# Crons


NIGHTLY = cron("nightly")


def test_crons_come_change_and_go_with_their_application(desk: Desk) -> None:
    text, _ = desk.do(applied(WEB, crons=(NIGHTLY,)))
    assert text == "ann/shop applied, version 1: 2 created"
    assert desk.cell.crons["ann/nightly"].app == KEY
    assert desk.do(applied(WEB, crons=(NIGHTLY,)))[1] == 0
    other = msgspec.structs.replace(NIGHTLY, schedule="0 4 * * *")
    assert desk.do(applied(WEB, crons=(other,)))[0] == "ann/shop applied, version 2: 1 unchanged, 1 updated"
    desk.do(UndoApp(KEY))
    assert desk.cell.crons["ann/nightly"].spec == NIGHTLY
    desk.do(applied(WEB))
    assert desk.cell.crons["ann/nightly"].app == KEY
    desk.do(applied(WEB, prune=True))
    assert not desk.cell.crons


def test_a_cron_that_somebody_changed_is_a_conflict(desk: Desk) -> None:
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    desk.do(SetCron(msgspec.structs.replace(NIGHTLY, schedule="0 4 * * *")), "bob")
    with pytest.raises(Conflict, match="the cron ann/nightly is not as it was applied: bob changed it since"):
        desk.do(applied(WEB, crons=(NIGHTLY,)))
    desk.do(applied(WEB, crons=(NIGHTLY,), take_over=True))
    assert desk.cell.crons["ann/nightly"].spec == NIGHTLY


def test_a_cron_that_was_left_out_of_the_files_for_a_while_is_no_conflict(desk: Desk) -> None:
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    desk.do(applied(WEB))
    other = msgspec.structs.replace(NIGHTLY, schedule="0 4 * * *")
    desk.do(applied(WEB, crons=(other,)))
    assert desk.cell.crons["ann/nightly"].spec == other
    desk.do(applied(WEB))
    desk.do(SetCron(NIGHTLY), "bob")
    with pytest.raises(Conflict, match="the cron ann/nightly is not as it was applied: bob changed it since"):
        desk.do(applied(WEB, crons=(other,)))


def test_a_cron_of_another_application_has_to_be_taken_over(desk: Desk) -> None:
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    other = ApplyApp(AppSpec("other", "ann"), (), crons=(NIGHTLY,))
    with pytest.raises(Conflict, match="the cron ann/nightly belongs to the application ann/shop"):
        desk.do(other)
    desk.do(msgspec.structs.replace(other, take_over=True))
    assert desk.cell.crons["ann/nightly"].app == "ann/other"


def test_kill_ends_the_runs_of_its_crons_too(desk: Desk) -> None:
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    desk.do(RunCron("ann/nightly"))
    assert desk.do(KillApp(KEY))[0] == "3 tasks of ann/shop killed, and its crons removed: ann/nightly"
    assert all(job.state is State.DEAD for job in desk.cell.jobs.values())
    assert not desk.cell.crons
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    assert desk.cell.crons["ann/nightly"].next > NOW.wall


def test_kill_ends_a_run_once_that_became_a_job_of_the_application(desk: Desk) -> None:
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    desk.do(RunCron("ann/nightly"))
    (run,) = desk.cell.runs["ann/nightly"]
    desk.do(applied(WEB, document(desk.cell.jobs[run].spec), crons=(NIGHTLY,)))
    assert desk.do(KillApp(KEY))[0].startswith("3 tasks of ann/shop killed")


def test_a_rollback_brings_crons_back_into_their_application(desk: Desk) -> None:
    desk.do(applied(WEB, crons=(NIGHTLY,)))
    then = copied(desk.cell)
    desk.do(KillApp(KEY))
    desk.do(RemoveApp(KEY))
    roll_back(desk, then)
    assert desk.cell.crons["ann/nightly"].app == KEY
    desk.do(RemoveCron("ann/nightly"))
    assert desk.do(applied(WEB, crons=(NIGHTLY,)))[0] == "ann/shop applied, version 1: 1 unchanged, 1 created"
