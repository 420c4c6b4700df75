"""Borglets that are killed while their hosts live: what runs there stays, and what it came to is not lost."""

from collections.abc import Iterator

import pytest

from borgish.wire.api import MachineView
from tests.cells import RealCell, runs, wait_until
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    asking,
    becomes,
    end_of,
    lives,
    refused_for,
    submitted,
    task_of,
    watched_cell,
)

SERVICE = """\
name: web
tasks: 4
run: [sleep, "100000"]
resources: {cpu: 10m, ram: 8MiB}
"""
# A batch task that ends well when its gate opens.
GATED = """\
name: gated
run: [sh, -c, "while [ ! -e gate ]; do sleep 0.05; done"]
restart: {policy: never}
resources: {cpu: 10m, ram: 8MiB}
"""
SILENCE_SECONDS = 12.0
"""Longer than a silent machine has."""


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    """No host is so busy that its borglet is not back in time."""
    with watched_cell(tmp_path_factory.mktemp("patient") / "cell", machines=2) as made:
        refused_for(made, 600.0)
        yield made


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    with watched_cell(tmp_path_factory.mktemp("hasty") / "cell", machines=2) as made:
        refused_for(made, 10.0)
        yield made


def machine_of(made: RealCell, name: str) -> MachineView:
    with asking(made) as client:
        return client.get(f"/v1/machines/{name}", None, MachineView)


def test_a_borglet_that_is_back_in_time_costs_no_task_its_place(patient: RealCell) -> None:
    submitted(patient, SERVICE)
    becomes(lambda: len(lives(patient, "ann/web")), 4)
    before = lives(patient, "ann/web")
    patient.kill("m1")
    wait_until(lambda: not machine_of(patient, "m1").answering, PATIENCE_SECONDS)
    shown = patient.ok("machine", "list")
    assert "not answering for" in shown
    assert "connection refused" in shown
    assert "1 of them not answering" in patient.ok("status")
    wait_until(
        lambda: (machine_of(patient, "m1").heard_seconds_ago or 0.0) > SILENCE_SECONDS, PATIENCE_SECONDS
    )
    assert machine_of(patient, "m1").state == "up"
    patient.ok("up")
    wait_until(lambda: machine_of(patient, "m1").answering, PATIENCE_SECONDS)
    becomes(lambda: lives(patient, "ann/web"), before)


def test_a_result_of_a_machine_that_was_given_up_counts_when_it_is_back(hasty: RealCell) -> None:
    submitted(hasty, GATED)
    first = task_of(hasty, "ann/gated/0")
    assert first.machine
    hasty.kill(first.machine)
    wait_until(lambda: task_of(hasty, "ann/gated/0").attempt != first.attempt, 2 * PATIENCE_SECONDS)
    becomes(lambda: task_of(hasty, "ann/gated/0").phase, "up")
    second = task_of(hasty, "ann/gated/0")
    assert second.machine != first.machine
    runs_there = hasty.folder / "machines" / first.machine / "state/process/runs"
    (runs_there / f"ann+gated+0@{first.attempt}" / "work/gate").touch()
    wait_until(lambda: first.pid and not runs(first.pid), PATIENCE_SECONDS)
    hasty.ok("up")
    becomes(lambda: end_of(task_of(hasty, "ann/gated/0")), ("dead", 0, "exit code 0"))
    ended = task_of(hasty, "ann/gated/0")
    assert (ended.attempt, ended.machine) == (first.attempt, first.machine)
    wait_until(lambda: second.pid and not runs(second.pid), PATIENCE_SECONDS)
