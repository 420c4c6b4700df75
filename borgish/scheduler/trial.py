"""A cell in which one job has been submitted that has not, and nothing else waits.

Records of everything else are the cell's own: the trial is for looking only, and for no longer than the
cell stays as it is.
"""

from copy import copy

from borgish.cell.model import Job, Task
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.spec.job import JobSpec


def with_only(cell: Cell, spec: JobSpec, now: Now) -> Cell:
    """Return the cell with a job whose tasks all wait, and nobody else's."""
    tasks = [Task(index, since=now.wall) for index in range(spec.tasks)]
    job = Job(spec.key, cell.position + 1, spec, now.wall, spec.user, tasks=tasks, pending=len(tasks))
    trial = copy(cell)
    trial.jobs = cell.jobs | {spec.key: job}
    trial.waiting = {spec.key: set(range(spec.tasks))}
    trial.promised = {}  # the rows count these places; nobody is to be put there now
    return trial
