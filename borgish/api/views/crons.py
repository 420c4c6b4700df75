"""Crons as the API shows them: when they are due, what became of their runs, and why one did not begin."""

from borgish.api.views.jobs import job_outcome, without_values, worst_outcome
from borgish.cell.crons.model import SPREAD_SECONDS, Cron
from borgish.cell.crons.runs import Run, runs
from borgish.cell.model import Cell
from borgish.clock import Now
from borgish.spec.schedule import TIMES_SHOWN
from borgish.text import instant, instant_or_none
from borgish.vocabulary import Outcome, State
from borgish.wire.api_crons import CronDetail, CronRunView, CronStageView, CronView


def cron_view(cell: Cell, cron: Cron, *, with_times: bool = False) -> CronView:
    """Return one line about a cron. ``with_times``: with its next times, which take 0.2 to 0.7 ms."""
    there = runs(cell, cron.key)
    latest = there[-1] if there else None
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
        runs=len(there),
        live=sum(not run.is_over for run in there),
        keep=spec.keep,
        note=cron.note,
        late_seconds=round(cron.late_seconds, 3) if cron.late_seconds > SPREAD_SECONDS else 0.0,
        among=cron.among,
        generation=cron.generation,
        app=spec.app_key,
        times=tuple(map(instant, _times(cron))) if with_times and cron.next else (),
    )


def _times(cron: Cron) -> list[float]:
    return [cron.next, *cron.spec.times.next_times(cron.next, TIMES_SHOWN - 1)]


def cron_detail(cell: Cell, cron: Cron, now: Now, *, secrets: bool) -> CronDetail:
    """Return all of a cron. Without ``secrets`` the values of its environment are hidden."""
    spec = cron.spec
    times = [] if cron.paused else spec.times.next_times(max(now.wall, cron.last), TIMES_SHOWN)
    return CronDetail(
        cron_view(cell, cron),
        overlap=spec.overlap,
        missed=spec.missed,
        times=tuple(map(instant, times)),
        runs=tuple(run_view(run) for run in reversed(runs(cell, cron.key))),
        spec=spec.job if secrets else without_values(spec.job),
        set_at=instant(cron.at),
        set_by=cron.by,
    )


def run_view(run: Run) -> CronRunView:
    """Return one run of a cron."""
    stages = tuple(CronStageView(job.key, job.state, job_outcome(job)) for job in run.jobs)
    states, outcomes = {stage.state for stage in stages}, {stage.outcome for stage in stages}
    return CronRunView(
        run.key,
        instant(run.due),
        instant(min(job.submitted_at for job in run.jobs)),
        next(state for state in (State.RUNNING, State.PENDING, State.DEAD) if state in states),
        _outcome(outcomes),
        stages if [stage.name for stage in stages] != [run.key] else (),
    )


def _outcome(stages: set[Outcome | None]) -> Outcome | None:
    """Return how a run came out: failed where a stage failed, also while others go on or wait."""
    if Outcome.FAILED in stages or None not in stages:
        return worst_outcome(stages)
    return None
