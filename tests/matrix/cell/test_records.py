"""Every field of the cell's records: whether people find it in the tables, and in what differs between two
cells; and who says it when a machine joins again. A field that is in none of these tables fails."""

from typing import Any

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.commands import JoinMachine
from borgish.cell.crons.model import Cron
from borgish.cell.diff import difference
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import (
    App,
    AppVersion,
    Cell,
    Drain,
    FailedOn,
    Flaps,
    Held,
    Job,
    LastRollout,
    LostAttempt,
    Machine,
    Owner,
    Rollout,
    Snapshot,
    Task,
    Version,
    Waits,
)
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import Constraint
from borgish.spec.shares import Share
from borgish.store.tables import (
    app_row,
    budget_row,
    cron_row,
    job_row,
    machine_row,
    quota_row,
    task_rows,
    version_rows,
)
from borgish.vocabulary import Band, Ending, Ownership, RolloutKind, State
from tests.matrix.spec.test_job_fields import with_another
from tests.unit.cell.crons import cron
from tests.unit.cell.test_decide import Desk, machine, spec

BOTH = "the table and the difference have it"
IN_TABLE = "the table alone: it says when or why, or changes with what is compared"
NEITHER = "neither: it is for deciding, and checkpoints keep it"

TASK = Task(
    0,
    State.RUNNING,
    7,
    "m1",
    (20000,),
    *(5.0, "why", 1, Ending.FAIL, 1, 9, 4.0, 6, "m2", ("gpu:0",), 0, "m3", 2.0, (LostAttempt(3, "m1"),), 1),
)
JOB = Job("ann/web", 1, spec(tasks=1), 5.0, "ann", tasks=[TASK], running=1)
QUOTA = Quota("ann", Band.BATCH, Resources(1000), 5.0)
CRON = Cron(cron(), 5.0, "ann", last=1.0, next=9.0, note="why", late_seconds=2.0)
BUDGET = Budget("web", (Constraint("app", "==", ("web",)),), Share())
APP = App("ann/web", 7, AppVersion(AppSpec("web", "ann"), (Document(spec()),), 5.0, "ann"))
RECORDS: dict[type[Any], Any] = {
    Machine: machine(),
    Task: TASK,
    Job: JOB,
    Quota: QUOTA,
    Budget: BUDGET,
    App: APP,
    Cron: CRON,
}

FIELDS: dict[type[Any], dict[str, str]] = {
    Machine: {
        **dict.fromkeys(("host", "port", "tls", "capacity", "attributes", "runtimes", "ports_low"), BOTH),
        **dict.fromkeys(("ports_high", "boot_id", "up", "cordoned", "reason", "taints", "drains"), BOTH),
        "quarantined_until": BOTH,
        "flaps": NEITHER,
        "admission": IN_TABLE,
        "revoked_at": IN_TABLE,
        **dict.fromkeys(("name", "joined_at", "port_next", "generation"), IN_TABLE),
    },
    Task: {
        **dict.fromkeys(("state", "attempt", "machine", "restarts", "ending", "exit_code", "signal"), BOTH),
        "version": BOTH,
        "failed": IN_TABLE,
        **dict.fromkeys(("index", "ports", "since", "reason", "started_at", "previous_attempt"), IN_TABLE),
        **dict.fromkeys(("previous_machine", "devices", "alloc", "promised", "notice_seconds"), IN_TABLE),
        "lost": NEITHER,
        "failures": NEITHER,
    },
    Job: {
        **dict.fromkeys(("uid", "spec", "tasks", "waits"), BOTH),
        **dict.fromkeys(("key", "submitted_at", "submitted_by", "generation"), IN_TABLE),
        **dict.fromkeys(("version", "versioned_at", "versioned_by", "earlier", "held"), IN_TABLE),
        **dict.fromkeys(("pending", "running", "dead", "finished"), IN_TABLE),
        **dict.fromkeys(("rollout", "last_rollout", "disrupted", "owners", "failed"), NEITHER),
        "app": BOTH,
        **dict.fromkeys(("pending", "running", "dead", "finished", "cron", "due"), IN_TABLE),
        **dict.fromkeys(("rollout", "last_rollout", "disrupted"), NEITHER),
    },
    Cron: {
        **dict.fromkeys(("spec", "last", "next", "paused", "note", "app"), BOTH),
        **dict.fromkeys(("at", "by", "late_seconds", "among", "generation"), IN_TABLE),
    },
    Budget: {"name": IN_TABLE, "generation": IN_TABLE, "where": BOTH, "max_unavailable": BOTH},
    App: {
        **dict.fromkeys(("uid", "version", "present"), BOTH),
        **dict.fromkeys(("key", "generation"), IN_TABLE),
        "earlier": NEITHER,
    },
    Quota: {**dict.fromkeys(("user", "band", "generation"), IN_TABLE), "limits": BOTH, "until": BOTH},
}

