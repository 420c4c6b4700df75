"""Tasks that failed, in a pass: which machines they avoid, and which are not tried now (``cell.failing``).

Nothing here is done for jobs of which no task has failed.
"""

from collections.abc import Collection, Iterable

import numpy as np

from borgish.cell.model import Cell
from borgish.cell.tasks.failing import avoided, may_be_placed
from borgish.scheduler.feasibility import feasible
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.plan import Refusal
from borgish.scheduler.queue import Classes, Waiting


def avoid(cell: Cell, classes: Classes, fleet: Fleet, special: Iterable[Waiting], at: float) -> None:
    """Let the tasks that wait, and have failed, be of classes that avoid machines at a moment."""
    for waiting in special:
        if waiting.job.key in cell.failing:
            _avoid(cell, classes, fleet, waiting, at)


def _avoid(cell: Cell, classes: Classes, fleet: Fleet, waiting: Waiting, at: float) -> None:
    """The trial of a held job prefers other machines and, where none of these has room, takes any: it is to
    wait for no longer than a minute."""
    job = waiting.job
    for index in cell.failing[job.key].intersection(waiting.indexes) - cell.handovers.get(job.key, {}).keys():
        if names := avoided(job.tasks[index], at):
            kind = classes.of(cell, job, index, fleet, names)
            if job.held is None or np.any(feasible(fleet, kind)):
                waiting.unusual[index] = kind


def with_held(
    cell: Cell, jobs: Collection[str], refusals: dict[str, tuple[Refusal, ...]], at: float
) -> dict[str, tuple[Refusal, ...]]:
    """Return refusals with those of tasks that are not tried at a moment, since their jobs are held."""
    found = dict(refusals)
    for key in cell.failing.keys() & jobs:
        job = cell.jobs[key]
        queued = [index for index in sorted(cell.waiting[key]) if not job.tasks[index].promised]
        left = sorted(set(queued).difference(may_be_placed(cell, job, queued, at)))
        if job.held is not None and left:
            text = f"held, since it fails wherever it is: {job.held.reason}"
            hint = (
                "what failed is tried once a minute, and all of it when that runs well; "
                f"`borgctl job restart {key}` tries it now"
            )
            found[key] = (Refusal(key, tuple(left), 0, {}, text, hint), *found.get(key, ()))
    return found
