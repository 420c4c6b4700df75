"""The contract of a store and its errors; ``tests/contract`` holds every implementation to it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from borgish.audit import AuditEntry
from borgish.bands import DEFAULT_BANDS, Bands
from borgish.cell.crons.model import Cron
from borgish.cell.events import Entry
from borgish.cell.free_space import FreeSpace
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota, split_quota_key
from borgish.cell.model import App, Cell, Handover, Job, Machine, Task, TaskLease
from borgish.cell.touched import Touched
from borgish.errors import BorgishError, Fenced, OutcomeUnknown, StoreDamaged, Unreachable
from borgish.store.usage import UsageBlock


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A stored checkpoint, without its body."""

    position: int
    at: float  # seconds since 1970
    reason: str
    sha256: str  # of the body as stored
    bytes: int  # of the body as stored
    name: str = ""  # given by somebody, and unique; such a one stays until it is deleted


class Records(msgspec.Struct):
    """The records that one step changed, as they are after it, to be written as rows."""

    jobs: list[Job] = []
    versions: list[str] = []  # jobs whose earlier versions are written anew, from ``jobs``
    tasks: list[tuple[str, list[Task]]] = []  # (job, tasks)
    machines: list[Machine] = []
    machines_gone: list[str] = []
    jobs_gone: list[str] = []
    tasks_gone: list[tuple[str, int]] = []  # (job, first index that is gone)
    quotas: list[Quota] = []
    quotas_gone: list[tuple[str, str]] = []  # (user, band)
    leases: list[tuple[str, int, tuple[TaskLease, ...]]] = []  # (job, index, all it has), none being none
    handovers: list[tuple[str, int, Handover]] = []  # (job, index, what takes over)
    handovers_gone: list[tuple[str, int]] = []  # (job, index)
    budgets: list[Budget] = []
    budgets_gone: list[str] = []
    apps: list[App] = []
    apps_gone: list[str] = []
    crons: list[Cron] = []
    crons_gone: list[str] = []
    audit: list[AuditEntry] = []  # new ones
    bands: Bands = DEFAULT_BANDS  # of the cell, to tell a job's band by its priority


