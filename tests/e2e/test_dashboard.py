"""The dashboard on a real cell: somebody walks to a log, sees why, goes back in time, and does something."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.cells import RealCell
from tests.e2e.watched import submitted, watched_cell
from tests.terminal import Terminal

SPEAKER = """name: speaker
run: [sh, -c, "echo I am task $BORGISH_INDEX; sleep 100000"]
tasks: 2
resources: {cpu: 10m, ram: 32MiB}
"""
PROGRAM = "from borgish.cli.borgctl import run\nsys.exit(run({arguments!r}))"
ENTER, ESCAPE, LEFT = "\r", "\x1b", "\x1b[D"


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    """A cell with nothing but a job of two tasks, and without an engine: one with a fault stands first."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("DOCKER_HOST", "unix:///no/engine")
        with watched_cell(tmp_path_factory.mktemp("speaking") / "cell", machines=2) as made:
            submitted(made, SPEAKER)
            yield made


@contextlib.contextmanager
def dashboard(made: RealCell, *options: str, before: tuple[str, ...] = ()) -> Iterator[Terminal]:
    arguments = ["--dir", str(made.folder), *before, "dashboard", *options]
    seen = Terminal(PROGRAM.format(arguments=arguments), (100, 30), {})
    try:
        seen.until(lambda: seen.shows("q quit") and seen.shows("/speaker"))
        yield seen
    finally:
        seen.close()


def go(seen: Terminal, keys: str, *texts: str) -> None:
    """Press keys, and wait until all of these are shown."""
    seen.press(keys)
    seen.until(lambda: all(seen.shows(text) for text in texts))


def test_from_the_cell_to_a_log_in_three_keys(speaking: RealCell) -> None:
    with dashboard(speaking) as seen:
        go(seen, ENTER, "TASKS OF", "/speaker/0", "/speaker/1", "2 up")
        go(seen, ENTER, "LOG OF", "I am task")
        go(seen, ENTER, "LOG OF", "I am task")
        go(seen, "/TASK" + ENTER, "'TASK': match 1 of 1", "stands still")
        go(seen, ESCAPE, "? help  esc back")
        go(seen, ESCAPE, "attempt")
        go(seen, ESCAPE, "TASKS OF")
        go(seen, "e", "EVENTS", "/speaker/0", "tasks 0-1 placed")
        go(seen, ESCAPE, "TASKS OF")
        go(seen, "w", "WHY")
        go(seen, "q", "TASKS OF")
        seen.press("q")
        assert seen.ended() == 0


def test_lists_are_filtered_and_sorted_by_the_master(speaking: RealCell) -> None:
    with dashboard(speaking) as seen:
        go(seen, "2", "speaker/0", "speaker/1", "by trouble")
        go(seen, "s", "by name")
        go(seen, "/SPEAKER/1" + ENTER, "only with 'SPEAKER/1'", "speaker/1")
        seen.until(lambda: not seen.shows("speaker/0"))
        go(seen, ESCAPE, "speaker/0")
        go(seen, "3", "MACHINES 2", "m1", "m2", "x down")
        go(seen, "5", "placed")
        go(seen, "6", "USERS AND QUOTAS")
        go(seen, "7", "USAGE OF ALL TASKS")


def test_back_in_time_and_through_the_cell_as_it_was(speaking: RealCell) -> None:
    with dashboard(speaking) as seen:
        go(seen, "t", "POSITION", "AFTER")
        go(seen, ":1" + ENTER, "AFTER 1:")
        go(seen, "\x1b[C", "AFTER 2:")
        go(seen, LEFT, "AFTER 1:")
        go(seen, "m\x1b[C\x1b[C", "AFTER 3:", "marked 1")
        go(seen, "d", "FROM POSITION 1 TO 3")
        go(seen, ESCAPE, "AFTER 3:")
        go(seen, ENTER, "The cell at position 3")
        go(seen, "1", "by trouble", "JOBS 0")
        go(seen, ESCAPE + ESCAPE, "AFTER 3:")
        go(seen, "a", "rollback 3 --dry-run")


def test_what_is_done_is_a_command_that_is_asked_about(speaking: RealCell) -> None:
    with dashboard(speaking) as seen:
        go(seen, "1", "by trouble", "JOBS 1")
        go(seen, "a", "borgctl job scale", "<number of tasks>")
        go(seen, "j" + ENTER, "number of tasks:")
        go(seen, "3" + ENTER, "/speaker 3`? y runs it")
        go(seen, "n", "<number of tasks>")
        assert len(speaking.items("task", "list", "speaker")) == 2
        go(seen, ENTER + "3" + ENTER, "y runs it")
        go(seen, "y", "done")
        assert len(speaking.items("task", "list", "speaker")) == 3


def test_with_read_only_nothing_is_offered(speaking: RealCell) -> None:
    with dashboard(speaking, "--read-only") as seen:
        go(seen, "a", "This dashboard only looks")


def test_a_reader_is_offered_nothing(speaking: RealCell) -> None:
    token = speaking.folder.parent / "reader.token"
    speaking.ok("token", "create", "--role", "reader", "--for", "1h", "--to", token)
    with dashboard(speaking, before=("--token-file", str(token))) as seen:
        go(seen, "a", "This dashboard only looks")
