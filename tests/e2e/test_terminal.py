"""What a program writes cannot act on the operator's terminal, and goes unchanged into a pipe."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, end_jobs, submitted
from tests.forked import plain_environment

# Clears the screen, sets the title, answers back, turns text round, rings, and is no UTF-8 at its end.
EVIL = b"\x1b[2J\x1b]0;owned\x07\x9b5n\xe2\x80\xaeabc\x08\x7f\x00\xff\xfe\tend\n"
WRITER = (
    "name: evil\nrun: [python3, -c, \"import sys, time; sys.stdout.buffer.write(bytes.fromhex('{}'));"
    ' sys.stdout.flush(); time.sleep(100000)"]\nresources: {{cpu: 10m, ram: 32MiB}}\nallow_exec: true\n'
)
SHOWN = r"\x1b[2J\x1b]0;owned\x07"


@pytest.fixture(scope="module")
def evil(shared: RealCell) -> Iterator[RealCell]:
    """A cell with a program that has written all that."""
    submitted(shared, WRITER.format(EVIL.hex()))
    wait_until(lambda: len(piped(shared, "task", "logs", "evil/0")) >= len(EVIL), PATIENCE_SECONDS)
    yield shared
    end_jobs(shared)


def command(made: RealCell, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "borgish.cli.borgctl", "--dir", str(made.folder), *arguments]


def piped(made: RealCell, *arguments: str) -> bytes:
    done = subprocess.run(
        command(made, *arguments), capture_output=True, env=plain_environment(), check=False
    )
    return done.stdout


def on_a_terminal(made: RealCell, *arguments: str) -> bytes:
    """Return what a command writes to a terminal, before the terminal acts on it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(made, *arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=plain_environment()
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:  # nobody has the terminal any more
            pass
        finally:
            os.close(ours)
        assert process.wait() == 0, said
    return said


def test_a_pipe_gets_the_bytes(evil: RealCell) -> None:
    assert piped(evil, "task", "logs", "evil/0") == EVIL


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("task", "logs", "evil/0"), id="logs"),
        pytest.param(("task", "exec", "evil/0", "--", "printf", r"\033[2J\033]0;owned\007"), id="exec"),
    ],
)
def test_a_terminal_gets_them_escaped(evil: RealCell, arguments: tuple[str, ...]) -> None:
    said = on_a_terminal(evil, *arguments)
    assert SHOWN.encode() in said
    for control in (b"\x1b", b"\x07", b"\x08", b"\x7f", b"\x00", b"\x9b", "\u202e".encode()):
        assert control not in said


def test_words_of_a_job_reach_no_terminal_unescaped(evil: RealCell) -> None:
    """Users write reasons and labels, too."""
    evil.ok("machine", "cordon", "m2", "--reason", "\x1b[2Jowned [red]x[/red]")
    try:
        for arguments in (("machine", "list"), ("machine", "show", "m2"), ("dashboard", "--once")):
            said = on_a_terminal(evil, *arguments)
            assert b"\x1b[2J" not in said
            assert rb"\x1b[2Jowned" in said
        assert b"\x1b" not in piped(evil, "events")
    finally:
        evil.ok("machine", "uncordon", "m2")
