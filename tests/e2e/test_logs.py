"""borgctl logs on a real cell: many tasks, through restarts of their programs and moves between machines."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from borgish.clock import SystemClock
from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted, task_of
from tests.forked import plain_environment

TALKER = """\
name: talker
tasks: 2
labels: {app: talk}
run: [sh, -c, 'echo begun $BORGISH_TASK; while :; do echo tick; sleep 0.05; done']
resources: {cpu: 10m, ram: 16MiB}
restart: {backoff: 100ms}
"""


class Followed:
    """What a borgctl that follows has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process, self._out, self._err = process, out, err

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def words(self) -> str:
        return self._err.read_text()


@contextmanager
def following(made: RealCell, folder: Path, *arguments: str) -> Iterator[Followed]:
    """Run a borgctl that goes on until it is told to end."""
    out, err = folder / "out", folder / "err"
    with (
        out.open("wb") as stdout,
        err.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "borgish.cli.borgctl", "--dir", str(made.folder), *arguments],
            stdout=stdout,
            stderr=stderr,
            env=plain_environment(),
        ) as process,
    ):
        try:
            yield Followed(process, out, err)
        finally:
            process.kill()


def test_tasks_are_followed_through_restarts_and_moves(tidied: RealCell, tmp_path: Path) -> None:
    submitted(tidied, TALKER)
    first, second = (f"ann/talker/{index} | begun ann/talker/{index}" for index in range(2))
    with following(tidied, tmp_path, "logs", "-f", "-l", "app=talk") as followed:
        wait_until(lambda: {first, second} <= set(followed.lines), PATIENCE_SECONDS)
        pid = task_of(tidied, "ann/talker/0").pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: followed.lines.count(first) == 2, PATIENCE_SECONDS)
        assert "ann/talker/0: restarted on " in followed.words
        tidied.ok("job", "restart", "talker", "1")
        wait_until(lambda: followed.lines.count(second) == 2, PATIENCE_SECONDS)
        assert "ann/talker/1: moved from " in followed.words or "ann/talker/1: began anew" in followed.words
        tidied.ok("job", "kill", "--yes", "talker", "--max-affected", 2)
        assert followed.process.wait(PATIENCE_SECONDS) == 0
        lines = set(followed.lines)
        assert lines == {first, second, "ann/talker/0 | tick", "ann/talker/1 | tick"}
        assert followed.lines.count(first) == 2
        assert followed.lines.count(second) == 2
        assert "ann/talker/1 is dead (killed)" in followed.words


def test_a_master_that_dies_costs_no_line_and_doubles_none(own: RealCell, tmp_path: Path) -> None:
    count = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done"
    submitted(own, f"name: counter\nrun: [sh, -c, '{count}']\nresources: {{cpu: 10m, ram: 16MiB}}\n")
    with following(own, tmp_path, "logs", "-f", "counter/0") as followed:
        wait_until(lambda: len(followed.lines) > 20, PATIENCE_SECONDS)
        own.kill("borgmaster")
        wait_until(lambda: "trying again" in followed.words, PATIENCE_SECONDS)
        own.ok("up")
        seen = len(followed.lines)
        wait_until(lambda: len(followed.lines) > seen + 20, PATIENCE_SECONDS)
        lines = followed.lines[:-1]  # the last may not be whole yet
    assert lines == [str(number) for number in range(len(lines))]
    assert "the borgmaster answers again" in followed.words


def test_a_run_is_read_by_its_number(tidied: RealCell) -> None:
    submitted(tidied, TALKER.replace("tasks: 2", "tasks: 1"))
    before = task_of(tidied, "ann/talker/0")
    assert before.pid
    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: task_of(tidied, "ann/talker/0").restarts == 1, PATIENCE_SECONDS)
    client = tidied.client()
    path = "/v1/tasks/ann/talker/0/logs"
    which: dict[str, int] = {"attempt": before.attempt, "restarts": 0}
    ended = b"".join(client.stream(path, {**which, "follow": True}))
    assert ended.startswith(b"begun ann/talker/0\n"), "the run before is whole, and nothing follows it"
    assert b"".join(client.stream(path, {**which, "tail": 1})) == b"tick\n"
    client.close()
    said = tidied.borgctl("logs", "talker", "--grep", "^begun", "--previous")
    assert (said.code, said.out) == (0, "ann/talker/0 | begun ann/talker/0\n")


def test_lines_are_told_with_their_times_and_since_one(tidied: RealCell) -> None:
    """Two lines with some seconds in between, written while nobody followed."""
    job = (
        "name: slow\nrun: [sh, -c, 'echo first; sleep 3; echo second; sleep 99999']\nresources: {ram: 16MiB}"
    )
    began = SystemClock().now().wall
    submitted(tidied, job)
    wait_until(lambda: "second" in tidied.ok("logs", "slow/0"), PATIENCE_SECONDS)
    said = [line.split(" ", 1) for line in tidied.ok("logs", "slow/0", "--timestamps").splitlines()]
    assert [text for _, text in said] == ["first", "second"]
    first, second = (datetime.fromisoformat(at).timestamp() for at, _ in said)
    assert began - 1 <= first < second <= SystemClock().now().wall
    assert second - first >= 2
    between = datetime.fromtimestamp(second - 1, UTC).isoformat()
    assert tidied.ok("logs", "slow/0", "--since", between) == "second\n"
