"""A machine of a real cell is emptied while tasks run and its master is killed, and it is given back."""

from collections.abc import Iterator

import pytest

from tests.cells import RealCell, wait_until
from tests.e2e.watched import end_jobs, watched_cell

WEB = """
name: web
tasks: 4
run: [sh, -c, "exec sleep 1000"]
resources: {cpu: 10m, ram: 16MiB}
disruption: {max_unavailable: 1}
"""
SUM = """
name: sum
tasks: 3
run: [sh, -c, "exec sleep 1000"]
restart: {policy: on_failure}
resources: {cpu: 10m, ram: 16MiB}
spread: [{over: machine, max: 1}]
"""


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    with watched_cell(tmp_path_factory.mktemp("drained") / "cell", machines=3) as made:
        yield made


@pytest.fixture
def three(cell: RealCell) -> Iterator[RealCell]:
    """The cell of both tests; behind each its jobs are ended."""
    yield cell
    end_jobs(cell)


def on(cell: RealCell, machine: str) -> int:
    return int(cell.items("machine", "show", machine)["tasks"])


def running(cell: RealCell, job: str) -> int:
    return int(cell.items("job", "show", job)["job"]["running"])


def test_a_machine_is_emptied_under_a_master_that_dies_and_is_given_back(three: RealCell) -> None:
    three.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=WEB)
    three.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=SUM)
    # Batch holds it: what is waited for is said.
    held = three.borgctl("machine", "drain", "m2", "--reason", "new disk", "--timeout", "3s")
    assert held.code == 3, held
    assert "ann/sum/" in held.err
    assert "it may finish until" in held.err
    shown = three.items("machine", "show", "m2")
    assert (shown["state"], shown["tasks"], shown["drains"][0]["reason"]) == ("draining", 1, "new disk")
    assert "new disk" in three.ok("machine", "list")
    assert "m2: drained by" in three.ok("status")
    three.kill("borgmaster")
    three.ok("up")
    # It is drained still, and the other reason replaces the first.
    emptied = three.ok(
        "machine", "drain", "m2", "--reason", "new board", "--deadline", "0s", "--timeout", "60s"
    )
    assert emptied.endswith("m2 is empty: safe to switch off\n")
    assert running(three, "web") == 4
    three.kill("m2")
    three.ok("up")
    wait_until(lambda: three.items("machine", "show", "m2")["state"] == "drained")
    three.ok("machine", "undrain", "m2")
    wait_until(lambda: running(three, "sum") == 3)  # one of each machine only
    assert on(three, "m2") == 1
    assert "drain" in three.ok("history", "m2")


def test_what_is_wrong_about_a_drain_is_said(three: RealCell) -> None:
    none = three.borgctl("machine", "drain", "--where", "rack == r9")
    assert (none.code, none.out) == (3, "0 machines matched rack == r9, nothing done\n")
    assert three.borgctl("machine", "drain", "m9").code == 1
    wrong = three.borgctl("machine", "drain", "--where", "rack = r9")
    assert wrong.code == 2
    assert "'==' is meant" in wrong.err
    assert three.borgctl("machine", "drain").code == 2
    three.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=WEB)
    forced = three.borgctl("machine", "drain", "m1", "m2", "m3", "--force", "--yes")
    assert forced.code == 1
    assert "would stop 4 of 4 running tasks" in forced.err
    assert "--max-affected 4" in forced.err
    # Of all machines at once: nobody has a place to go to, and nobody is harmed.
    blocked = three.borgctl("machine", "drain", "m1", "m2", "m3", "--timeout", "2s")
    assert blocked.code == 3
    assert "no machine that takes new tasks has room for it" in blocked.err
    assert running(three, "web") == 4
    three.ok("machine", "undrain", "--where", "machine in (m1, m2, m3)")
    planned = three.ok("machine", "maintain", "m1", "--from", "12h", "--for", "2h", "--reason", "kernel")
    assert "in your time zone" in planned
    assert "kernel" in three.ok("machine", "maintain", "--list")
    three.ok("machine", "maintain", "m1", "--cancel")
