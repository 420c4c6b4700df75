"""What a store must do; ``tests/contract`` holds every implementation to it, the one in memory too."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.cell.events import Entry
from borgish.cell.model import Job, Machine, Quota, Task, split_quota_key
from borgish.cell.room import Room
from borgish.cell.state import Cell, Touched
from borgish.store.usage import UsageBlock


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A kept checkpoint, without its body."""

    position: int
    at: float
    reason: str
    sha256: str
    bytes: int
    name: str = ""  # given by somebody, and unique; such a one stays until it is deleted


class Records(msgspec.Struct):
    """The rows that one step wrote to, as they are after it."""

    jobs: list[Job] = []
    tasks: list[tuple[str, list[Task]]] = []  # (job, tasks)
    machines: list[Machine] = []
    machines_gone: list[str] = []
    jobs_gone: list[str] = []
    tasks_gone: list[tuple[str, int]] = []  # (job, first index that is no more)
    quotas: list[Quota] = []
    quotas_gone: list[tuple[str, str]] = []  # (user, band)
    bands: Bands = DEFAULT_BANDS  # of the cell, by which jobs are in theirs


class Store(Protocol):
    """Where a cell is kept. One caller at a time, except that the methods of checkpoints and of usage, and
    those that read the journal, may run in other threads beside the rest. Every method may block.

    ``append`` is one transaction: when it returns, all of it is durable. When the outcome of a
    commit cannot be known it raises ``OutcomeUnknown``, and when another master has taken over,
    ``Fenced``; after either, nothing else may be called but ``close``.
    """

    kind: str  # sqlite, postgresql or memory
    has_lease: bool  # who leads has to renew; else the lead lasts as long as the process
    warnings: list[str]  # what ``load`` had to pass over

    def room(self) -> Room:
        """Return what room is left to write in, as it is now; takes no time, beside whatever else is done."""
        ...

    def load(self) -> Cell:
        """Return the cell: the newest good checkpoint and the journal after it. New stores: an empty one."""
        ...

    def lead(self, holder: str, address: str) -> int:
        """Become the leader; return the new epoch, higher than every one before. Waits for no one.

        Who led before may have appended since ``load``; from now on they cannot.
        """
        ...

    def renew(self) -> None:
        """Renew the lease, if this process still leads. Raises what ``append`` does."""
        ...

    def release(self) -> None:
        """Lead no more, so that another may at once. Nothing may be appended afterwards."""
        ...

    def leads(self) -> bool:
        """Return whether this process still leads, by what the database says."""
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

    def save_checkpoint(
        self, body: bytes | bytearray, position: int, at: float, reason: str, name: str = ""
    ) -> CheckpointInfo:
        """Keep an encoded snapshot (``store.codec.encode_snapshot``), and let go of those over the rule
        (``store.retention``).

        One at a position that has a name keeps it. Raises Conflict when the name is that of another
        position, or the position has another name.
        """
        ...

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return what is kept, newest first."""
        ...

    def checkpoint_body(self, position: int) -> tuple[CheckpointInfo, bytes]:
        """Return one checkpoint with its body as stored, which is not verified here. Raises NotFound."""
        ...

    def delete_checkpoint(
        self, position: int, judge: Callable[[CheckpointInfo, bytes], bool] | None = None
    ) -> CheckpointInfo:
        """Let go of one checkpoint and return what it was.

        Raises NotFound, and Conflict when no other one is good but this one is. Takes as long as it
        takes to verify another one, which ``judge`` does in the caller's way (see ``store.checkpoints``).
        """
        ...

    def import_checkpoint(self, info: CheckpointInfo, stored: bytes) -> None:
        """Keep a checkpoint that was kept elsewhere, as it is stored; that it is good is the caller's word.

        Raises Conflict when there is one at its position, or with its name.
        """
        ...

    def prune_journal(self, below: int, limit: int) -> int:
        """Delete the first entries of the journal, at most ``limit``, of those below a position.

        Returns how many. Raises Conflict unless a checkpoint is kept at that position, from which the
        rest can be replayed.
        """
        ...

    def save_usage(self, blocks: Sequence[UsageBlock]) -> None:
        """Keep samples of usage, durably, in one transaction; over those of the same moments.

        Nothing of the cell depends on them: an error but Fenced and OutcomeUnknown leaves the store usable.
        """
        ...

    def usage(self, after: tuple[float, int], until: float, limit: int) -> list[UsageBlock]:
        """Return blocks after this (moment, part) and not after ``until``, in order, at most ``limit``."""
        ...

    def prune_usage(self, before: float, limit: int) -> int:
        """Delete the first blocks, at most ``limit``, of those from before a moment; return how many."""
        ...

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        ...


def records_of(cell: Cell, touched: Touched) -> Records:
    """Return the rows behind the names that a step touched."""
    return Records(
        jobs=[cell.jobs[key] for key in sorted(touched.jobs) if key in cell.jobs],
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
        bands=cell.rules.bands,
    )
