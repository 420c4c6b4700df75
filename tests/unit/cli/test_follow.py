"""Submitting and waiting: when it ends, with which exit code, and what is said to be missing."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from borgish.cli.follow import Goal, verdict
from borgish.cli.problems import problem_lines
from borgish.spec.job import Health
from borgish.vocabulary import Outcome, Phase, State
from borgish.wire.api import Accepted, JobDetail, JobView, Problem, TaskList, TaskView
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
        (job(state=State.DEAD, up=0, running=0, dead=3, finished=2, killed=1), Goal.FINISHED, 5),
        (job(state=State.DEAD, up=0, running=0, dead=3, failed=1, killed=2), Goal.FINISHED, 1),
        (job(up=0, running=1, dead=2, failed=2), Goal.FINISHED, None),
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
    assert run("job", "submit", file, "--settle", "0") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "submitted ann/web"
    assert shown[1].startswith("ann/web: 3 of 3 tasks up after ")
    sent = next(asked for asked in master.asked if asked.method == "POST")
    assert (sent.body.decode(), sent.query) == (FILE, {"user": "ann"})
    assert sent.headers["Content-Type"] == "application/yaml"
    assert sent.headers["Idempotency-Key"]


def test_the_time_that_a_job_waits_for_others_is_not_counted(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr("borgish.cli.follow.TIMEOUT_SECONDS", 0.0)  # what finds no place is given up at once
    reason = "after ann/db (up): there is no job ann/db"
    looks = iter([job(up=0, running=0, pending=3, waiting=3, reason=reason)] * 3 + [job(up=3)] * 9)
    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted ann/web"),
        "GET /v1/jobs/ann/web": lambda _: JobDetail(next(looks), spec(), ()),
    }
    assert run("job", "submit", file, "--settle", "0") == 0
    assert f"ann/web: 0 of 3 tasks up, 3 waiting: {reason}" in capsys.readouterr().err


def test_what_waits_for_a_job_that_does_not_come_by_itself_is_given_up(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr("borgish.cli.follow.TIMEOUT_SECONDS", 0.0)
    waiting = job(up=0, running=0, pending=3, waiting=3, reason="after ann/db (up): there is no job ann/db")
    why = msgspec.structs.replace(
        refusal(), text=waiting.reason, hint="submit ann/db", impossible=True, in_order=True
    )
    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted ann/web"),
        "GET /v1/jobs/ann/web": JobDetail(waiting, spec(), (why,)),
        "GET /v1/tasks": TaskList(()),
    }
    assert run("job", "submit", file) == 3
    assert "hint: submit ann/db" in capsys.readouterr().err


def test_what_is_doubtful_is_noted_beside_what_was_done(
    master: FakeMaster, run: Run, file: Path, capsys: Out
) -> None:
    master.answers["POST /v1/jobs"] = Accepted(5, "ann/web", "submitted", notes=("no machine has \x1b", "b"))
    assert run("job", "submit", "--detach", file) == 0
    shown = capsys.readouterr()
    assert shown.out == "submitted\n"
    assert shown.err == "note: no machine has \\x1b\nnote: b\n"


class Course:
    """A master whose one job changes from look to look; the last look and the last tasks stay."""

    def __init__(
        self, master: FakeMaster, *looks: JobView | JobDetail, tasks: Sequence[TaskView] = ()
    ) -> None:
        self.tasks = [(task,) for task in tasks] or [(task(),)]
        self.asked_for_tasks = 0
        details = [one if isinstance(one, JobDetail) else JobDetail(one, spec(), ()) for one in looks]
        self._looks = itertools.chain(details, itertools.repeat(details[-1]))
        master.has(job()).answers |= {
            "POST /v1/jobs": Accepted(5, "ann/web", "submitted"),
            "GET /v1/jobs/ann/web": lambda _: next(self._looks),
            "GET /v1/tasks": self._task_list,
            "GET /v1/tasks/ann/web/0/logs": lambda asked: f"wrote {asked.query}\nlast words\x1b\n".encode(),
        }

    def _task_list(self, _: Asked) -> TaskList:
        self.asked_for_tasks += 1
        return TaskList(self.tasks[min(self.asked_for_tasks, len(self.tasks)) - 1])


DYING = job(up=2, reason="task 0 backing off: exit code 3; restarts in 1 s")
HELD = task(phase=Phase.BACKING_OFF, pid=None, restarts=1, exit_code=3, reason="exit code 3; restarts in 1 s")


def test_up_is_said_at_once_and_the_end_comes_when_it_stayed_so(
    master: FakeMaster, run: Run, file: Path, capsys: Out
) -> None:
    course = Course(master, job())
    assert run("job", "submit", file, "--settle", "100ms") == 0
    assert course.asked_for_tasks == 2
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" after ")[0] for line in said] == ["submitted", "ann/web: 3 of 3 tasks up"]


def test_what_was_restarted_meanwhile_has_to_stay_up_anew(master: FakeMaster, run: Run, file: Path) -> None:
    course = Course(master, job(), tasks=[task(), task(restarts=1), task(restarts=1)])
    assert run("job", "submit", file, "--settle", "10ms") == 0
    assert course.asked_for_tasks == 3


def test_how_long_it_has_to_stay_up_depends_on_whether_it_is_probed(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = JobDetail(job(), spec(health=Health(tcp=True, port="http")), ())
    for settle_seconds, detail, other in (
        ("SETTLE_SECONDS", JobDetail(job(), spec(), ()), "SETTLE_PROBED_SECONDS"),
        ("SETTLE_PROBED_SECONDS", probed, "SETTLE_SECONDS"),
    ):
        monkeypatch.setattr(f"borgish.cli.follow.{settle_seconds}", 0.01)
        monkeypatch.setattr(f"borgish.cli.follow.{other}", 3600.0)
        course = Course(master, detail)
        assert run("job", "submit", file) == 0
        assert course.asked_for_tasks == 2


def test_a_program_that_dies_and_dies_again_ends_the_submission(
    master: FakeMaster, run: Run, file: Path, capsys: Out
) -> None:
    Course(master, job(), JobDetail(DYING, spec(), (), not_up={Phase.BACKING_OFF: 1}), tasks=[task(), HELD])
    assert run("job", "submit", file, "--settle", "1h") == 1
    shown = capsys.readouterr()
    assert "ann/web: 3 of 3 tasks up after " in shown.out
    assert shown.err.splitlines()[-5:] == [
        "ann/web: 2 of 3 tasks up: task 0 backing off: exit code 3; restarts in 1 s",
        "  ann/web/0 (1 task): backing off, exit code 3; restarts in 1 s",
        "    | wrote {'tail': '10', 'previous': '0'}",
        "    | last words\\x1b",
        "    hint: borgctl task logs ann/web/0",
    ]


def test_what_could_not_be_started_yet_is_not_given_up(master: FakeMaster, run: Run, file: Path) -> None:
    held = msgspec.structs.replace(HELD, reason="cannot start: no engine; tries again in 1 s")
    not_yet = JobDetail(job(up=2), spec(), (), not_up={Phase.BACKING_OFF: 1})
    Course(master, not_yet, not_yet, job(), tasks=[held])
    assert run("job", "submit", file, "--settle", "0") == 0


def test_who_waits_for_a_job_waits_on_when_a_program_dies(master: FakeMaster, run: Run) -> None:
    Course(master, JobDetail(DYING, spec(), (), not_up={Phase.BACKING_OFF: 1}), job(), tasks=[HELD])
    assert run("job", "wait", "web", "--settle", "0") == 0


def test_a_job_that_finishes_meanwhile_says_so(master: FakeMaster, run: Run, file: Path, capsys: Out) -> None:
    batch = {"service": False, "up": 0, "running": 0, "dead": 3, "state": State.DEAD}
    finished = job(**batch, finished=3, outcome=Outcome.FINISHED)
    Course(master, *(JobDetail(look, to_completion(), ()) for look in (job(service=False), finished)))
    assert run("job", "submit", file, "--settle", "1h") == 0
    assert "ann/web: 3 of 3 tasks finished after " in capsys.readouterr().out
    failed = job(**batch, finished=2, failed=1, outcome=Outcome.FAILED)
    dead = task(state=State.DEAD, phase=None, pid=None, outcome=Outcome.FAILED, exit_code=3)
    Course(
        master,
        *(JobDetail(look, to_completion(), ()) for look in (job(service=False), failed)),
        tasks=[task(), dead],
    )
    assert run("job", "submit", file, "--settle", "1h") == 1
    shown = capsys.readouterr().err
    assert "  ann/web/0 (1 task): dead (failed), exit 3\n    | wrote " in shown


def _batch(**changes: object) -> JobDetail:
    return JobDetail(job(service=False, **changes), to_completion(), ())


@pytest.mark.parametrize(
    ("counts", "code", "said"),
    [
        ({"finished": 3, "outcome": Outcome.FINISHED}, 0, "3 of 3 tasks finished"),
        ({"finished": 2, "failed": 1, "outcome": Outcome.FAILED}, 1, "2 finished, 1 failed"),
        ({"finished": 2, "killed": 1, "outcome": Outcome.KILLED}, 5, "2 finished, 1 killed"),
    ],
)
@pytest.mark.parametrize("was_dead", [True, False])
def test_the_exit_code_of_a_wait_tells_how_a_job_came_out(
    master: FakeMaster, run: Run, capsys: Out, counts: dict[str, object], code: int, said: str, was_dead: bool
) -> None:
    dead = _batch(**{"up": 0, "running": 0, "dead": 3, "state": State.DEAD, **counts})
    Course(master, *(() if was_dead else (_batch(), _batch())), dead)
    assert run("job", "wait", "web", "--for", "finished") == code
    shown = capsys.readouterr()
    assert said in (shown.err if code else shown.out)


def test_a_wait_that_is_not_over_in_time(master: FakeMaster, run: Run) -> None:
    Course(master, _batch())
    assert run("job", "wait", "web", "--for", "finished", "--timeout", "10ms") == 3


@pytest.mark.parametrize(("goal", "code"), [("finished", 6), ("dead", 0), ("up", 1)])
def test_a_job_that_is_gone_while_it_is_waited_for(
    master: FakeMaster, run: Run, capsys: Out, goal: str, code: int
) -> None:
    looks = iter([_batch(up=2), _batch(up=2)])

    def looked(_: Asked) -> JobDetail | Problem:
        return next(looks, Problem("Not Found", 404, "there is no job ann/web"))

    Course(master, _batch())
    master.answers["GET /v1/jobs/ann/web"] = looked
    assert run("job", "wait", "web", "--for", goal, "--settle", "1h") == code
    shown = capsys.readouterr()
    if goal == "finished":
        assert "error: ann/web is gone: it was forgotten, or rolled back" in shown.err


@pytest.mark.parametrize(("goal", "code"), [("finished", 6), ("dead", 1), ("up", 1)])
def test_a_job_that_was_never_there(master: FakeMaster, run: Run, goal: str, code: int) -> None:
    Course(master, _batch())
    assert run("job", "wait", "nothing", "--for", goal) == code


@pytest.mark.parametrize(("restarts", "code"), [(0, 0), (2, 1)])
def test_the_time_is_over_while_it_is_watched(
    master: FakeMaster, run: Run, file: Path, capsys: Out, restarts: int, code: int
) -> None:
    Course(master, job(), tasks=[task(), task(restarts=restarts, exit_code=3 if restarts else None)])
    assert run("job", "submit", file, "--settle", "1h", "--timeout", "10ms") == code
    shown = capsys.readouterr().err
    assert ("  ann/web/0 (1 task): healthy again after 2 restarts, exit 3\n" in shown) == bool(restarts)
    assert ("    | wrote {'tail': '10', 'previous': '1'}" in shown) == bool(restarts)


def test_jobs_are_watched_side_by_side(master: FakeMaster, run: Run, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(FILE.replace("web", "db"))
    looked_at: list[str] = []

    def looked(asked: Asked) -> JobDetail:
        """The first is up as soon as the second was looked at."""
        looked_at.append(name := asked.path.removeprefix("/v1/jobs/"))
        return JobDetail(job(name=name, up=3 if "ann/db" in looked_at else 0), spec(), ())

    master.answers |= {
        "POST /v1/jobs": Accepted(5, "ann/web", "submitted"),
        "GET /v1/jobs/ann/web": looked,
        "GET /v1/jobs/ann/db": looked,
        "GET /v1/tasks": TaskList((task(),)),
    }
    assert run("job", "submit", file, other, "--settle", "10ms") == 0


def test_a_stall_while_it_is_looked_at_is_not_the_time_between_two_looks(
    master: FakeMaster, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()  # whenever the clock is read, a second has gone by
    monkeypatch.setattr("borgish.cli.changes.Deadline.spent", property(lambda _: float(next(seconds))))
    Course(master, job(), job(up=2, dead=1, running=2, failed=1))
    assert run("job", "submit", file, "--settle", "300ms") == 1


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
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("borgish.cli.follow.Changes.wait", interrupted)
    Course(master, job(up=1))
    assert run("job", "submit", file) == 130
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
    assert "valid: job ann/web, 3 tasks" in capsys.readouterr().out


def test_a_resource_that_looks_like_a_slip_is_noted(run: Run, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("name: web\nrun: [x]\nresources: {rma: 1}\n")
    assert run("job", "check", path) == 0
    assert "note: 'rma' is taken as a named resource; did you mean ram?" in capsys.readouterr().err


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
    assert "3 of 3 tasks finished" in capsys.readouterr().out


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
    lines = problem_lines((), [*same, task(index=3), finished], same, lambda _: ["oh", "dear"])
    assert lines == [
        "  ann/web/0-2,7 (4 tasks): dead (failed), exit 1, no try left",
        "    | oh",
        "    | dear",
        "    hint: borgctl task logs ann/web/0",
    ]


def test_the_body_is_sent_as_it_was_written(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"name": "web", "user": "bob", "run": ["true"]}) + "\n\n")
    master.answers["POST /v1/jobs"] = Accepted(5, "bob/web", "submitted")
    assert run("job", "submit", path, "--detach", "--user", "eve") == 0
    assert master.asked[0].body == path.read_bytes()
    assert master.asked[0].query == {"user": "eve"}
