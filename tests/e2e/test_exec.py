"""borgctl task exec on a running cell: what a command reads, and what comes back while it runs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted
from tests.forked import plain_environment

SLEEPER = "name: sleeper\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 64MiB}\nallow_exec: true\n"
DRAIN = ("sh", "-c", "cat >/dev/null; exit 3")


@pytest.fixture
def sleeper(tidied: RealCell) -> RealCell:
    submitted(tidied, SLEEPER)
    return tidied


@contextmanager
def executing(
    made: RealCell, *command: str, stdin: int = subprocess.PIPE, options: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Begin a command beside the task."""
    here = [sys.executable, "-m", "borgish.cli.borgctl", "--dir", str(made.folder)]
    with subprocess.Popen(
        [*here, "task", "exec", *options, "sleeper/0", "--timeout", "5m", "--", *command],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=plain_environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_pipe_is_passed_to_the_command(sleeper: RealCell) -> None:
    assert sleeper.ok("task", "exec", "sleeper/0", "--", "cat", stdin="hi\n") == "hi\n"
    assert sleeper.ok("task", "exec", "--no-stdin", "sleeper/0", "--", "cat", stdin="hi\n") == ""
    assert sleeper.borgctl("task", "exec", "sleeper/0", "--", *DRAIN, stdin="hi\n").code == 3


def test_much_and_any_bytes_go_both_ways_at_once(sleeper: RealCell) -> None:
    given = bytes(range(256)) * (16 * 4096)  # 16 MiB
    with executing(sleeper, "cat") as process:
        out, _ = process.communicate(given)
        assert process.returncode == 0
        assert out == given


def test_a_command_is_answered_line_by_line(sleeper: RealCell) -> None:
    with executing(sleeper, "sh", "-c", "while read -r line; do echo got $line; done; exit 4") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 4


def test_input_that_never_ends_does_not_hold_up_the_end(sleeper: RealCell) -> None:
    with executing(sleeper, "sh", "-c", "exit 5") as process:
        assert process.wait(PATIENCE_SECONDS) == 5
    with executing(sleeper, "sh", "-c", "exec 0<&-; echo closed; sleep 0.2; exit 6") as process:
        out, _ = process.communicate(b"x" * 4 * 1024**2)
        assert (out, process.returncode) == (b"closed\n", 6)


def test_a_terminal_is_passed_on_only_when_asked_for(sleeper: RealCell) -> None:
    ours, theirs = os.openpty()
    try:
        with executing(sleeper, "cat", stdin=theirs) as process:  # nobody types
            assert process.communicate()[0] == b""
            assert process.returncode == 0
        with executing(sleeper, "head", "-n", "1", stdin=theirs, options=("-i",)) as process:
            assert process.stdout is not None
            os.write(ours, b"typed\n")
            assert process.stdout.readline() == b"typed\n"
            assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_command_ends_with_whoever_asked_for_it(sleeper: RealCell) -> None:
    mark = f"echo marked-{os.getpid()}; cat; exec sleep 100000"  # the machine has another number for it
    with executing(sleeper, "sh", "-c", mark) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    wait_until(lambda: mark not in {word for words in command_lines() for word in words}, PATIENCE_SECONDS)


def command_lines() -> Iterator[list[str]]:
    return (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
