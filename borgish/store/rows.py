"""From records and entries to rows, the statements that write them, and entries back from rows.

Rows are tuples in the order of their table's columns. A turn may write tens of thousands of task rows, so
``task_rows`` does as little as it can for each.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Dialect, Table, Text, bindparam, cast, delete, func, insert, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.types import JSON

from borgish.bands import Bands
from borgish.cell.events import Entry
from borgish.cell.model import Job, Machine, Quota, Task
from borgish.store.codec import decode_command, decode_events, encode_command, encode_events
from borgish.store.tables import jobs, journal, leadership, machines, quotas, tasks

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode


def json_text(value: object) -> str:
    """Return a value as JSON, for a column of that kind."""
    return _encode(value).decode()


def plain(text: str) -> str:
    """Return text that every database takes: no NUL, and str itself rather than a kind of it."""
    return str(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def entry_row(entry: Entry) -> Row:
    """Return a row of ``tables.journal``."""
    return (
        entry.position,
        entry.at,
        entry.timeline,
        entry.epoch,
        plain(entry.actor),
        plain(entry.cause),
        plain(entry.request_id),
        plain(entry.digest),
        plain(entry.subject),
        plain(entry.text),
        encode_events(entry.events),
        encode_command(entry.command),
    )


ENTRY_COLUMNS = tuple(cast(column, Text) if isinstance(column.type, JSON) else column for column in journal.c)
"""The columns of the journal, to be selected for ``read_entry``: JSON is text, for msgspec reads it."""


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
        plain(job.submitted_by),
        json_text(spec),
    )


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
            plain(t.reason) if t.reason else "",
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
        )
        for t in tasks
    ]


def machine_row(machine: Machine) -> Row:
    """Return a row of ``tables.machines``."""
    return (
        machine.name,
        plain(machine.host),
        machine.port,
        machine.tls,
        machine.up,
        machine.cordoned,
        plain(machine.reason),
        machine.capacity.cpu_millis,
        machine.capacity.ram_bytes,
        machine.capacity.disk_bytes,
        json_text(machine.capacity.named),
        json_text(machine.attributes),
        json_text(machine.runtimes),
        machine.ports_low,
        machine.ports_high,
        machine.port_next,
        plain(machine.boot_id),
        machine.joined_at,
        json_text(machine.capacity.devices),
        json_text(machine.taints),
    )


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
    )


class Statements:
    """SQL texts of the hot path that take tuples, each compiled once to the database's own SQL."""

    def __init__(self, dialect: Dialect) -> None:
        self.journal = insert_text(dialect, journal)
        self.jobs = _upsert(dialect, jobs)
        self.tasks = _upsert(dialect, tasks)
        self.machines = _upsert(dialect, machines)
        self.quotas = _upsert(dialect, quotas)
        self.quotas_gone = _text(
            dialect,
            delete(quotas).where(quotas.c.user_name == bindparam("whose"), quotas.c.band == bindparam("in")),
            ["whose", "in"],
        )
        # (timeline, or None to leave it; epoch)
        self.renew = _text(
            dialect,
            update(leadership)
            .values(timeline=func.coalesce(bindparam("led"), leadership.c.timeline), renewed_at=func.now())
            .where(leadership.c.epoch == bindparam("mine")),
            ["led", "mine"],
            written=["timeline", "renewed_at"],
        )
        # (job, first index that is no more)
        self.tasks_gone = _text(
            dialect,
            delete(tasks).where(tasks.c.job == bindparam("gone"), tasks.c.idx >= bindparam("first")),
            ["gone", "first"],
        )
        gone = delete(machines).where(machines.c.name == bindparam("gone"))
        self.machines_gone = _text(dialect, gone, ["gone"])
        self.jobs_gone = _text(dialect, delete(jobs).where(jobs.c.key == bindparam("gone")), ["gone"])


def insert_text(dialect: Dialect, table: Table) -> str:
    """Return the statement that writes new rows of a table."""
    return _text(dialect, insert(table), table.c.keys())


def _upsert(dialect: Dialect, table: Table) -> str:
    statement = (sqlite.insert if dialect.name == "sqlite" else postgresql.insert)(table)
    keys = [column.name for column in table.primary_key]
    written = {c.name: statement.excluded[c.name] for c in table.c if not c.primary_key}
    return _text(dialect, statement.on_conflict_do_update(index_elements=keys, set_=written), table.c.keys())


def _text(
    dialect: Dialect, statement: ClauseElement, order: list[str], written: list[str] | None = None
) -> str:
    """Compile, and check that the values are taken in this order. ``written``: columns, where others."""
    compiled = statement.compile(dialect=dialect, column_keys=written or order)
    assert getattr(compiled, "positiontup", None) == order, "rows would not match the statement"
    return str(compiled)
