"""``/v1/jobs`` and ``/v1/plan``: submit, plan, list, show, kill, restart, scale."""

from datetime import datetime
from functools import partial

import msgspec
from litestar import get, post

from borgish.api.auth import POLICY, Policy, check_owner, may_see_inside
from borgish.api.job_parser import SHORT_BYTES_MAX
from borgish.api.lists import Order, Scan, listed
from borgish.api.moments import AT
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import (
    JOB_SORTS,
    LIMIT_MAX,
    After,
    DefaultUser,
    JobName,
    LabelFilter,
    Limit,
    MachineFilter,
    Owner,
    PlanToken,
    Recent,
    SortJobs,
    StateFilter,
    TextFilter,
    UserFilter,
    VersionNumber,
    checked_affected,
)
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.api.records import JobQuery, JobRecords
from borgish.api.request import ApiRequest, find_job
from borgish.api.services import Reading
from borgish.api.views.jobs import job_detail, job_view, version_detail, version_views
from borgish.cell.commands import (
    KillTasks,
    PauseUpdate,
    RestartTasks,
    ResumeUpdate,
    ScaleJob,
    SubmitJob,
    UndoUpdate,
)
from borgish.errors import Invalid
from borgish.spec.cron import CronSpec, read_job_or_cron
from borgish.spec.job import JobSpec
from borgish.spec.selectors import read_label
from borgish.vocabulary import BODY_BYTES_MAX, job_key
from borgish.wire.api import (
    Accepted,
    JobDetail,
    JobList,
    KillRequest,
    Page,
    RestartRequest,
    ScaleRequest,
    UndoRequest,
    VersionDetail,
    VersionList,
)
from borgish.wire.api_plans import PlanView


@post(
    "/v1/jobs",
    opt={POLICY: Policy.SUBMIT, CONSUMES: "job file", IF_MATCH: True},
    status_code=201,
    request_max_body_size=BODY_BYTES_MAX,
)
async def submit_job(request: ApiRequest, user: DefaultUser = "", plan: PlanToken = "") -> Accepted:
    """Submit a job. The body is the text of a job file, YAML or JSON."""
    return await request.command(SubmitJob(await _asked(request, user), plan))


@post(
    "/v1/plan",
    opt={POLICY: Policy.SUBMIT, CONSUMES: "job file"},
    status_code=200,
    request_max_body_size=BODY_BYTES_MAX,
)
async def plan_job(request: ApiRequest, user: DefaultUser = "") -> PlanView:
    """Say what would follow if a job were submitted. Nothing is changed. The body is as for a submission."""
    return await request.services.planner.plan(await _asked(request, user), request.asker)


@get("/v1/jobs", opt={POLICY: Policy.READ, AT: True})
async def list_jobs(
    request: ApiRequest,
    user: UserFilter = "",
    in_state: StateFilter = None,
    label: LabelFilter = "",
    text: TextFilter = "",
    machine: MachineFilter = "",
    *,
    recent: Recent = False,
    sort: SortJobs = "",
    limit: Limit = LIMIT_MAX,
    after: After = "",
) -> JobList:
    """List jobs. What is ``recent`` is judged by the time of the reading, and of the past by the moment that
    the answer is of."""
    order = Order(sort, after, JOB_SORTS, str, str)
    query = JobQuery(user, in_state, read_label(label), text.lower(), machine)
    past = await request.as_of() if recent else None
    at = datetime.fromisoformat(past.at).timestamp() if past and past.at else None

    older: set[str] = set()

    def records(reading: Reading) -> JobRecords:
        recent_at = (at or reading.now.wall) if recent else None
        return JobRecords(reading, msgspec.structs.replace(query, recent_at=recent_at), order.key, older)

    def view(reading: Reading, keys: list[str], page: Page) -> JobList:
        cell, observed, tally, refusals = reading.cell, reading.observed, reading.tally, reading.refusals
        items = (
            job_view(cell, observed, cell.jobs[key], refusals.get(key, ()), tally.up(key)) for key in keys
        )
        return JobList(tuple(items), page, left_out=len(older))

    scan = Scan(records, order, limit, whole=recent)
    return await listed(request, scan, view)


@get("/v1/jobs/{user:str}/{name:str}", opt={POLICY: Policy.READ, AT: True, ETAG: True})
async def show_job(request: ApiRequest, user: Owner, name: JobName) -> JobDetail:
    """Show a job. Values of its environment are shown to its user and to admins only."""

    def view(reading: Reading, *, secrets: bool = False) -> JobDetail:
        job = find_job(reading.cell, job_key(user, name))
        request.tag(job.generation)
        refusals = reading.refusals.get(job.key, ())
        return job_detail(reading.cell, reading.observed, job, refusals, reading.now, secrets=secrets)

    if not may_see_inside(request.user, user):
        return await request.read(view)
    shown = await request.read(partial(view, secrets=True))
    return await request.noted_values(shown, shown.spec, view)