# Who says it of a machine that joins again.
OF_THE_CELL = {
    *(
        "joined_at",
        "boot_id",
        "cordoned",
        "port_next",
        "taints",
        "drains",
        "quarantined_until",
        "flaps",
        "generation",
        "admission",
    )
}
OF_ITS_BORGLET = {"host", "port", "tls", "capacity", "attributes", "runtimes", "ports_low", "ports_high"}
AS_IT_JOINS = {"name", "up", "reason", "revoked_at"}

OTHERS: dict[str, Any] = {
    "drains": (Drain("ann", 1.0, 2.0, "new disk"),),
    "where": (Constraint("app", "==", ("db",)),),
    "max_unavailable": Share(2),
    "capacity": Resources(8000),
    "limits": Resources(8000),
    "spec": spec(tasks=1, priority=9),
    "tasks": [],
    "failed": (FailedOn("m1", 5.0, 1),),
    "held": Held("why", 5.0, 6.0),
    "flaps": Flaps((5.0,)),
    "earlier": {1: Version(spec(), 1.0, "ann")},
    "last_rollout": LastRollout(RolloutKind.UPDATE, 2, "complete", 1.0),
    "owners": {"tasks": Owner("bob", Ownership.SCALE, 5.0)},
    "present": AppVersion(AppSpec("web", "ann"), (), 6.0, "bob"),
    "waits": Waits(5.0),
    "rollout": Rollout({}, 1, {}, hurried=False, reason="why"),
}


def other(record: Any, field: str) -> Any:
    """Return a record that differs in one field."""
    if isinstance(record, Cron) and field == "spec":
        return msgspec.structs.replace(record, spec=cron(keep=9))
    if field in OTHERS:
        return msgspec.structs.replace(record, **{field: OTHERS[field]})
    return with_another(record, field)


def rows(record: Any) -> Any:
    match record:
        case Machine():
            return machine_row(record)
        case Task():
            return task_rows("ann/web", [record])
        case Job():
            return job_row(record, Bands()), version_rows(record)
        case Budget():
            return budget_row(record)
        case App():
            return app_row(record)
        case Cron():
            return cron_row(record)
        case _:
            return quota_row(record)


def cell_of(record: Any) -> Cell:
    """Return a cell that has this record, under the name of the one it is made of."""
    match record:
        case Machine():
            return Cell(Snapshot("test", machines={"m1": record}))
        case Task():
            return cell_of(msgspec.structs.replace(JOB, tasks=[record]))
        case Job():
            return Cell(Snapshot("test", jobs={"ann/web": record}))
        case App():
            return Cell(Snapshot("test", apps={"ann/web": record}))
        case Cron():
            return Cell(Snapshot("test", crons={"ann/nightly": record}))
        case Budget():
            return Cell(Snapshot("test", budgets={"web": record}))
        case _:
            return Cell(Snapshot("test", quotas={"ann/batch": record}))


@pytest.mark.parametrize("kind", RECORDS)
def test_every_field_of_a_record_is_in_the_table(kind: type[Any]) -> None:
    assert set(FIELDS[kind]) == {field.name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, fields in FIELDS.items() for field in fields]
)
def test_people_find(kind: type[Any], field: str) -> None:
    before, after, where = RECORDS[kind], other(RECORDS[kind], field), FIELDS[kind][field]
    assert (rows(before) != rows(after)) == (where != NEITHER), where
    found = difference(cell_of(before), cell_of(after))
    assert any(found.values()) == (where == BOTH), found


def test_every_field_of_a_machine_is_said_by_somebody() -> None:
    assert FIELDS[Machine].keys() == OF_THE_CELL | OF_ITS_BORGLET | AS_IT_JOINS


@pytest.mark.parametrize("field", sorted(OF_THE_CELL | OF_ITS_BORGLET))
def test_a_machine_that_joins_again_keeps_what_is_the_cells(field: str) -> None:
    desk, changed = Desk(), other(machine(), field)
    desk.cell.machines["m1"] = changed
    desk.do(JoinMachine(machine(), "i1", known=True))
    kept = changed if field in OF_THE_CELL else machine()
    assert getattr(desk.cell.machines["m1"], field) == getattr(kept, field)
