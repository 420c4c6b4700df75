"""How records of tasks come, go and change state, with the indexes and counts that follow from them.

For ``apply`` and the files of its functions only: nobody else writes to a cell.
"""

from collections.abc import Iterable, Sequence

from borgish.cell.lifecycle import Happening, after
from borgish.cell.model import Job, Task
from borgish.cell.state import Cell
from borgish.vocabulary import Ending, State


def grow(cell: Cell, job: Job, tasks: int, at: float) -> None:
    """Give a job more tasks, up to so many; the new ones are pending."""
    fresh = range(len(job.tasks), tasks)
    job.tasks.extend(Task(index, since=at) for index in fresh)
    job.pending += len(fresh)
    if fresh:
        cell.waiting.setdefault(job.key, set()).update(fresh)
    touch(cell, job, fresh)


def shrink(cell: Cell, job: Job, tasks: int) -> None:
    """Take from a job all tasks from this index on, whatever they do."""
    gone = job.tasks[tasks:]
    if not gone:
        return
    for task in gone:
        if task.state is State.RUNNING:
            leave_machine(cell, job.key, task)
        count(job, task, -1)
    stop_waiting(cell, job, [task.index for task in gone])
    del job.tasks[tasks:]
    cell.touched.tasks_gone[job.key] = min(tasks, cell.touched.tasks_gone.get(job.key, tasks))


def drop_promises(cell: Cell, job: Job, indexes: Iterable[int]) -> None:
    """Take back the places that were promised to tasks."""
    for index in indexes:
        task = job.tasks[index]
        if task.promised:
            there = cell.promised[task.promised]
            there.discard((job.key, index))
            if not there:
                del cell.promised[task.promised]
            cell.touched.placements.add(task.promised)
            task.promised = ""


def expect(state: State | None, happening: Happening) -> None:
    """Raise IllegalTransition unless the lifecycle has such a row."""
    after(state, happening)


def turn(job: Job, task: Task, state: State, at: float, reason: str, ending: Ending | None = None) -> None:
    """Put a task into a state; its counts follow, its place and its waiting do not."""
    count(job, task, -1)
    task.state, task.since, task.reason, task.ending = state, at, reason, ending
    if state is State.DEAD:
        task.lost = ()  # what is over has its result
    count(job, task, +1)


def count(job: Job, task: Task, by: int) -> None:
    """Add a task to the counts of its job, or take it from them."""
    match task.state:
        case State.PENDING:
            job.pending += by
        case State.RUNNING:
            job.running += by
        case State.DEAD:
            job.dead += by
            job.finished += by if task.ending is Ending.FINISH else 0


def leave_machine(cell: Cell, job: str, task: Task) -> None:
    """Take a running task from its machine."""
    cell.placed[task.machine].discard((job, task.index))
    cell.touched.placements.add(task.machine)


def stop_waiting(cell: Cell, job: Job, indexes: Sequence[int]) -> None:
    """Take tasks from those that wait for a place."""
    if cell.promised:
        drop_promises(cell, job, indexes)
    waiting = cell.waiting.get(job.key)
    if waiting is not None:
        waiting.difference_update(indexes)
        if not waiting:
            del cell.waiting[job.key]


def touch(cell: Cell, job: Job, indexes: Iterable[int]) -> None:
    """Note that a job, and these of its tasks, are to be written."""
    cell.demand.doubt(job.key)
    cell.touched.jobs.add(job.key)
    cell.touched.tasks.setdefault(job.key, set()).update(indexes)
