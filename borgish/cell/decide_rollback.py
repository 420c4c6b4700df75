"""May the cell be rolled back, and what follows.

The plan is made here, against the cell as it is when the command is decided.
"""

from borgish.cell.commands import RollBack
from borgish.cell.decision import Decision
from borgish.cell.events import RolledBack
from borgish.cell.model import Job
from borgish.cell.restored import expect_restorable
from borgish.cell.rollback import Plan, plan
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound


def decide_rollback(cell: Cell, command: RollBack, actor: str, now: Now) -> Decision:
    """Return the one event that takes the cell back. Raises a ``Refused``."""
    found = checked_plan(cell, command, now)
    event = RolledBack(
        timeline=cell.timeline + 1,
        to=command.then.position,
        at=command.at,
        reason=reason_of(command),
        jobs=tuple(job.restored for job in found.jobs if job.restored is not None),
        jobs_gone=tuple(job.job for job in found.jobs if job.restored is None),
        machines=found.machines,
        quotas=found.quotas,
        quotas_gone=found.quotas_gone,
    )
    text = (
        f"{_scope(command)} is rolled back to position {command.then.position} by {actor}, on timeline "
        f"{event.timeline}: {_tasks(found.stopped)} to stop, {found.started} to start, "
        f"{found.running - found.stopped} go on"
    )
    return Decision((event,), "", text)


def checked_plan(cell: Cell, command: RollBack, now: Now) -> Plan:
    """Return what the command changes. Raises the ``Refused`` that it would be refused with."""
    found = planned(cell, command, now)
    expect_allowed(cell, found, command, now)
    return found


def planned(cell: Cell, command: RollBack, now: Now) -> Plan:
    """Return what the command changes, whether or not that may be.

    Raises a ``Refused`` when nothing can be planned.
    """
    _expect_past(cell, command)
    for key in sorted(command.only):
        if key not in cell.jobs and key not in command.then.jobs:
            raise NotFound(
                f"there is no job {key}, and at position {command.then.position} there was none",
                "Name jobs in full, like ann/web",
            )
    found = plan(
        cell,
        command.then,
        command.only,
        now.wall,
        hurried=command.hurried,
        reason=reason_of(command),
    )
    if found.is_empty and (behind := _behind(cell, command)):
        raise Conflict(
            f"a rollback to that is under way: {_tasks(behind)} still to be stopped",
            "`borgctl status` shows what it waits for; with --now it goes on regardless",
        )
    if found.is_empty:
        raise Conflict(
            f"nothing differs: {_scope(command)} is as it was to be at position {command.then.position}",
            "There is nothing to roll back; `borgctl history` shows what happened",
        )
    return found


def expect_allowed(cell: Cell, found: Plan, command: RollBack, now: Now) -> None:
    """Raise Conflict for a state that may not be, and when more tasks would be stopped than was said."""
    expect_restorable(cell, command, found, now.wall)
    stopped, running = found.stopped, found.running
    if command.yes_stop is not None and stopped > command.yes_stop:
        raise Conflict(
            f"this would stop {stopped} of {running} running tasks, and --yes-stop allows {command.yes_stop}",
            f"Look at what `--dry-run` says; `--yes-stop {stopped}` allows it",
        )
    if command.yes_stop is None and stopped > command.stop_share_max * running:
        share = f"{100 * command.stop_share_max:g} %"
        raise Conflict(
            f"this would stop {stopped} of {running} running tasks, which is more than {share}",
            f"Look at what `--dry-run` says; `--yes-stop {stopped}` allows it",
        )


def reason_of(command: RollBack) -> str:
    """Return what is said to those whom it stops."""
    return f"rolled back to position {command.then.position}"


def _expect_past(cell: Cell, command: RollBack) -> None:
    if not 0 < command.then.position <= cell.position or command.then.name != cell.name:
        raise Invalid(
            f"position {command.then.position} of cell {command.then.name} is none that cell {cell.name} had",
            f"Its positions are 1 to {cell.position}",
        )


def _behind(cell: Cell, command: RollBack) -> int:
    """Return how many tasks of what is to be rolled back lag behind a rollback already."""
    jobs = (cell.jobs[key] for key in cell.lagging if not command.only or key in command.only)
    return sum(len(job.lagging.attempts) for job in jobs if job.lagging is not None)


def expect_kept(job: Job) -> None:
    """Raise Conflict for a job that goes as soon as a rollback has stopped its last task."""
    if job.lagging is not None and job.lagging.tasks == 0:
        raise Conflict(
            f"{job.key} is being removed, as it was {job.lagging.reason}: "
            f"{_tasks(len(job.lagging.attempts))} still to be stopped",
            f"end it at once with `borgctl job kill {job.key}`; then it can be submitted again",
        )


def _scope(command: RollBack) -> str:
    return ", ".join(sorted(command.only)) or f"cell {command.then.name}"


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
