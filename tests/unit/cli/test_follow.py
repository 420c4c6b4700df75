"""Submitting and waiting: when it ends, with which exit code, and what is said to be missing."""

import itertools
import json
from pathlib import Path

import pytest

from borgish.cli.follow import Goal, verdict
from borgish.cli.missing import missing_lines
from borgish.vocabulary import Outcome, Phase, State
from borgish.wire.api import Accepted, JobDetail, JobView, Problem, TaskList
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import Asked, FakeMaster, job, refusal, spec, task, to_completion

Out = pytest.CaptureFixture[str]
FILE = "name: web\ntasks: 3\nrun: [sleep, '60']\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("view", "goal", "code"),
    [
        (job(), Goal.UP, 0),
        (job(up=2), Goal.UP, None),
        (job(up=1, running=1, pending=2), Goal.UP, None),
        (job(up=1, running=1, dead=2, finished=2, service=False), Goal.UP, 0),
        (job(up=2, running=2, dead=1, failed=1), Goal.UP, 1),
        (job(state=State.DEAD, up=0, running=0, dead=3), Goal.UP, 1),
        (job(), Goal.DEAD, None),
        (job(state=State.DEAD, up=0, running=0, dead=3), Goal.DEAD, 0),
        (job(state=State.DEAD, up=0, running=0, dead=3, finished=3), Goal.FINISHED, 0),
        (job(state=State.DEAD, up=0, running=0, dead=3, finished=2, failed=1), Goal.FINISHED, 1),
        (job(), Goal.FINISHED, None),
    ],
)
def test_verdicts(view: JobView, goal: Goal, code: int | None) -> None:
    assert verdict(view, goal) == code


def test_submit_follows_until_every_task_is_up(master: FakeMaster, run: Run, file: Path, capsys: Out) -> None:
    ups = iter([0, 1, 3])

    def looked(_: Asked) -> JobDetail:
        return JobDetail(job(up=next(ups)), spec(), ())

    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted ann/web"),
        "GET /v1/jobs/ann/web": looked,
    }
    assert run("job", "submit", file) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "submitted ann/web"
    assert shown[1].startswith("ann/web: 3 of 3 tasks up after ")
    sent = next(asked for asked in master.asked if asked.method == "POST")
    assert (sent.body.decode(), sent.query) == (FILE, {"user": "ann"})
    assert sent.headers["Content-Type"] == "application/yaml"
    assert sent.headers["Idempotency-Key"]


def test_what_is_doubtful_is_noted_beside_what_was_done(
    master: FakeMaster, run: Run, file: Path, capsys: Out
) -> None:
    master.answers["POST /v1/jobs"] = Accepted(5, "ann/web", "submitted", notes=("no machine has \x1b", "b"))
    assert run("job", "submit", "--detach", file) == 0
    shown = capsys.readouterr()
    assert shown.out == "submitted\n"
    assert shown.err == "note: no machine has \\x1b\nnote: b\n"


def test_what_ends_at_once_is_not_called_up(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.cli.follow.SETTLE_SECONDS", 0.02)
    views = iter([job(), job(up=0), job(up=0), job(up=2, dead=1, running=2, failed=1)])
    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted"),
        "GET /v1/jobs/ann/web": lambda _: JobDetail(next(views), spec(), ()),
        "GET /v1/tasks": TaskList(()),
    }
    assert run("job", "submit", file) == 1


def test_a_stall_while_it_is_looked_at_is_not_the_time_between_two_looks(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()  # whenever the clock is read, a second has gone by
    monkeypatch.setattr("borgish.cli.changes.Deadline.spent", property(lambda _: float(next(seconds))))
    monkeypatch.setattr("borgish.cli.follow.SETTLE_SECONDS", 0.3)
    views = iter([job(), job(up=2, dead=1, running=2, failed=1)])
    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted"),
        "GET /v1/jobs/ann/web": lambda _: JobDetail(next(views), spec(), ()),
        "GET /v1/tasks": TaskList(()),
    }
    assert run("job", "submit", file) == 1


def test_not_placed_in_time(master: FakeMaster, run: Run, file: Path, capsys: Out) -> None:
    waiting = job(pending=2, running=1, up=1)
    master.has(waiting).answers["GET /v1/jobs/ann/web"] = JobDetail(waiting, spec(), (refusal(),))
    master.answers |= {"POST /v1/jobs": Accepted(5, "ann/web", "submitted"), "GET /v1/tasks": TaskList(())}
    assert run("job", "submit", file, "--timeout", "10ms") == 3
    shown = capsys.readouterr().err
    assert "ann/web/1-2 (2 tasks) pending: 0 of 3 machines fit" in shown
    assert "hint: ask for at most 2GiB" in shown


