"""Jsonnet: what it may read and use, how its mistakes are shown, and the library that comes with borgish."""

import json
from pathlib import Path

import pytest

from borgish.cli import jsonnet
from borgish.cli.sources import load
from borgish.errors import Invalid, Mistake
from borgish.spec.file.documents import read_documents
from tests.unit.cli.conftest import Run

Out = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (tmp_path / "outside.libsonnet").write_text("{}")
    return folder / "shop.jsonnet"


def mistake(file: Path, text: str) -> Mistake:
    file.write_text(text)
    with pytest.raises(Invalid) as caught:
        jsonnet.evaluate(file, "shop.jsonnet", {})
    (only,) = caught.value.mistakes
    return only


def test_the_library(file: Path) -> None:
    file.write_text(
        "local b = import 'borgish.libsonnet';\n"
        "b.app('shop', [\n"
        "  b.service('web', ['serve']) + { tasks: 3 },\n"
        "  b.batch('load', ['load'], attempts=5),\n"
        "], labels={ app: 'shop' })\n"
    )
    found = read_documents(load([file], {}).sources, "ann")
    assert found.app is not None
    assert (found.app.key, found.app.labels) == ("ann/shop", {"app": "shop"})
    web, load_ = (job.spec for job in found.jobs)
    assert (web.tasks, web.is_service, web.labels) == (3, True, {"app": "shop"})
    assert (load_.is_service, load_.restart.attempts) == (False, 5)


def test_stages_wait_for_those_before_them(file: Path) -> None:
    file.write_text(
        "local b = import 'borgish.libsonnet';\n"
        "b.pipeline([b.stage('a', ['x']), b.stage('b', ['x']), b.stage('c', ['x'], after=['z'])]) +\n"
        "[b.stage('d', ['x'], after=['a', 'b'])]\n"
    )
    said = json.loads(jsonnet.evaluate(file, "f", {}).text)
    waits = [[each["job"] for each in stage.get("after", [])] for stage in said]
    assert waits == [[], ["a"], ["b"], ["a", "b"]]
    assert said[1]["after"] == [{"job": "a", "until": "finished"}]


def test_variables(file: Path, run: Run, capsys: Out) -> None:
    (file.parent / "lib.libsonnet").write_text("{ day: std.extVar('day') }")
    file.write_text("{ name: 'a', run: ['x', (import 'lib.libsonnet').day] }")
    assert run("job", "check", file) == 2
    shown = capsys.readouterr().err
    assert f"{file.parent}/lib.libsonnet:1:8: the variable 'day' has no value\n" in shown
    assert "give it one: --var day=VALUE" in shown
    assert run("job", "check", file, "--var", "day=monday", "-o", "yaml") == 0
    assert "run: [x, monday]" in capsys.readouterr().out
    assert run("job", "check", file, "--var", "day=monday", "--var", "n=1") == 2
    assert "no document declares the variable 'n'" in capsys.readouterr().err
    file.write_text("{ name: 'a', vars: { day: 'x' }, run: ['{{var.day}}', std.extVar('day')] }")
    assert run("job", "check", file, "--var", "day=monday", "-o", "yaml") == 0
    assert "run: [monday, monday]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("{\n  a: b }", 2, 6, "variable is not defined: b"),
        ("{\n  a: }", 2, 6, "syntax error"),
        ("{\n  a: error 'no' }", 2, 6, "no"),
        ("local f(x) = f(x + 1); f(1)", 1, 14, "stack overflow"),
        ("{}\n", 0, 0, ""),
        ("{ a: import '../outside.libsonnet' }", 1, 6, "import '../outside.libsonnet' is outside"),
        ("{ a: importstr '/etc/passwd' }", 1, 6, "import '/etc/passwd' is outside"),
        ("{ a: import 'link.libsonnet' }", 1, 6, "import 'link.libsonnet' is outside"),
        ("{ a: import 'none' }", 1, 6, "import 'none': there is no such file"),
    ],
)
def test_mistakes_in_the_program(file: Path, text: str, line: int, column: int, message: str) -> None:
    (file.parent / "link.libsonnet").symlink_to(file.parent.parent / "outside.libsonnet")
    if not message:
        file.write_text(text)
        assert jsonnet.evaluate(file, "f", {}).text == "{ }"
        return
    found = mistake(file, text)
    assert found.message.startswith(message)
    assert (found.line, found.column, found.source) == (line, column, "shop.jsonnet")
    assert found.excerpt == text.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("std.foldl(function(a, b) a + b, std.range(0, 100000000), 0)", "more than 1 s of cpu"),
        ("std.makeArray(100000000, function(i) 'x' + i)", "more than 512 MiB"),
        ("std.repeat('x', 1000000000)", "more than 512 MiB"),
        ("std.repeat('x', 9000000)", "more than 8 MiB"),
    ],
)
def test_what_takes_too_much_is_ended(
    file: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonnet, "CPU_SECONDS_MAX", 1)
    assert message in mistake(file, text).message


def test_mistakes_in_what_it_says_are_shown_in_the_program(file: Path, run: Run, capsys: Out) -> None:
    file.write_text(
        "[\n  { name: 'a', run: ['x'] },\n  { name: 'b', run: ['x'], resources: { cpu: '1x' } },\n"
        "  { name: 'c', run: ['x'], tasks: 0 },\n  { name: 'd', run: ['x'], tasks:: 1, speed: 2 },\n]\n"
    )
    assert run("job", "check", file) == 2
    shown = capsys.readouterr().err
    assert f"{file}:3:41: [1].resources.cpu: '1x' has the unit 'x'" in shown
    assert f"{file}: [2].tasks: 0 is outside 1 to 10000\n  hint:" in shown  # there are two of them
    assert f"{file}:5:39: [3].speed: 'speed' is not a field of the job" in shown
    assert "valid: job ann/a" not in shown