class Store(Protocol):
    """A cell's storage: journal, tables, checkpoints and samples of usage.

    One caller at a time, except that the methods of checkpoints and of usage, and those that read the
    journal, may run in other threads beside the rest. Every method may block.

    ``append`` is one transaction: when it returns, all of it is durable. When the outcome of a
    commit cannot be known it raises ``OutcomeUnknown``, and when another master has taken over,
    ``Fenced``; after either, nothing else may be called but ``close``. Positions count from 1; times are
    seconds since 1970.
    """

    kind: str  # sqlite, postgresql or memory
    has_lease: bool  # the leader has to renew it; without one it leads as long as its process lives
    warnings: list[str]  # checkpoints that ``load`` had to pass over

    def free_space(self) -> FreeSpace:
        """Return how much space is left to write in. Does not block."""
        ...

    def load(self) -> Cell:
        """Return the cell: the newest good checkpoint and the journal after it. New stores: an empty one."""
        ...

    def lead(self, holder: str, address: str) -> int:
        """Become the leader; return the new epoch, higher than every one before. Waits for nobody.

        Who led before may have appended since ``load``; from now on they cannot.
        """
        ...

    def renew(self) -> None:
        """Renew the lease, if this process still leads. Raises what ``append`` does."""
        ...

    def release(self) -> None:
        """Resign, so that another may lead at once. Nothing may be appended afterwards."""
        ...

    def leads(self) -> bool:
        """Return whether this process still leads, according to the database."""
        ...

    def append(self, entries: Sequence[Entry], records: Records) -> None:
        """Write entries (positions without a gap after the last) and rows, durably, in one transaction."""
        ...

    def entries(self, after: int, limit: int = 0) -> Iterable[Entry]:
        """Return journal entries with a position above ``after``, in order; ``limit`` 0 is all."""
        ...

    def entries_before(self, before: int, limit: int) -> Iterable[Entry]:
        """Return the ``limit`` journal entries next below position ``before``, newest first.

        All is read when this returns. The entries are decoded as they are taken, for which another
        thread is as good; a damaged one raises StoreDamaged then.
        """
        ...

    def entries_naming(self, words: Sequence[str], first: int, below: int) -> Iterable[Entry]:
        """Return the journal entries from position ``first`` on and below another, newest first: those in
        whose events, or whose subject, all these words occur, as parts of longer ones, too.

        As with ``entries_before`` all is read when this returns, and decoded as it is taken.
        """
        ...

    def save_checkpoint(
        self, stored: bytes, position: int, at: float, reason: str, name: str = ""
    ) -> CheckpointInfo:
        """Store a snapshot that is encoded and compressed (``store.codec``), and delete the checkpoints that
        have expired (``store.checkpoints.expired``).

        ``at`` is the time now, in seconds since 1970. The name of a checkpoint at the same position is kept.
        Raises Conflict when the name is that of another position, or the position has another name.
        """
        ...

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the stored checkpoints, newest first."""
        ...

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return one checkpoint with its body as stored, which is not verified here. Raises NotFound."""
        ...

    def delete_checkpoint(
        self, position: int, verify: Callable[[CheckpointInfo, bytes], bool] | None = None
    ) -> CheckpointInfo:
        """Delete one checkpoint and return what it was.

        Raises NotFound, and Conflict when no other one is good but this one is. Another one is verified for
        that, by ``verify`` where the caller has its own way.
        """
        ...

    def import_checkpoint(self, info: CheckpointInfo, stored: bytes) -> None:
        """Store a checkpoint that comes from outside, as it is; the caller has verified it.

        Raises Conflict when there is one at its position, or with its name.
        """
        ...

    def prune_journal(self, below: int, limit: int) -> int:
        """Compact the journal: delete its first entries, at most ``limit``, of those below a position.

        Returns how many. Raises Conflict unless there is a checkpoint at that position, from which the rest
        can be replayed.
        """
        ...

    def give_back(self) -> int:
        """Give some space that was pruned back to the disk, where much of the database is such space; return
        how many bytes. To be called again until it returns 0."""
        ...

    def save_usage(self, blocks: Sequence[UsageBlock]) -> None:
        """Store samples of usage, durably, in one transaction; they replace those of the same times.

        Nothing of the cell depends on them: an error but Fenced and OutcomeUnknown leaves the store usable.
        """
        ...

    def usage(self, after: tuple[float, int], until: float, limit: int) -> list[UsageBlock]:
        """Return blocks after this (time, part) and not after ``until``, in order, at most ``limit``.

        Times are seconds since 1970.
        """
        ...

    def prune_usage(self, before: float, limit: int) -> int:
        """Delete the first blocks, at most ``limit``, of those from before a time, in seconds since 1970.

        Returns how many.
        """
        ...

    def audit(self, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit log with a number above ``after``, in order, at most ``limit``."""
        ...

    def latest_audit(self, user: str, since: float, before: int, limit: int) -> list[AuditEntry]:
        """Return the latest entries, at most ``limit``, in order: of a user, unless "", not from before a
        time, in seconds since 1970, and with numbers below ``before``, unless 0."""
        ...

    def last_audit(self) -> AuditEntry | None:
        """Return the latest entry of the audit log, None while there is none."""
        ...

    def prune_audit(self, before: float, limit: int) -> int:
        """Delete the first entries of the audit log, at most ``limit``, of those from before a time, in
        seconds since 1970; the latest ones stay in any case. Returns how many."""
        ...

    def close(self) -> None:
        """Close the database and release its locks. Idempotent."""
        ...


def records_of(cell: Cell, touched: Touched, audit: Sequence[AuditEntry] = ()) -> Records:
    """Return the records behind the names that a step touched, and what it adds to the audit log."""
    handed = [(key, index) for key, there in sorted(touched.handovers.items()) for index in sorted(there)]
    return Records(
        jobs=[cell.jobs[key] for key in sorted(touched.jobs) if key in cell.jobs],
        versions=sorted(touched.versions),
        tasks=[
            (key, [job.tasks[i] for i in sorted(indexes) if i < len(job.tasks)])
            for key, indexes in sorted(touched.tasks.items())
            if (job := cell.jobs.get(key)) is not None
        ],
        machines=[cell.machines[name] for name in sorted(touched.machines)],
        machines_gone=sorted(touched.machines_gone),
        jobs_gone=sorted(touched.jobs_gone),
        tasks_gone=sorted(touched.tasks_gone.items()),
        quotas=[cell.quotas[key] for key in sorted(touched.quotas) if key in cell.quotas],
        quotas_gone=[split_quota_key(key) for key in sorted(touched.quotas) if key not in cell.quotas],
        leases=[
            (key, index, cell.leases.get(key, {}).get(index, ()))
            for key, indexes in sorted(touched.leases.items())
            for index in sorted(indexes)
        ],
        handovers=[(*each, found) for each in handed if (found := cell.handover(*each)) is not None],
        handovers_gone=[each for each in handed if cell.handover(*each) is None],
        budgets=[cell.budgets[name] for name in sorted(touched.budgets) if name in cell.budgets],
        budgets_gone=[name for name in sorted(touched.budgets) if name not in cell.budgets],
        apps=[cell.apps[key] for key in sorted(touched.apps) if key in cell.apps],
        apps_gone=[key for key in sorted(touched.apps) if key not in cell.apps],
        crons=[cell.crons[key] for key in sorted(touched.crons) if key in cell.crons],
        crons_gone=[key for key in sorted(touched.crons) if key not in cell.crons],
        audit=list(audit),
        bands=cell.rules.bands,
    )


# What a database's errors (SQLAlchemy's) mean for a cell, each with a hint

_DAMAGE = (
    "malformed",
    "not a database",
    "disk image",
    "could not decode to utf-8",
    "invalid page",
    "could not read block",
)
_FULL = ("disk is full", "no space left", "disk full", "could not extend file")
_LOCKED = ("database is locked", "table is locked")
_READ_ONLY_TRANSACTION = ("read-only transaction",)  # Postgres
_READ_ONLY = ("readonly database", "read-only")
_DISK = ("disk i/o error", "input/output error", "could not fsync", "could not write")

READ_ONLY_HINT = (
    "Look at default_transaction_read_only of the server, the database and this user; a server that became a "
    "replica (pg_is_in_recovery) takes no writes either"
)
DAMAGED_HINT = "The borgmaster's log says what can be saved, and how"

_HINTS = (
    (_FULL, "Make room on the database's disk, then start again"),
    (_LOCKED, "End the program that holds it, then start again; readers open it with mode=ro"),
    (_READ_ONLY_TRANSACTION, READ_ONLY_HINT),
    (_READ_ONLY, "Let this user write to the database, its file and its folder, then start again"),
    (_DISK, "Look at the disk and the kernel's log, then start again: what was committed is read back"),
)


def reason_of(error: Exception) -> str:
    """Return the database's own message, on one line, without the statement and its values."""
    cause = getattr(error, "orig", None) or error  # the driver's own
    return " ".join(str(cause).split()) or type(error).__name__


def commit_failed(error: Exception) -> BorgishError:
    """Return the error of a write of which it is not known whether it is in the store."""
    reason = reason_of(error)
    if _mentions(reason, _DAMAGE):
        return _damaged(reason)
    hint = _hint(reason) or "Start again: what was committed is read back"
    return OutcomeUnknown(f"The store may not have the last write: {reason}", hint)


def fenced(cell: str, epoch: int) -> Fenced:
    """Return the error of a write by one who does not lead, or no longer."""
    return Fenced(
        f"This borgmaster, of epoch {epoch}, does not lead cell '{cell}'",
        "Another one does, and the cell goes on there; nothing was written here",
    )


def read_failed(error: Exception) -> BorgishError:
    """Return the error of a read, or of a start, that failed."""
    reason = reason_of(error)
    if _mentions(reason, _DAMAGE):
        return _damaged(reason)
    hint = _hint(reason) or "Check it, then start again"
    return Unreachable(f"The database failed: {reason}", hint)


def change_failed(error: Exception, what: str = "kept", which: str = "checkpoint") -> BorgishError:
    """Return the error of a change beside the cell, which is unharmed: of a checkpoint or a sample."""
    reason = reason_of(error)
    return BorgishError(
        f"The {which} was not {what}: {reason}",
        "The journal is complete and the cell goes on; make room on the database's disk",
    )


def _damaged(reason: str) -> StoreDamaged:
    return StoreDamaged(f"The database is damaged: {reason}", DAMAGED_HINT)


def _hint(reason: str) -> str:
    return next((hint for words, hint in _HINTS if _mentions(reason, words)), "")


def _mentions(reason: str, words: tuple[str, ...]) -> bool:
    return any(word in reason.lower() for word in words)
