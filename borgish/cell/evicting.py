"""Who may be sent back to pending for whom, and who has to leave with whom. Pure rules of ``decide``."""

from collections.abc import Iterable, Iterator

from borgish.cell.allocs import inside, is_alloc_set, priority_of
from borgish.cell.events import TasksEvicted
from borgish.cell.model import Job
from borgish.cell.state import Cell
from borgish.vocabulary import Eviction, split_task_name


def may_preempt(cell: Cell, preemptor: str, job: Job, index: int) -> bool:
    """Return whether a task may take the place of another (section 2.5).

    Prod is never preempted, nor is what has an equal or a higher priority, or what holds such in it.
    """
    for_job = cell.jobs.get(split_task_name(preemptor)[0])
    if for_job is None:
        return False
    return priority_of(cell, job, index) < min(for_job.spec.priority, cell.rules.bands.production)


def evicted_as_lost(cell: Cell, machine: str, reason: str) -> Iterator[TasksEvicted]:
    """Yield the evictions of all that a machine holds that is down, job by job.

    Of what runs to completion the result counts, should it be reported when the machine is back.
    """
    groups: dict[tuple[str, bool], list[int]] = {}
    for key, index in sorted(cell.placed[machine]):
        groups.setdefault((key, _has_result(cell.jobs[key], index)), []).append(index)
    for (key, results_count), indexes in groups.items():
        yield TasksEvicted(
            key,
            tuple(indexes),
            Eviction.MACHINE_LOST,
            f"{machine} is down: {reason}",
            results_count=results_count,
        )


def _has_result(job: Job, index: int) -> bool:
    """Return whether what a task runs now has a result for its job; another version's is of no use."""
    is_current = job.spec_of(job.tasks[index]) is job.spec
    return is_current and not job.spec.is_service and not is_alloc_set(job)


def evicted_with(
    cell: Cell, job: Job, indexes: Iterable[int], why: str, notice_seconds: float = -1.0
) -> Iterator[TasksEvicted]:
    """Yield the evictions that follow when these tasks leave: of all that runs in them, if they are allocs.

    To be told after what makes the allocs leave, and why. Section 2.4: what is in an alloc moves with it.
    """
    if not is_alloc_set(job):
        return
    leaving: dict[str, list[int]] = {}
    for alloc in indexes:
        for inner, task in inside(cell, job, alloc):
            leaving.setdefault(inner.key, []).append(task.index)
    for key, inner_indexes in sorted(leaving.items()):
        reason = f"its alloc of {job.key} left: {why}"
        yield TasksEvicted(key, tuple(sorted(inner_indexes)), Eviction.ALLOC_MOVED, reason, notice_seconds)
