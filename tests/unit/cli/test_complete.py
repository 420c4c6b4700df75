"""Completion of names, asked for as the shells ask for it: quick, silent, bounded."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import borgish
from borgish.cli import complete
from borgish.wire.api import Problem
from tests.unit.cli.commands import leaves
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import Asked, FakeMaster, job, machine

ROOT = Path(borgish.__file__).resolve().parent.parent
JOBS = ("ann/api", "ann/web", "ann/web-store", "bob/web")
Completed = Callable[..., list[str]]


def bash(words: str) -> dict[str, str]:
    return {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_BORGCTL_COMPLETE": "complete_bash"}


def zsh(words: str) -> dict[str, str]:
    return {"_TYPER_COMPLETE_ARGS": words, "_BORGCTL_COMPLETE": "complete_zsh"}


def fish(words: str) -> dict[str, str]:
    return {
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": words.rpartition(" ")[2],
        "_BORGCTL_COMPLETE": "complete_fish",
    }


def asked_by(shell: Callable[[str], dict[str, str]], words: str, **environment: str) -> tuple[str, str]:
    """Return what borgctl says to a shell, and to its user."""
    done = subprocess.run(
        [sys.executable, "-m", "borgish.cli.borgctl"],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | shell(words) | environment,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.fixture
def cell(master: FakeMaster, run: Run) -> FakeMaster:
    """A small cell, in whose names the commands here find what may follow."""

    def jobs(asked: Asked) -> object:
        after = asked.query.get("after", "")
        return {"items": [job(name=name, tasks=3) for name in JOBS if name > after]}

    items = {
        "machines": [machine("m1"), machine("m2"), machine("rack-3")],
        "crons": [{"name": "ann/nightly"}],
    }
    items |= {"users": [{"name": "ann"}, {"name": "bob"}], "groups": [{"name": "basement"}]}
    items |= {"apps": [{"name": "ann/shop"}], "budgets": [{"name": "web"}]}
    kept = [{"position": 40, "name": "noon"}, {"position": 38, "name": ""}]
    master.answers |= {f"GET /v1/{kind}": {"items": each} for kind, each in items.items()}
    master.answers |= {"GET /v1/jobs": jobs, "GET /v1/checkpoints": {"items": kept}}
    return master


TABLE = [
    ("job show ", ["api", "web-store", "ann/api", "ann/web", "bob/web", "ann/web-store"]),
    ("job show we", ["web-store"]),
    ("job kill ann/w", ["ann/web", "ann/web-store"]),
    ("job show bob/web", ["bob/web"]),
    ("task show bob/", ["bob/web/0", "bob/web/1", "bob/web/2"]),
    ("task show api/1", ["api/1"]),
    ("task logs ann/web/2", ["ann/web/2"]),
    ("logs ap", ["api"]),
    ("logs ann/api bob/web/", ["bob/web/0", "bob/web/1", "bob/web/2"]),
    ("port-forward api/", ["api/0", "api/1", "api/2"]),
    ("exec api/0", ["api/0"]),
    ("machine drain m", ["m1", "m2"]),
    ("machine show r", ["rack-3"]),
    ("checkpoint show ", ["38", "noon"]),
    ("user remove b", ["bob"]),
    ("user grant b", ["bob", "basement"]),
    ("app show s", ["shop"]),
    ("cron run n", ["nightly"]),
    ("budget show ", ["web"]),
    ("rollback ", ["1d", "1h", "38", "5m", "30m", "noon"]),
    ("rollback noon --only b", ["bob/web"]),
    ("job show web --at n", ["noon"]),
    ("events --job bob", ["bob/web"]),
    ("app list --user b", ["bob", "basement"]),
    ("cron list --state p", ["paused"]),
    ("job list --sort p", ["pending", "priority"]),
    ("app list --sort a", ["app", "applied"]),
    ("token list --columns id,us", ["id,user", "id,used"]),
]


@pytest.mark.parametrize(("typed", "offered"), TABLE)
def test_names_are_offered(typed: str, offered: list[str], cell: FakeMaster) -> None:
    said, words = asked_by(bash, f"borgctl {typed}")
    assert (said.split(), words) == (offered, "")


@pytest.mark.parametrize("shell", [zsh, fish])
def test_in_every_shell(shell: Callable[[str], dict[str, str]], cell: FakeMaster) -> None:
    said, words = asked_by(shell, "borgctl job show ann/w")
    assert "ann/web" in said
    assert "bob" not in said
    assert words == ""


def test_the_options_before_the_command_say_which_cell(cell: FakeMaster, tmp_path: Path) -> None:
    token = os.environ["BORGISH_TOKEN_FILE"]
    words = f"borgctl --url {cell.url} --token-file {token} machine show r"
    without = {"BORGISH_URL": "", "BORGISH_TOKEN_FILE": "", "BORGISH_DIR": str(tmp_path)}
    assert asked_by(bash, words, **without) == ("rack-3\n", "")


def test_it_is_silent_where_something_is_wrong(cell: FakeMaster, tmp_path: Path) -> None:
    cell.answers["GET /v1/machines"] = Problem("Forbidden", 403, "no")
    assert asked_by(bash, "borgctl machine show ") == ("\n", "")
    cell.answers["GET /v1/machines"] = b"\xff"
    assert asked_by(bash, "borgctl machine show ") == ("\n", "")
    nothing = {"BORGISH_URL": "", "BORGISH_DIR": str(tmp_path)}
    assert asked_by(bash, "borgctl machine show ", **nothing) == ("\n", "")


def test_a_silent_master_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("BORGISH_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        import typer

        from borgish.cli.borgctl import app

        context = typer.Context(typer.main.get_command(app))
        context.params = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        began = time.perf_counter()
        assert complete.machines(context, "") == []
        assert time.perf_counter() - began < 10 * complete.SECONDS_MAX


def test_names_are_few_and_say_nothing_to_a_terminal(cell: FakeMaster) -> None:
    odd = [machine("m\x1b[2J"), *(machine(f"m{number:04}") for number in range(500))]
    cell.answers["GET /v1/machines"] = {"items": odd}
    said, _ = asked_by(bash, "borgctl machine show ")
    assert len(said.split()) == complete.NAMES_MAX
    assert "\x1b" not in said


NAMED = ("JOB", "TASK", "MACHINE", "MACHINE...", "USER", "GROUP", "USER|GROUP", "APP", "CRON", "JOB|TASK...")


def test_what_names_a_thing_is_completed() -> None:
    """An argument that names what there is has a completion, wherever it stands."""
    arguments = (
        (path, each)
        for path, command in leaves()
        for each in command.params
        if each.param_type_name == "argument" and each.metavar in NAMED
    )
    assert [path for path, each in arguments if not each._custom_shell_complete] == []
