"""A local cell from ``up`` to ``down``, with the real daemons and real programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cells import RealCell, cell, runs, wait_until
from tests.ports import free_port

SLEEPER = "name: sleeper\ntasks: 2\nrun: [sleep, '1000']\nresources: {cpu: 10m, ram: 16MiB}\n"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[RealCell]:
    with cell(tmp_path / "cell", machines=2) as made:
        yield made


def pids(local: RealCell) -> dict[str, int]:
    return {task["name"]: task["pid"] for task in local.items("task", "list") if task["state"] == "running"}


def test_up_again_starts_what_was_killed_and_no_task_notices(local: RealCell) -> None:
    assert "2 of 2 tasks up" in local.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=SLEEPER)
    before = pids(local)
    assert len(before) == 2
    daemons = {name: local.pid(name) for name in ("borgmaster", "m1", "m2")}
    assert "everything is already running" in local.ok("up")
    local.kill("borgmaster")
    local.kill("m1")
    said = local.ok("up")
    assert "started borgmaster, m1; already running: m2" in said
    assert local.pid("m2") == daemons["m2"]
    assert local.pid("m1") not in (0, daemons["m1"])
    wait_until(lambda: pids(local) == before)
    assert all(map(runs, before.values()))


def test_down_stops_every_task_and_up_runs_them_again(local: RealCell) -> None:
    local.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=SLEEPER)
    before = pids(local)
    assert "stopped borgmaster, m1, m2 and every task" in local.ok("down")
    assert not any(map(runs, before.values()))
    assert "nothing runs" in local.ok("down")
    assert local.borgctl("status").code == 4
    local.ok("up")
    local.ok("job", "wait", "sleeper", "--settle", 0)
    again = pids(local)
    assert again.keys() == before.keys()
    assert not set(again.values()) & set(before.values())


def test_down_stops_tasks_whose_daemons_were_killed(local: RealCell) -> None:
    local.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=SLEEPER)
    before = pids(local)
    for name in ("borgmaster", "m1", "m2"):
        local.kill(name)
    assert all(map(runs, before.values()))
    assert "no daemon ran; 2 programs that were left over are stopped" in local.ok("down")
    assert not any(map(runs, before.values()))
    assert "nothing runs" in local.ok("down")


def test_a_larger_number_adds_machines(local: RealCell) -> None:
    assert "added m3" in local.ok("up", "--machines", 3)
    assert [machine["state"] for machine in local.items("machine", "list")] == ["up"] * 3


@pytest.mark.parametrize("goes_on", [True, False], ids=["running", "stopped"])
def test_up_lets_in_again_what_was_removed(local: RealCell, goes_on: bool) -> None:
    local.ok("machine", "drain", "m2", "--yes")
    local.ok("machine", "remove", "m2", "--yes")
    before = local.pid("m2")
    if not goes_on:
        local.ok("down")
    said = local.borgctl("up")
    started = "started m2; already running: borgmaster, m1" if goes_on else "started borgmaster, m1, m2"
    assert (said.code, started in said.out) == (0, True), said
    assert ("note: m2 was removed from the cell" in said.err) is goes_on
    assert local.pid("m2") not in (0, before)
    assert [(it["name"], it["state"]) for it in local.items("machine", "list")] == [
        ("m1", "up"),
        ("m2", "up"),
    ]
    assert "everything is already running" in local.ok("up")


def test_a_daemon_that_cannot_start_is_said_with_its_log(tmp_path: Path) -> None:
    broken = RealCell(tmp_path / "cell")
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "cell.toml").write_text(f'name = "local"\nlisten = "0.0.0.0:{free_port()}"\n')
    try:
        said = broken.borgctl("up", "--machines", 1)
        assert said.code == 1
        assert "borgmaster ended with exit code 74" in said.err
        assert "[tls]" in said.err
    finally:
        assert broken.borgctl("down", "--purge", "--yes").code == 0
    assert not broken.folder.exists()
