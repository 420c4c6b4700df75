"""Ports whose numbers users chose, beside those that borgish chooses."""

import pytest

from borgish.cell.commands import (
    PlaceTasks,
    SeenAttempt,
    SubmitJob,
)
from borgish.link.conversation import attempt_spec
from borgish.spec.file.read import read_job
from borgish.spec.job import Health
from borgish.vocabulary import Phase, State
from tests.unit.cell.test_decide import NOW, Desk

JOB = """
name: web
user: ann
run: [serve, "--admin={{port.admin}}"]
ports: [http]
fixed_ports: {admin: 9100}
health: {http: /, port: admin}
"""


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.do(SubmitJob(read_job(JOB, "ann")))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",), ports=((20003, 9100),)))
    return desk


def test_the_number_reaches_program_environment_and_probe(desk: Desk) -> None:
    job = desk.cell.jobs["ann/web"]
    attempt = attempt_spec(desk.cell, job, job.tasks[0])
    assert attempt.ports == {"http": 20003, "admin": 9100}
    assert (attempt.run[1], attempt.env["PORT_ADMIN"]) == ("--admin=9100", "9100")
    assert attempt.health == Health(http="/", port="admin")


def test_the_search_for_free_ports_goes_on_where_it_was(desk: Desk) -> None:
    assert desk.cell.machines["m1"].port_next == 20004
    desk.do(SubmitJob(read_job("{name: b, run: [x], fixed_ports: {admin: 80}}", "ann")))
    desk.do(PlaceTasks("ann/b", (0,), ("m1",), ports=((80,),)))
    assert desk.cell.machines["m1"].port_next == 20004


def test_the_search_for_free_ports_begins_anew_after_the_last_one(desk: Desk) -> None:
    machine = desk.cell.machines["m1"]
    desk.do(SubmitJob(read_job("{name: b, tasks: 4, run: [x], ports: [http]}", "ann")))
    after = []
    for index, port in enumerate((machine.ports_high, machine.ports_low, machine.ports_high - 1, 80)):
        desk.do(PlaceTasks("ann/b", (index,), ("m1",), ports=((port,),)))
        after.append(machine.port_next)
    assert after == [20000, 20001, 20009, 20009]


def test_a_foreign_program_on_it_sends_the_task_elsewhere(desk: Desk) -> None:
    task = desk.cell.jobs["ann/web"].tasks[0]
    told = SeenAttempt("ann/web/0", task.attempt, Phase.STARTING, ports=(20003, 9100), port_in_use=9100)
    desk.report(told)
    assert task.state is State.PENDING
    assert task.reason == "port 9100 on m1 is held by another program"
    assert desk.observed.machines["m1"].ports_blocked[9100] > NOW.mono
