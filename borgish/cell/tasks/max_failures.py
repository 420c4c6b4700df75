"""A job that runs to completion is ended when more of its tasks failed than its ``max_failures`` (Kubernetes'
maxFailedIndexes). Pure.

A task counts when it is dead and failed, or was lost. What is left is killed, with that as its reason: no
voluntary disruption, which budgets would hold. Tasks that are submitted again are not dead, so the count
begins anew by itself.
"""

from borgish.cell.commands import (
    Decision,
    EndFailedJob,
)
from borgish.cell.events import TasksEnded
from borgish.cell.lifecycle import TaskEvent, movable
from borgish.cell.lookup import find_job
from borgish.cell.model import Cell, Job, task_count
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.vocabulary import Ending


def too_many_failed(job: Job) -> str:
    """Return that more tasks of a job failed than it allows, in words; "" where that is not so."""
    if not job.has_too_many_failures:
        return ""
    failed, limit = task_count(job.failed), job.spec.max_failures
    return f"{failed} of {job.key} failed, more than its max_failures: {limit}"


def decide_end(cell: Cell, _o: Observed, command: EndFailedJob, _actor: str, _now: Now) -> Decision:
    """End what is left of a job of which too many tasks failed. Raises NotFound."""
    job = find_job(cell, command.job)
    chosen = movable(job, range(len(job.tasks)), TaskEvent.KILL)
    reason = too_many_failed(job)
    if not chosen or not reason:
        return Decision((), job.key, f"nothing of {job.key} is to be ended")
    event = TasksEnded(job.key, chosen, Ending.KILL, (reason,) * len(chosen))
    return Decision((event,), job.key, f"{task_count(len(chosen))} of {job.key} killed: {reason}")
