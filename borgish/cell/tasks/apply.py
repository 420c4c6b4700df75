"""The part of ``cell/apply.py`` that is about leases of exclusive tasks."""

from collections.abc import Callable
from typing import Any

from borgish.cell.events import AnyEvent, Entry, LeasesEnded, LeasesFound
from borgish.cell.model import Cell, Job, TaskLease
from borgish.cell.tasks.leases import unleased


def _leases_found(cell: Cell, event: LeasesFound, _entry: Entry) -> None:
    for index, lease in zip(event.indexes, event.leases, strict=True):
        lease_attempt(cell, event.job, index, lease)


def _leases_ended(cell: Cell, event: LeasesEnded, _entry: Entry) -> None:
    for index, attempt in zip(event.indexes, event.attempts, strict=True):
        end_lease(cell, event.job, index, attempt)


def lease_running(cell: Cell, job: Job) -> None:
    """Let what runs of a job that has become exclusive have leases."""
    if job.spec.exclusive:
        for index, lease in list(unleased(cell, job)):
            lease_attempt(cell, job.key, index, lease)


def lease_attempt(cell: Cell, job: str, index: int, lease: TaskLease) -> None:
    """Give an attempt a lease, in place of the one that it had, if any."""
    there = cell.leases.setdefault(job, {})
    others = (other for other in there.get(index, ()) if other.attempt != lease.attempt)
    there[index] = (*others, lease)
    cell.touched.leases.setdefault(job, set()).add(index)


def end_lease(cell: Cell, job: str, index: int, attempt: int) -> None:
    """Take its lease from an attempt that does not run any more, if it has one."""
    there = cell.leases.get(job, {})
    if index not in there:
        return
    there[index] = tuple(lease for lease in there[index] if lease.attempt != attempt)
    if not there[index]:
        del there[index]
    if not there:
        del cell.leases[job]
    cell.touched.leases.setdefault(job, set()).add(index)


APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {
    LeasesFound: _leases_found,
    LeasesEnded: _leases_ended,
}