def test_placed_and_not_up(master: FakeMaster, run: Run, file: Path, capsys: Out) -> None:
    master.has(job(up=2))
    failing = task(phase=Phase.STARTING, pid=None, exit_code=127, restarts=3, reason="restarts in 4s")
    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted"),
        "GET /v1/tasks": TaskList((failing,)),
    }
    assert run("job", "submit", file, "--timeout", "10ms") == 1
    shown = capsys.readouterr().err
    assert "ann/web/0 (1 task): starting, exit 127, restarts in 4s" in shown
    assert "hint: borgctl task logs ann/web/0 --previous" in shown


def test_detach_returns_at_once(master: FakeMaster, run: Run, file: Path) -> None:
    master.answers["POST /v1/jobs"] = Accepted(5, "ann/web", "submitted")
    assert run("job", "submit", file, "--detach") == 0
    assert master.calls == ["POST /v1/jobs"]


def test_ctrl_c_detaches(
    master: FakeMaster, run: Run, file: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("borgish.cli.follow.follow", interrupted)
    master.answers["POST /v1/jobs"] = Accepted(5, "ann/web", "submitted")
    assert run("job", "submit", file) == 0
    assert "borgctl job kill ann/web" in capsys.readouterr().err


def test_wrong_files_are_not_sent(
    master: FakeMaster, run: Run, file: Path, tmp_path: Path, capsys: Out
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: web\ntasks: 0\nrun: [x]\nspeed: 9\n")
    assert run("job", "submit", file, wrong) == 2
    shown = capsys.readouterr().err
    assert f"{wrong}:2:" in shown
    assert f"{wrong}:4:" in shown
    assert "nothing was submitted" in shown
    assert master.calls == []
    assert run("job", "check", file, wrong) == 2
    assert "right: job ann/web, 3 tasks" in capsys.readouterr().out


def test_a_resource_that_looks_like_a_slip_is_noted(run: Run, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: web\nrun: [x]\nresources: {rma: 1}\n")
    assert run("job", "check", path) == 0
    assert "note: 'rma' is a resource of a name of its own; did you mean ram?" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"\xff\xfe", b"x" * (1024 * 1024 + 1)])
def test_what_is_no_text_or_too_large(run: Run, tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(body)
    assert run("job", "check", path) == 2


def test_a_file_that_is_not_there(run: Run, tmp_path: Path, capsys: Out) -> None:
    assert run("job", "check", tmp_path / "none.yaml") == 2
    assert "no such file" in capsys.readouterr().err


def test_another_job_runs_under_this_name(master: FakeMaster, run: Run, file: Path, capsys: Out) -> None:
    master.answers["POST /v1/jobs"] = Problem(
        "x", 409, "ann/web runs already, with tasks: 2 instead of 3", hint="scale"
    )
    assert run("job", "submit", file) == 1
    assert "tasks: 2 instead of 3" in capsys.readouterr().err


def test_wait(master: FakeMaster, run: Run, capsys: Out) -> None:
    done = job(state=State.DEAD, up=0, running=0, dead=3, finished=3, service=False)
    master.has(done).answers["GET /v1/jobs/ann/web"] = JobDetail(done, to_completion(), ())
    assert run("job", "wait", "web", "--for", "finished") == 0
    assert "3 finished" in capsys.readouterr().out


def test_wait_over(master: FakeMaster, run: Run) -> None:
    master.has(job()).answers["GET /v1/tasks"] = TaskList(())
    assert run("job", "wait", "web", "--for", "dead", "--timeout", "0.01") == 3


def test_a_service_never_finishes(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job())
    assert run("job", "wait", "web", "--for", "finished") == 2
    assert "is a service" in capsys.readouterr().err


def test_tasks_with_one_trouble_are_one_group() -> None:
    same = [
        task(index=i, state=State.DEAD, phase=None, outcome=Outcome.FAILED, exit_code=1, reason="no try left")
        for i in (0, 1, 2, 7)
    ]
    finished = task(index=4, state=State.DEAD, phase=None, outcome=Outcome.FINISHED, exit_code=0)
    lines = missing_lines((), [*same, task(index=3), finished])
    assert lines == [
        "  ann/web/0-2,7 (4 tasks): dead (failed), exit 1, no try left",
        "    hint: borgctl task logs ann/web/0",
    ]


def test_the_body_is_sent_as_it_was_written(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"name": "web", "user": "bob", "run": ["true"]}) + "\n\n")
    master.answers["POST /v1/jobs"] = Accepted(5, "bob/web", "submitted")
    assert run("job", "submit", path, "--detach", "--user", "eve") == 0
    assert master.asked[0].body == path.read_bytes()
    assert master.asked[0].query == {"user": "eve"}
