"""Crons that run the stages of an application: all of a run or nothing, and what follows when one fails."""

from typing import Any

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    ApplyApp,
    KillApp,
    KillTasks,
    RemoveApp,
    RunApp,
    RunCron,
    SetCron,
    SetQuota,
    SubmitJob,
)
from borgish.cell.crons.runs import runs
from borgish.cell.events import Entry, TasksEnded, TasksPlaced
from borgish.errors import Conflict, NotFound
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec, run_key
from borgish.spec.job import After, JobSpec, Restart
from borgish.vocabulary import Band, Ending, Missed, Overlap, RestartPolicy, State, Until
from tests.sentences import check_refusal
from tests.unit.cell.crons import TO_COMPLETION
from tests.unit.cell.lived import machine, spec
from tests.unit.cell.test_crons import BEGIN, KEY, Days

APP = "ann/pipeline"
STAGES = ("extract", "transform", "load")
FIRST = "nightly-20270115t0801"


def stage(name: str, *after: str, **changes: Any) -> JobSpec:
    waits = tuple(After(f"ann/{each}", Until.FINISHED) for each in after)
    return spec(name, tasks=1, restart=TO_COMPLETION, after=waits, **changes)


PIPELINE = (stage("extract"), stage("transform", "extract"), stage("load", "transform"))


def applied(*jobs: JobSpec, crons: tuple[CronSpec, ...] = ()) -> ApplyApp:
    documents = tuple(Document(job, ("name",)) for job in jobs)
    return ApplyApp(AppSpec("pipeline", "ann"), documents, crons=crons, max_affected=100)


def of_app(**changes: Any) -> CronSpec:
    return CronSpec("* * * * *", JobSpec("nightly", "ann", 1, ()), app="pipeline", **changes)


@pytest.fixture
def days() -> Days:
    """A cell with the application, whose own stages were killed, and with two machines' worth of nothing."""
    days = Days()
    days.ask(applied(*PIPELINE))
    days.ask(KillApp(APP))
    return days


def end(days: Days, job: str, ending: Ending) -> None:
    """Let the only task of a job run and end."""
    if not days.cell.machines:
        days.cell.machines["m1"] = machine("m1", cordoned=True)
        days.cell.reindex()
    events = (TasksPlaced(job, (0,), ("m1",)), TasksEnded(job, (0,), ending, ("why",)))
    apply_entry(days.cell, Entry(days.cell.position + 1, days.now.wall, 1, 1, "test", "test", events))


def states(days: Days, run: str) -> list[State]:
    return [days.cell.jobs[f"ann/{run}-{each}"].state for each in STAGES]


def test_each_run_is_a_copy_of_the_stages(days: Days) -> None:
    days.ask(RunApp(APP))
    days.ask(applied(*PIPELINE, spec("web"), stage("child", parent="ann/extract")))
    before = {key: (job.uid, job.state) for key, job in days.cell.jobs.items()}
    days.ask(SetCron(of_app()))
    days.past(60.0)
    submitted = {event.spec.name: event for event in days.begun}
    assert set(submitted) == {f"{FIRST}-{each}" for each in (*STAGES, "child")}
    assert {(event.cron, event.due) for event in days.begun} == {(KEY, BEGIN + 60.0)}
    assert submitted[f"{FIRST}-load"].spec.after == (After(f"ann/{FIRST}-transform", Until.FINISHED),)
    assert submitted[f"{FIRST}-child"].spec.parent == f"ann/{FIRST}-extract"
    after = {key: (days.cell.jobs[key].uid, days.cell.jobs[key].state) for key in before}
    assert after == before, "the originals are left alone"
    assert days.cell.jobs[f"ann/{FIRST}-load"].app == ""
    assert days.cron.note == ""


def test_a_run_is_what_the_application_is_then(days: Days) -> None:
    days.ask(SetCron(of_app(overlap=Overlap.ALLOW)))
    days.past(60.0)
    days.ask(applied(stage("extract", run=("other",)), stage("publish", "extract")))
    days.past(60.0)
    later = {event.spec.name: event.spec for event in days.begun if event.due == BEGIN + 120.0}
    assert set(later) == {"nightly-20270115t0802-extract", "nightly-20270115t0802-publish"}
    assert later["nightly-20270115t0802-extract"].run == ("other",)


