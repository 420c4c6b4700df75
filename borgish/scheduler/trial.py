"""A cell in which one job has been submitted that has not, and nothing else waits.

Records of everything else are the cell's own: the trial is for looking only, and for no longer than the
cell stays as it is.
"""

from collections.abc import Sequence
from copy import copy

from msgspec import structs

from borgish.cell.model import Job, Task
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.spec.job import JobSpec
from borgish.vocabulary import State


def with_only(cell: Cell, spec: JobSpec, now: Now, again: Sequence[int] = ()) -> Cell:
    """Return the cell with a job whose tasks all wait, and nobody else's.

    With ``again`` it is the job that is there, of whose dead tasks these wait.
    """
    waiting = set(again or range(spec.tasks))
    trial = copy(cell)
    trial.jobs = cell.jobs | {
        spec.key: _again(cell.jobs[spec.key], waiting) if again else _new(cell, spec, now)
    }
    trial.waiting = {spec.key: waiting}
    trial.promised = {}  # the rows count these places; nobody is to be put there now
    return trial


def _new(cell: Cell, spec: JobSpec, now: Now) -> Job:
    tasks = [Task(index, since=now.wall) for index in range(spec.tasks)]
    return Job(spec.key, cell.position + 1, spec, now.wall, spec.user, tasks=tasks, pending=len(tasks))


def _again(job: Job, waiting: set[int]) -> Job:
    trial = copy(job)
    trial.tasks = [
        structs.replace(task, state=State.PENDING, ending=None) if task.index in waiting else task
        for task in job.tasks
    ]
    trial.pending, trial.dead = job.pending + len(waiting), job.dead - len(waiting)
    return trial
