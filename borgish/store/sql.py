"""The store on SQLAlchemy Core, over one connection to SQLite or Postgres.

How to connect is in ``sqlite.py`` and ``postgres.py``. Reads and checkpoints go through Core as
usual; the hot path writes rows as tuples through statements that Core has compiled once
(``statements.Statements``), which takes a quarter of the time of handing it a dictionary for each row.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
from sqlalchemy import Connection, Executable, Table, Text, cast, delete, func, insert, select, tuple_
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from borgish.audit import AuditEntry
from borgish.cell.events import Entry, follows
from borgish.cell.free_space import AMPLE, FreeSpace
from borgish.cell.model import Cell
from borgish.errors import BorgishError, Fenced, StoreDamaged, Unreachable
from borgish.failpoints import reach
from borgish.store import sqlite
from borgish.store.base import (
    CheckpointInfo,
    Records,
    change_failed,
    commit_failed,
    fenced,
    read_failed,
    reason_of,
)
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import (
    Retention,
    Verify,
    check_import_conflicts,
    check_prune_base,
    check_unchanged,
    expired,
    find_checkpoint,
    is_good,
    name_for,
    other_good_checkpoint,
)
from borgish.store.codec import sha256_of
from borgish.store.disk_space import DiskSpace
from borgish.store.leadership import advisory_unlock, clear_holder, raise_epoch
from borgish.store.replay import restore
from borgish.store.statements import statements_for
from borgish.store.tables import (
    ENTRY_COLUMNS,
    Row,
    app_row,
    audit,
    audit_row,
    budget_row,
    checkpoints,
    columns_as_written,
    cron_row,
    entry_row,
    handover_row,
    job_row,
    journal,
    leadership,
    lease_rows,
    machine_row,
    quota_row,
    read_audit,
    read_entry,
    task_rows,
    usage_samples,
    version_rows,
)
from borgish.store.usage import UsageBlock

_PAGE_ENTRIES = 500
_USAGE_KEY = (usage_samples.c.at, usage_samples.c.part)
_INFO = [column for column in checkpoints.c if column.name != "body"]


class SqlStore:
    """A cell in a database. See ``store.base.Store`` for the contract.

    Checkpoints may be saved, read and deleted from other threads than the one that appends: what takes
    long, compressing and verifying them, is done while the connection is free.
    """

    def __init__(
        self, connection: Connection, cell: str, retention: Retention, release: Callable[[], None]
    ) -> None:
        """Use a connection whose schema is in place. ``release`` is called once, when it is closed."""
        self.kind = connection.dialect.name
        self.has_lease = self.kind == "postgresql"
        self.warnings: list[str] = []  # checkpoints that ``load`` had to pass over
        self.expected_epoch: int | None = None  # to lead only if nobody has led since that one
        self.disk_space: DiskSpace | None = None  # of SQLite; a server manages its own, as for
        self.files: CheckpointFiles | None = None
        self.open_files: sqlite.OpenFiles | None = None
        self._connection = connection
        self._cell = cell
        self._retention = retention
        self._release = release
        self._sql = statements_for(connection.dialect)
        self._mutex = threading.Lock()
        self._epoch = 0  # 0: not the leader
        self._last: int | None = None  # position of the last entry
        # Nothing is left below: what was pruned. Postgres finds the first entry by going through what was
        # deleted before it, until that is vacuumed: with millions of entries seconds for each thousand.
        self._begins = 0
        self._end: BorgishError | None = None  # why nothing more is done
        self._open = True

    def free_space(self) -> FreeSpace:
        """Return how much space is left; a server manages its own disk."""
        return AMPLE if self.disk_space is None else self.disk_space.free_space()

    # Reading

    def load(self) -> Cell:
        """Return the cell. Raises StoreDamaged, or UnsafeConfiguration for what another version wrote."""
        recovered = restore(self._cell, self._stored_checkpoints(), self.entries)
        self.warnings = recovered.warnings
        self._last = recovered.cell.position
        reach("recovery.loaded")
        return recovered.cell

    def entries(self, after: int, limit: int = 0) -> Iterator[Entry]:
        """Return journal entries with a position above ``after``, in order; ``limit`` 0 is all."""
        left = limit or sys.maxsize
        while left > 0:
            page = self._page(after, min(left, _PAGE_ENTRIES))
            yield from page
            if len(page) < min(left, _PAGE_ENTRIES):
                return
            after = page[-1].position
            left -= len(page)

    def entries_before(self, before: int, limit: int) -> Iterator[Entry]:
        """Return the ``limit`` entries next below position ``before``, newest first, decoded when taken."""
        below = select(*ENTRY_COLUMNS).where(journal.c.position < before)
        return map(read_entry, self.rows(below.order_by(journal.c.position.desc()).limit(limit)))

    def entries_naming(self, words: Sequence[str], first: int, below: int) -> Iterator[Entry]:
        """Return the entries of these positions that name all the words, newest first. See ``Store``."""
        first = max(first, self._begins)
        wanted = select(*ENTRY_COLUMNS).where(journal.c.position >= first, journal.c.position < below)
        if words:
            place = func.instr if self.kind == "sqlite" else func.strpos
            text = cast(journal.c.events, Text) + journal.c.subject
            wanted = wanted.where(*(place(text, word) > 0 for word in words))
        return map(read_entry, self.rows(wanted.order_by(journal.c.position.desc())))

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the stored checkpoints, newest first."""
        with self._reading() as connection:
            return checkpoint_infos(connection)

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return one checkpoint with its body as stored. Raises NotFound."""
        with self._reading() as connection:
            info = find_checkpoint(checkpoint_infos(connection), position)
            return info, checkpoint_body(connection, position) or b""

    def table_rows(self, table: Table) -> list[Row]:
        """Return all rows of a table with JSON as it was written, for ``tables.differences``."""
        return self.rows(select(*columns_as_written(table.c)))

    def rows(self, statement: Executable) -> list[Row]:
        """Return what a SELECT gives, for whoever inspects the database."""
        with self._reading() as connection:
            return [tuple(row) for row in connection.execute(statement)]

    def _page(self, after: int, limit: int) -> list[Entry]:
        statement = (
            select(*ENTRY_COLUMNS)
            .where(journal.c.position > max(after, self._begins - 1))
            .order_by(journal.c.position)
            .limit(limit)
        )
        with self._reading() as connection:
            rows = connection.execute(statement).all()
        return [read_entry(tuple(row)) for row in rows]

    def _stored_checkpoints(self) -> Iterator[tuple[CheckpointInfo, bytes]]:
        for info in self.checkpoints():
            with self._reading() as connection:
                body = checkpoint_body(connection, info.position)
            if body is not None:  # it may have been deleted meanwhile
                yield info, body

    def leads(self) -> bool:
        """Return whether this process still leads."""
        return bool(self.rows(select(leadership.c.epoch)) == [(self._epoch,)])

    # Writing

    def lead(self, holder: str, address: str) -> int:
        """Become the leader; return the new epoch. Raises LostElection when another was quicker."""
        reach("lead.begin")
        with self._writing() as connection:
            self._epoch = raise_epoch(connection, holder, address, self.expected_epoch)
            reach("lead.raised")
            # Not what ``load`` found: the one before may have written until now.
            self._last = connection.execute(select(func.max(journal.c.position))).scalar_one() or 0
        reach("lead.committed")
        return self._epoch

    def renew(self) -> None:
        """Prove that this process still leads. Raises Fenced, and OutcomeUnknown when nobody answers."""
        with self._writing() as connection:
            self._renew(connection)

    def release(self) -> None:
        """Resign, so that another may lead at once."""
        epoch, self._epoch = self._epoch, 0
        with self._writing() as connection:
            clear_holder(connection, epoch)
        # Only now: whoever gets the lock is to find no holder in the row.
        with self._writing() as connection:
            advisory_unlock(connection, epoch)

    def append(self, entries: Sequence[Entry], records: Records) -> None:
        """Write entries and rows in one durable transaction. Raises OutcomeUnknown, Fenced, StoreDamaged."""
        self._check_usable()
        last = self._check_order(entries)
        work = self._statements(entries, records)
        reach("append.begin")
        with self._writing() as connection:
            reach("append.begun")
            self._renew(connection, timeline=entries[-1].timeline if entries else None)
            reach("append.fenced")
            for statement, rows in work:
                for text, values in self._sql.together(statement, rows):
                    connection.exec_driver_sql(text, values)
                    reach("append.rows")
            reach("append.commit")
        self._last = last
        reach("append.committed")

    def save_checkpoint(
        self, stored: bytes, position: int, at: float, reason: str, name: str = ""
    ) -> CheckpointInfo:
        """Store a compressed snapshot. A BorgishError that is not append's left the store as it was."""
        if position > (self._last or 0):
            raise ValueError(f"checkpoint at {position}, but the journal ends at {self._last}")
        sha256 = sha256_of(stored)
        reach("checkpoint.hashed")
        with self._beside_cell("kept") as connection:
            reach("checkpoint.begun")
            name = name_for(checkpoint_infos(connection), position, name)
            info = CheckpointInfo(position, at, reason, sha256, len(stored), name)
            self._replace_checkpoint(connection, info, stored)
        reach("checkpoint.committed")
        return info

    def delete_checkpoint(self, position: int, verify: Verify | None = None) -> CheckpointInfo:
        """Delete one checkpoint, unless it is the last good one. Raises NotFound and Conflict."""
        info = find_checkpoint(self.checkpoints(), position)
        other = other_good_checkpoint(
            position, self._stored_checkpoints(), verify or partial(is_good, self._cell)
        )
        reach("checkpoint_delete.judged")
        with self._beside_cell("deleted") as connection:
            check_unchanged(checkpoint_infos(connection), info, other)
            delete_checkpoint(connection, position)
            reach("checkpoint_delete.removed")
        reach("checkpoint_delete.committed")
        return info

    def import_checkpoint(self, info: CheckpointInfo, stored: bytes) -> None:
        """Store a checkpoint that comes from outside, as it is. Raises Conflict."""
        with self._beside_cell("kept") as connection:
            check_import_conflicts(checkpoint_infos(connection), info)
            self._replace_checkpoint(connection, info, stored)

    def prune_journal(self, below: int, limit: int) -> int:
        """Delete the first entries of the journal, of those below a checkpoint. Raises Conflict."""
        with self._beside_cell("left behind") as connection:
            check_prune_base(checkpoint_infos(connection), below)
            first, pruned, end = self._first_position(connection), 0, self._begins
            if 0 < first < below:
                end = min(below, first + limit)
                gone = delete(journal).where(journal.c.position >= first, journal.c.position < end)
                pruned = connection.execute(gone).rowcount
            reach("journal.pruned")
        self._begins = end
        reach("journal.pruning_committed")
        return pruned

    def give_back(self) -> int:
        """Give some of what was pruned back to the disk; a server does so by itself. See ``Store``."""
        if self.kind != "sqlite":
            return 0
        with self._beside_cell("given back", "space") as connection:
            return sqlite.give_back(connection)

    def save_usage(self, blocks: Sequence[UsageBlock]) -> None:
        """Store samples of usage in one transaction, over those of the same times: clocks are set back."""
        with self._beside_cell("kept", "sample of usage") as connection:
            for at in {block.at for block in blocks}:
                connection.execute(delete(usage_samples).where(usage_samples.c.at == at))
            if blocks:
                connection.execute(usage_samples.insert(), [msgspec.structs.asdict(each) for each in blocks])

    def usage(self, after: tuple[float, int], until: float, limit: int) -> list[UsageBlock]:
        """Return blocks after this (time, part) and not after ``until``, in order, at most ``limit``."""
        wanted = select(usage_samples).where(tuple_(*_USAGE_KEY) > after, usage_samples.c.at <= until)
        rows = self.rows(wanted.order_by(*_USAGE_KEY).limit(limit))
        return [UsageBlock(at, part, samples, bytes(body)) for at, part, samples, body in rows]

    def prune_usage(self, before: float, limit: int) -> int:
        """Delete the first blocks, at most ``limit``, of those from before a time; return how many."""
        oldest = select(*_USAGE_KEY).where(usage_samples.c.at < before).order_by(*_USAGE_KEY).limit(limit)
        with self._beside_cell("deleted", "sample of usage") as connection:
            gone = [tuple(row) for row in connection.execute(oldest)]
            if not gone:
                return 0
            return connection.execute(delete(usage_samples).where(tuple_(*_USAGE_KEY) <= gone[-1])).rowcount

    def audit(self, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit log with a number above ``after``, in order, at most ``limit``."""
        wanted = select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(limit)
        return [read_audit(row) for row in self.rows(wanted)]

    def latest_audit(self, user: str, since: float, before: int, limit: int) -> list[AuditEntry]:
        """Return the latest entries, at most ``limit``, in order; see ``Store``."""
        wanted = select(audit).where(audit.c.at >= since)
        if user:
            wanted = wanted.where(audit.c.user_name == user)
        if before:
            wanted = wanted.where(audit.c.number < before)
        rows = self.rows(wanted.order_by(audit.c.number.desc()).limit(limit))
        return [read_audit(row) for row in reversed(rows)]

    def last_audit(self) -> AuditEntry | None:
        """Return the latest entry of the audit log, None while there is none."""
        found = self.rows(select(audit).order_by(audit.c.number.desc()).limit(1))
        return read_audit(found[0]) if found else None

    def prune_audit(self, before: float, limit: int) -> int:
        """Delete the first entries, at most ``limit``, of those from before a time; return how many."""
        with self._beside_cell("deleted", "audit entry") as connection:
            first = connection.execute(select(func.min(audit.c.number))).scalar()
            kept = connection.execute(select(func.min(audit.c.number)).where(audit.c.at >= before)).scalar()
            if first is None or kept is None or kept <= first:
                return 0
            gone = audit.c.number < min(kept, first + limit)
            return connection.execute(delete(audit).where(gone)).rowcount

    def close(self) -> None:
        """Close the connection and release the lock. Idempotent."""
        with self._mutex:
            if not self._open:
                return
            self._open = False
            try:
                self._connection.close()
                self._connection.engine.dispose()
            except SQLAlchemyError as error:
                # The connection is gone already; what was committed is safe.
                self.warnings.append(f"The database did not close in order: {reason_of(error)}")
            finally:
                reach("close.disconnected")
                self._release()
                reach("close.released")

    def _check_order(self, entries: Sequence[Entry]) -> int:
        """Return the last position, after entries that have to follow the journal without a gap."""
        last = self._last or 0
        for entry in entries:
            if not follows(entry, last):
                raise StoreDamaged(
                    f"Journal entry {entry.position} does not follow {last}; nothing was written",
                    "Start again: the journal is read back",
                )
            last = entry.position
        return last

    def _statements(self, entries: Sequence[Entry], records: Records) -> list[tuple[str, list[Row]]]:
        """Deletions come first: what was deleted may have been created again in the same step."""
        sql = self._sql
        return [
            (sql.journal, [entry_row(entry) for entry in entries]),
            (sql.tasks_gone, [(job, 0) for job in records.jobs_gone] + list(records.tasks_gone)),
            (sql.jobs_gone, [(job,) for job in records.jobs_gone]),
            (sql.versions_gone, [(job,) for job in {*records.jobs_gone, *records.versions}]),
            (sql.quotas_gone, list(records.quotas_gone)),
            (sql.quotas, [quota_row(quota) for quota in records.quotas]),
            (sql.audit, [audit_row(entry) for entry in records.audit]),
            (sql.budgets_gone, [(name,) for name in records.budgets_gone]),
            (sql.budgets, [budget_row(budget) for budget in records.budgets]),
            (sql.apps_gone, [(key,) for key in records.apps_gone]),
            (sql.apps, [app_row(app) for app in records.apps]),
            (sql.crons_gone, [(key,) for key in records.crons_gone]),
            (sql.crons, [cron_row(cron) for cron in records.crons]),
            (sql.machines_gone, [(name,) for name in records.machines_gone]),
            (sql.machines, [machine_row(machine) for machine in records.machines]),
            (sql.jobs, [job_row(job, records.bands) for job in records.jobs]),
            (
                sql.versions,
                [row for job in records.jobs if job.key in records.versions for row in version_rows(job)],
            ),
            *((sql.tasks, task_rows(job, tasks)) for job, tasks in records.tasks),
            (sql.leases_gone, [(job, index) for job, index, _ in records.leases]),
            (sql.leases, [row for leased in records.leases for row in lease_rows(*leased)]),
            (sql.handovers_gone, list(records.handovers_gone)),
            (sql.handovers, [handover_row(*each) for each in records.handovers]),
        ]

    def _renew(self, connection: Connection, timeline: int | None = None) -> None:
        # The fence: the row is updated only where it has this epoch.
        values = (timeline, self._epoch)
        if not self._epoch or connection.exec_driver_sql(self._sql.renew, values).rowcount == 0:
            raise fenced(self._cell, self._epoch)

    def _replace_checkpoint(self, connection: Connection, info: CheckpointInfo, stored: bytes) -> None:
        """Write a checkpoint over the one at its position, and delete those that have expired."""
        delete_checkpoint(connection, info.position)
        reach("checkpoint.replaced")
        insert_checkpoint(connection, info, stored)
        reach("checkpoint.inserted")
        begins = self._first_position(connection) or 1
        for old in expired(checkpoint_infos(connection), self._retention, begins):
            delete_checkpoint(connection, old.position)
        reach("checkpoint.pruned")

    def _first_position(self, connection: Connection) -> int:
        """Return the position of the journal's first entry; 0 when it is empty."""
        first = select(func.min(journal.c.position)).where(journal.c.position >= self._begins)
        return connection.execute(first).scalar_one() or 0

    @contextmanager
    def _beside_cell(self, what: str, which: str = "checkpoint") -> Iterator[Connection]:
        """Write beside the cell, as the leader; an error there leaves the store as it was, and usable."""
        with self._writing() as connection:
            self._renew(connection)
            try:
                yield connection
            except SQLAlchemyError as error:
                if isinstance(error, DBAPIError) and error.connection_invalidated:
                    raise  # nothing can be written any more, and whether this was is not known
                raise change_failed(error, what, which) from error

    # The connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._mutex:
            self._check_usable()
            try:
                with self._connection.begin():
                    yield self._connection
            except SQLAlchemyError as error:
                raise read_failed(error) from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._mutex:
            self._check_usable()
            try:
                with self._connection.begin():
                    yield self._connection
                    if self.open_files is not None:
                        self.open_files.check()
            except SQLAlchemyError as error:
                self._end = commit_failed(error)
                raise self._end from error
            except (Fenced, StoreDamaged) as error:
                self._end = error
                raise

    def _check_usable(self) -> None:
        if self._end is not None:
            raise self._end
        if not self._open:
            raise Unreachable("The store is closed", "Open it again")


# The rows of checkpoints


def checkpoint_infos(connection: Connection) -> list[CheckpointInfo]:
    """Return the stored checkpoints, newest first."""
    rows = connection.execute(select(*_INFO).order_by(checkpoints.c.position.desc())).all()
    return [CheckpointInfo(*row) for row in rows]


def checkpoint_body(connection: Connection, position: int) -> bytes | None:
    """Return a checkpoint's body as stored; None when there is none, or no longer."""
    wanted = select(checkpoints.c.body).where(checkpoints.c.position == position)
    found = connection.execute(wanted).scalar_one_or_none()
    return None if found is None else bytes(found)


def insert_checkpoint(connection: Connection, info: CheckpointInfo, stored: bytes) -> None:
    """Write a checkpoint at a position that has none."""
    connection.execute(insert(checkpoints), msgspec.structs.asdict(info) | {"body": stored})


def delete_checkpoint(connection: Connection, position: int) -> None:
    """Delete the checkpoint at a position, if there is one."""
    connection.execute(delete(checkpoints).where(checkpoints.c.position == position))
