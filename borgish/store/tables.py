"""The tables as SQLAlchemy Core sees them, and a cell's rows in them; what writes rows is in ``statements``.

People query the tables with SQL, so their names are words. Times are seconds since 1970; what is a list or a
mapping is JSON. How the tables come to be in a database is in ``migrations/``; a test holds the two alike.

A row is a tuple in the order of its table's columns. A turn may write tens of thousands of task rows, so
``task_rows`` does as little as it can for each.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    cast,
)

from borgish.audit import AuditEntry, AuditNote
from borgish.bands import Bands
from borgish.cell.crons.model import Cron
from borgish.cell.events import Entry
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import App, Cell, Handover, Job, Machine, Task, TaskLease
from borgish.store.codec import decode_command, decode_events, encode_command, encode_events

REVISION = "0011"
"""The newest migration: what a store must be at before it is used."""

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)

# In SQLite an INTEGER key is the row's own number: rows of any size, in order, without an index.
_Position = BigInteger().with_variant(Integer(), "sqlite")

journal = Table(
    "journal",
    metadata,
    Column("position", _Position, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("timeline", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("events", JSON, nullable=False),
    Column("command", JSON(none_as_null=True)),  # what events lack (``cell.recorded``); NULL: not recorded
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("position", _Position, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("sha256", Text, nullable=False),  # of the body as stored
    Column("bytes", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("name", Text, nullable=False, server_default=""),  # "" for those that go by the rule
)

# One row. Every append updates it where the epoch is its own, so that a master whose time is over
# cannot write.
leadership = Table(
    "leadership",
    metadata,
    Column("cell", Text, primary_key=True),
    Column("timeline", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("renewed_at", DateTime(timezone=True), nullable=False),  # on the database's clock
)

jobs = Table(
    "jobs",
    metadata,
    Column("key", Text, primary_key=True),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("band", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("dead", Integer, nullable=False),
    Column("finished", Integer, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("submitted_by", Text, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("versioned_at", Double, nullable=False, server_default="0"),
    Column("versioned_by", Text, nullable=False, server_default=""),
    Column("held", Text, nullable=False, server_default=""),  # why; "": it is not
    Column("cron", Text, nullable=False, server_default=""),  # whose run it is; "": nobody's
    Column("due", Double, nullable=False, server_default="0"),
    Column("waits_since", Double, nullable=False, server_default="0"),  # for other jobs; 0: it does not
    Column("app", Text, nullable=False, server_default=""),  # the application that it belongs to
)

# The specifications that a job had before its present one.
versions = Table(
    "versions",
    metadata,
    Column("job", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("versioned_at", Double, nullable=False),
    Column("versioned_by", Text, nullable=False),
    Column("spec", JSON, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("job", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("machine", Text, nullable=False),
    Column("ports", JSON, nullable=False),
    Column("since", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("ending", Text),
    Column("exit_code", BigInteger),
    Column("signal", Integer),
    Column("started_at", Double, nullable=False),
    Column("previous_attempt", BigInteger, nullable=False),
    Column("previous_machine", Text, nullable=False),
    Column("devices", JSON, nullable=False, server_default="[]"),
    Column("alloc", Integer, nullable=False, server_default="-1"),
    Column("promised", Text, nullable=False, server_default=""),
    Column("notice_seconds", Double, nullable=False, server_default="-1"),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("failed", JSON, nullable=False, server_default="[]"),  # where it failed and is not to be placed
    sqlite_with_rowid=False,
)

machines = Table(
    "machines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("tls", Boolean, nullable=False),
    Column("up", Boolean, nullable=False),
    Column("cordoned", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("cpu_millis", BigInteger, nullable=False),
    Column("ram_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("named", JSON, nullable=False),
    Column("attributes", JSON, nullable=False),
    Column("runtimes", JSON, nullable=False),
    Column("ports_low", Integer, nullable=False),
    Column("ports_high", Integer, nullable=False),
    Column("port_next", Integer, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("joined_at", Double, nullable=False),
    Column("devices", JSON, nullable=False, server_default="{}"),
    Column("taints", JSON, nullable=False, server_default="[]"),
    Column("quarantined_until", Double, nullable=False, server_default="0"),
    Column("generation", BigInteger, nullable=False, server_default="0"),
    Column("drains", JSON, nullable=False, server_default="[]"),
    Column("admission", BigInteger, nullable=False, server_default="0"),
    Column("revoked_at", Double, nullable=False, server_default="0"),
)

quotas = Table(
    "quotas",
    metadata,
    Column("user_name", Text, primary_key=True),
    Column("band", Text, primary_key=True),
    Column("cpu_millis", BigInteger, nullable=False),
    Column("ram_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("named", JSON, nullable=False),
    Column("devices", JSON, nullable=False),
    Column("until", Double, nullable=False),
    Column("generation", BigInteger, nullable=False, server_default="0"),
)

# Attempts of exclusive tasks that may run (``cell.leases``).
leases = Table(
    "leases",
    metadata,
    Column("job", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("machine", Text, nullable=False),
    Column("grace_seconds", Double, nullable=False),
    Column("lapses", Boolean, nullable=False),
)

# The incoming attempts of running tasks that are to be replaced (``cell.handover``); attempt 0 waits for a
# machine.
handovers = Table(
    "handovers",
    metadata,
    Column("job", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("cause", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("machine", Text, nullable=False),
    Column("ports", JSON, nullable=False),
    Column("devices", JSON, nullable=False),
    Column("version", Integer, nullable=False),
    Column("placed_at", Double, nullable=False),
    Column("failed", JSON, nullable=False),
)

budgets = Table(
    "budgets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("selector", JSON, nullable=False),
    Column("max_unavailable", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
)

apps = Table(
    "apps",
    metadata,
    Column("key", Text, primary_key=True),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("applied_at", Double, nullable=False),
    Column("applied_by", Text, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("annotations", JSON, nullable=False),
    Column("documents", JSON, nullable=False),  # the keys of its jobs and crons, as its files name them
)

# Jobs that run on time (``cell.crons``).
crons = Table(
    "crons",
    metadata,
    Column("key", Text, primary_key=True),
    Column("user_name", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("schedule", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("overlap", Text, nullable=False),
    Column("missed", Text, nullable=False),
    Column("keep", Integer, nullable=False),
    Column("paused", Text, nullable=False),  # by whom; "": it is not
    Column("last", Double, nullable=False),
    Column("next", Double, nullable=False),  # 0: never
    Column("note", Text, nullable=False),  # why no run began for the last
    Column("late_seconds", Double, nullable=False),
    Column("among", Integer, nullable=False),  # so many were due then, more than begin in a second
    Column("set_at", Double, nullable=False),
    Column("set_by", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    # The specification of its runs, or {"app": key} of the application whose stages they are.
    Column("job", JSON, nullable=False),
    Column("app", Text, nullable=False, server_default=""),  # the application that it belongs to
)

# What tasks used, each row some machines' at a moment (``store.usage``): nothing of the cell follows from it.
usage_samples = Table(
    "usage_samples",
    metadata,
    Column("at", Double, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("samples", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# What people did (``borgish.audit``), in order; nothing of the cell follows from it.
audit = Table(
    "audit",
    metadata,
    Column("number", _Position, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
)

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode


def json_text(value: object) -> str:
    """Return a value as JSON, for a column of that kind."""
    return _encode(value).decode()


def without_nul(text: str) -> str:
    """Return text that every database takes: Postgres refuses NUL, and the driver wants str itself."""
    return str(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def entry_row(entry: Entry) -> Row:
    """Return a row of ``tables.journal``."""
    return (
        entry.position,
        entry.at,
        entry.timeline,
        entry.epoch,
        without_nul(entry.actor),
        without_nul(entry.cause),
        without_nul(entry.request_id),
        without_nul(entry.digest),
        without_nul(entry.subject),
        without_nul(entry.text),
        encode_events(entry.events),
        encode_command(entry.command),
    )


def columns_as_written(columns: Iterable[Column[Any]]) -> list[Any]:
    """Return columns to select, JSON as the text that it was written as, for msgspec and for comparing."""
    return [cast(c, Text).label(c.name) if isinstance(c.type, JSON) else c for c in columns]


ENTRY_COLUMNS = columns_as_written(journal.c)
"""What to select for ``read_entry``."""


def read_entry(row: Row) -> Entry:
    """Return the entry of a row of ``ENTRY_COLUMNS``. Raises StoreDamaged, naming it."""
    position, at, timeline, epoch, actor, cause, request_id, digest, subject, text, events, command = row
    known, kept = decode_events(events, position), decode_command(command, position)
    return Entry(position, at, timeline, epoch, actor, cause, known, request_id, digest, subject, text, kept)


def job_row(job: Job, bands: Bands) -> Row:
    """Return a row of ``tables.jobs``."""
    spec = job.spec
    return (
        job.key,
        spec.user,
        spec.name,
        job.uid,
        str(job.state),
        spec.priority,
        str(bands.of(spec.priority)),
        job.generation,
        len(job.tasks),
        job.pending,
        job.running,
        job.dead,
        job.finished,
        job.submitted_at,
        without_nul(job.submitted_by),
        json_text(spec),
        job.version,
        job.versioned_at,
        without_nul(job.versioned_by),
        without_nul(job.held.reason) if job.held else "",
        job.cron,
        job.due,
        job.waits.since if job.waits else 0.0,
        job.app,
    )


def version_rows(job: Job) -> list[Row]:
    """Return rows of ``tables.versions``."""
    return [
        (job.key, number, version.at, without_nul(version.by), json_text(version.spec))
        for number, version in job.earlier.items()
    ]


def task_rows(job: str, tasks: Iterable[Task]) -> list[Row]:
    """Return rows of ``tables.tasks``; ``job`` is the key."""
    user = job.partition("/")[0]
    return [
        (
            job,
            t.index,
            user,
            f"{job}/{t.index}",
            str(t.state),
            t.attempt,
            t.machine,
            json_text(t.ports) if t.ports else "[]",
            t.since,
            without_nul(t.reason) if t.reason else "",
            t.restarts,
            None if t.ending is None else str(t.ending),
            t.exit_code,
            t.signal,
            t.started_at,
            t.previous_attempt,
            t.previous_machine,
            json_text(t.devices) if t.devices else "[]",
            t.alloc,
            t.promised,
            t.notice_seconds,
            t.version,
            json_text(t.failed) if t.failed else "[]",
        )
        for t in tasks
    ]


def machine_row(machine: Machine) -> Row:
    """Return a row of ``tables.machines``."""
    return (
        machine.name,
        without_nul(machine.host),
        machine.port,
        machine.tls,
        machine.up,
        machine.cordoned,
        without_nul(machine.reason),
        machine.capacity.cpu_millis,
        machine.capacity.ram_bytes,
        machine.capacity.disk_bytes,
        json_text(machine.capacity.named),
        json_text(machine.attributes),
        json_text(machine.runtimes),
        machine.ports_low,
        machine.ports_high,
        machine.port_next,
        without_nul(machine.boot_id),
        machine.joined_at,
        json_text(machine.capacity.devices),
        json_text(machine.taints),
        machine.quarantined_until,
        machine.generation,
        json_text(machine.drains),
        machine.admission,
        machine.revoked_at,
    )


def audit_row(entry: AuditEntry) -> Row:
    """Return a row of ``tables.audit``."""
    note = entry.note
    texts = (note.user, note.role, note.token, note.source, note.action, note.object, note.outcome)
    return (entry.number, note.at, *texts, note.count, entry.position, entry.digest)


def read_audit(row: Row) -> AuditEntry:
    """Return the entry of a row of ``tables.audit``."""
    number, at, user, role, token, source, action, about, outcome, count, position, digest = row
    note = AuditNote(at, user, role, token, source, action, about, outcome, count)
    return AuditEntry(number, note, position, digest)


def quota_row(quota: Quota) -> Row:
    """Return a row of ``tables.quotas``."""
    limits = quota.limits
    return (
        quota.user,
        str(quota.band),
        limits.cpu_millis,
        limits.ram_bytes,
        limits.disk_bytes,
        json_text(limits.named),
        json_text(limits.devices),
        quota.until,
        quota.generation,
    )


def lease_rows(job: str, index: int, there: Iterable[TaskLease]) -> list[Row]:
    """Return rows of ``tables.leases``."""
    return [(job, index, each.attempt, each.machine, each.grace_seconds, each.lapses) for each in there]


def handover_row(job: str, index: int, handover: Handover) -> Row:
    """Return a row of ``tables.handovers``."""
    return (
        job,
        index,
        str(handover.cause),
        without_nul(handover.reason),
        handover.since,
        handover.attempt,
        handover.machine,
        json_text(handover.ports),
        json_text(handover.devices),
        handover.version,
        handover.placed_at,
        json_text(handover.failed),
    )


def budget_row(budget: Budget) -> Row:
    """Return a row of ``tables.budgets``."""
    where = json_text([str(each) for each in budget.where])
    return budget.name, where, str(budget.max_unavailable), budget.generation


def app_row(app: App) -> Row:
    """Return a row of ``tables.apps``."""
    spec, present = app.spec, app.present
    return (
        app.key,
        spec.user,
        spec.name,
        app.uid,
        app.version,
        app.generation,
        present.at,
        without_nul(present.by),
        json_text(spec.labels),
        json_text(spec.annotations),
        json_text([*(each.key for each in present.documents), *(cron.key for cron in present.crons)]),
    )


def cron_row(cron: Cron) -> Row:
    """Return a row of ``tables.crons``."""
    spec = cron.spec
    return (
        cron.key,
        spec.user,
        spec.name,
        spec.schedule,
        spec.time_zone,
        str(spec.overlap),
        str(spec.missed),
        spec.keep,
        without_nul(cron.paused),
        cron.last,
        cron.next,
        without_nul(cron.note),
        cron.late_seconds,
        cron.among,
        cron.at,
        without_nul(cron.by),
        cron.generation,
        json_text({"app": spec.app_key} if spec.app else spec.job),
        cron.app,
    )


RowsByKey = dict[tuple[object, ...], Row]

CELL_TABLES = {
    table.name: table
    for table in (jobs, versions, tasks, machines, quotas, leases, handovers, budgets, apps, crons)
}
"""Those whose rows follow from the cell, and that can be written anew from it."""


def cell_rows(cell: Cell) -> dict[str, RowsByKey]:
    """Return the rows that a cell should have, by table and primary key."""
    return {
        "jobs": _by_key(jobs, (job_row(job, cell.rules.bands) for job in cell.jobs.values())),
        "versions": _by_key(versions, (row for job in cell.jobs.values() for row in version_rows(job))),
        "tasks": _by_key(tasks, (row for job in cell.jobs.values() for row in task_rows(job.key, job.tasks))),
        "machines": _by_key(machines, (machine_row(machine) for machine in cell.machines.values())),
        "quotas": _by_key(quotas, (quota_row(quota) for quota in cell.quotas.values())),
        "leases": _by_key(
            leases,
            (
                row
                for key, by_index in cell.leases.items()
                for index, there in by_index.items()
                for row in lease_rows(key, index, there)
            ),
        ),
        "handovers": _by_key(
            handovers,
            (
                handover_row(key, index, handover)
                for key, by_index in cell.handovers.items()
                for index, handover in by_index.items()
            ),
        ),
        "budgets": _by_key(budgets, (budget_row(budget) for budget in cell.budgets.values())),
        "apps": _by_key(apps, (app_row(app) for app in cell.apps.values())),
        "crons": _by_key(crons, (cron_row(cron) for cron in cell.crons.values())),
    }


def differences(cell: Cell, read: Callable[[Table], list[Row] | None]) -> list[str]:
    """Return one line for each row that is not as the cell has it; empty when the tables agree with it.

    ``read`` returns a table's rows with ``columns_as_written``; None for a table that is not compared.
    """
    lines = []
    for name, wanted in cell_rows(cell).items():
        if (rows := read(CELL_TABLES[name])) is None:
            continue
        found = _by_key(CELL_TABLES[name], rows)
        lines += [
            f"{name} {key}: is {found.get(key)}, should be {wanted.get(key)}"
            for key in sorted(wanted.keys() | found.keys(), key=repr)
            if wanted.get(key) != found.get(key)
        ]
    return lines


def _by_key(table: Table, rows: Iterable[Row]) -> RowsByKey:
    at = [place for place, column in enumerate(table.c) if column.primary_key]
    return {tuple(row[place] for place in at): row for row in rows}
