"""Finds what a path names in the cell, or says what is there instead."""

from collections.abc import Iterable
from itertools import islice

from borgish.cell.model import Job, Machine
from borgish.cell.state import Cell
from borgish.errors import NotFound
from borgish.spec.mistakes import one_edit_away
from borgish.vocabulary import job_key

_NAMES_COMPARED_MAX = 2000


def find_job(cell: Cell, key: str) -> Job:
    """Return a job by its key (``user/name``). Raises NotFound."""
    job = cell.jobs.get(key)
    if job is None:
        raise NotFound(
            f"there is no job {key}", _near(key, cell.jobs) or "`borgctl job list` shows what there is"
        )
    return job


def find_task(cell: Cell, user: str, name: str, index: int) -> Job:
    """Return the job of a task that exists. Raises NotFound."""
    job = find_job(cell, job_key(user, name))
    if not 0 <= index < len(job.tasks):
        raise NotFound(
            f"{job.key} has no task {index}",
            f"Its tasks are 0 to {len(job.tasks) - 1}" if job.tasks else "It has no tasks",
        )
    return job


def find_machine(cell: Cell, name: str) -> Machine:
    """Return a machine by its name. Raises NotFound."""
    machine = cell.machines.get(name)
    if machine is None:
        hint = _near(name, cell.machines) or "`borgctl machine list` shows what there is"
        raise NotFound(f"there is no machine {name}", hint)
    return machine


def _near(name: str, names: Iterable[str]) -> str:
    """Return which of the names may be meant: one slip away, the same of another user, or begun by it."""
    known = list(islice(names, _NAMES_COMPARED_MAX))
    last = "/" + name.rpartition("/")[2]
    same = (other for other in known if other.endswith(last))
    begun = (other for other in known if other.startswith(name))
    near = one_edit_away(name, known) or next(same, "") or next(begun, "")
    return f"Did you mean {near}?" if near else ""
