"""What is listed and shown, in every form, against a small master."""

import json
import tempfile
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
import yaml

from borgish.spec.job import Health
from borgish.vocabulary import Outcome, Phase, State, TaintEffect
from borgish.wire.api import (
    Accepted,
    CheckpointView,
    JobDetail,
    JobList,
    Page,
    Problem,
    ProgramView,
    TaintView,
    TaskList,
    TaskView,
    WhyView,
)
from borgish.wire.api_apps import AppList
from borgish.wire.link import ExecPiece, StdinReply
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import (
    AMOUNTS,
    APP,
    NOW,
    Asked,
    FakeMaster,
    event,
    job,
    machine,
    refusal,
    spec,
    status,
    task,
)

Out = pytest.CaptureFixture[str]


def test_json_is_the_shape_of_the_api(master: FakeMaster, run: Run, capsys: Out) -> None:
    tasks = (task(), task(name="ann/web/1", index=1))
    master.answers["GET /v1/tasks"] = TaskList(tasks)
    assert run("task", "list", "-o", "json") == 0
    shown = capsys.readouterr()
    assert msgspec.json.decode(shown.out, type=tuple[TaskView, ...]) == tasks
    assert shown.err == ""
    wanted = [
        "name",
        "job",
        "index",
        "state",
        "phase",
        "machine",
        "attempt",
        "pid",
        "ports",
        "started_at",
        "reason",
    ]
    assert set(wanted) <= set(json.loads(shown.out)[0])


def test_yaml_says_the_same(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job())
    assert run("job", "show", "ann/web", "-o", "yaml") == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert msgspec.convert(shown, JobDetail) == master.answers["GET /v1/jobs/ann/web"]


def test_empty_lists_are_data_for_programs_and_words_for_people(
    master: FakeMaster, run: Run, capsys: Out
) -> None:
    master.has()
    assert run("job", "list", "-o", "json") == 0
    assert capsys.readouterr().out == "[]\n"
    assert run("job", "list", "-o", "name") == 0
    assert capsys.readouterr().out == ""
    assert run("job", "list") == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "no jobs; `borgctl job submit FILE` makes one\n"


def test_every_page_is_read(master: FakeMaster, run: Run, capsys: Out) -> None:
    def pages(asked: Asked) -> JobList:
        if asked.query.get("after") == "x":
            return JobList((job(name="bob/b"),))
        return JobList((job(name="ann/a"),), Page("x"))

    master.answers["GET /v1/jobs"] = pages
    assert run("job", "list", "-o", "name") == 0
    assert capsys.readouterr().out == "ann/a\nbob/b\n"


def test_a_job_for_people(master: FakeMaster, run: Run, capsys: Out) -> None:
    waiting = job(pending=2, running=1, up=1, reason="no room")
    probed = spec(health=Health(http="/", port="http"))
    master.has(waiting).answers["GET /v1/jobs/ann/web"] = JobDetail(waiting, probed, (refusal(),))
    master.answers["GET /v1/tasks"] = TaskList((task(),))
    assert run("job", "show", "web") == 0
    shown = capsys.readouterr().out
    assert "tasks      3: 1 up, 2 pending\n" in shown
    assert "runs     sleep 60\n" in shown
    assert "health   http / on http, each 10s\n" in shown
    assert "ann/web/1-2 (2 tasks) pending: 0 of 3 machines fit: 3 have too little ram free" in shown
    assert "hint: ask for at most 2GiB" in shown
    assert "ann/web/0  running  healthy  m1" in shown


def test_tasks_are_asked_for_by_full_names(master: FakeMaster, run: Run) -> None:
    master.has(job()).answers["GET /v1/tasks"] = TaskList(())
    master.answers["GET /v1/machines"] = {"items": [machine("m1"), machine("other")]}
    assert run("task", "list", "web", "--machine", "oth", "--state", "pending") == 0
    assert master.asked[-1].query == {"job": "ann/web", "machine": "other", "state": "pending"}


