"""``borgctl cron``, and files of crons: what is asked for and printed."""

from pathlib import Path

import msgspec
import pytest

from borgish.spec.cron import read_cron
from borgish.spec.job import JobSpec
from borgish.vocabulary import Missed, Outcome, Overlap, State
from borgish.wire.api import Accepted, JobList
from borgish.wire.api_apps import AppList
from borgish.wire.api_crons import CronDetail, CronList, CronRunView, CronStageView, CronView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster

TEXT = "kind: cron\nname: nightly\nschedule: 0 2 * * *\ntime_zone: Europe/Berlin\nrun: [sh]\n"
DUE = "2026-11-22T01:00:00.000Z"
RUN = CronRunView("ann/nightly-20261122t0100", DUE, DUE, State.DEAD, Outcome.FAILED)
CRON = CronView(
    *("ann/nightly", "ann", "0 2 * * *", "Europe/Berlin", "2026-11-23T01:00:00.000Z", DUE, RUN, 3, 1, 5),
    late_seconds=12.0,
    among=3000,
)
DONE = Accepted(7, "ann/nightly", "done")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nightly.yaml"
    path.write_text(TEXT)
    return path


def test_the_list_says_what_became_of_it(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["GET /v1/crons"] = CronList((CRON,))
    assert run("cron", "list") == 0
    shown = capsys.readouterr().out
    for words in ("2026-11-23 02:00 CET", "dead (failed)", "2/5", "began 12s late, spread: 3000 crons"):
        assert words in shown


def test_the_wide_list_asks_for_the_next_times_and_shows_what_differs_of_each(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ("2026-12-31T22:00:00.000Z", "2026-12-31T22:30:00.000Z", "2026-12-31T23:00:00.000Z")
    later = (*times, "2027-01-02T23:00:00.000Z")
    master.answers["GET /v1/crons"] = CronList((msgspec.structs.replace(CRON, next=times[0], times=later),))
    assert run("cron", "list", "-o", "wide") == 0
    assert "2026-12-31 23:00 CET  23:30, 2027-01-01 00:00, 01-03 00:00 " in capsys.readouterr().out
    assert run("cron", "list", "-o", "json") == 0
    assert run("cron", "list") == 0
    assert [asked.query.get("times") for asked in master.asked] == ["true", "true", None]


def test_a_schedule_with_seconds_is_shown_with_them(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ("2026-11-23T17:16:00.000Z", "2026-11-23T17:16:10.000Z")
    zone = {"schedule": "*/10 * * * * *", "time_zone": "UTC"}
    cron = msgspec.structs.replace(CRON, **zone, next=times[0], last=times[0], times=times)
    master.answers["GET /v1/crons"] = CronList((cron,))
    assert run("cron", "list", "-o", "wide") == 0
    shown = capsys.readouterr().out
    assert "2026-11-23 17:16:00 UTC  17:16:10  2026-11-23 17:16:00 UTC" in shown


def test_one_is_shown_with_its_times_and_runs(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    job = read_cron(TEXT, "ann").job
    times = ("2026-11-23T01:00:00.000Z", "2026-11-24T01:00:00.000Z")
    detail = CronDetail(CRON, Overlap.FORBID, Missed.ONCE, times, (RUN,), job, DUE, "ann")
    master.answers["GET /v1/crons"] = CronList((CRON,))
    master.answers["GET /v1/crons/ann/nightly"] = detail
    assert run("cron", "show", "nightly") == 0
    shown = capsys.readouterr().out
    for words in (
        "2026-11-24 02:00 CET",
        "ann/nightly-20261122t0100",
        "forbid",
        "2 kept, 1 live",
        "dead (failed)  2026-11-22 02:00 CET",
    ):
        assert words in shown


def test_a_run_of_an_application_is_shown_with_its_stages(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    job = JobSpec("nightly", "ann", 1, ())
    stages = tuple(
        CronStageView(f"{RUN.name}-{name}", State.DEAD, outcome)
        for name, outcome in (("extract", Outcome.FINISHED), ("load", Outcome.FAILED))
    )
    of_app = msgspec.structs.replace(CRON, app="ann/pipeline")
    runs = (msgspec.structs.replace(RUN, stages=stages),)
    detail = CronDetail(of_app, Overlap.FORBID, Missed.ONCE, (), runs, job, DUE, "ann")
    master.answers["GET /v1/crons"] = CronList((of_app,))
    master.answers["GET /v1/crons/ann/nightly"] = detail
    assert run("cron", "show", "nightly") == 0
    shown = capsys.readouterr().out
    for words in ("the stages of ann/pipeline", f"  {RUN.name}-extract  dead (finished)", "-load"):
        assert words in shown


def test_a_file_of_a_cron_that_runs_an_application_is_checked_and_has_no_plan(
    master: FakeMaster, run: Run, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(TEXT.replace("run: [sh]", "app: pipeline"))
    assert run("job", "check", str(file)) == 0
    assert "valid: cron ann/nightly, runs ann/pipeline" in capsys.readouterr().out
    assert run("plan", str(file)) == 2
    assert "runs ann/pipeline, and has no job of its own to plan" in capsys.readouterr().err
    assert all("plan" not in asked.path for asked in master.asked)


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "remove"])
def test_what_is_asked_of_one(master: FakeMaster, run: Run, verb: str) -> None:
    master.answers["GET /v1/crons"] = CronList((CRON,))
    master.answers[f"POST /v1/crons/ann/nightly/{verb}"] = DONE
    assert run("cron", verb, "nightly", *["--yes"] * (verb == "remove")) == 0


def test_a_file_is_checked_and_set(
    master: FakeMaster, run: Run, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("job", "check", str(file)) == 0
    shown = capsys.readouterr().out
    assert f"{file}: valid: cron ann/nightly, 1 task" in shown
    assert shown.count("02:00:00 CE") == 5
    master.answers["POST /v1/crons"] = DONE
    assert run("job", "submit", str(file)) == 0, "there is nothing to follow"
    assert master.asked[-1].body == TEXT.encode()


def test_who_takes_a_cron_for_a_job_is_told(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["GET /v1/jobs"] = JobList(())
    master.answers["GET /v1/apps"] = AppList(())
    master.answers["GET /v1/crons"] = CronList((CRON,))
    assert run("job", "show", "nightly") == 1
    assert "ann/nightly is a cron: `borgctl cron show ann/nightly`" in capsys.readouterr().err
