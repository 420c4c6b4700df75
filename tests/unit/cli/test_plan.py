"""``borgctl plan`` and what submits as planned, against a small master."""

import json
from pathlib import Path

import msgspec
import pytest

from borgish.cli.commands.submit import planned
from borgish.wire.api import Accepted, Problem
from borgish.wire.api_plans import PlannedPlace, PlanView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster, refusal

Out = pytest.CaptureFixture[str]

PLACES = (
    PlannedPlace(0, "m1"),
    PlannedPlace(1, "m2", ("gpu:0", "gpu:1")),
    PlannedPlace(2, "m1"),
    PlannedPlace(3, "m3", kept=True, victims=("bob/low/0", "bob/low/1")),
    PlannedPlace(4, "m3", kept=True),
)
VIEW = PlanView("ann/web", "ann/web: of 5 tasks 3 would be placed", 20, 1, 5, "plan-abc", PLACES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text("name: web\nuser: ann\ntasks: 5\nrun: [serve]\n")
    return path


def test_a_plan_for_people(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    master.answers["POST /v1/plan"] = VIEW
    assert run("plan", file) == 0
    shown = capsys.readouterr().out
    assert shown == (
        "ann/web: of 5 tasks 3 would be placed\n"
        "\n"
        "TASKS  MACHINE  DEVICES      WHEN\n"
        "0,2    m1                    at once\n"
        "1      m2       gpu:0,gpu:1  at once\n"
        "3      m3                    when preempted: bob/low/0, bob/low/1\n"
        "4      m3                    when the others of its gang can start\n"
        "\n"
        f"To do just that: borgctl job submit --plan plan-abc {file}\n"
    )
    assert (master.asked[-1].query, master.asked[-1].body) == ({"user": "ann"}, file.read_bytes())


def test_places_in_allocs_are_told_apart(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    places = tuple(PlannedPlace(index, "m1", alloc=alloc) for index, alloc in enumerate((2, 2, 0)))
    master.answers["POST /v1/plan"] = msgspec.structs.replace(VIEW, places=places)
    assert run("plan", file) == 0
    shown = capsys.readouterr().out
    assert (
        "TASKS  MACHINE  ALLOC  WHEN\n0-1    m1           2  at once\n2      m1           0  at once" in shown
    )


def test_what_would_wait_and_what_is_doubtful(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    view = msgspec.structs.replace(
        VIEW, places=(), refusals=(refusal(),), changes=("tasks: 3 -> 5",), notes=("no rakc \x1b",)
    )
    master.answers["POST /v1/plan"] = view
    assert run("plan", file) == 3
    shown = capsys.readouterr().out
    assert "ann/web/1-2 (2 tasks) pending: 0 of 3 machines fit" in shown
    assert "  Against the job that ended:\n  tasks: 3 -> 5\n" in shown
    assert "note: no rakc \\x1b\n" in shown
    assert "TASKS" not in shown
    assert "To do just that" not in shown  # there is nothing to be sure of


def test_what_becomes_of_the_tasks_of_a_job_that_runs(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    text, becomes = "ann/web would be updated to version 3", {"restart where they are": "0-3", "move": "4"}
    view = PlanView("ann/web", text, 20, 1, 5, "plan-abc", changes=("run: a -> b",), updates=becomes)
    master.answers["POST /v1/plan"] = view
    assert run("plan", file) == 0
    assert capsys.readouterr().out == (
        "ann/web would be updated to version 3\n"
        "\n"
        "TASKS  WHAT BECOMES OF THEM\n"
        "0-3    restart where they are\n"
        "4      move\n"
        "\n"
        "  Against the job as it is:\n"
        "  run: a -> b\n"
        "\n"
        f"To do just that: borgctl job submit --plan plan-abc {file}\n"
    )


def test_a_note_that_is_a_hint_already_is_not_said_again(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    note = "no machine has the attribute 'rakc'; did you mean rack?"
    refused = msgspec.structs.replace(refusal(), hint=note)
    master.answers["POST /v1/plan"] = msgspec.structs.replace(VIEW, refusals=(refused,), notes=(note,))
    assert run("plan", file) == 3
    assert capsys.readouterr().out.count(note) == 1


def test_a_plan_for_programs(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    master.answers["POST /v1/plan"] = VIEW
    assert run("plan", file, "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=PlanView) == VIEW
    assert run("plan", file, "-o", "name") == 0
    assert capsys.readouterr().out == "plan-abc\n"


def test_nothing_to_do_has_no_token() -> None:
    view = PlanView("ann/web", "ann/web is there already", 20, 1, 5)
    assert planned(view, "web.yaml") == "ann/web is there already\n"


def test_a_dry_run_is_a_plan_without_its_token(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    master.answers["POST /v1/plan"] = VIEW
    assert run("job", "submit", "--dry-run", file, file) == 0
    shown = capsys.readouterr().out
    assert shown.count("TASKS") == 2
    assert "plan-abc" not in shown
    assert set(master.calls) == {"POST /v1/plan"}


def test_the_token_is_submitted_with_the_file(master: FakeMaster, run: Run, file: Path) -> None:
    master.answers["POST /v1/jobs"] = Accepted(5, "ann/web", "submitted")
    assert run("job", "submit", "--detach", "--plan", "plan-abc", file) == 0
    assert master.asked[-1].query == {"user": "ann", "plan": "plan-abc"}


def test_a_cell_that_changed_says_to_plan_again(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    master.answers["POST /v1/jobs"] = Problem("x", 409, "the cell changed", hint="make a new plan")
    assert run("job", "submit", "--plan", "plan-abc", file) == 1
    assert capsys.readouterr().err == "error: the cell changed\nhint: make a new plan\n"


def test_mistakes_are_told_before_anything_is_asked(
    master: FakeMaster, run: Run, capsys: Out, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: web\ntasks: -1\nrun: [x]\n")
    assert run("plan", wrong) == 2
    assert run("job", "submit", "--dry-run", wrong) == 2
    assert f"{wrong}:2" in capsys.readouterr().err
    assert run("plan", tmp_path / "none.yaml") == 2
    assert master.calls == []


def test_a_token_is_of_one_file(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    assert run("job", "submit", "--plan", "plan-abc", file, file) == 2
    assert run("job", "submit", "--plan", "plan-abc", "--dry-run", file) == 2
    assert "--plan" in capsys.readouterr().err
    assert master.asked == []


def test_a_refused_plan_does_not_keep_the_next_file_from_being_planned(
    master: FakeMaster, run: Run, capsys: Out, file: Path
) -> None:
    master.answers["POST /v1/plan"] = Problem("x", 409, "it lives")
    assert run("job", "submit", "--dry-run", file, file) == 1
    assert capsys.readouterr().err.count("error: it lives") == 2


def test_json_has_every_place(master: FakeMaster, run: Run, capsys: Out, file: Path) -> None:
    master.answers["POST /v1/plan"] = VIEW
    run("plan", file, "-o", "json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["places"][3] == {
        "index": 3,
        "machine": "m3",
        "kept": True,
        "victims": ["bob/low/0", "bob/low/1"],
    }
