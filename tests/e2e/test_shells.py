"""borgctl task exec -it on a real terminal, and who may have one."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted
from tests.forked import plain_environment

JOB = "name: shell\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 64MiB}\nallow_exec: true\n"
CLOSED = "name: closed\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 16MiB}\n"

LEADS = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal that of a session of its own, as a terminal emulator does."""


class Person:
    """Somebody at a terminal in which borgctl runs."""

    def __init__(self, ours: int, theirs: int, process: subprocess.Popen[bytes]) -> None:
        self._ours, self._theirs, self.process = ours, theirs, process
        self._said = b""

    def types(self, text: bytes) -> None:
        os.write(self._ours, text)

    def resizes(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def sees(self, words: bytes) -> bytes:
        """Wait until something is on the screen, and return all before it."""
        while words not in self._said:
            assert select.select([self._ours], [], [], PATIENCE_SECONDS)[0], self._said
            self._said += os.read(self._ours, 4096)
        before, _, self._said = self._said.partition(words)
        return before

    def modes(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def ends(self) -> int:
        """Wait for the end of borgctl, and return its exit code."""
        while self.process.poll() is None:
            if select.select([self._ours], [], [], 0.02)[0]:  # or its last words would hold it up
                self._said += os.read(self._ours, 4096)
        return self.process.returncode


@contextmanager
def at_terminal(made: RealCell, *words: str, options: tuple[str, ...] = ()) -> Iterator[Person]:
    """Run a command of a shell beside the task on a terminal of 30 rows and 100 columns."""
    ours, theirs = pty.openpty()
    here = [sys.executable, "-m", "borgish.cli.borgctl", "--dir", str(made.folder), *options]
    person: Person | None = None
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    try:
        with subprocess.Popen(
            [sys.executable, "-c", LEADS, *here, "task", "exec", "-it", "shell/0", "--", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=plain_environment() | {"TERM": "vt100"},
        ) as process:
            person = Person(ours, theirs, process)
            try:
                yield person
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.fixture
def shell(tidied: RealCell) -> RealCell:
    submitted(tidied, JOB)
    return tidied


def gone(mark: str) -> bool:
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return not any(words[:1] == ["sleep"] and mark in words for words in lines)


def test_a_shell_has_the_terminal_to_itself(shell: RealCell) -> None:
    with at_terminal(shell, "sh") as person:
        before = person.modes()
        person.types(b"PS1='at'$((1+1))'> '\n")
        person.sees(b"at2> ")
        assert person.modes() != before
        person.types(b"stty size; echo $TERM\n")
        person.sees(b"30 100\r\nvt100\r\n")
        person.resizes(50, 120)
        person.types(b"until [ \"$(stty size)\" = '50 120' ]; do sleep 0.02; done; echo resized$((1+1))\n")
        person.sees(b"resized2\r\n")
        person.sees(b"at2> ")
        person.types(b"cat\nheard\n")
        person.sees(b"heard\r\nheard\r\n")  # the second by cat
        person.types(b"\x03")  # it ends what runs there, and nothing here
        person.sees(b"^C")
        person.sees(b"at2> ")  # a shell that is interrupted forgets what was typed before it asks again
        person.types(b"printf '\\033[2J'; echo on$((1+1)); exit 9\n")
        assert b"\x1b[2J" in person.sees(b"on2\r\n"), "a terminal was asked for"
        assert person.ends() == 9
        assert person.modes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before_and_nothing_stays(shell: RealCell, number: signal.Signals) -> None:
    mark = str(20_000_000 + os.getpid())
    with at_terminal(shell, "sh", "-c", f"sleep {mark} & echo begun; wait") as person:
        before = person.modes()
        person.sees(b"begun\r\n")
        wait_until(lambda: not gone(mark), PATIENCE_SECONDS)  # begun is told by the shell, not by its child
        person.process.send_signal(number)
        assert person.ends() == 128 + number
        assert person.modes() == before
    wait_until(lambda: gone(mark), PATIENCE_SECONDS)


def test_a_revoked_token_cuts_a_shell(shell: RealCell, tmp_path: Path) -> None:
    mark, token = str(30_000_000 + os.getpid()), tmp_path / "token"
    shell.ok("user", "add", "ann")
    shell.ok("token", "create", "--user", "ann", "--role", "user", "--to", token)
    with at_terminal(
        shell, "sh", "-c", f"sleep {mark} & echo begun; wait", options=("--token-file", str(token))
    ) as person:
        before = person.modes()
        person.sees(b"begun\r\n")
        wait_until(lambda: not gone(mark), PATIENCE_SECONDS)
        (mine,) = (each for each in shell.items("token", "list") if each["user"] == "ann")
        shell.ok("token", "revoke", mine["id"])
        assert person.ends() not in (0, 9)
        assert person.modes() == before
    wait_until(lambda: gone(mark), PATIENCE_SECONDS)


def test_t_without_a_terminal(shell: RealCell) -> None:
    said = shell.borgctl("task", "exec", "-t", "shell/0", "--", "sh", stdin="exit 3\n")
    assert (said.code, "-t needs a terminal" in said.err) == (1, True)


def test_nobody_may_where_the_job_does_not_allow_it(tidied: RealCell, tmp_path: Path) -> None:
    submitted(tidied, CLOSED)
    for asked in (
        ("task", "exec", "closed/0", "--", "true"),
        ("task", "cp", "closed/0:.", str(tmp_path)),
        ("task", "cp", str(tmp_path), "closed/0:x"),
    ):
        said = tidied.borgctl(*asked)
        assert (said.code, "allow_exec: true" in said.err) == (4, True), said
    pid = tidied.items("task", "show", "closed/0")["pid"]
    tidied.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=f"{CLOSED}allow_exec: true\n")
    assert tidied.borgctl("task", "exec", "closed/0", "--", "sh", "-c", "exit 5").code == 5
    assert tidied.items("task", "show", "closed/0")["pid"] == pid, "it runs on"


def test_trees_are_copied_both_ways_and_recorded(shell: RealCell, tmp_path: Path) -> None:
    tree, back = tmp_path / "tree", tmp_path / "back"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "run me").write_bytes(os.urandom(700_000))
    (tree / "deep" / "run me").chmod(0o750)
    (tree / "here").symlink_to("deep/run me")
    shell.ok("task", "cp", tree, "shell/0:")
    shell.ok("task", "cp", tree / "deep" / "run me", "shell/0:tree/other")
    shell.ok("task", "cp", "shell/0:tree", back)
    subprocess.run(["diff", "-r", "--no-dereference", "-x", "other", tree, back], check=True)
    assert (back / "deep" / "run me").stat().st_mode & 0o777 == 0o750
    assert (back / "other").read_bytes() == (tree / "here").read_bytes()
    entries = json.loads(shell.ok("audit", "-o", "json"))
    assert [e["object"] for e in entries if e["action"] == "cp"].count("ann/shell/0") >= 3


def test_a_link_leads_a_copy_nowhere_that_the_task_may_not_go(shell: RealCell, tmp_path: Path) -> None:
    """A task plants links to what is the machine's, and whoever copies follows none."""
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "key").write_text("hidden")
    (secret / "key").chmod(0o600)
    (tmp_path / "mine").write_text("mine")
    shell.ok("task", "exec", "shell/0", "--", "ln", "-s", secret, "out")
    shell.ok("task", "exec", "shell/0", "--", "ln", "-s", secret / "key", "key")
    back = tmp_path / "back"
    back.mkdir()
    for name in ("out", "out/key", "out/.", "key"):
        said = shell.borgctl("task", "cp", f"shell/0:{name}", back)
        assert "hidden" not in "".join(p.read_text() for p in back.rglob("*") if p.is_file()), said
        assert not any(p.is_symlink() for p in back.rglob("*")), said
    for name in ("out/key", "out/new"):
        assert shell.borgctl("task", "cp", tmp_path / "mine", f"shell/0:{name}").code == 1
    assert [(p.name, p.read_text()) for p in secret.iterdir()] == [("key", "hidden")]
