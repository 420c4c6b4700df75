"""``borgctl job check`` of files, folders and variables, and what is submitted of them."""

import json
from pathlib import Path

import pytest
import yaml

from borgish.cli.sources import load
from borgish.wire.api import Accepted
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster

Out = pytest.CaptureFixture[str]

APP = """\
kind: app
name: shop
labels: {app: shop}
vars:
  n: {default: 2, help: how many}
  tag: {type: text}
"""
WEB = "name: web\ntasks: '{{var.n}}'\nrun: [serve, '{{var.tag}}']\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "shop"
    found.mkdir()
    (found / "app.yaml").write_text(APP)
    (found / "web.yml").write_text(WEB)
    (found / "db.json").write_text('{"name": "db", "run": ["keep"]}')
    (found / "README.md").write_text("no job: [")
    (found / ".hidden.yaml").write_text("no job: [")
    (found / "deeper").mkdir()
    (found / "deeper" / "x.yaml").write_text("no job: [")
    return found


def test_a_folder(run: Run, folder: Path, capsys: Out) -> None:
    assert run("job", "check", folder, "--var", "tag=blue") == 0
    assert capsys.readouterr().out == (
        "app ann/shop: valid\n"
        f"{folder}/db.json: valid: job ann/db, 1 task, process\n"
        f"{folder}/web.yml: valid: job ann/web, 2 tasks, process\n"
        f"{folder}/app.yaml:5: variable n = 2 (int, default 2): how many\n"
        f"{folder}/app.yaml:6: variable tag = 'blue' (text, required)\n"
    )


def test_jobs_and_crons_are_in_the_order_of_their_files(run: Run, tmp_path: Path, capsys: Out) -> None:
    files = [tmp_path / name for name in ("b.yaml", "nr.yaml", "a.yaml")]
    files[0].write_text("name: b\nrun: [x]\n")
    files[1].write_text("kind: cron\nname: nr\nschedule: 0 2 * * *\nrun: [x]\n")
    files[2].write_text("name: a\nrun: [x]\n")
    assert run("job", "check", *files) == 0
    valid = [line for line in capsys.readouterr().out.splitlines() if "valid" in line]
    assert valid == [
        f"{files[0]}: valid: job ann/b, 1 task, process",
        f"{files[1]}: valid: cron ann/nr, 1 task, process",
        f"{files[2]}: valid: job ann/a, 1 task, process",
    ]
    assert run("job", "check", *files, "-o", "name") == 0
    assert capsys.readouterr().out == "ann/b\nann/nr\nann/a\n"
    assert run("job", "check", *files, "-o", "jsonl") == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == ["b", "nr", "a"]


def test_a_program_in_the_home_of_somebody_else(run: Run, tmp_path: Path, capsys: Out) -> None:
    program = "/" + "/".join(("home", "bob", "serve"))
    (tmp_path / "job.yaml").write_text(f"name: web\nrun: [sh, {program}]\n")
    assert run("job", "check", tmp_path / "job.yaml") == 0
    assert f"{program} is in the home of somebody else" in capsys.readouterr().err


def test_all_mistakes_of_all_files_beside_what_is_right(run: Run, folder: Path, capsys: Out) -> None:
    (folder / "bad.yaml").write_text("name: bad\nrun: [x]\ntasks: 0\n")
    (folder / "worse.yaml").write_bytes(b"\xff")
    assert run("job", "check", folder, folder / "none.yaml", "--var", "tga=x") == 2
    out, err = capsys.readouterr()
    assert f"{folder}/db.json: valid" in out
    assert f"{folder}/app.yaml:6:3: vars.tag: the variable has no value\n" in err
    assert f"{folder}/bad.yaml:3:8: tasks: 0 is outside" in err
    assert f"{folder}/worse.yaml:1:1: this is not UTF-8 text" in err
    assert f"{folder}/none.yaml: no such file or directory" in err
    assert "--var: no document declares the variable 'tga'\n  hint: did you mean tag?" in err


def test_the_result(run: Run, folder: Path, capsys: Out) -> None:
    assert run("job", "check", folder, "--var", "tag=blue", "-o", "yaml") == 0
    shown = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [each["name"] for each in shown] == ["shop", "db", "web"]
    assert shown[2] == {
        "name": "web",
        "user": "ann",
        "tasks": 2,
        "run": ["serve", "blue"],
        "labels": {"app": "shop"},
    }
    assert run("job", "check", folder, "--var", "tag=blue", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == shown
    assert run("job", "check", folder, "-o", "json") == 2
    assert "has no value" in capsys.readouterr().err


def test_a_folder_without_files(run: Run, folder: Path, capsys: Out) -> None:
    assert run("job", "check", folder / "deeper", folder / "deeper") == 2
    (folder / "deeper" / "x.yaml").unlink()
    capsys.readouterr()
    assert run("job", "check", folder / "deeper") == 2
    assert "the folder has no file that ends in .yaml, .yml, .json, .jsonnet" in capsys.readouterr().err


def test_a_file_named_twice_is_read_once(folder: Path) -> None:
    sources = load([folder, folder / "web.yml", folder], {}).sources
    assert [Path(source.name).name for source in sources] == ["app.yaml", "db.json", "web.yml"]
    (mistake,) = load([folder, folder / "none"], {}).mistakes
    assert "no such file" in str(mistake)


@pytest.mark.parametrize("given", ["tag", "=x"])
def test_a_variable_is_written_with_its_value(run: Run, folder: Path, given: str, capsys: Out) -> None:
    assert run("job", "check", folder, "--var", given) == 2
    assert "write NAME=VALUE" in capsys.readouterr().err
    assert run("job", "check", folder, "--var", "a=1", "--var", "a=2") == 2
    assert "a is given twice" in capsys.readouterr().err


def test_values_reach_the_master(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    master.answers["POST /v1/jobs"] = Accepted(1, "ann/web", "ok")
    path = tmp_path / "web.yaml"
    text = "name: web\nvars: {n: 2, tag: {type: text}}\ntasks: '{{var.n}}'\nrun: [serve, '{{var.tag}}']\n"
    path.write_text(text)
    assert run("job", "submit", "--detach", path, "--var", "tag=a: b") == 0
    assert yaml.safe_load(master.asked[-1].body) == {
        "name": "web",
        "user": "ann",
        "tasks": 2,
        "run": ["serve", "a: b"],
    }
    path.write_text(text.replace("{type: text}", "blue"))
    assert run("job", "submit", "--detach", path) == 0
    assert master.asked[-1].body == path.read_bytes()


def test_what_is_not_one_job_is_applied(master: FakeMaster, run: Run, folder: Path, capsys: Out) -> None:
    two = folder / "two.yaml"
    two.write_text("name: a\nrun: [x]\n---\nname: b\nrun: [x]\n")
    for path in (two, folder / "app.yaml", folder):
        assert run("job", "submit", path, "--var", "tag=x") == 2
        assert "borgctl apply" in capsys.readouterr().err
    assert "POST /v1/jobs" not in master.calls
