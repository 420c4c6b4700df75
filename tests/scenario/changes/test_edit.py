"""``borgctl job edit``, over the real API and core: what is edited is submitted, or kept."""

import re
import shlex
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from borgish.cli.commands import edit
from borgish.errors import Conflict
from borgish.wire.api import Accepted, IndexesRequest, ScaleRequest
from borgish.wire.api_plans import PlanView
from tests.scenario.quota.real import CoreApi

WEB = "/v1/jobs/ann/web"
JOB = b"name: web\nuser: ann\nrun: [serve]\nenv: {SECRET: x}\nresources: {cpu: 1m, ram: 4MiB}\n"
Say = Callable[..., tuple[int, str, str]]
Edit = Callable[[str], str]


@pytest.fixture
def api(running: CoreApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoreApi:
    """A job that is dead, so that it can be submitted otherwise."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan = PlanView("ann/web", "ann/web would be submitted: 1 task", 20, 1, 1, "")
    monkeypatch.setattr(edit, "ask_for_plan", lambda *_: plan)
    running.do(running.master.reset)
    running.client().post("/v1/jobs", JOB, Accepted, content_type="application/yaml")
    running.client().post(f"{WEB}/kill", IndexesRequest(), Accepted)
    return running


@pytest.fixture
def editing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Edit], None]:
    """Let a function be the person at the editor."""

    def by(function: Edit) -> None:
        def open_editor(path: Path) -> None:
            path.write_text(function(path.read_text()))

        monkeypatch.setattr(edit, "open_editor", open_editor)

    return by


def kept(tmp_path: Path) -> list[Path]:
    return [*tmp_path.glob("borgctl-edit-*/*.yaml")]


def test_what_is_edited_is_submitted(
    api: CoreApi, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, pathlib; f = pathlib.Path(sys.argv[1]); f.write_text(f.read_text().replace('x', 'y'))"
    )
    monkeypatch.setenv("EDITOR", shlex.join([sys.executable, "-c", program]))
    code, out, err = say("ann", "job", "edit", "--detach", "web")
    plan = "ann/web would be submitted: 1 task\n"
    assert (code, out, err) == (0, f"{plan}ann/web submitted: 1 task\n", "")
    assert api.master.cell.jobs["ann/web"].spec.env == {"SECRET": "y"}
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("answer", "words"), [("n", ()), ("", ("--yes",))])
def test_what_follows_is_shown_and_asked_about(
    api: CoreApi,
    say: Say,
    tmp_path: Path,
    editing: Callable[[Edit], None],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr(edit, "_has_person", lambda: True)
    monkeypatch.setattr("sys.stdin", StringIO(f"{answer}\n"))
    editing(lambda text: text.replace("serve", "other"))
    code, out, err = say("ann", "job", "edit", "--detach", "web", *words)
    assert "ann/web would be submitted: 1 task" in out
    done = bool(words)
    assert code == (0 if done else 1)
    assert api.master.cell.jobs["ann/web"].spec.run == (("other",) if done else ("serve",))
    assert ("nothing was submitted" in err, len(kept(tmp_path))) == (not done, int(not done))


def test_a_plan_that_cannot_be_had_is_no_obstacle(
    api: CoreApi, say: Say, editing: Callable[[Edit], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Conflict("too busy")

    monkeypatch.setattr(edit, "ask_for_plan", refuse)
    editing(lambda text: text.replace("serve", "other"))
    code, out, err = say("ann", "job", "edit", "--detach", "web")
    assert (code, out) == (0, "ann/web submitted: 1 task\n")
    assert "what would follow is not known: too busy" in err


def test_what_is_shown_is_the_job_and_nothing_else(
    api: CoreApi, say: Say, tmp_path: Path, editing: Callable[[Edit], None]
) -> None:
    shown: list[str] = []

    def look(text: str) -> str:
        shown.append(text)
        return text

    editing(look)
    generation = api.master.cell.jobs["ann/web"].generation
    assert say("ann", "job", "edit", "web") == (0, "", "ann/web stays as it is: nothing was changed\n")
    assert shown[0].splitlines()[2:] == [
        *("name: web", "user: ann", "tasks: 1", "run: [serve]", "resources:", "  cpu: 1m", "  ram: 4MiB"),
        *("env:", "  SECRET: x"),
    ]
    assert f"generation {generation}." in shown[0]
    assert kept(tmp_path) == []


def test_who_was_overtaken_keeps_the_text_and_is_told_how_to_go_on(
    api: CoreApi, say: Say, tmp_path: Path, editing: Callable[[Edit], None]
) -> None:
    def slowly(text: str) -> str:
        api.client().post(f"{WEB}/restart", IndexesRequest(), Accepted)
        api.client().post(f"{WEB}/scale", ScaleRequest(4), Accepted)
        return text.replace("serve", "other")

    editing(slowly)
    code, _, err = say("ann", "job", "edit", "web")
    assert code == 1
    assert "ann/web scaled from 1 to 4 tasks, by root" in err
    (file,) = kept(tmp_path)
    assert f"your text is in {file}; `borgctl job submit {file}` submits it all the same" in err
    assert "run: [other]" in file.read_text()
    assert file.parent.stat().st_mode & 0o077 == 0
    spec = api.master.cell.jobs["ann/web"].spec
    assert (spec.tasks, spec.run) == (4, ("serve",))


def test_a_mistake_is_shown_where_it_is_and_the_text_kept(
    say: Say, tmp_path: Path, editing: Callable[[Edit], None]
) -> None:
    editing(lambda text: text.replace("tasks: 1", "tasks: 0"))
    code, out, err = say("ann", "job", "edit", "web")
    (file,) = kept(tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}:5:8: tasks: 0 is outside 1 to 10000\n  tasks: 0\n         ^\n")
    assert f"your text is in {file}" in err


def test_a_mistake_can_be_corrected_at_once(
    api: CoreApi, say: Say, tmp_path: Path, editing: Callable[[Edit], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "_asks_to_go_on", lambda: True)
    editing(lambda text: re.sub("tasks: .*", "tasks: 3" if "tasks: x" in text else "tasks: x", text))
    assert say("ann", "job", "edit", "--detach", "web")[0] == 0
    assert api.master.cell.jobs["ann/web"].spec.tasks == 3
    assert kept(tmp_path) == []


def test_a_job_keeps_its_name(say: Say, tmp_path: Path, editing: Callable[[Edit], None]) -> None:
    editing(lambda text: text.replace("name: web", "name: shop"))
    code, _, err = say("ann", "job", "edit", "web")
    assert code == 2
    assert "this is ann/shop, and not ann/web any more" in err
    assert str(kept(tmp_path)[0]) in err


@pytest.mark.parametrize(
    ("editor", "said"),
    [("false", "ended with exit code 1"), ("/no/editor", "cannot be started"), ("'", "cannot")],
)
def test_an_editor_that_fails(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editor: str, said: str
) -> None:
    monkeypatch.setenv("VISUAL", editor)
    code, _, err = say("ann", "job", "edit", "web")
    assert code == 1
    assert said in err
    assert "hint:" not in err
    assert [*tmp_path.glob("borgctl-edit-*")] == []  # nothing was typed


@pytest.mark.parametrize("file", ["web.yaml", ".web.yaml.swp"])
def test_what_was_typed_in_an_editor_that_fails_is_kept(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    program = (
        f"import sys, pathlib; pathlib.Path(sys.argv[1]).with_name({file!r}).write_text('x'); sys.exit(1)"
    )
    monkeypatch.setenv("VISUAL", shlex.join([sys.executable, "-c", program]))
    code, _, err = say("ann", "job", "edit", "web")
    (text,) = kept(tmp_path)
    assert (code, f"what there is of it is in {text}" in err) == (1, True)
    assert text.with_name(file).read_text() == "x"


def test_nobody_edits_what_they_may_not_submit(say: Say, tmp_path: Path) -> None:
    code, _, err = say("bob", "job", "edit", "ann/web")
    assert (code, "the job is ann's" in err) == (4, True)
    assert kept(tmp_path) == []