@get("/v1/jobs/{user:str}/{name:str}/versions", opt={POLICY: Policy.READ, AT: True})
async def list_versions(request: ApiRequest, user: Owner, name: JobName) -> VersionList:
    """List the specifications that a job had and has: when, by whom, and what was changed."""

    def view(reading: Reading) -> VersionList:
        job = find_job(reading.cell, job_key(user, name))
        return VersionList(tuple(version_views(job, reading.cell.rules.bands).values()))

    return await request.read(view)


@get(
    "/v1/jobs/{user:str}/{name:str}/versions/{version:int}",
    opt={POLICY: Policy.READ, AT: True},
)
async def show_version(
    request: ApiRequest, user: Owner, name: JobName, version: VersionNumber
) -> VersionDetail:
    """Show one specification of a job. Values of its environment are shown as those of a job."""

    def view(reading: Reading, *, secrets: bool = False) -> VersionDetail:
        job = find_job(reading.cell, job_key(user, name))
        return version_detail(job, version, reading.cell.rules.bands, secrets=secrets)

    if not may_see_inside(request.user, user):
        return await request.read(view)
    shown = await request.read(partial(view, secrets=True))
    return await request.noted_values(shown, shown.spec, view)


@post(
    "/v1/jobs/{user:str}/{name:str}/kill",
    opt={POLICY: Policy.OWN, CONSUMES: KillRequest, IF_MATCH: True},
    status_code=200,
)
async def kill_tasks(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """End tasks of a job for good; without indexes, all of them."""
    asked = await request.json_as(KillRequest)
    return await request.command(KillTasks(job_key(user, name), asked.indexes, checked_affected(asked)))


@post(
    "/v1/jobs/{user:str}/{name:str}/restart",
    opt={POLICY: Policy.OWN, CONSUMES: RestartRequest, IF_MATCH: True},
    status_code=200,
)
async def restart_tasks(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Give tasks of a job a fresh attempt, a few at a time; without indexes, all of them."""
    asked = await request.json_as(RestartRequest)
    allowed = checked_affected(asked)
    return await request.command(RestartTasks(job_key(user, name), asked.indexes, asked.now, allowed))


@post(
    "/v1/jobs/{user:str}/{name:str}/scale",
    opt={POLICY: Policy.OWN, CONSUMES: ScaleRequest, IF_MATCH: True},
    status_code=200,
)
async def scale_job(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Give a job another number of tasks."""
    asked = await request.json_as(ScaleRequest)
    allowed = checked_affected(asked)
    return await request.command(ScaleJob(job_key(user, name), asked.tasks, asked.now, allowed))


@post(
    "/v1/jobs/{user:str}/{name:str}/undo",
    opt={POLICY: Policy.OWN, CONSUMES: UndoRequest, IF_MATCH: True},
    status_code=200,
)
async def undo_update(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Give a job an earlier version of its specification again, as an update."""
    asked = await request.json_as(UndoRequest)
    return await request.command(UndoUpdate(job_key(user, name), asked.version))


@post("/v1/jobs/{user:str}/{name:str}/pause", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def pause_update(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Let the update or the restart of a job reach no more tasks."""
    return await request.command(PauseUpdate(job_key(user, name)))


@post("/v1/jobs/{user:str}/{name:str}/resume", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def resume_update(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Let the update or the restart of a job go on that was paused."""
    return await request.command(ResumeUpdate(job_key(user, name)))


@post("/v1/jobs/{user:str}/{name:str}/promote", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def promote_update(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Let an update whose canaries are up go on with the other tasks."""
    return await request.command(ResumeUpdate(job_key(user, name), promote=True))


async def _asked(request: ApiRequest, user: str) -> JobSpec:
    """Read the job file in a request, which must be of who asks."""
    spec = await read_document(request, user)
    check_owner(request.user, spec.user)
    if isinstance(spec, CronSpec):
        raise Invalid(f"{spec.key} is a cron, not a job", "send it to /v1/crons")
    return spec


async def read_document(request: ApiRequest, user: str) -> JobSpec | CronSpec:
    """Read the job or the cron in a request."""
    caller, bands = request.user.name, request.services.bands()
    if 0 <= request.body_bytes <= SHORT_BYTES_MAX:
        return read_job_or_cron(await request.short_body(), user or caller, bands)
    return await request.parser.read(caller, request.body, user or caller, bands)


JOBS = (
    *(submit_job, plan_job, list_jobs, show_job, list_versions, show_version),
    *(kill_tasks, restart_tasks, scale_job),
    *(undo_update, pause_update, resume_update, promote_update),
)