def test_a_task_that_is_nowhere_has_no_machine_but_the_last(
    master: FakeMaster, run: Run, capsys: Out
) -> None:
    gone = [task(state=State.PENDING, phase=None), task(state=State.DEAD, phase=None)]
    master.answers |= {"GET /v1/tasks": {"items": gone}}
    assert run("task", "list") == 0
    for line in capsys.readouterr().out.splitlines()[1:]:
        assert line.split()[3] == "-"
    master.has(job()).answers["GET /v1/tasks/ann/web/0"] = gone[0]
    assert run("task", "show", "web/0") == 0
    shown = capsys.readouterr().out
    assert "last machine  m1\n" in shown
    assert "\nmachine" not in shown


def test_one_task(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job()).answers["GET /v1/tasks/ann/web/0"] = task(exit_code=None, signal=9, restarts=2)
    assert run("task", "show", "web/0") == 0
    shown = capsys.readouterr().out
    assert "state      running healthy\n" in shown
    assert "last exit  signal 9\n" in shown
    assert "ram        20MiB/256MiB used/limit\n" in shown


def test_the_devices_of_a_task_and_of_a_machine(master: FakeMaster, run: Run, capsys: Out) -> None:
    part = msgspec.structs.replace(AMOUNTS, devices={"gpu": 500})
    master.has(job()).answers["GET /v1/tasks/ann/web/0"] = task(devices=("gpu:1",), resources=part)
    master.answers["GET /v1/machines"] = {"items": [machine()]}
    has = msgspec.structs.replace(machine().capacity, devices={"gpu": 4000})
    master.answers["GET /v1/machines/m1"] = machine(capacity=has, committed=part)
    assert run("task", "show", "web/0") == 0
    assert "devices   gpu:1 (500m)\n" in capsys.readouterr().out
    assert run("machine", "show", "m1") == 0
    shown = capsys.readouterr().out
    assert "capacity    4 cpu, 8GiB ram, 4 gpu\n" in shown
    assert "committed   500m cpu, 256MiB ram, 500m gpu\n" in shown


def test_the_programs_of_a_task(master: FakeMaster, run: Run, capsys: Out) -> None:
    programs = (
        ProgramView("proxy", Phase.UP, 4711, 2, ""),
        ProgramView("shipper", Phase.STARTING, None, 1, "exit code 1; restarts in 4 s"),
    )
    master.has(job()).answers["GET /v1/tasks/ann/web/0"] = task(programs=programs)
    assert run("task", "show", "web/0") == 0
    shown = "proxy: up, pid 4711, 2 restarts; shipper: starting, 1 restart, exit code 1; restarts in 4 s"
    assert f"programs  {shown}\n" in capsys.readouterr().out


def test_logs_and_exec_can_name_a_program(master: FakeMaster, run: Run) -> None:
    master.has(job()).answers["GET /v1/tasks/ann/web/0/logs"] = b"x"
    master.answers["POST /v1/tasks/ann/web/0/exec/stream"] = b'{"exit_code": 0}\n'
    assert run("task", "logs", "web/0", "--program", "proxy") == 0
    assert master.asked[-1].query["program"] == "proxy"
    assert run("task", "exec", "web/0", "--program", "proxy", "--", "ls") == 0
    assert json.loads(master.asked[-1].body)["program"] == "proxy"


def test_why(master: FakeMaster, run: Run, capsys: Out) -> None:
    answer = WhyView("ann/web/1", job().state, "It waits.", (refusal(),), (task(),), (event(3),))
    master.has(job()).answers["GET /v1/why/ann/web/1"] = answer
    assert run("why", "web/1") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("ann/web/1 is running: It waits.\n")
    assert "was placed on m1" in shown


AT, LOCAL = "2026-01-02T23:30:00.250Z", "2026-01-03 05:00:00"


