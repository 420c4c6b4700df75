"""A submission and a wait follow an update: until it is complete, held, undone or replaced."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from borgish.cli.follow import Goal, verdict
from borgish.vocabulary import Hold, RolloutKind, State
from borgish.wire.api import Accepted, JobDetail, JobView, LastRolloutView, RolloutView, TaskList
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster, job, spec, task

Out = pytest.CaptureFixture[str]
WAYS = ("`borgctl job update undo ann/web` goes back to version 1",)
GOES_ON = RolloutView(RolloutKind.UPDATE, "updated to version 2", NOW, 2, 1, 1, "task 0 starts", None, WAYS)
COMPLETE = LastRolloutView(RolloutKind.UPDATE, 2, "complete", NOW)
NEW = job(version=2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text("name: web\ntasks: 3\nrun: [sleep, '61']\n")
    return path


def rolling(**changes: Any) -> JobDetail:
    view = changes.pop("job", NEW)
    return JobDetail(view, spec(), (), rollout=msgspec.structs.replace(GOES_ON, **changes))


def over(view: JobView = NEW, last: LastRolloutView = COMPLETE) -> JobDetail:
    return JobDetail(view, spec(), (), last_rollout=last)


def looks(master: FakeMaster, *details: object) -> None:
    """Have the job change from look to look; the last stays."""
    there = itertools.chain(details, itertools.repeat(details[-1]))

    def look(_: object) -> object:
        found = next(there)
        if isinstance(found, BaseException):
            raise found
        return found

    master.has(NEW).answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "ann/web is updated to version 2"),
        "GET /v1/jobs/ann/web": look,
        "GET /v1/tasks": TaskList((task(),)),
    }


@pytest.mark.parametrize(
    ("view", "hold", "goal", "code"),
    [
        (NEW, None, Goal.UP, None),
        (NEW, Hold.CANARY, Goal.UP, 0),
        (NEW, Hold.FAILED, Goal.UP, 1),
        (NEW, Hold.PAUSED, Goal.UP, 1),
        (job(state=State.DEAD, up=0, running=0, dead=3), None, Goal.UP, 1),
        (job(state=State.DEAD, up=0, running=0, dead=3), Hold.PAUSED, Goal.DEAD, 0),
        (NEW, Hold.FAILED, Goal.DEAD, None),
    ],
)
def test_a_job_that_is_up_is_not_done_while_its_rollout_goes_on(
    view: JobView, hold: Hold | None, goal: Goal, code: int | None
) -> None:
    assert verdict(view, goal, msgspec.structs.replace(GOES_ON, hold=hold)) == code


def test_it_is_followed_until_it_is_complete(
    master: FakeMaster, run: Run, capsys: Out, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.cli.follow.SETTLE_SECONDS", 3600.0)  # the update has watched it already
    looks(master, rolling(), rolling(left=0, changed=3), over())
    assert run("job", "submit", file) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(
        "ann/web is updated to version 2\nann/web: version 2: complete; 3 of 3 tasks up after "
    )
    assert "ann/web: version 2: 1 of 3 tasks changed; waits: task 0 starts\n" in shown.err


def test_a_wait_follows_it_too(master: FakeMaster, run: Run, capsys: Out) -> None:
    restart = LastRolloutView(RolloutKind.RESTART, 2, "complete", NOW)
    looks(master, rolling(), rolling(kind=RolloutKind.RESTART), over(last=restart))
    assert run("job", "wait", "web") == 0
    assert "ann/web: restart: complete; 3 of 3 tasks up" in capsys.readouterr().out


def test_what_was_skipped_is_said(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    last = msgspec.structs.replace(COMPLETE, outcome="complete but for 1 task: why", skipped="2")
    looks(master, rolling(), over(last=last))
    assert run("job", "submit", file) == 0
    shown = capsys.readouterr()
    assert "version 2: complete but for 1 task: why; left as they were: 2; 3 of 3" in shown.out
    assert shown.err.endswith("hint: `borgctl job restart ann/web 2` changes those that were left\n")


def test_it_is_not_given_up_while_it_goes_on(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.cli.follow.TIMEOUT_SECONDS", 0.0)
    looks(master, *[rolling()] * 3, over())
    assert run("job", "submit", file) == 0
    assert run("job", "wait", "web") == 0


def test_unless_a_time_is_given(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    looks(master, rolling())
    assert run("job", "submit", file, "--timeout", "50ms") == 3
    assert "1 of 3 tasks changed; waits: task 0 starts after 0s" in capsys.readouterr().err


def test_canaries_that_wait_are_what_was_asked_for(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    way = "`borgctl job update promote ann/web` goes on"
    looks(master, rolling(), rolling(hold=Hold.CANARY, waits="1 task is well", ways_out=(way,)))
    assert run("job", "submit", file) == 0
    shown = capsys.readouterr()
    assert shown.out.endswith(
        "ann/web: version 2: 1 of 3 tasks changed; waits to be promoted: 1 task is well\n"
    )
    assert shown.err.endswith(f"hint: {way}\n")


@pytest.mark.parametrize("hold", [Hold.FAILED, Hold.PAUSED])
def test_one_that_is_held_fails_and_says_the_ways_out(
    master: FakeMaster, run: Run, capsys: Out, file: Path, hold: Hold
) -> None:
    looks(master, rolling(), rolling(hold=hold, waits="task 0 failed"))
    assert run("job", "submit", file) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any("1 of 3 tasks changed; " in line and line.endswith("task 0 failed") for line in lines)
    assert lines[-1] == f"hint: {WAYS[0]}"


def test_one_that_is_undone_by_itself_fails_and_says_which_version_is_back(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    why = "undone since task 0 failed: version 3 is version 1 again"
    looks(master, rolling(), rolling(job=job(version=3), reason=why))
    assert run("job", "submit", file) == 1
    lines = capsys.readouterr().err.splitlines()
    assert f"ann/web: version 3 replaces version 2: {why}" in lines
    assert lines[-1] == "hint: `borgctl job wait ann/web` follows it"


def test_a_newer_version_that_is_there_already_is_told(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    looks(master, rolling(), over(job(version=3)))
    assert run("job", "submit", file) == 1
    assert "ann/web: version 3 replaces version 2\n" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on_following(
    master: FakeMaster, run: Run, capsys: Out, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    looks(master, rolling())
    monkeypatch.setattr("borgish.cli.follow.Changes.wait", interrupted)
    assert run("job", "submit", file) == 130
    said = capsys.readouterr().err
    assert "ann/web goes on. Follow: borgctl job wait ann/web" in said
    assert "borgctl job update status ann/web" in said
    assert "borgctl job update undo ann/web" in said
    assert run("job", "wait", "web") == 130
