"""Who may be sent back to pending for whom, and who has to leave with whom. Pure rules of ``decide``."""

from collections.abc import Iterable, Iterator

from borgish.cell.events import TasksEvicted
from borgish.cell.model import Job
from borgish.cell.state import Cell
from borgish.vocabulary import Eviction, JobKind, State, split_task_name


def may_preempt(cell: Cell, preemptor: str, priority: int) -> bool:
    """Return whether a task may take the place of tasks of this priority (section 2.5).

    Prod is never preempted, nor is what has an equal or a higher priority.
    """
    job = cell.jobs.get(split_task_name(preemptor)[0])
    return job is not None and priority < min(job.spec.priority, cell.rules.bands.production)


def evicted_with(cell: Cell, job: Job, indexes: Iterable[int]) -> Iterator[TasksEvicted]:
    """Yield the evictions that follow when these tasks leave: of all that runs in them, if they are allocs.

    To be told after what makes the allocs leave. Section 2.4: what is in an alloc moves with it.
    """
    if job.spec.kind is not JobKind.ALLOC_SET:
        return
    inside: dict[str, list[int]] = {}
    for alloc in indexes:
        task = job.tasks[alloc]
        if task.state is State.RUNNING:
            for key, index in sorted(cell.placed.get(task.machine, ())):
                other = cell.jobs[key]
                if other.spec.inside == job.key and other.tasks[index].alloc == alloc:
                    inside.setdefault(key, []).append(index)
    for key, inner in sorted(inside.items()):
        yield TasksEvicted(
            key, tuple(sorted(inner)), Eviction.ALLOC_MOVED, f"the alloc of {job.key} it was in left"
        )