def test_what_is_outside_of_the_application_is_waited_for_as_it_is(days: Days) -> None:
    days.ask(applied(stage("extract", "elsewhere")))
    days.ask(SetCron(of_app()))
    days.past(120.0)
    assert days.begun[0].spec.after == (After("ann/elsewhere", Until.FINISHED),)
    assert days.cron.note == f"{FIRST}-extract still waited"


@pytest.mark.parametrize(("overlap", "count", "live"), [("forbid", 1, 1), ("allow", 3, 3), ("replace", 3, 1)])
def test_runs_overlap_as_a_whole(days: Days, overlap: str, count: int, live: int) -> None:
    days.ask(SetCron(of_app(overlap=Overlap(overlap))))
    days.past(180.0)
    there = runs(days.cell, KEY)
    assert len(there) == count
    assert sum(not run.is_over for run in there) == live
    assert len(days.begun) == 3 * count
    if overlap == "forbid":
        assert days.cron.note == f"{FIRST}-extract still went on"
    if overlap == "replace":
        assert days.cell.jobs[f"ann/{FIRST}-load"].tasks[0].reason == "replaced by nightly-20270115t0802"


@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_run_that_failed_and_only_waits_ends_when_the_next_begins(days: Days, overlap: Overlap) -> None:
    days.ask(SetCron(of_app(overlap=overlap)))
    days.past(60.0)
    end(days, f"ann/{FIRST}-extract", Ending.FINISH)
    days.step(seconds=0.5)
    end(days, f"ann/{FIRST}-transform", Ending.FAIL)
    days.past(30.0)
    assert states(days, FIRST) == [State.DEAD, State.DEAD, State.PENDING], "it may be mended until then"
    days.past(30.0)
    assert states(days, FIRST) == [State.DEAD] * 3
    reason = f"{FIRST} has failed, and is followed by nightly-20270115t0802"
    assert days.cell.jobs[f"ann/{FIRST}-load"].tasks[0].reason == reason
    assert days.cron.note == ""
    assert len(days.begun) == 6


def test_a_run_of_which_another_stage_goes_on_is_not_over(days: Days) -> None:
    days.ask(applied(*PIPELINE, stage("apart")))
    days.ask(SetCron(of_app()))
    days.past(60.0)
    end(days, f"ann/{FIRST}-extract", Ending.FAIL)
    days.past(60.0)
    assert len(days.begun) == 4
    assert days.cron.note == f"{FIRST}-apart still went on"
    days.ask(KillTasks(f"ann/{FIRST}-apart"))
    days.past(60.0)
    assert len(days.begun) == 8


def test_whole_runs_are_kept_and_forgotten(days: Days) -> None:
    days.ask(SetCron(of_app(keep=2, overlap=Overlap.REPLACE)))
    days.past(60.0 * 5 + 5)
    there = [run.name[-5:] for run in runs(days.cell, KEY)]
    assert there == ["t0803", "t0804", "t0805"]
    assert [len(run.jobs) for run in runs(days.cell, KEY)] == [3, 3, 3]
    assert [job.spec.name.rpartition("-")[2] for job in runs(days.cell, KEY)[0].jobs] == list(STAGES)


def test_quotas_are_held_against_all_jobs_of_a_run(days: Days) -> None:
    needs = Resources(100, 1024**2)
    days.ask(applied(*(stage(each, priority=100, resources=needs) for each in STAGES)))
    days.ask(KillApp(APP))
    days.ask(SetQuota("ann", Band.BATCH, Resources(250, 1024**3)))
    days.ask(SetCron(of_app(overlap=Overlap.REPLACE)))
    days.past(60.0)
    assert days.begun == []
    assert "and what comes with it would ask for 300m cpu in batch" in days.cron.note
    days.ask(SetQuota("ann", Band.BATCH, Resources(350, 1024**3)))
    days.past(120.0)
    assert len(days.begun) == 6, "what a run takes the place of asks for nothing more"


def test_all_that_was_missed_begins_as_whole_runs(days: Days) -> None:
    days.ask(SetCron(of_app(overlap=Overlap.ALLOW, missed=Missed.ALL)))
    days.step(seconds=180.0)
    days.past(5.0)
    assert len(runs(days.cell, KEY)) == 3
    assert len(days.begun) == 9


