"""The example with a sidecar in a real cell: seen, read, killed, and left alone by the end of the daemons."""

import os
import signal
import urllib.request

import pytest

from borgish.vocabulary import Phase
from tests.cells import RealCell, runs, wait_until
from tests.e2e.watched import JOBS, PATIENCE_SECONDS, task_of

TASK = "ann/sidecar/0"


def pids(made: RealCell) -> tuple[int, int]:
    """Return those of the main program and of the one beside it; 0 for one that does not run."""
    task = task_of(made, TASK)
    return task.pid or 0, next((each.pid or 0 for each in task.programs), 0)


def both_run_again(made: RealCell, gone: set[int]) -> tuple[int, int]:
    def look() -> tuple[int, int] | None:
        now = pids(made)
        return now if all(now) and not gone & set(now) else None

    found: tuple[int, int] = wait_until(look, PATIENCE_SECONDS)
    return found


def page(made: RealCell) -> bytes:
    """Return what the one program writes and the other serves, once it does."""
    wait_until(lambda: task_of(made, TASK).phase is Phase.HEALTHY, PATIENCE_SECONDS)
    port = task_of(made, TASK).ports["http"]
    found: bytes = wait_until(lambda: served(port), PATIENCE_SECONDS)  # it is empty while it is written anew
    return found


def served(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/now.txt", timeout=60) as answer:
        found: bytes = answer.read()
        return found


@pytest.fixture
def busy(own: RealCell) -> RealCell:
    own.ok("job", "submit", "--settle", 0, JOBS / "sidecar.yaml", "--user", "ann")
    return own


def test_the_example_works_and_both_of_its_programs_can_be_looked_at(busy: RealCell) -> None:
    main, writer = both_run_again(busy, set())
    assert page(busy)
    assert f"writer: up, pid {writer}" in busy.ok("task", "show", "sidecar/0")
    assert busy.ok("task", "logs", "sidecar/0", "--program", "writer", "--tail", 1) == "writer wrote it\n"
    said = busy.borgctl("task", "logs", "sidecar/0", "--program", "nobody")
    assert (said.code, "beside its main program it has writer" in said.err) == (1, True)
    command = ("task", "exec", "sidecar/0", "--program", "writer", "--", "sh", "-c", "echo $PAUSE; ls")
    assert busy.ok(*command) == "1\nnow.txt\n"
    assert busy.ok("task", "exec", "sidecar/0", "--", "sh", "-c", "echo $PAUSE") == "\n"
    assert runs(main)


def test_kill_9_of_either_with_kill_9_of_the_daemons_in_between(busy: RealCell) -> None:
    main, writer = both_run_again(busy, set())
    os.kill(writer, signal.SIGKILL)
    _, second = both_run_again(busy, {writer})
    assert pids(busy) == (main, second)
    for daemon in ("m1", "borgmaster"):
        busy.kill(daemon)
    busy.ok("up", "--machines", 1)
    assert both_run_again(busy, set()) == (main, second)
    busy.kill("m1")
    os.kill(main, signal.SIGKILL)
    busy.ok("up", "--machines", 1)
    both_run_again(busy, {main, second})
    assert not runs(second)
    assert page(busy)


def test_a_kill_leaves_nothing(busy: RealCell) -> None:
    before = both_run_again(busy, set())
    busy.ok("job", "kill", "--yes", "sidecar")
    wait_until(lambda: not any(map(runs, before)), PATIENCE_SECONDS)
