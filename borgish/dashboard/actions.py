"""What can be done about a thing: commands of borgctl, shown as they are and run as they are. Pure.

The dashboard asks before it runs one, so those that would ask have ``--yes``.
"""

import shlex

from borgish.dashboard.place import Action, View
from borgish.vocabulary import split_task_name

_ROLES = {
    "job": ("admin", "user"),
    "task": ("admin", "user"),
    "machine": ("admin", "operator"),
    "freeze": ("admin", "operator"),
    "unfreeze": ("admin", "operator"),
}
"""Who may have the commands of a noun (``api/auth.py``), where not admins alone."""


def actions(view: View | None, subject: str, role: str) -> tuple[Action, ...]:
    """Return what a role can do about a job, a task, a machine or a moment; about the cell for None."""
    every = _actions(view, subject)
    return tuple(each for each in every if role in _ROLES.get(each.command[0], ("admin",)))


def _actions(view: View | None, subject: str) -> tuple[Action, ...]:
    match view:
        case View.JOB:
            return _of_job(subject)
        case View.TASK:
            return (*_of_task(subject), *_of_job(split_task_name(subject)[0]))
        case View.MACHINE:
            return (
                Action(("machine", "cordon", subject), "Place nothing more on it."),
                Action(("machine", "uncordon", subject), "Place tasks on it again."),
                Action(("machine", "drain", subject, "--detach"), "Empty it, within the budgets."),
                Action(("machine", "undrain", subject), "Let tasks come back."),
            )
        case View.TIME:
            return (
                Action(
                    ("rollback", subject, "--dry-run"), "Show what a rollback to this moment would change."
                ),
                Action(
                    ("rollback", "--yes", subject), "Make the cell again what it was to be at this moment."
                ),
            )
    return (
        Action(("freeze",), "Take no task down on purpose until the cell is unfrozen."),
        Action(("unfreeze",), "Let tasks be taken down on purpose again, within the budgets."),
        Action(("checkpoint", "create"), "Keep the whole cell as it is now."),
    )


def shown(action: Action) -> str:
    """Return the command as somebody would type it."""
    asked = [f"<{action.asks}>"] if action.asks else []
    return f"borgctl {' '.join([shlex.join(action.command), *asked])}"


def _of_job(job: str) -> tuple[Action, ...]:
    return (
        Action(("job", "restart", job), "Give its tasks a fresh attempt, a few at a time."),
        Action(("job", "scale", job), "Give it another number of tasks.", "number of tasks"),
        Action(("job", "undo", job), "Give it its version before again."),
        Action(("job", "kill", "--yes", job), "End all its tasks for good."),
    )


def _of_task(task: str) -> tuple[Action, ...]:
    job, index = split_task_name(task)
    return (
        Action(("job", "restart", job, str(index)), "Give this task a fresh attempt."),
        Action(("task", "kill", task), "End this task; the rest of its job goes on."),
    )
