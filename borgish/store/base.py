"""What a store must do; ``tests/contract`` holds every implementation to it, the one in memory too."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from borgish.cell.events import Entry
from borgish.cell.model import Job, Machine, Task
from borgish.cell.state import Cell, Touched


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A kept checkpoint, without its body."""

    position: int
    at: float
    reason: str
    sha256: str
    bytes: int


class Records(msgspec.Struct):
    """The rows that one step wrote to, as they are after it."""

    jobs: list[Job] = []
    tasks: list[tuple[str, list[Task]]] = []  # (job, tasks)
    machines: list[Machine] = []
    jobs_gone: list[str] = []
    tasks_gone: list[tuple[str, int]] = []  # (job, first index that is no more)


class Store(Protocol):
    """Where a cell is kept. One caller at a time, except that
    ``save_checkpoint`` may run in another thread beside the rest. Every method may block.

    ``append`` is one transaction: when it returns, all of it is durable. When the outcome of a
    commit cannot be known it raises ``OutcomeUnknown``, and when another master has taken over,
    ``Fenced``; after either, nothing else may be called but ``close``.
    """

    kind: str  # sqlite, postgresql or memory
    warnings: list[str]  # what ``load`` had to pass over

    def load(self) -> Cell:
        """Return the cell: the newest good checkpoint and the journal after it. New stores: an empty one."""
        ...

    def lead(self, holder: str, address: str) -> int:
        """Become the leader; return the new epoch, higher than every one before. Waits for no one."""
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

    def save_checkpoint(
        self, body: bytes | bytearray, position: int, at: float, reason: str
    ) -> CheckpointInfo:
        """Keep an encoded snapshot (``store.codec.encode_snapshot``), and let go of those over the rule."""
        ...

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return what is kept, newest first."""
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
        jobs_gone=sorted(touched.jobs_gone),
        tasks_gone=sorted(touched.tasks_gone.items()),
    )