@pytest.fixture
def in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be five and a half hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "IST-05:30")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_kolkata")
@pytest.mark.parametrize(
    "words",
    [
        ("why", "web/1"),
        ("status",),
        ("job", "show", "web"),
        ("job", "list"),
        ("task", "show", "web/1"),
        ("task", "list"),
        ("machine", "show", "m1"),
        ("machine", "list"),
        ("events",),
        ("freeze",),
    ],
    ids=" ".join,
)
def test_instants_in_what_the_master_says_are_local_to_people(
    master: FakeMaster, run: Run, capsys: Out, words: tuple[str, ...]
) -> None:
    text = f"it waits since {AT}."
    said, here = job(reason=text), task(name="ann/web/1", index=1, reason=text)
    happened, waits = event(3, text), msgspec.structs.replace(refusal(), text=text)
    master.has(said)
    master.answers |= {
        "GET /v1/why/ann/web/1": WhyView("ann/web/1", said.state, text, (waits,), (here,), (happened,)),
        "GET /v1/status": msgspec.structs.replace(status(), frozen=text),
        "GET /v1/jobs/ann/web": JobDetail(said, spec(), (waits,)),
        "GET /v1/tasks": TaskList((here,)),
        "GET /v1/tasks/ann/web/1": here,
        "GET /v1/machines": {"items": [machine(reason=text)]},
        "GET /v1/machines/m1": machine(reason=text),
        "GET /v1/events": {"items": [happened]},
        "POST /v1/freeze": Accepted(9, "cell", text),
    }
    assert run(*words) == 0
    shown = capsys.readouterr().out
    assert f"it waits since {LOCAL}." in shown
    assert AT not in shown
    if words != ("freeze",):
        assert run(*words, "-o", "json") == 0
        assert AT in capsys.readouterr().out


