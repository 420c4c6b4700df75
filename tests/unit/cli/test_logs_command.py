"""borgctl logs: whose lines they are, which runs they are of, and what is refused."""

import itertools
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.cli.commands import logs
from borgish.cli.commands.logs import Run, behind, lines_of, next_run
from borgish.text import safe
from borgish.vocabulary import Outcome, Phase, State
from borgish.wire.api import Problem, ProgramView
from tests.unit.cli.conftest import Run as Borgctl
from tests.unit.cli.samples import Asked, FakeMaster, job, task

LINE = st.binary(max_size=8).filter(lambda line: b"\n" not in line)


@given(st.lists(LINE), st.integers(1, 9))
def test_lines_come_whole_however_they_were_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert list(lines_of(pieces)) == lines


def test_a_line_without_an_end_is_bounded() -> None:
    longest = logs.LINE_BYTES_MAX
    flood = itertools.repeat(b"x" * 1000, 3 * longest // 1000)
    sizes = [len(line) for line in lines_of(flood)]
    assert max(sizes) == longest
    assert sum(sizes) == 3 * longest // 1000 * 1000


def test_reading_goes_on_behind_what_was_shown() -> None:
    lines = [b"%d" % number for number in range(2000)]
    assert list(behind(lines, lines[90:100])) == lines[100:]
    assert list(behind(lines, [])) == lines
    assert list(behind(lines, [b"elsewhere"])) == lines
    assert list(behind([b"a", b"b"], [b"elsewhere"])) == [b"a", b"b"]
    assert list(behind([b"a", b"a", b"b", b"c"], [b"a", b"b"])) == [b"c"]


@pytest.mark.parametrize(
    ("attempt", "restarts", "shown", "wanted"),
    [
        (0, 0, None, None),  # not placed yet
        (17, 0, None, Run(17, 0, "m1")),
        (17, 4, None, Run(17, 4, "m1")),
        (17, 4, Run(17, 4, "m1"), None),
        (17, 5, Run(17, 4, "m1"), Run(17, 5, "m1")),
        (17, 9, Run(17, 4, "m1"), Run(17, 8, "m1")),  # those between are not kept
        (21, 0, Run(17, 4, "m2"), Run(21, 0, "m1")),
        (21, 3, Run(17, 4, "m2"), Run(21, 2, "m1")),
    ],
)
def test_which_run_follows(attempt: int, restarts: int, shown: Run | None, wanted: Run | None) -> None:
    assert next_run(task(attempt=attempt, restarts=restarts), shown) == wanted


def test_a_program_beside_the_main_one_has_restarts_of_its_own() -> None:
    view = task(restarts=5, programs=(ProgramView("proxy", Phase.UP, 1, 2, ""),))
    assert next_run(view, None, "proxy") == Run(17, 2, "m1")


def has(master: FakeMaster, *indexes: int, **changes: object) -> None:
    """Give the master a job with these tasks."""
    master.has(job(tasks=len(indexes)))
    views = [task(name=f"ann/web/{index}", index=index, **changes) for index in indexes]
    master.answers["GET /v1/tasks"] = {"items": views}
    for view in views:
        master.answers[f"GET /v1/tasks/{view.name}"] = view


def test_of_one_task_lines_are_as_they_are(
    run: Borgctl, master: FakeMaster, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    has(master, 0)
    master.answers["GET /v1/tasks/ann/web/0/logs"] = b"one\n\xff\x1b[2Jtwo"
    assert run("logs", "web/0", "--tail", "7") == 0
    assert capsysbinary.readouterr().out == b"one\n\xff\x1b[2Jtwo\n"
    assert master.asked[-1].query == {"tail": "7", "previous": "0"}


def test_of_more_each_line_has_its_task_in_front(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    has(master, 0, 1)
    master.answers["GET /v1/tasks/ann/web/0/logs"] = b"GET /\nPUT /x"
    master.answers["GET /v1/tasks/ann/web/1/logs"] = b"get /y\n"
    assert run("logs", "web", "--grep", "(?i)^get") == 0
    assert capsys.readouterr().out == "ann/web/0 | GET /\nann/web/1 | get /y\n"


def test_what_has_no_output_is_said_and_the_others_are_shown(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    has(master, 0, 1)
    master.answers["GET /v1/tasks/ann/web/1/logs"] = b"here\n"
    assert run("logs", "web") == 0
    said = capsys.readouterr()
    assert said.out == "ann/web/1 | here\n"
    assert "ann/web/0: there is no" in said.err
    del master.answers["GET /v1/tasks/ann/web/1/logs"]
    assert run("logs", "web") == 1
    assert run("logs", "web/0") == 1
    assert run("logs", "web/1", "web/9") == 1
    assert "there is no /v1/tasks/ann/web/9" in capsys.readouterr().err


def test_tasks_are_chosen_by_labels(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    has(master, 0)
    master.answers["GET /v1/tasks/ann/web/0/logs"] = b"here\n"
    assert run("logs", "-l", "app=web,tier!=back") == 0
    assert capsys.readouterr().out == "ann/web/0 | here\n"
    assert master.asked[0].query == {"label": "app=web,tier!=back"}
    master.answers["GET /v1/tasks"] = {"items": ()}
    assert run("logs", "-l", "app=web") == 1
    assert "there is no such task" in capsys.readouterr().err


def test_tasks_that_ended_before_are_left_out(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    has(master, 0, state=State.DEAD, outcome=Outcome.FINISHED)  # since January 2026
    master.answers["GET /v1/tasks/ann/web/0/logs"] = b"long ago\n"
    assert run("logs", "web", "--since", "10m") == 1
    assert run("logs", "web", "--since", "2025-12-31T12:00") == 0
    assert capsys.readouterr().out == "ann/web/0 | long ago\n"


def test_lines_have_the_times_that_their_machine_has_of_them(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Asked] = []

    def written(request: Asked) -> bytes:
        asked.append(request)
        return b"2026-01-01T00:00:00.120Z one\n2026-01-01T00:00:01.123456789Z two 2026\nof an older release\n"

    has(master, 0)
    master.answers["GET /v1/tasks/ann/web/0/logs"] = written
    assert run("logs", "web", "--timestamps", "--since", "2025-12-31T23:00Z", "--grep", "^(one|two|of)") == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-01-01T00:00:00.120Z ann/web/0 | one",
        "2026-01-01T00:00:01.123Z ann/web/0 | two 2026",
        "ann/web/0 | of an older release",
    ]
    assert asked[0].query["timestamps"] == "true"
    assert asked[0].query["since"] == "2025-12-31T23:00:00.000Z"
    assert run("logs", "web") == 0
    assert not {"timestamps", "since"} & asked[1].query.keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["web/0", "--grep", "a(b"], "'a(b' is not a regular expression: missing )"),
        (["web/0", "-f", "--previous"], "cannot be followed"),
        (["web/0", "--since", "yesterday"], "neither an age like 10m nor a time"),
        (["--tail", "5"], "name jobs or tasks"),
    ],
)
def test_what_is_refused(
    words: list[str], said: str, run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    has(master, 0)
    assert run("logs", *words) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_too_many_to_be_followed(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    has(master, *range(logs.FOLLOWED_MAX + 1))
    assert run("logs", "-f", "web") == 2
    said = capsys.readouterr().err
    assert "51 tasks are meant, and 50 can be followed at a time" in said
    assert "web/0 web/1" in said


class Life:
    """A task that is restarted, moves, and finishes; each run ends when its output was read."""

    RUNS = (
        (17, 0, "m1", b"first\nhal"),
        (17, 1, "m1", b"second\n"),
        (21, 0, "m2", b"third\n"),
    )

    def __init__(self, master: FakeMaster) -> None:
        self.read: list[tuple[str, str]] = []
        has(master, 0)
        master.answers["GET /v1/tasks/ann/web/0"] = lambda _: self.view()
        master.answers["GET /v1/tasks"] = lambda _: {"items": (self.view(),)}
        master.answers["GET /v1/tasks/ann/web/0/logs"] = self.logs

    def view(self) -> object:
        done = len(set(self.read))
        attempt, restarts, machine, _ = self.RUNS[min(done, len(self.RUNS) - 1)]
        changes: dict[str, object] = {"attempt": attempt, "restarts": restarts, "machine": machine}
        if done == len(self.RUNS):
            changes |= {"state": State.DEAD, "outcome": Outcome.FINISHED, "reason": "exit code 0"}
        return task(**changes)

    def logs(self, asked: Asked) -> object:
        self.read.append((asked.query["attempt"], asked.query["restarts"]))
        texts = {(str(attempt), str(restarts)): text for attempt, restarts, _, text in self.RUNS}
        return texts[self.read[-1]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.01)


@pytest.mark.usefixtures("quick")
def test_a_task_is_followed_through_restarts_and_moves(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(master)
    assert run("logs", "-f", "web") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "ann/web/0 | first",
        "ann/web/0 | hal",
        "ann/web/0 | second",
        "ann/web/0 | third",
    ]
    assert said.err.splitlines() == [
        "ann/web/0: restarted on m1",
        "ann/web/0: moved from m1 to m2",
        "ann/web/0 is dead (finished): exit code 0",
    ]
    assert life.read == [("17", "0"), ("17", "1"), ("21", "0")]


@pytest.mark.usefixtures("quick")
def test_a_connection_that_breaks_costs_no_line_and_doubles_none(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(master)
    life.RUNS = ((17, 0, "m1", b"one\ntwo\nthree\n"),)  # type: ignore[assignment]
    whole = life.logs
    tries: list[str] = []

    def breaks_once(asked: Asked) -> object:
        tries.append(asked.query.get("tail", ""))
        return b"one\ntwo\n" if len(tries) == 1 else whole(asked)

    master.answers["GET /v1/tasks/ann/web/0/logs"] = breaks_once
    master.cut_short = "/v1/tasks/ann/web/0/logs"
    assert run("logs", "-f", "web/0") == 0
    said = capsys.readouterr()
    assert said.out == "one\ntwo\nthree\n"
    assert "looking where it is" in said.err
    assert tries == ["", "1000"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("options", [(), ("-f",)])
def test_whose_output_is_not_for_us_is_said_and_the_others_are_shown(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    has(master, 0, 1, state=State.DEAD, outcome=Outcome.FINISHED)
    master.answers["GET /v1/tasks/ann/web/0/logs"] = Problem("Forbidden", 403, "not yours")
    master.answers["GET /v1/tasks/ann/web/1/logs"] = b"here\n"
    assert run("logs", *options, "web") == 0
    said = capsys.readouterr()
    assert said.out == "ann/web/1 | here\n"
    assert "ann/web/0: not yours" in said.err
    assert run("logs", *options, "web/0") == 4


@pytest.mark.usefixtures("quick")
def test_a_master_that_stays_lost_ends_it(
    run: Borgctl, master: FakeMaster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOST_SECONDS_MAX", 0.0)
    has(master, 0, state=State.PENDING, attempt=0)
    looks = iter([master.answers["GET /v1/tasks"]])
    refused = b"no JSON"
    master.answers["GET /v1/tasks"] = lambda _: next(looks, refused)
    assert run("logs", "-f", "web") == 1
    assert "cannot be decoded" in capsys.readouterr().err


def coloured(master: FakeMaster, **environment: str) -> bytes:
    """Return what a terminal is shown of two tasks."""
    ours, theirs = pty.openpty()
    token = os.environ["BORGISH_TOKEN_FILE"]
    command = [sys.executable, "-m", "borgish.cli.borgctl", "--url", master.url, "--token-file", token]
    try:
        subprocess.run(
            [*command, "logs", "web"],
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=True,
            env=os.environ | {"TERM": "xterm"} | environment,
        )
        return os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.usefixtures("run")
def test_each_task_has_its_colour_on_a_terminal(master: FakeMaster) -> None:
    has(master, 0, 1)
    for index in (0, 1):
        master.answers[f"GET /v1/tasks/ann/web/{index}/logs"] = b"\x1b[2Jx\n"
    shown, clear = coloured(master, NO_COLOR="").decode(), safe("\x1b[2Jx")
    assert shown.split("\r\n")[:2] == [
        f"\x1b[36mann/web/0 |\x1b[0m {clear}",
        f"\x1b[32mann/web/1 |\x1b[0m {clear}",
    ]
    assert "\x1b" not in coloured(master, NO_COLOR="1").decode()
