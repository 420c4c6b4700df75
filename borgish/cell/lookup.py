"""The jobs and machines that commands name."""

from borgish.cell.model import Cell, Job, Machine
from borgish.errors import NotFound


def find_job(cell: Cell, key: str) -> Job:
    """Return a job. Raises NotFound."""
    job = cell.jobs.get(key)
    if job is None:
        raise NotFound(f"there is no job {key}", "`borgctl job list` shows those there are")
    return job


def find_machine(cell: Cell, name: str) -> Machine:
    """Return a machine. Raises NotFound."""
    machine = cell.machines.get(name)
    if machine is None:
        raise NotFound(f"there is no machine {name}", "`borgctl machine list` shows those there are")
    return machine
