"""How many running tasks one command may stop unasked. Pure.

A mistake in a name or a pattern must not stop half of a cell: who means it says how many.
"""

from collections.abc import Iterable

from borgish.cell.model import Cell, Job, task_count
from borgish.cell.tasks.allocs import inside, is_alloc_set
from borgish.errors import Conflict
from borgish.vocabulary import State

FEW = 10
"""So many running tasks are stopped without a question, whatever share they are."""


def stopped_with(cell: Cell, job: Job, indexes: Iterable[int]) -> int:
    """Return how many running tasks stop when these of a job do: with an alloc stops what is in it."""
    running = [index for index in indexes if job.tasks[index].state is State.RUNNING]
    inner = sum(sum(1 for _ in inside(cell, job, index)) for index in running) if is_alloc_set(job) else 0
    return len(running) + inner


def check_fewer(
    cell: Cell, job: Job, tasks: int, *, hurried: bool = False, allowed: int | None = None
) -> None:
    """Raise Conflict when a job may not have only so many tasks now: the others stop, which a freeze holds
    unless it is ``hurried``. No budget does: what is not wanted any more uses none up."""
    stopped = stopped_with(cell, job, range(tasks, len(job.tasks)))
    if stopped and cell.freeze is not None and not hurried:
        raise Conflict(
            f"this would stop {task_count(stopped)} of {job.key}, and the cell is {cell.freeze}",
            f"`borgctl unfreeze` ends that; `borgctl job scale {job.key} {tasks} --now` does it all the same",
        )
    check_affected(cell, stopped, allowed)


def check_affected(cell: Cell, stopped: int, allowed: int | None) -> None:
    """Raise Conflict when a command would stop more running tasks than it allows; None: than the rules do."""
    if allowed is None and stopped <= FEW:
        return
    running = sum(map(len, cell.placed.values()))
    share = cell.rules.affected_share_max
    if stopped > (share * running if allowed is None else allowed):
        limit = f"which is more than {100 * share:g} %"
        if allowed is not None:
            limit = f"and --max-affected allows {allowed}"
        raise Conflict(
            f"this would stop {stopped} of {running} running tasks, {limit}",
            f"look at what it would do; `--max-affected {stopped}` allows it",
        )
