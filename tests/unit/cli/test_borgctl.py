"""The command as a whole: what it imports, how it completes, and how it ends when nobody reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import borgish
from borgish.cli.borgctl import COMMANDS, CommandsOnDemand, app, load
from borgish.cli.changes import Changes, Deadline
from borgish.cli.render import Progress
from borgish.client import Client
from tests.unit.cli.commands import leaves
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster, job, task

ROOT = Path(borgish.__file__).resolve().parent.parent
SLOW = ("numpy", "rich", "sqlalchemy", "litestar", "asyncio", "yaml", "docker", "psutil", "cryptography")


def borgctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys; from borgish.cli.borgctl import run; code = run(sys.argv[1:]);"
        "print('imported:', *sys.modules, file=sys.stderr); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        check=False,
    )


def test_daemons_on_loopback_import_nothing_that_signs() -> None:
    script = (
        "import borgish.master.process, borgish.borglet.main, sys; sys.exit('cryptography' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", script], timeout=60, env=environment).returncode == 0


def test_a_short_command_imports_nothing_slow(master: FakeMaster, tmp_path: Path) -> None:
    master.has(job())
    (tmp_path / "token").write_text("bgt_x")
    done = borgctl("--url", master.url, "--token-file", str(tmp_path / "token"), "job", "list")
    assert done.returncode == 0, done.stderr
    assert "ann/web" in done.stdout
    imported = done.stderr.partition("imported:")[2].split()
    assert [name for name in SLOW if name in imported] == []


def test_version_and_help(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("--version") == 0
    assert capsys.readouterr().out == f"borgctl {borgish.__version__}\n"
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
    for name in COMMANDS:
        assert run(name, "--help") == 0
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_a_command_what_it_says_of_itself(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, CommandsOnDemand)
    listed, loaded = group.commands[name], load(name)
    for width in range(20, 120):
        assert listed.get_short_help_str(width) == loaded.get_short_help_str(width)


def test_a_command_that_is_made_alone_is_as_among_the_others() -> None:
    for path, among_others in leaves():
        if len(path) == 2:
            alone = load(path[0], path[1:]).commands
            assert list(alone) == [path[1]]
            assert alone[path[1]].get_help(typer.Context(among_others)) == among_others.get_help(
                typer.Context(among_others)
            )


def imports_of_commands(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what a run of borgctl imported that only commands, and not lists of them, need."""
    modules = {f"borgish.cli.commands.{module.partition(':')[0]}" for module, _ in COMMANDS.values()}
    imported = done.stderr.partition("imported:")[2].split()
    assert "borgish.cli.borgctl" in imported, done.stderr
    return sorted((modules | {"http.client"}).intersection(imported))


def test_help_imports_no_command() -> None:
    done = borgctl("--help")
    assert "machine" in done.stdout
    assert imports_of_commands(done) == []
    assert "borgish.cli.commands.status" in imports_of_commands(borgctl("status", "--help"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert run("completion", shell) == 0
    assert "_BORGCTL_COMPLETE" in capsys.readouterr().out


def test_completion_works() -> None:
    done = borgctl(COMP_WORDS="borgctl job sub", COMP_CWORD="2", _BORGCTL_COMPLETE="complete_bash")
    assert done.stdout.split() == ["submit"]


def test_schema(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert '"$schema"' in capsys.readouterr().out


def test_it_ends_quietly_when_nobody_reads(master: FakeMaster, tmp_path: Path) -> None:
    master.answers["GET /v1/tasks"] = {"items": [task(name=f"ann/web/{i}", index=i) for i in range(5000)]}
    (tmp_path / "token").write_text("bgt_x")
    command = [sys.executable, "-m", "borgish.cli.borgctl", "--url", master.url]
    command += ["--token-file", str(tmp_path / "token"), "task", "list"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=30)


def test_names_of_bands_are_completed() -> None:
    words = "borgctl quota set ann --band p"
    done = borgctl(COMP_WORDS=words, COMP_CWORD="5", _BORGCTL_COMPLETE="complete_bash")
    assert done.stdout.split() == ["production"]


def test_a_watch_wakes_who_waits(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    for tick in ("TICK_SECONDS", "TICK_WITHOUT_WATCH_SECONDS"):
        monkeypatch.setattr(f"borgish.cli.changes.{tick}", 60.0)
    master.answers["GET /v1/watch"] = b"id: 1\nevent: tasks\ndata: []\n\n"
    changes = Changes(Client(master.url, "bgt_x"), "tasks", "ann/web")
    deadline = Deadline(60.0)
    changes.wait(60.0)
    assert deadline.left  # it was the message, and not the time that was over
    changes.close()
    assert master.asked[0].query == {"kinds": "tasks", "job": "ann/web"}


def test_progress_is_one_line_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.cli.render.is_terminal", lambda _: True)
    progress = Progress()
    progress.show("one")
    progress.show("one")
    progress.show("two")
    progress.end()
    assert capsys.readouterr().err == "\r\x1b[2Kone\r\x1b[2Ktwo\r\x1b[2K"


def test_progress_is_few_plain_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    for text in ("one", "two", "three"):
        progress.show(text)
    progress.end()
    assert capsys.readouterr().err == "one\n"
