"""How much a cell keeps of one user: what is refused, what is always accepted, and what makes room."""

import msgspec
import pytest

from borgish.cell.commands import (
    ApplyApp,
    FireCron,
    ForgetJob,
    KillTasks,
    RemoveApp,
    RemoveCron,
    RestartTasks,
    ScaleJob,
    SetCron,
    SubmitJob,
)
from borgish.cell.limits.footprint import TASK_BYTES, latest_versions, spec_bytes
from borgish.cell.model import Rules
from borgish.errors import OverQuota
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from tests.unit.cell.crons import TO_COMPLETION, cron
from tests.unit.cell.test_admission import Desk, spec

KIB = 1024


def large(name: str, kib: int, tasks: int = 1, user: str = "ann") -> JobSpec:
    return spec(tasks, name, priority=0, user=user, env={"A": "x" * (kib * KIB)})


@pytest.fixture
def desk() -> Desk:
    return Desk(Rules(footprint_bytes_max=100 * KIB))


def test_what_a_user_has_is_bounded_and_each_user_alone(desk: Desk) -> None:
    desk.do(SubmitJob(large("a", 60)))
    with pytest.raises(OverQuota) as refused:
        desk.do(SubmitJob(large("b", 60)))
    assert refused.value.message == (
        "ann/b would bring what the cell keeps of ann's jobs, applications and crons to 122KiB, "
        "and the most of one user is 100KiB"
    )
    assert "footprint_mib" in refused.value.hint
    desk.do(SubmitJob(large("b", 60, user="bob")))
    desk.do(SubmitJob(large("b", 20)))


def test_tasks_count_whatever_they_do(desk: Desk) -> None:
    most = (100 * KIB - spec_bytes(spec(name="a", priority=0), 0)) // TASK_BYTES - 1
    desk.do(SubmitJob(spec(most, "a", priority=0)))
    with pytest.raises(OverQuota):
        desk.do(ScaleJob("ann/a", most + 2))
    desk.do(ScaleJob("ann/a", 1))
    desk.do(ScaleJob("ann/a", most))


def test_what_becomes_no_larger_can_always_be_changed(desk: Desk) -> None:
    desk.do(SubmitJob(large("a", 60)))
    desk.cell.rules = Rules(footprint_bytes_max=10 * KIB)
    with pytest.raises(OverQuota):
        desk.do(SubmitJob(large("a", 61)))
    with pytest.raises(OverQuota):
        desk.do(ScaleJob("ann/a", 2))
    desk.do(SubmitJob(large("a", 30)))
    assert 30 * KIB < desk.cell.footprint.of("ann") < 32 * KIB


def test_earlier_versions_are_kept_while_there_is_room(desk: Desk) -> None:
    for number in range(8):
        desk.do(SubmitJob(large("a", 20) if number % 2 else large("a", 20, tasks=2)))
        desk.do(SubmitJob(spec(name="a", priority=0, env={"A": f"{number}" * 20 * KIB})))
        assert desk.cell.footprint.of("ann") < 22 * KIB
        assert desk.cell.footprint.of("ann") + desk.cell.footprint.of_earlier("ann") <= 100 * KIB
    assert desk.cell.footprint.of_earlier("ann") > 40 * KIB
    desk.do(SubmitJob(large("b", 70)))
    with pytest.raises(OverQuota):
        desk.do(SubmitJob(large("c", 10)))
    desk.do(SubmitJob(large("a", 19)))
    assert desk.cell.footprint.of_earlier("ann") == 0, "now others need the room"


def test_dead_jobs_count_again_when_they_come_back(desk: Desk) -> None:
    desk.do(SubmitJob(large("a", 60)))
    desk.do(KillTasks("ann/a"))
    assert desk.cell.footprint.of_dead("ann") > 60 * KIB
    desk.do(SubmitJob(large("b", 60)))
    for again in (RestartTasks("ann/a"), SubmitJob(large("a", 60))):
        with pytest.raises(OverQuota):
            desk.do(again)
    desk.do(KillTasks("ann/b"))
    desk.do(RestartTasks("ann/a"))
    for key in ("ann/a", "ann/b"):
        desk.do(KillTasks(key))
        desk.do(ForgetJob(key))
    assert desk.cell.footprint.totals == ({}, {}, {})


def applied(kib: int) -> ApplyApp:
    document = Document(large("a", kib), ("name", "run", "env"))
    return ApplyApp(AppSpec("app", "ann"), (document,))


def test_applications_count_with_their_documents(desk: Desk) -> None:
    with pytest.raises(OverQuota) as refused:
        desk.do(applied(60))  # once as a job, once as a document
    assert refused.value.message.startswith("ann/app would bring")
    assert desk.cell.footprint.totals == ({}, {}, {})
    desk.do(applied(30))
    assert desk.cell.footprint.of("ann") > 60 * KIB
    desk.do(KillTasks("ann/a"))
    assert 30 * KIB < desk.cell.footprint.of("ann") < 32 * KIB
    desk.do(RemoveApp("ann/app"))
    assert desk.cell.footprint.of("ann") == 0


def nightly(name: str, kib: int) -> CronSpec:
    job = msgspec.structs.replace(large(name, kib), restart=TO_COMPLETION)
    return msgspec.structs.replace(cron(name), job=job)


def test_crons_count_and_a_run_for_which_there_is_no_room_is_noted(desk: Desk) -> None:
    desk.do(SetCron(nightly("nightly", 40)))
    with pytest.raises(OverQuota):
        desk.do(SetCron(nightly("another", 70)))
    desk.do(SubmitJob(large("a", 40)))
    due = desk.cell.crons["ann/nightly"].next
    desk.do(FireCron("ann/nightly", due))
    assert "the most of one user is 100KiB" in desk.cell.crons["ann/nightly"].note
    assert not desk.cell.runs
    desk.do(RemoveCron("ann/nightly"))
    assert desk.cell.footprint.of("ann") == desk.cell.footprint.of_job("ann/a")


def test_of_earlier_versions_the_latest_are_kept_and_one_in_any_case() -> None:
    earlier = dict.fromkeys(range(1, 6), "x" * 100)
    assert [*latest_versions(earlier, 3, 10_000)] == [3, 4, 5]
    assert [*latest_versions(earlier, 9, 250)] == [4, 5]
    assert [*latest_versions(earlier, 9, 10)] == [5]
