"""Crons as the API shows them: when they are due, what became of their runs, and why one did not begin."""

from borgish.api.views.jobs import job_outcome, without_values
from borgish.cell.crons import SPREAD_SECONDS, Cron
from borgish.cell.model import Cell, Job
from borgish.clock import Now
from borgish.spec.schedule import TIMES_SHOWN
from borgish.text import instant, instant_or_none
from borgish.vocabulary import State
from borgish.wire.api_crons import CronDetail, CronRunView, CronView


def cron_view(cell: Cell, cron: Cron) -> CronView:
    """Return one line about a cron."""
    runs = _runs(cell, cron)
    latest = runs[-1] if runs else None
    spec = cron.spec
    return CronView(
        name=cron.key,
        user=spec.user,
        schedule=spec.schedule,
        time_zone=spec.time_zone,
        paused=cron.paused,
        next=instant_or_none(cron.next),
        last=instant_or_none(cron.last),
        run=run_view(latest) if latest is not None else None,
        runs=len(runs),
        live=sum(run.state is not State.DEAD for run in runs),
        keep=spec.keep,
        note=cron.note,
        late_seconds=round(cron.late_seconds, 3) if cron.late_seconds > SPREAD_SECONDS else 0.0,
        among=cron.among,
        generation=cron.generation,
    )


def cron_detail(cell: Cell, cron: Cron, now: Now, *, secrets: bool) -> CronDetail:
    """Return all of a cron. Without ``secrets`` the values of its environment are hidden."""
    spec = cron.spec
    times = [] if cron.paused else spec.times.next_times(max(now.wall, cron.last), TIMES_SHOWN)
    return CronDetail(
        cron_view(cell, cron),
        overlap=spec.overlap,
        missed=spec.missed,
        times=tuple(map(instant, times)),
        runs=tuple(run_view(run) for run in reversed(_runs(cell, cron))),
        spec=spec.job if secrets else without_values(spec.job),
        set_at=instant(cron.at),
        set_by=cron.by,
    )


def run_view(run: Job) -> CronRunView:
    """Return one run of a cron."""
    outcome = job_outcome(run)
    return CronRunView(run.key, instant(run.due), instant(run.submitted_at), run.state, outcome)


def _runs(cell: Cell, cron: Cron) -> list[Job]:
    """Return the runs of a cron that are kept, by when they were due."""
    runs = [cell.jobs[key] for key in cell.runs.get(cron.key, ())]
    return sorted(runs, key=lambda run: (run.due, run.key))
