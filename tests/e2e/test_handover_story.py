"""A new version by canary under load fails its probe and is undone by itself; the fixed one rolls through, a
machine is drained meanwhile, and nobody who asks sees an error.

What it says is in docs/how-to/updates.md: each line there is what a command here says, but for numbers.
"""

import re
from collections.abc import Iterator

import pytest

from tests.cells import ROOT, RealCell
from tests.documents import consoles, page
from tests.e2e.watched import PATIENCE_SECONDS, end_jobs, tasks_of, watched_cell
from tests.web_load import WebLoad

JOB = (ROOT / "configs" / "jobs" / "handover.yaml").read_text()
READY = "echo ok > ready; "
DEADLINE = "deadline: 15s"
HEADING = "Nobody sees an error"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    with watched_cell(tmp_path_factory.mktemp("replaced") / "cell", machines=4) as made:
        yield made
        end_jobs(made)


def version(release: int, job: str = JOB) -> str:
    """Return another version of a job, that has as long as it takes on a busy machine."""
    assert "release 1" in job
    assert DEADLINE in job
    return job.replace("release 1", f"release {release}").replace(DEADLINE, "deadline: 1m")


def normal(text: str) -> str:
    """Return a line without what differs from run to run: numbers, machines' and who typed it."""
    return re.sub(r"\d+(\.\d+)?", "N", text.strip()).replace("tasks", "task")


def documented() -> list[str]:
    """Return the lines of the story in the documentation that commands said."""
    story = consoles(page("how-to/updates", HEADING))
    assert len(story) > 4
    return [line for example in story for line in example.said]


def test_nobody_sees_an_error(cell: RealCell) -> None:
    said: list[str] = []

    def say(*words: object, stdin: str = "", code: int = 0) -> str:
        done = cell.borgctl(*words, stdin=stdin)
        assert done.code == code, done
        said.extend((done.out + done.err).splitlines())
        return done.out + done.err

    say("job", "submit", "-", "--user", "ann", stdin=version(1))
    before = {index: task.attempt for index, task in tasks_of(cell, "ann/shop").items()}
    with WebLoad(cell.client(), "ann/shop") as load:
        broken = JOB.replace("release 1", "release 2").replace(READY, "")
        undone = say("job", "submit", "-", "--user", "ann", stdin=broken, code=1)
        assert "version 3 replaces version 2: undone since the incoming attempt of task 0" in undone
        say("job", "wait", "shop")
        assert "File not found" in cell.ok("task", "logs", "--previous", "shop/0")
        none = cell.borgctl("task", "logs", "--incoming", "shop/0")
        assert "ann/shop/0 has no incoming attempt" in none.err
        # It never took over: what ran runs on.
        assert {index: task.attempt for index, task in tasks_of(cell, "ann/shop").items()} == before

        say("job", "submit", "-", "--user", "ann", stdin=version(3))
        say("job", "update", "promote", "shop")
        say("machine", "drain", "m2", "--reason", "new disk", "--timeout", f"{PATIENCE_SECONDS:g}s")
        say("job", "wait", "shop")
        say("job", "update", "status", "shop")
        tasks = tasks_of(cell, "ann/shop")
        assert {task.version for task in tasks.values()} == {4}
        assert all(task.machine != "m2" for task in tasks.values())
    assert load.failures == []
    assert load.asked > 200
    there = {normal(line) for line in said}
    assert [line for line in documented() if normal(line) not in there] == []


def test_a_service_of_one_task_is_never_refused(cell: RealCell) -> None:
    one = JOB.replace("name: shop", "name: one").replace("tasks: 4", "tasks: 1")
    one = re.sub(r"\n  canaries: .*", "", one)
    cell.ok("job", "submit", "-", "--user", "ann", stdin=one)
    with WebLoad(cell.client(), "ann/one") as load:
        cell.ok("job", "submit", "-", "--user", "ann", stdin=version(2, one))
        cell.ok("job", "restart", "one")
        cell.ok("job", "wait", "one")
        (task,) = tasks_of(cell, "ann/one").values()
        cell.ok("machine", "drain", task.machine, "--timeout", f"{PATIENCE_SECONDS:g}s")
        cell.ok("machine", "undrain", task.machine)
    assert load.failures == []
    assert load.asked > 100
