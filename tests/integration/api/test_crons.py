"""The routes of crons: who may use them, what they take, what they answer."""

import msgspec
import pytest

from borgish.api.routes.crons import WITH_TIMES_MAX
from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    PauseCron,
    RemoveCron,
    ResumeCron,
    RunCron,
    SetCron,
)
from borgish.cell.crons.model import Cron
from borgish.cell.events import CronFired, CronSet, Entry, JobSubmitted
from borgish.cli.lookup import every_cron
from borgish.client import Client, quoted
from borgish.errors import Forbidden, Invalid, NotFound
from borgish.spec.cron import read_cron
from borgish.wire.api import Accepted
from borgish.wire.api_crons import CronDetail, CronList
from tests.integration.api.fakes import RunningApi
from tests.unit.api.cells import NOW

TEXT = b"kind: cron\nname: nightly\nschedule: 0 2 * * *\nrun: [sh]\nenv: {A: secret}\n"
NIGHTLY = read_cron(TEXT, "ann")
PATH = quoted("crons", "ann", "nightly")


def test_its_user_sets_it_and_decides_about_it(api: RunningApi) -> None:
    ann = api.client("bgt_ann")
    ann.post("/v1/crons", TEXT, Accepted, content_type="application/yaml")
    for verb in ("pause", "resume", "run", "remove"):
        ann.post(f"{PATH}/{verb}", None, Accepted)
    key = "ann/nightly"
    assert [asked.command for asked in api.master.asked] == [
        SetCron(NIGHTLY),
        *(PauseCron(key), ResumeCron(key), RunCron(key), RemoveCron(key)),
    ]


def test_nobody_else_does(api: RunningApi) -> None:
    bob = api.client("bgt_bob")
    for verb in ("pause", "resume", "run", "remove"):
        with pytest.raises(Forbidden):
            bob.post(f"{PATH}/{verb}", None, Accepted)
    with pytest.raises(Forbidden):
        bob.post("/v1/crons", TEXT + b"user: ann\n", Accepted, content_type="application/yaml")
    assert api.master.asked == []


def test_a_job_is_no_cron_and_a_cron_no_job(api: RunningApi, admin: Client) -> None:
    for path, text, words in (
        ("/v1/crons", b"name: web\nrun: [sh]\n", "is a job, not a cron"),
        ("/v1/jobs", TEXT, "is a cron, not a job"),
        ("/v1/crons", TEXT + b"keep: 0\n# " + b"x" * 5000, "keep: 0 is outside 1 to 100"),
    ):
        with pytest.raises(Invalid, match=words):
            admin.post(path, text, Accepted, content_type="application/yaml")
    assert api.master.asked == []


def test_it_is_shown_with_its_runs_and_without_its_secrets(api: RunningApi, admin: Client) -> None:
    cell, at = api.master.cell, NOW.wall
    cron = Cron(NIGHTLY, at, "ann", next=at + 1.0)
    fired = CronFired("ann/nightly", at + 1.0, at + 9.0, "what was due was missed", 30.0, 300)
    (run,) = NIGHTLY.jobs_of(NIGHTLY.run_at(at + 1.0))
    events = (CronSet(cron), fired, JobSubmitted(run, cron="ann/nightly", due=at + 1.0))
    api.do(lambda: apply_entry(cell, Entry(cell.position + 1, at, 1, 1, "ann", "test", events)))
    shown = admin.get(PATH, None, CronDetail)
    assert (shown.cron.runs, shown.cron.live, shown.cron.keep) == (1, 1, 5)
    assert (shown.cron.late_seconds, shown.cron.among) == (30.0, 300)
    assert [each.name for each in shown.runs] == [run.key]
    assert len(shown.times) == 5
    assert shown.spec.env == {"A": "secret"}
    assert api.client("bgt_bob").get(PATH, None, CronDetail).spec.env == {"A": "***"}
    assert admin.get("/v1/crons", None, CronList).items == (shown.cron,)
    (with_times,) = admin.get("/v1/crons", {"times": True}, CronList).items
    assert len(with_times.times) == 5
    assert with_times.times[0] == with_times.next
    with pytest.raises(NotFound, match="no cron ann/other"):
        admin.get(quoted("crons", "ann", "other"), None, CronDetail)


def test_a_page_with_times_is_short(api: RunningApi, admin: Client) -> None:
    cell, at = api.master.cell, NOW.wall
    job = NIGHTLY.job
    crons = [
        msgspec.structs.replace(NIGHTLY, job=msgspec.structs.replace(job, name=f"nightly-{number:02}"))
        for number in range(WITH_TIMES_MAX + 1)
    ]
    events = tuple(CronSet(Cron(each, at, "ann", next=at + 1.0)) for each in crons)
    api.do(lambda: apply_entry(cell, Entry(cell.position + 1, at, 1, 1, "ann", "test", events)))
    assert len(admin.get("/v1/crons", None, CronList).items) == len(crons)
    first = admin.get("/v1/crons", {"times": True}, CronList)
    assert len(first.items) == WITH_TIMES_MAX
    assert [cron.name for cron in every_cron(admin, times=True)] == [each.key for each in crons]
