"""Wrong use: an exit code as promised, one clear error, never a traceback, and nothing done by mistake."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

import borgish
from borgish.cli.borgctl import run as borgctl
from borgish.cli.screen import can_show
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster, job, task

ROOT = Path(borgish.__file__).resolve().parent.parent
URLS = (
    "nonsense",
    "http://",
    "ftp://x",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:0",
    "http://127.0.0.1:abc",
    "http://[::1",
    "http://127.0.0.1:7400/\r\nX: y",
    "http://127.0.0.1:7400/x",
    "http://user:secret@127.0.0.1:7400",
    "http://a b:1",
)

KINDS = ("jobs", "machines", "crons", "apps", "checkpoints")


def command(*arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return [sys.executable, "-m", "borgish.cli.borgctl", *arguments], env


@pytest.mark.parametrize("url", URLS)
def test_addresses_that_are_none(url: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--url", url, "status") == 2
    said = capsys.readouterr().err
    assert "is not the address of a borgmaster" in said
    assert "http://127.0.0.1:7400" in said


@pytest.mark.parametrize("token", ["two\nlines", "tab\ttab", "\x00"])
def test_a_token_file_with_something_else(
    token: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd").write_text(token)
    assert run("--token-file", tmp_path / "odd", "status") == 4
    assert "more than one line" in capsys.readouterr().err


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """Answer two connections with fixed bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(data)

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
    ],
)
def test_what_answers_is_no_borgmaster(answer: bytes, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(answer) as url:
        assert run("--url", url, "status") == 4
    assert "not a borgmaster" in capsys.readouterr().err


def test_an_empty_argument_is_not_all_tasks(run: Run, master: FakeMaster) -> None:
    master.has(job())
    assert run("job", "restart", "web", "") == 2
    assert not any(asked.method == "POST" for asked in master.asked)


@pytest.mark.parametrize("name", ["../x", "a/b/c", "/", ""])
@pytest.mark.parametrize(
    "words",
    [
        "secret set --file FILE NAME",
        "secret remove --yes NAME",
        "user add NAME",
        "user remove --yes NAME",
        "user grant NAME production",
        "group add NAME",
        "group remove --yes NAME",
        "group members NAME --add ann",
        "token revoke NAME",
        "budget set NAME --where a=b --max-unavailable 1",
        "budget delete --yes NAME",
        "budget show NAME",
        "quota set NAME --band prod --cpu 1 --ram 1GiB",
        "quota remove --yes NAME --band prod",
        "machine show NAME",
        "machine revoke --yes NAME",
        "machine remove --yes NAME",
        "cron show NAME",
        "job show NAME",
        "job history NAME",
        "app show NAME",
        "app remove --yes NAME",
        "checkpoint show NAME",
        "why NAME",
    ],
)
def test_a_name_leads_nowhere_else(
    words: str,
    name: str,
    run: Run,
    master: FakeMaster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "value").write_text("x")
    for kind in KINDS:
        master.answers[f"GET /v1/{kind}"] = {"items": ()}
    given = {"NAME": name, "FILE": str(tmp_path / "value")}
    assert run(*(given.get(word, word) for word in words.split())) != 0
    said = capsys.readouterr().err
    assert any(word in said for word in ("invalid name", "there is no")), said
    assert "/v1/" not in said
    assert {it.path for it in master.asked} <= {"/v1/whoami", *(f"/v1/{kind}" for kind in KINDS)}


@pytest.mark.parametrize(
    "words",
    [("--",), ("--", ""), ("--timeout", "5s")],
)
def test_exec_without_a_command(
    words: tuple[str, ...], run: Run, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    master.has(job())
    assert run("task", "exec", "web/0", *words) == 2
    assert "COMMAND" in capsys.readouterr().err
    assert master.asked == []


@pytest.mark.parametrize("words", [("--timeout", "5s", "web/0"), ("web/0", "--timeout", "5s")])
def test_options_of_exec_go_before_or_after_the_task(
    words: tuple[str, ...], run: Run, master: FakeMaster
) -> None:
    master.has(job())
    master.answers["POST /v1/tasks/ann/web/0/exec/stream"] = b'{"exit_code": 7}\n'
    assert run("task", "exec", *words, "--", "ls", "-l", "--timeout") == 7
    assert json.loads(master.asked[-1].body) == {"run": ["ls", "-l", "--timeout"], "timeout_seconds": 5.0}


def test_a_program_that_wrote_nothing(
    run: Run, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    master.has(job())
    master.answers["GET /v1/tasks/ann/web/0/logs"] = b""
    assert run("task", "logs", "web/0") == 0
    assert capsys.readouterr() == ("", "web/0 has written nothing\n")


def test_more_lines_than_a_machine_gives(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("task", "logs", "web/0", "--tail", "100001") == 2
    assert "100000" in capsys.readouterr().err


def test_too_many_machines_leave_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert borgctl(["up", "--machines", "1000", "--dir", str(tmp_path / "cell")]) == 2
    assert "outside 1 to" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert borgctl(["up", "--dir", str(tmp_path / "file")]) == 1
    said = capsys.readouterr().err
    assert "there is a file of that name" in said
    assert "hint:" in said


def test_a_pipe_that_closes_is_no_failure(master: FakeMaster, tmp_path: Path) -> None:
    master.answers["GET /v1/tasks"] = {"items": [task(name=f"ann/web/{i}", index=i) for i in range(5000)]}
    (tmp_path / "token").write_text("bgt_x")
    words, env = command("--url", master.url, "--token-file", str(tmp_path / "token"), "task", "list")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams(master: FakeMaster, tmp_path: Path, closed: str) -> None:
    master.answers["GET /v1/tasks"] = {"items": [task()]}
    (tmp_path / "token").write_text("bgt_x")
    words, env = command("--url", master.url, "--token-file", str(tmp_path / "token"), "task", "list")
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *words], env=env, capture_output=True, check=False
    )
    assert (done.returncode, b"itself failed" in done.stderr) == (0, False)


def test_an_encoding_without_our_characters(master: FakeMaster, tmp_path: Path) -> None:
    master.answers["GET /v1/tasks"] = {"items": [task(name="ann/web/0", reason="Prüfung █")]}
    (tmp_path / "token").write_text("bgt_x")
    words, env = command(
        "--url", master.url, "--token-file", str(tmp_path / "token"), "task", "list", PYTHONIOENCODING="ascii"
    )
    done = subprocess.run(words, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Pr\\xfcfung \\u2588" in done.stdout


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", False), ("latin-1", False), ("utf-8", True)])
def test_bars_are_drawn_with_what_there_is(encoding: str, shown: bool) -> None:
    assert can_show("█·", TextIOWrapper(BytesIO(), encoding=encoding)) is shown


@pytest.mark.parametrize(("name", "data"), [("token", b"\xff"), ("a\\u0000b", b"x")])
def test_a_cell_folder_with_a_damaged_token(
    tmp_path: Path, name: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_bytes(data)
    (tmp_path / "client.json").write_text(f'{{"url": "http://127.0.0.1:1", "token_file": "{name}"}}')
    assert borgctl(["--dir", str(tmp_path), "status"]) == 4
    assert "cannot be read: it is not text" in capsys.readouterr().err
