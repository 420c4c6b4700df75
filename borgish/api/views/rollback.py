"""What a rollback would do, as the API shows it."""

from borgish.api.views.notices import machine_words
from borgish.cell.commands import RollBack
from borgish.cell.rollback import JobPlan
from borgish.cell.rollback_checks import check_allowed, plan_rollback
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Refused
from borgish.resources import show_amounts
from borgish.wire.api import AsOf
from borgish.wire.api_past import JobRollback, RollbackPlan


def rollback_plan(cell: Cell, then: Cell, command: RollBack, to: AsOf, now: Now) -> RollbackPlan:
    """Return what the command would do to the cell; ``then``: see ``decide``.

    Raises the ``Refused`` of one that plans nothing.
    """
    found = plan_rollback(cell, then, command, now)
    refusal = hint = ""
    try:
        check_allowed(cell, then, found, command, now)
    except Refused as refused:
        refusal, hint = refused.message, refused.hint
    return RollbackPlan(
        to=to,
        stopped=found.stopped,
        started=found.started,
        kept=found.running - found.stopped,
        results_kept=sum(job.results_kept for job in found.jobs),
        jobs=tuple(_job(job) for job in found.jobs),
        machines=tuple(f"{mark.machine} {machine_words(mark)} again" for mark in found.machines),
        quotas=(
            *(f"{quota.key} is {show_amounts(quota.limits)} again" for quota in found.quotas),
            *(f"{key} goes" for key in found.quotas_gone),
        ),
        machines_missing=() if command.only else found.machines_missing,
        refusal=refusal,
        hint=hint,
    )


def _job(job: JobPlan) -> JobRollback:
    return JobRollback(
        job.job, job.change, job.differences, job.stopped, job.started, job.kept, job.results_kept
    )