def test_why_of_what_is_no_job_is_that_of_the_application(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers |= {
        "GET /v1/apps": AppList((APP,)),
        "GET /v1/apps/ann/shop/why": WhyView("ann/shop", State.PENDING, "It is one.\nann/db waits."),
    }
    master.has(job())
    assert run("why", "shop") == 0
    assert capsys.readouterr().out == "ann/shop is pending: It is one.\nann/db waits.\n"
    master.answers["GET /v1/crons"] = {"items": []}
    assert run("why", "shoes") == 1
    assert "there is no job 'shoes'" in capsys.readouterr().err


def test_machines(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["GET /v1/machines"] = {"items": [machine()]}
    master.answers["GET /v1/machines/m1"] = machine(conditions=("disk_pressure",))
    master.answers["POST /v1/machines/m1/cordon"] = Accepted(9, "m1", "m1 is cordoned")
    assert run("machine", "show", "m") == 0
    assert "conditions  disk_pressure\n" in capsys.readouterr().out
    master.answers["POST /v1/machines/m1/remove"] = Accepted(9, "m1", "m1 is removed")
    assert run("machine", "remove", "--yes", "m1") == 0
    assert capsys.readouterr().out == "m1 is removed\n"
    assert run("machine", "cordon", "m1", "--reason", "disk") == 0
    assert capsys.readouterr().out == "m1 is cordoned\n"
    assert json.loads(master.asked[-1].body) == {"reason": "disk"}


def test_taints(master: FakeMaster, run: Run, capsys: Out) -> None:
    marks = (TaintView("dedicated", TaintEffect.REFUSE, NOW, "ml"), TaintView("old", TaintEffect.AVOID, NOW))
    master.answers["GET /v1/machines"] = {"items": [machine(taints=marks)]}
    master.answers["GET /v1/machines/m1"] = machine(taints=marks)
    for verb in ("taint", "untaint"):
        master.answers[f"POST /v1/machines/m1/{verb}"] = Accepted(9, "m1", "done")
    assert run("machine", "list") == 0
    assert "dedicated=ml:refuse,old:avoid" in capsys.readouterr().out
    assert run("machine", "show", "m1") == 0
    assert "taints      dedicated=ml:refuse, old:avoid\n" in capsys.readouterr().out
    assert run("machine", "taint", "m1", "repair=disk", "--effect", "evict") == 0
    assert json.loads(master.asked[-1].body) == {
        "key": "repair",
        "value": "disk",
        "effect": "evict",
        "max_affected": None,
    }
    assert run("machine", "taint", "m1", "repair") == 0
    assert json.loads(master.asked[-1].body) == {
        "key": "repair",
        "value": "",
        "effect": "refuse",
        "max_affected": None,
    }
    assert run("machine", "untaint", "m1", "repair") == 0
    assert json.loads(master.asked[-1].body) == {"key": "repair"}


def test_events_of_a_job(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job()).answers["GET /v1/events"] = {"items": [event(1), event(2, "\x1b[2J")]}
    assert run("events", "--job", "web", "-n", "5") == 0
    assert master.asked[-1].query == {"job": "ann/web", "after": "0", "limit": "5"}
    assert "\\x1b[2J" in capsys.readouterr().out


def test_checkpoints(master: FakeMaster, run: Run, capsys: Out) -> None:
    made = CheckpointView(7, NOW, "on demand", 2048, "cd" * 32)
    master.answers |= {"GET /v1/checkpoints": {"items": [made]}, "POST /v1/checkpoints": made}
    assert run("checkpoint", "list") == 0
    assert "on demand" in capsys.readouterr().out
    assert run("checkpoint", "create") == 0
    assert capsys.readouterr().out == f"checkpoint at position 7, 2KiB, sha256 {'cd' * 32}\n"


def test_status_says_what_is_refused(master: FakeMaster, run: Run, capsys: Out) -> None:
    refusing = ("all changes are refused: the database's disk has 20MiB free, less than 128MiB",)
    master.answers["GET /v1/status"] = msgspec.structs.replace(status(), refusing=refusing)
    assert run("status") == 0
    assert f"refusing    {refusing[0]}\n" in capsys.readouterr().out


def test_status(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["GET /v1/status"] = status()
    assert run("status") == 0
    shown = capsys.readouterr().out
    assert "machines    2 of 3 up\n" in shown
    assert "tasks       3: 0 pending, 3 running (3 up), 0 dead\n" in shown
    assert "production      3    4  ██████████··········  4GiB  █████···············\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_status_tells_how_dead_tasks_came_out(master: FakeMaster, run: Run, capsys: Out) -> None:
    ended = msgspec.structs.replace(status(), dead=6, finished=3, failed=2, killed=1)
    master.answers["GET /v1/status"] = ended
    assert run("status") == 0
    counts = "0 pending, 3 running (3 up), 6 dead (3 finished, 2 failed, 1 killed)"
    assert f"tasks       3: {counts}\n" in capsys.readouterr().out


def test_a_dead_job_is_shown_with_its_outcome(master: FakeMaster, run: Run, capsys: Out) -> None:
    ended = job(state=State.DEAD, up=0, running=0, dead=3, finished=2, failed=1, outcome=Outcome.FAILED)
    failed = task(state=State.DEAD, phase=None, outcome=Outcome.FAILED, exit_code=3)
    master.has(ended).answers["GET /v1/tasks"] = {"items": [failed]}
    assert run("job", "show", "web") == 0
    shown = capsys.readouterr().out
    assert "state      dead (failed), generation 1\n" in shown
    assert "tasks      3: 2 finished, 1 failed\n" in shown
    assert "ann/web/0  dead (failed)" in shown
    assert run("job", "list", "-o", "json") == 0
    assert (found := json.loads(capsys.readouterr().out)[0])["state"] == "dead"
    assert (found["outcome"], found["finished"], found["failed"], found["killed"]) == ("failed", 2, 1, 0)


def test_changes_say_what_was_done(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job())
    for verb in ("kill", "restart", "scale"):
        master.answers[f"POST /v1/jobs/ann/web/{verb}"] = Accepted(9, "ann/web", f"{verb}: done")
    calls: list[tuple[tuple[str, ...], object]] = [
        (("job", "kill", "--yes", "web"), {"indexes": None, "max_affected": None}),
        (("task", "kill", "web/2"), {"indexes": [2], "max_affected": None}),
        (("job", "restart", "web", "0-1"), {"indexes": [0, 1], "now": False, "max_affected": None}),
        (("job", "restart", "web", "--now"), {"indexes": None, "now": True, "max_affected": None}),
        (("job", "scale", "web", "5"), {"tasks": 5}),
    ]
    for arguments, body in calls:
        assert run(*arguments) == 0
        assert capsys.readouterr().out.endswith(": done\n")
        assert json.loads(master.asked[-1].body) == body


def test_exec_ends_with_the_exit_code_of_the_command(
    master: FakeMaster, run: Run, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = (ExecPiece(), ExecPiece(b"\x1b[31m"), ExecPiece(b"\xff"), ExecPiece(exit_code=7))
    answer = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    master.has(job()).answers["POST /v1/tasks/ann/web/0/exec/stream"] = answer
    assert run("task", "exec", "web/0", "--", "ls", "-l", "--", "x") == 7
    assert capfdbinary.readouterr().out == b"\x1b[31m\xff"
    assert json.loads(master.asked[-1].body)["run"] == ["ls", "-l", "--", "x"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"output": "aGk="}\n', "the connection broke before the command ended"),
        (b'{"error": "the Docker engine did not answer"}\n', "the Docker engine did not answer"),
    ],
)
def test_a_command_whose_end_is_not_known_fails(
    answer: bytes, said: str, master: FakeMaster, run: Run, capsys: Out
) -> None:
    master.has(job()).answers["POST /v1/tasks/ann/web/0/exec/stream"] = answer
    assert run("task", "exec", "web/0", "--", "ls") not in (0, 7)
    assert said in capsys.readouterr().err


def given_as_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the test
    file.write(content)
    file.seek(0)
    monkeypatch.setattr("sys.stdin", file)


def test_input_is_sent_in_pieces_and_again_from_where_it_was_not_taken(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = bytearray()
    ended = threading.Event()

    def take(asked: Asked) -> StdinReply:
        assert int(asked.query["offset"]) == len(taken)
        taken.extend(asked.body[:100_000])  # a command that reads slowly
        all_taken = len(asked.body) <= 100_000
        if all_taken and asked.query["end"] == "true":
            ended.set()
        return StdinReply(len(taken), ended=ended.is_set())

    def lines(asked: Asked) -> Iterator[bytes]:
        assert asked.query["session"]
        yield b"{}\n"
        ended.wait()
        yield b'{"exit_code": 3}\n'

    given = bytes(range(256)) * 4096
    given_as_stdin(monkeypatch, given)
    master.has(job()).answers["POST /v1/tasks/ann/web/0/exec/stream"] = lines
    master.answers["POST /v1/tasks/ann/web/0/exec/stdin"] = take
    assert run("task", "exec", "web/0", "--", "cat") == 3
    assert bytes(taken) == given


def test_logs_go_unchanged_into_a_pipe_and_safe_onto_a_terminal(
    master: FakeMaster, run: Run, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    master.has(job()).answers["GET /v1/tasks/ann/web/0/logs"] = b"a\tb\n\x1b]0;owned\x07\xff\n"
    assert run("task", "logs", "web/0", "--previous", "--tail", "3") == 0
    assert capfdbinary.readouterr().out == b"a\tb\n\x1b]0;owned\x07\xff\n"
    assert master.asked[-1].query == {"previous": "1", "follow": "0", "tail": "3"}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run("task", "logs", "web/0") == 0
    assert capfdbinary.readouterr().out == b"a\tb\n\\x1b]0;owned\\x07\\xff\n"


def test_refusals_of_the_master_become_words_and_exit_codes(
    master: FakeMaster, run: Run, capsys: Out
) -> None:
    for status_code, exit_code in ((401, 4), (403, 4), (404, 1), (409, 1), (422, 1), (500, 1), (507, 1)):
        master.answers["GET /v1/jobs"] = Problem("x", status_code, "no \x1b[2J way", hint="turn back")
        assert run("job", "list") == exit_code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "error: no \\x1b[2J way\n" in shown.err
        assert "hint: " in shown.err


def test_nobody_answers(run: Run, capsys: Out) -> None:
    assert run("--url", "http://127.0.0.1:9", "job", "list") == 4
    assert "cannot be reached" in capsys.readouterr().err


def test_usage_is_2(run: Run) -> None:
    for wrong in (
        ["jbo"],
        ["job", "lst"],
        ["job", "list", "-o", "xml"],
        ["job", "scale", "web", "-1"],
        ["job", "restart"],
        ["task", "logs", "web"],
        ["job", "wait", "web", "--for", "ever"],
        ["job", "wait", "web", "--timeout", "soon"],
    ):
        assert run(*wrong) == 2, wrong


def test_a_surprise_is_short_and_has_a_traceback_when_asked_for(
    run: Run, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr("borgish.cli.lookup.read_ahead", broken)
    monkeypatch.delenv("BORGISH_DEBUG", raising=False)
    assert run("job", "list") == 1
    assert "BORGISH_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("BORGISH_DEBUG", "1")
    with pytest.raises(RuntimeError):
        run("job", "list")
