"""``/v1/apps``: apply, plan, list, show, versions, undo, run, kill, remove."""

from litestar import get, post

from borgish.api.auth import POLICY, Policy, check_owner
from borgish.api.job_parser import SHORT_BYTES_MAX
from borgish.api.moments import AT
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import LIMIT_MAX, After, AppName, Limit, Owner, checked_affected, cut
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.api.read_apply import read_apply
from borgish.api.request import ApiRequest
from borgish.api.services import Reading
from borgish.api.views.apps import app_detail, app_plan_view, app_version_views, app_views
from borgish.api.views.why import why_app
from borgish.cell.access.authorization import authorize
from borgish.cell.apps.decide import plan_apply
from borgish.cell.commands import (
    ApplyApp,
    KillApp,
    RemoveApp,
    RunApp,
    UndoApp,
)
from borgish.cell.lookup import find_app
from borgish.vocabulary import APPLY_BYTES_MAX, job_key
from borgish.wire.api import Accepted, WhyView
from borgish.wire.api_apps import (
    AppDetail,
    AppKillRequest,
    AppList,
    ApplyRequest,
    AppPlanView,
    AppRunRequest,
    AppUndoRequest,
    AppVersionList,
)


@post(
    "/v1/apply",
    opt={POLICY: Policy.SUBMIT, CONSUMES: ApplyRequest, IF_MATCH: True},
    status_code=200,
    request_max_body_size=APPLY_BYTES_MAX,
)
async def apply(request: ApiRequest) -> Accepted:
    """Make an application what its files say: all of its jobs, or nothing."""
    return await request.command(await _asked(request))


@post(
    "/v1/apply/plan",
    opt={POLICY: Policy.SUBMIT, CONSUMES: ApplyRequest},
    status_code=200,
    request_max_body_size=APPLY_BYTES_MAX,
)
async def plan(request: ApiRequest) -> AppPlanView:
    """Say what would follow if an application were applied now. Nothing is changed."""
    command, actor = await _asked(request), request.user.name

    def view(reading: Reading) -> AppPlanView:
        authorize(reading.cell, command, request.user)
        return app_plan_view(reading.cell, plan_apply(reading.cell, command, actor, reading.now))

    return await request.read(view)


@get("/v1/apps", opt={POLICY: Policy.READ, AT: True})
async def list_apps(request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = "") -> AppList:
    """List applications by name."""

    def view(reading: Reading) -> AppList:
        cell, observed, tally = reading.cell, reading.observed, reading.tally
        tally.fill(cell, observed)
        named = ((key, app) for key, app in sorted(cell.apps.items()) if key > after)
        apps, page = cut(named, limit)
        return AppList(tuple(app_views(cell, observed, apps, reading.refusals, tally)), page)

    return await request.read(view)


@get("/v1/apps/{user:str}/{name:str}", opt={POLICY: Policy.READ, AT: True, ETAG: True})
async def show_app(request: ApiRequest, user: Owner, name: AppName) -> AppDetail:
    """Show an application and its jobs."""

    def view(reading: Reading) -> AppDetail:
        cell, observed, tally = reading.cell, reading.observed, reading.tally
        app = find_app(cell, job_key(user, name))
        request.tag(app.generation)
        tally.fill(cell, observed)
        return app_detail(cell, observed, app, reading.refusals, tally)

    return await request.read(view)


@get("/v1/apps/{user:str}/{name:str}/versions", opt={POLICY: Policy.READ, AT: True})
async def list_app_versions(request: ApiRequest, user: Owner, name: AppName) -> AppVersionList:
    """List what an application was and is: when, by whom, and what was changed."""

    def view(reading: Reading) -> AppVersionList:
        app = find_app(reading.cell, job_key(user, name))
        return AppVersionList(tuple(app_version_views(app)))

    return await request.read(view)


@get("/v1/apps/{user:str}/{name:str}/why", opt={POLICY: Policy.READ, AT: True})
async def explain_app(request: ApiRequest, user: Owner, name: AppName) -> WhyView:
    """Say why an application is as it is: what is in the way of its jobs, and what can be done."""
    await request.expect_reasons()

    def view(reading: Reading) -> WhyView:
        app = find_app(reading.cell, job_key(user, name))
        return why_app(reading.cell, reading.observed, app, reading.refusals, reading.now)

    return await request.read(view)


@post(
    "/v1/apps/{user:str}/{name:str}/undo",
    opt={POLICY: Policy.OWN, CONSUMES: AppUndoRequest, IF_MATCH: True},
    status_code=200,
)
async def undo_app(request: ApiRequest, user: Owner, name: AppName) -> Accepted:
    """Apply what an application was in an earlier version."""
    asked = await request.json_as(AppUndoRequest)
    allowed = checked_affected(asked)
    return await request.command(UndoApp(job_key(user, name), asked.version, asked.take_over, allowed))


@post(
    "/v1/apps/{user:str}/{name:str}/run",
    opt={POLICY: Policy.OWN, CONSUMES: AppRunRequest, IF_MATCH: True},
    status_code=200,
)
async def run_app(request: ApiRequest, user: Owner, name: AppName) -> Accepted:
    """Run once more those of its jobs that run to completion; with a stage, from that on."""
    asked = await request.json_as(AppRunRequest)
    return await request.command(RunApp(job_key(user, name), asked.stage))


@post(
    "/v1/apps/{user:str}/{name:str}/kill",
    opt={POLICY: Policy.OWN, CONSUMES: AppKillRequest, IF_MATCH: True},
    status_code=200,
)
async def kill_app(request: ApiRequest, user: Owner, name: AppName) -> Accepted:
    """End all jobs of an application."""
    asked = await request.json_as(AppKillRequest)
    return await request.command(KillApp(job_key(user, name), checked_affected(asked)))


@post("/v1/apps/{user:str}/{name:str}/remove", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def remove_app(request: ApiRequest, user: Owner, name: AppName) -> Accepted:
    """Forget an application whose jobs are over."""
    return await request.command(RemoveApp(job_key(user, name)))


async def _asked(request: ApiRequest) -> ApplyApp:
    """Read an application, which must be of who asks."""
    caller, bands = request.user.name, request.services.bands()
    if 0 <= request.body_bytes <= SHORT_BYTES_MAX:
        command = read_apply(await request.short_body(), caller, bands)
    else:
        command = await request.parser.read_apply(caller, request.body, bands)
    check_owner(request.user, command.app.user)
    return command


APPS = (
    *(apply, plan, list_apps, show_app, list_app_versions, explain_app),
    *(undo_app, run_app, kill_app, remove_app),
)
