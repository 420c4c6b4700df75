"""What belongs to an application: its jobs and crons, what runs it, and what its documents name in vain."""

from borgish.cell.crons.model import Cron
from borgish.cell.model import App, Cell, Job


def members(cell: Cell, app: str) -> list[Job]:
    """Return the jobs of an application, in order of their names."""
    return [cell.jobs[key] for key in sorted(cell.links.of_app.get(app, ()))]


def crons_of(cell: Cell, app: str) -> list[Cron]:
    """Return the crons of an application, in order of their names."""
    return sorted((cron for cron in cell.crons.values() if cron.app == app), key=lambda cron: cron.key)


def run_by(cell: Cell, app: str) -> list[Cron]:
    """Return the crons that run an application and are no part of it, in order of their names."""
    found = (cron for cron in cell.crons.values() if cron.spec.app_key == app and cron.app != app)
    return sorted(found, key=lambda cron: cron.key)


def absent(cell: Cell, app: App) -> dict[str, str]:
    """Return by key why jobs and crons of an application's documents are none of it, in words."""
    present = app.present
    found: dict[str, Job | Cron | None] = {each.key: cell.jobs.get(each.key) for each in present.documents}
    found |= {each.key: cell.crons.get(each.key) for each in present.crons}
    return {
        key: f"belongs to {each.app or 'no application'}" if each is not None else "is not in the cell"
        for key, each in found.items()
        if each is None or each.app != app.key
    }
