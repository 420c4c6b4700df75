"""Applications as the API shows them: in a list, complete, their versions, and what an apply would do."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from borgish.api.views.crons import cron_view
from borgish.api.views.jobs import job_view, worst_outcome
from borgish.api.views.rollouts import update_words
from borgish.api.views.tally import Tally
from borgish.cell.apps.decide import AppPlan, CronChange, JobChange, plan_words
from borgish.cell.apps.members import absent, crons_of, members, run_by
from borgish.cell.diff import cron_differences, document_differences
from borgish.cell.events import CronSet
from borgish.cell.model import App, AppVersion, Cell, Job
from borgish.cell.observed import Observed
from borgish.cell.updates.decide import update_plan
from borgish.spec.app import to_completion
from borgish.spec.diff import differences
from borgish.text import instant
from borgish.vocabulary import State
from borgish.wire.api import JobView, RefusalView
from borgish.wire.api_apps import (
    AppChangeView,
    AppCronChangeView,
    AppDetail,
    AppPlanView,
    AppVersionView,
    AppView,
)

Refusals = Mapping[str, Sequence[RefusalView]]


def app_views(
    cell: Cell, observed: Observed, apps: Sequence[App], refusals: Refusals, tally: Tally
) -> list[AppView]:
    """Return lines about applications."""
    crons = Counter(cron.app for cron in cell.crons.values())
    return [
        app_view(
            app,
            _job_views(cell, observed, members(cell, app.key), refusals, tally),
            crons[app.key],
            absent(cell, app),
        )
        for app in apps
    ]


def _job_views(
    cell: Cell, observed: Observed, jobs: Sequence[Job], refusals: Refusals, tally: Tally
) -> list[JobView]:
    return [job_view(cell, observed, job, refusals.get(job.key, ()), tally.up(job.key)) for job in jobs]


def app_view(app: App, jobs: Sequence[JobView], crons: int, others: Mapping[str, str]) -> AppView:
    """Return one line about an application with these jobs, and so many crons; ``others``: see ``absent``."""
    running, pending = sum(job.running for job in jobs), sum(job.pending for job in jobs)
    state = State.RUNNING if running else State.PENDING if pending else State.DEAD
    up = [job.up for job in jobs]
    return AppView(
        name=app.key,
        user=app.spec.user,
        state=state,
        version=app.version,
        jobs=len(jobs),
        tasks=sum(job.tasks for job in jobs),
        up=None if None in up else sum(count for count in up if count is not None),
        pending=pending,
        running=running,
        finished=sum(job.finished for job in jobs),
        failed=sum(job.failed for job in jobs),
        killed=sum(job.killed for job in jobs),
        applied_at=instant(app.present.at),
        applied_by=app.present.by,
        generation=app.generation,
        labels=app.spec.labels,
        outcome=worst_outcome(job.outcome for job in jobs) if state is State.DEAD else None,
        reason=next(_in_the_way(jobs, others), ""),
        crons=crons,
        absent=len(others),
    )


def _in_the_way(jobs: Sequence[JobView], others: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{job.name}: {job.reason}" for job in _worst_first(jobs) if job.reason)
    yield from (f"{key} {why}" for key, why in others.items())


def _worst_first(jobs: Sequence[JobView]) -> list[JobView]:
    """Return jobs with those first of which something failed, then those that wait."""
    return sorted(jobs, key=lambda job: (not job.failed, not job.pending, job.name))


def app_detail(cell: Cell, observed: Observed, app: App, refusals: Refusals, tally: Tally) -> AppDetail:
    """Return all of an application."""
    there = {job.key: job for job in members(cell, app.key)}
    documents = [document.key for document in app.present.documents]
    ordered = [key for key in documents if key in there] + [key for key in there if key not in documents]
    jobs = _job_views(cell, observed, [there[key] for key in ordered], refusals, tally)
    crons = crons_of(cell, app.key)
    documents += (spec.key for spec in app.present.crons)
    others = absent(cell, app)
    return AppDetail(
        app=app_view(app, jobs, len(crons), others),
        jobs=tuple(jobs),
        stages=tuple(document.key for document in to_completion(app.present.documents)),
        missing=tuple(key for key in others if key not in cell.jobs and key not in cell.crons),
        absent=others,
        orphans=tuple(key for key in (*there, *(cron.key for cron in crons)) if key not in documents),
        crons=tuple(cron_view(cell, cron) for cron in crons),
        run_by=tuple(cron_view(cell, cron) for cron in run_by(cell, app.key)),
    )


def app_version_views(app: App) -> Iterator[AppVersionView]:
    """Yield the versions of an application that are kept, in order."""
    before: AppVersion | None = None
    for number, version in {**app.earlier, app.version: app.present}.items():
        changes = tuple(document_differences(before, version)) if before is not None else ()
        at, count = instant(version.at), len(version.documents)
        yield AppVersionView(number, at, version.by, count, number == app.version, changes)
        before = version


def app_plan_view(cell: Cell, plan: AppPlan) -> AppPlanView:
    """Return what an apply would do."""
    key = plan.app.key
    app = cell.apps.get(key)
    return AppPlanView(
        app=key,
        text=plan_words(plan),
        generation=app.generation if app is not None else 0,
        version=plan.version,
        changes=tuple(_change_view(cell, change) for change in plan.changes),
        orphans=plan.orphans,
        changed=bool(plan.events),
        crons=tuple(_cron_change_view(cell, cron) for cron in plan.crons),
        followers=plan.followers,
    )


def _cron_change_view(cell: Cell, change: CronChange) -> AppCronChangeView:
    before = cell.crons.get(change.cron)
    after = next((event.cron for event in change.events if isinstance(event, CronSet)), None)
    lines: tuple[str, ...] = ()
    if before is not None and after is not None:
        lines = cron_differences(before.spec, after.spec, cell.rules.bands)
    return AppCronChangeView(change.cron, change.what, change.notes, lines)


def _change_view(cell: Cell, change: JobChange) -> AppChangeView:
    job, spec = cell.jobs.get(change.job), change.spec
    if job is None or not change.events or change.what == "ended":
        return AppChangeView(change.job, change.what, notes=change.notes)
    lines = differences(job.spec, spec, cell.rules.bands)
    tasks = update_words(spec, update_plan(cell, job, spec)) if job.state is not State.DEAD else {}
    return AppChangeView(change.job, change.what, lines, tasks, change.notes)
