"""The jobs, machines, applications and crons that commands name."""

from borgish.cell.crons.model import Cron
from borgish.cell.model import App, Cell, Job, Machine
from borgish.errors import NotFound


def find_job(cell: Cell, key: str) -> Job:
    """Return a job. Raises NotFound."""
    job = cell.jobs.get(key)
    if job is None:
        raise NotFound(f"there is no job {key}", "`borgctl job list` shows those there are")
    return job


def find_cron(cell: Cell, key: str) -> Cron:
    """Return a cron. Raises NotFound."""
    cron = cell.crons.get(key)
    if cron is None:
        raise NotFound(f"there is no cron {key}", "`borgctl cron list` shows those there are")
    return cron


def find_machine(cell: Cell, name: str) -> Machine:
    """Return a machine. Raises NotFound."""
    machine = cell.machines.get(name)
    if machine is None:
        raise NotFound(f"there is no machine {name}", "`borgctl machine list` shows those there are")
    return machine


def find_app(cell: Cell, key: str) -> App:
    """Return an application. Raises NotFound."""
    app = cell.apps.get(key)
    if app is None:
        raise NotFound(f"there is no application {key}", "`borgctl app list` shows those there are")
    return app
