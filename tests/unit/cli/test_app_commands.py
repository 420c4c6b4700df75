"""What ``borgctl app`` follows, and how it ends."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from borgish.vocabulary import Outcome, State
from borgish.wire.api import Accepted, JobDetail, JobView
from borgish.wire.api_apps import AppDetail, AppList
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import APP, FakeMaster, job, spec

Out = pytest.CaptureFixture[str]
POSITION = 20


def stage(name: str, **changes: Any) -> JobView:
    dead = 0 if changes.get("pending") else 1
    plain = {"state": State.DEAD, "tasks": 1, "running": 0, "up": 0, "dead": dead, "generation": 7}
    return job(name=f"ann/{name}", **(plain | changes))


def finished(name: str, **changes: Any) -> JobView:
    return stage(name, finished=1, outcome=Outcome.FINISHED, **changes)


def failed(name: str, **changes: Any) -> JobView:
    return stage(name, failed=1, outcome=Outcome.FAILED, **changes)


def looks(master: FakeMaster, *views: tuple[JobView, ...]) -> None:
    """Let the application be each of these in turn; the last one stays, and its jobs are found."""
    names = tuple(each.name for each in views[-1])
    details = [AppDetail(APP, jobs, stages=names) for jobs in views]
    left: Iterator[AppDetail] = iter(details[:-1])
    master.answers["GET /v1/apps/ann/shop"] = lambda _: next(left, details[-1])
    master.answers["GET /v1/tasks"] = {"items": []}
    for each in views[-1]:
        found = msgspec.structs.replace(spec(tasks=1))
        master.answers[f"GET /v1/jobs/{each.name}"] = JobDetail(each, found, ())


@pytest.fixture
def shop(master: FakeMaster) -> FakeMaster:
    for verb in ("run", "undo"):
        master.answers[f"POST /v1/apps/ann/shop/{verb}"] = Accepted(POSITION, "ann/shop", f"{verb}: done")
    return master


def test_a_stage_that_waited_already_is_of_the_run(shop: FakeMaster, run: Run, capsys: Out) -> None:
    waiting = stage("write", state=State.PENDING, pending=1, waiting=1)
    looks(shop, (failed("load"), waiting), (finished("load", generation=POSITION), failed("write")))
    assert run("app", "run", "ann/shop") == 1
    shown = capsys.readouterr()
    assert "ann/load: 1 of 1 task finished" in shown.out
    assert "--from write" in shown.err


def test_a_stage_that_is_no_part_of_the_run_is_not_followed(shop: FakeMaster, run: Run) -> None:
    looks(shop, (failed("load"),), (failed("load"), finished("write", generation=POSITION)))
    assert run("app", "run", "ann/shop", "--from", "write") == 0


def test_what_an_undo_began_counts_also_when_it_is_over(shop: FakeMaster, run: Run) -> None:
    looks(shop, (finished("load"),), (failed("load", generation=POSITION),))
    assert run("app", "undo", "ann/shop") == 1


def test_what_an_undo_left_alone_is_not_followed(shop: FakeMaster, run: Run) -> None:
    looks(shop, (failed("load"),), (failed("load"),))
    assert run("app", "undo", "ann/shop") == 0


def test_an_application_that_lacks_a_job_is_not_well(master: FakeMaster, run: Run, capsys: Out) -> None:
    up = msgspec.structs.replace(APP, state=State.RUNNING, up=1, pending=0, running=1, absent=1)
    detail = AppDetail(up, (job(tasks=1),), absent={"ann/db": "belongs to ann/other"})
    master.answers["GET /v1/apps/ann/shop"] = detail
    assert run("app", "status", "ann/shop") == 3
    assert "ann/db is in its files, and belongs to ann/other" in capsys.readouterr().out
    assert run("app", "show", "ann/shop") == 0
    assert "incomplete" in capsys.readouterr().out


def test_outcomes_are_counted_in_the_list(master: FakeMaster, run: Run, capsys: Out) -> None:
    over = msgspec.structs.replace(APP, tasks=4, up=1, pending=0, running=1, finished=1, failed=1, killed=1)
    master.answers["GET /v1/apps"] = AppList((over,))
    assert run("app", "list") == 0
    assert "1 up, 1 finished, 1 failed, 1 killed" in capsys.readouterr().out
