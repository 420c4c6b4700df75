"""One job as the API shows it, in a list and complete."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from borgish.api.views.confined import not_held_on
from borgish.api.views.rollouts import last_rollout_view, rollout_line, rollout_view, running_versions
from borgish.api.views.tally import task_is_up
from borgish.api.views.tasks import phase_of, seen_attempt
from borgish.bands import Bands
from borgish.cell.apps.order import wait_line
from borgish.cell.model import Cell, Job, Task, Version
from borgish.cell.observed import Observed
from borgish.cell.tasks.max_failures import too_many_failed
from borgish.clock import Now
from borgish.errors import NotFound
from borgish.spec.diff import differences
from borgish.spec.job import JobSpec
from borgish.text import instant
from borgish.vocabulary import HELD_BACK, Ending, Outcome, Phase, State, task_name
from borgish.wire.api import JobDetail, JobView, OwnerView, RefusalView, VersionDetail, VersionView

HIDDEN = "***"
TASKS_LOOKED_AT_MAX = 200  # for the reason in a list; ``why`` looks at all


def job_view(
    cell: Cell,
    observed: Observed,
    job: Job,
    refusals: Sequence[RefusalView],
    up: int | None = None,
) -> JobView:
    """Return one line about a job. ``up`` is counted here unless a tally has it."""
    spec = job.spec
    if not observed.known:
        up = None
    elif up is None:
        up = job.running - count_not_up(observed, job).total()
    return JobView(
        name=job.key,
        user=spec.user,
        state=job.state,
        tasks=len(job.tasks),
        pending=job.pending,
        running=job.running,
        up=up,
        dead=job.dead,
        finished=job.finished,
        failed=job.failed,
        priority=spec.priority,
        band=cell.rules.bands.of(spec.priority),
        appclass=spec.appclass,
        service=spec.is_service,
        generation=job.generation,
        submitted_at=instant(job.submitted_at),
        submitted_by=job.submitted_by,
        reason=job_reason(cell, observed, job, refusals, up),
        killed=job.dead - job.finished - job.failed,
        outcome=job_outcome(job),
        version=job.version,
        held=job.held is not None,
        app=job.app,
        waiting=len(cell.deferred.get(job.key, ())),
        cron=job.cron,
    )


def job_outcome(job: Job) -> Outcome | None:
    """Return how a dead job came out; None of any other."""
    if job.state is not State.DEAD:
        return None
    if job.failed:
        return Outcome.FAILED
    return Outcome.FINISHED if job.finished == job.dead else Outcome.KILLED


FAILED_SECONDS, ENDED_SECONDS = 24 * 3600.0, 3600.0


def is_recent(job: Job, now: float) -> bool:
    """Return whether a job is live, failed within the last day, or ended otherwise within the last hour, of
    ``now`` in seconds since 1970."""
    since = job.dead_since
    return since is None or now - since <= (FAILED_SECONDS if job.failed else ENDED_SECONDS)


def worst_outcome(outcomes: Iterable[Outcome | None]) -> Outcome | None:
    """Return how several jobs came out together: failed where one did."""
    found = set(outcomes)
    return next((each for each in (Outcome.FAILED, Outcome.KILLED, Outcome.FINISHED) if each in found), None)


def job_detail(
    cell: Cell, observed: Observed, job: Job, refusals: Sequence[RefusalView], now: Now, *, secrets: bool
) -> JobDetail:
    """Return all of a job. Without ``secrets`` the values of its environment are hidden."""
    spec = job.spec if secrets else without_values(job.spec)
    not_up = count_not_up(observed, job)
    view = job_view(cell, observed, job, refusals, job.running - not_up.total())
    return JobDetail(
        view,
        spec,
        tuple(refusals),
        not_up=dict(not_up),
        rollout=rollout_view(cell, observed, job, now),
        last_rollout=last_rollout_view(job),
        versions=running_versions(job),
        not_held=not_held_on(
            observed, job.spec, (it.machine for it in job.tasks if it.state is State.RUNNING)
        ),
        owners=tuple(
            OwnerView(field, owner.by, owner.how, instant(owner.at)) for field, owner in job.owners.items()
        ),
    )


def _machines(job: Job) -> Iterator[str]:
    return (task.machine for task in job.tasks if task.state is State.RUNNING)


def version_views(job: Job, bands: Bands) -> dict[int, VersionView]:
    """Return the versions of a job that are kept, by number, in order."""
    running, views, before = running_versions(job), dict[int, VersionView](), None
    for number, version in versions(job).items():
        changes = differences(before.spec, version.spec, bands) if before is not None else ()
        present = number == job.version
        at = instant(version.at)
        views[number] = VersionView(number, at, version.by, running.get(number, 0), present, changes)
        before = version
    return views


def version_detail(job: Job, number: int, bands: Bands, *, secrets: bool) -> VersionDetail:
    """Return one version of a job. Raises NotFound. ``secrets``: see ``job_detail``."""
    views = version_views(job, bands)
    if number not in views:
        kept = ", ".join(map(str, views))
        raise NotFound(f"no version {number} of {job.key} is kept", f"There is {kept}: `borgctl job history`")
    spec = versions(job)[number].spec
    return VersionDetail(job.key, views[number], spec if secrets else without_values(spec))


def versions(job: Job) -> dict[int, Version]:
    """Return the versions of a job that are kept, by number, in order."""
    return {**job.earlier, job.version: job.present}


def count_not_up(observed: Observed, job: Job) -> Counter[Phase]:
    """Return how many running tasks of a job are not (yet) up, by phase; walks them."""
    tasks = tasks_not_up(observed, job) if job.running else ()
    return Counter(
        phase_of(job, task, seen_attempt(observed, task_name(job.key, task.index), task)) or Phase.ASSIGNED
        for task in tasks
    )


def tasks_not_up(observed: Observed, job: Job) -> Iterator[Task]:
    """Yield the running tasks of a job that are not (yet) up; none where nobody knows."""
    for task in job.tasks if observed.known else ():
        if task.state is State.RUNNING and not task_is_up(observed, job, task):
            yield task


def job_reason(
    cell: Cell, observed: Observed, job: Job, refusals: Sequence[RefusalView], up: int | None
) -> str:
    """Return the first thing in the way: what cannot be placed, does not run well, or failed."""
    if job.rollout is not None:
        return rollout_line(job, job.rollout)
    if job.held is not None:
        return f"held, since it fails wherever it is: {job.held.reason}"
    if ended := too_many_failed(job):
        return ended
    if refusals:
        return refusals[0].text
    if job.waits is not None:
        return wait_line(cell, observed, job)
    looked_at = job.tasks[:TASKS_LOOKED_AT_MAX]
    if up is not None and up < job.running:
        for task in looked_at:
            seen = seen_attempt(observed, task_name(job.key, task.index), task)
            if seen and seen.reason:
                phase = f" {seen.phase}" if seen.phase in HELD_BACK else ""
                return f"task {task.index}{phase}: {seen.reason}"
    if job.dead > job.finished:
        for task in looked_at:
            if task.state is State.DEAD and task.ending is not Ending.FINISH and task.reason:
                return f"task {task.index}: {task.reason}"
    return ""


def without_values(spec: JobSpec) -> JobSpec:
    """Return a job with the values of its environment hidden."""
    overrides = {
        index: msgspec.structs.replace(override, env=_hidden(override.env)) if override.env else override
        for index, override in spec.overrides.items()
    }
    group = tuple(msgspec.structs.replace(program, env=_hidden(program.env)) for program in spec.group)
    return msgspec.structs.replace(spec, env=_hidden(spec.env), overrides=overrides, group=group)


def _hidden(env: dict[str, str]) -> dict[str, str]:
    return dict.fromkeys(env, HIDDEN)
