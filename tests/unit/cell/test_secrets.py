"""Secrets in a cell: who uses one, which machines have it, and what a rollback leaves of it."""

import msgspec
import pytest

from borgish.cell.access.commands import (
    RemoveSecret,
    SetSecret,
)
from borgish.cell.access.model import Secret
from borgish.cell.access.secrets import SECRET_BYTES_MAX
from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    KillTasks,
    PlaceTasks,
    RemoveMachine,
    RevokeMachine,
    RollBack,
    SetCron,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.model import Cell, Snapshot
from borgish.cell.updates.rollback import RollbackTarget
from borgish.errors import Conflict, Invalid, NotFound
from borgish.link.conversation import Outgoing
from borgish.spec.job import JobSpec
from borgish.wire.link import SecretValue
from tests.unit.cell.crons import cron
from tests.unit.cell.test_decide import NOW, Desk, machine, spec


def using() -> JobSpec:
    return spec(tasks=2, secret_files={"db.key": "db"}, secret_env={"DB": "db"})


def setting(value: bytes = b"one", name: str = "db", owner: str = "ann") -> SetSecret:
    return SetSecret(owner, name, value, len(value))


@pytest.fixture
def desk() -> Desk:
    """A job of ann's with two tasks, on machines of their own, which use her secret db."""
    desk = Desk()
    desk.do(JoinMachine(machine("m2"), "i2", known=False))
    desk.do(setting())
    desk.do(SubmitJob(using()))
    desk.do(PlaceTasks("ann/web", (0, 1), ("m1", "m2")))
    return desk


def secret(desk: Desk, key: str = "ann/db") -> Secret:
    return desk.cell.access.secrets[key]


def notes(desk: Desk, command: Command) -> str:
    return "\n".join(decide(desk.cell, desk.observed, command, "ann", NOW).notes)


def sent(desk: Desk, name: str) -> tuple[SecretValue, ...]:
    """Return the secrets in a machine's assignment."""
    outgoing = Outgoing(desk.cell, name, lambda each: b"open " + each.sealed)
    return outgoing.assignment(desk.observed, 1, NOW).secrets


def test_a_machine_gets_what_its_tasks_use_each_once_and_nothing_else(desk: Desk) -> None:
    desk.do(setting(b"two", "unused"))
    desk.do(setting(b"bobs", owner="bob"))
    assert sent(desk, "m1") == (SecretValue("ann", "db", b"open one"),)
    assert "open one" not in repr(sent(desk, "m1"))


def test_a_secret_that_is_not_there_or_cannot_be_opened_is_left_out(desk: Desk) -> None:
    desk.do(SubmitJob(spec("late", secret_files={"a": "absent"})))
    desk.do(PlaceTasks("ann/late", (0,), ("m1",)))
    assert [each.name for each in sent(desk, "m1")] == ["db"]
    assert Outgoing(desk.cell, "m1", lambda _each: None).assignment(desk.observed, 1, NOW).secrets == ()


def test_whoever_uses_what_is_not_there_is_warned() -> None:
    desk = Desk()
    assert "there is no secret ann/db" in notes(desk, SubmitJob(using()))
    desk.do(setting())
    assert "no secret" not in notes(desk, SubmitJob(using()))


def test_another_value_reaches_those_who_have_the_old_one(desk: Desk) -> None:
    desk.cell.touched.placements.clear()
    assert "`borgctl job restart ann/web`" in notes(desk, setting(b"two"))
    desk.do(setting(b"two"))
    assert desk.cell.touched.placements == {"m1", "m2"}
    assert sent(desk, "m2")[0].value == b"open two"
    assert secret(desk).version == desk.cell.position


def test_the_same_value_again_changes_nothing(desk: Desk) -> None:
    decision = decide(desk.cell, desk.observed, setting(), "ann", NOW)
    assert decision.events == ()
    assert "already" in decision.text


@pytest.mark.parametrize(("size", "fault"), [(0, "is empty"), (SECRET_BYTES_MAX + 1, "has 32")])
def test_a_value_too_long_or_none(size: int, fault: str) -> None:
    with pytest.raises(Invalid, match=fault):
        Desk().do(SetSecret("ann", "db", b"sealed", size))


def test_what_is_used_cannot_be_removed(desk: Desk) -> None:
    with pytest.raises(Conflict, match="the secret ann/db is used by ann/web"):
        desk.do(RemoveSecret("ann", "db"))
    desk.do(KillTasks("ann/web"))
    desk.do(SetCron(msgspec.structs.replace(cron(), job=using())))
    with pytest.raises(Conflict, match="is used by the cron ann/web"):
        desk.do(RemoveSecret("ann", "db"))


def test_what_nobody_uses_goes(desk: Desk) -> None:
    desk.do(KillTasks("ann/web"))
    desk.do(RemoveSecret("ann", "db"))
    assert desk.cell.access.secrets == {}
    with pytest.raises(NotFound, match="there is no secret ann/db"):
        desk.do(RemoveSecret("ann", "db"))


def test_whoever_revokes_a_machine_is_told_what_it_had(desk: Desk) -> None:
    desk.do(KillTasks("ann/web", (1,)))
    assert secret(desk).machines == ("m1", "m2"), "it may have kept it"
    assert "secrets that it was given: ann/db" in notes(desk, RevokeMachine("m2"))
    desk.do(RevokeMachine("m2"))
    desk.do(setting(b"two"))
    assert secret(desk).machines == ("m1",), "the new value it was not given"


def test_what_a_revoked_machine_had_is_known_until_it_is_set_anew(desk: Desk) -> None:
    desk.do(RevokeMachine("m2"))
    assert secret(desk).revoked_machines == ("m2",)
    desk.do(RemoveMachine("m2"))
    assert secret(desk).revoked_machines == ("m2",), "whoever took it away has not forgotten it"
    desk.do(setting(b"two"))
    assert secret(desk).revoked_machines == ()


def test_a_machine_has_it_from_the_change_of_the_job_on() -> None:
    desk = Desk()
    desk.do(setting())
    desk.do(SubmitJob(spec(tasks=1)))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    assert secret(desk).machines == ()
    desk.do(SubmitJob(spec(tasks=1, secret_files={"db.key": "db"})))
    assert secret(desk).machines == ("m1",)


def test_a_rollback_leaves_secrets_as_they_are(desk: Desk) -> None:
    then = Cell(msgspec.convert(msgspec.to_builtins(desk.cell.snapshot()), Snapshot))
    desk.do(setting(b"two"))
    desk.do(KillTasks("ann/web"))
    command = RollBack(then.position, NOW.wall)
    desk.apply(decide(desk.cell, desk.observed, command, "ann", NOW, RollbackTarget(then)), "RollBack")
    assert secret(desk).sealed == b"two"


def test_a_machine_has_it_again_by_a_rollback_of_its_job() -> None:
    desk = Desk()
    desk.do(setting())
    desk.do(SubmitJob(spec(tasks=1, secret_files={"db.key": "db"})))
    desk.do(PlaceTasks("ann/web", (0,), ("m1",)))
    then = Cell(msgspec.convert(msgspec.to_builtins(desk.cell.snapshot()), Snapshot))
    desk.do(SubmitJob(spec(tasks=1)))
    desk.do(setting(b"two"))
    assert secret(desk).machines == ()
    command = RollBack(then.position, NOW.wall)
    desk.apply(decide(desk.cell, desk.observed, command, "ann", NOW, RollbackTarget(then)), "RollBack")
    assert secret(desk).machines == ("m1",)