def test_without_an_application_or_stages_no_run_begins(days: Days) -> None:
    days.ask(RemoveApp(APP))
    assert days.ask(SetCron(of_app())).notes == ("there is no application ann/pipeline",)
    days.past(60.0)
    assert (days.begun, days.cron.note) == ([], "there is no application ann/pipeline")
    (refused,) = days.step(RunCron(KEY))
    assert isinstance(refused, NotFound)
    check_refusal(refused)
    days.ask(applied(spec("web")))
    notes = ("ann/pipeline has no job that runs to completion",)
    assert days.ask(SetCron(of_app(keep=7))).notes == notes
    days.past(60.0)
    assert (days.begun, days.cron.note) == ([], notes[0])


def test_names_that_would_be_too_long(days: Days) -> None:
    long = "x" * 40
    days.ask(applied(*PIPELINE, stage(long)))
    (refused,) = days.step(SetCron(of_app()))
    assert isinstance(refused, Conflict)
    assert "would be a name of 69 characters, and a job's has at most 63" in refused.message
    check_refusal(refused)
    days.ask(applied(*PIPELINE))
    days.ask(SetCron(of_app()))
    days.ask(applied(*PIPELINE, stage("x" * 50)))
    days.past(60.0)
    assert days.begun == []
    assert "a name of" in days.cron.note


def test_one_job_of_a_name_that_is_taken_keeps_its_run_from_beginning(days: Days) -> None:
    days.ask(SetCron(of_app()))
    days.ask(SubmitJob(spec(f"{FIRST}-load")))
    days.past(60.0)
    assert days.begun == []
    assert days.cron.note == f"there is a job {FIRST}-load already"


def test_a_run_by_hand(days: Days) -> None:
    days.ask(SetCron(of_app()))
    name = "nightly-hand-20270115t080000"
    assert days.ask(RunCron(KEY)).text == f"ann/{name} begins"
    assert [run.name for run in runs(days.cell, KEY)] == [name]
    (refused,) = days.step(RunCron(KEY), seconds=5.0)
    assert isinstance(refused, Conflict)
    assert refused.message.startswith(f"ann/{name}-extract still goes on, and ann/nightly forbids")
    check_refusal(refused)
    days.ask(KillTasks(f"ann/{name}-extract"))
    days.step(RunCron(KEY), seconds=1.0)
    assert states(days, name) == [State.DEAD] * 3
    assert len(runs(days.cell, KEY)) == 2


def test_a_cron_comes_with_the_application_that_it_runs(days: Days) -> None:
    days.ask(RemoveApp(APP))
    notes = days.ask(applied(*PIPELINE, crons=(of_app(),))).notes
    assert not any("there is no application" in note for note in notes)
    days.past(60.0)
    assert len(days.begun) == 3
    days.ask(KillApp(APP))
    assert all(job.state is State.DEAD for job in days.cell.jobs.values())


def test_a_cron_may_run_an_application_that_was_a_job(days: Days) -> None:
    job = spec("nightly", tasks=1, restart=Restart(RestartPolicy.NEVER))
    days.ask(SetCron(CronSpec("* * * * *", job, overlap=Overlap.ALLOW)))
    days.past(60.0)
    days.ask(SetCron(of_app(overlap=Overlap.ALLOW)))
    days.past(60.0)
    assert [len(run.jobs) for run in runs(days.cell, KEY)] == [1, 3]


def test_a_rollback_or_a_checkpoint_knows_the_runs_again(days: Days) -> None:
    days.ask(SetCron(of_app(overlap=Overlap.ALLOW)))
    days.past(120.0)
    before = msgspec.json.encode([run.key for run in runs(days.cell, KEY)])
    days.cell.reindex()
    assert msgspec.json.encode([run.key for run in runs(days.cell, KEY)]) == before


@pytest.mark.parametrize(
    ("job", "run"),
    [
        ("ann/nightly-20270115t0801", "ann/nightly-20270115t0801"),
        ("ann/nightly-20270115t080110-a-b", "ann/nightly-20270115t080110"),
        ("ann/nightly-hand-20270115t080110", "ann/nightly-hand-20270115t080110"),
        ("ann/nightly-hand-20270115t080110-hand-2", "ann/nightly-hand-20270115t080110"),
    ],
)
def test_of_which_run_a_job_is(job: str, run: str) -> None:
    assert run_key(KEY, job) == run
