"""``/v1/crons``: list, show, set, pause, resume, run, remove."""

from functools import partial

from litestar import get, post

from borgish.api.auth import POLICY, Policy, check_owner, may_see_inside
from borgish.api.moments import AT
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import LIMIT_MAX, After, DefaultUser, Flag, JobName, Limit, Owner, cut
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.api.request import ApiRequest, find_cron
from borgish.api.routes.jobs import read_document
from borgish.api.services import Reading
from borgish.api.views.crons import cron_detail, cron_view
from borgish.cell.commands import (
    PauseCron,
    RemoveCron,
    ResumeCron,
    RunCron,
    SetCron,
)
from borgish.errors import Invalid
from borgish.spec.cron import CronSpec
from borgish.vocabulary import BODY_BYTES_MAX, job_key
from borgish.wire.api import Accepted
from borgish.wire.api_crons import CronDetail, CronList

WITH_TIMES_MAX = 25
"""Crons of a page with their next times: nobody else is answered meanwhile, which is 4 to 17 ms."""


@get("/v1/crons", opt={POLICY: Policy.READ, AT: True})
async def list_crons(
    request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = "", times: Flag = False
) -> CronList:
    """List crons by name: when each is due next, and what became of its last run. With `times` each has its
    next five, and a page at most 25 items."""

    def view(reading: Reading) -> CronList:
        cell = reading.cell
        names = ((key, key) for key in sorted(cell.crons) if key > after)
        keys, page = cut(names, min(limit, WITH_TIMES_MAX) if times else limit)
        return CronList(tuple(cron_view(cell, cell.crons[key], with_times=times) for key in keys), page)

    return await request.read(view)


@get("/v1/crons/{user:str}/{name:str}", opt={POLICY: Policy.READ, AT: True, ETAG: True})
async def show_cron(request: ApiRequest, user: Owner, name: JobName) -> CronDetail:
    """Show a cron: its next times, its runs, and the job that each of them is. Values of its environment are
    shown as those of a job."""

    def view(reading: Reading, *, secrets: bool = False) -> CronDetail:
        cron = find_cron(reading.cell, job_key(user, name))
        request.tag(cron.generation)
        return cron_detail(reading.cell, cron, reading.now, secrets=secrets)

    if not may_see_inside(request.user, user):
        return await request.read(view)
    shown = await request.read(partial(view, secrets=True))
    return await request.noted_values(shown, shown.spec, view)


@post(
    "/v1/crons",
    opt={POLICY: Policy.SUBMIT, CONSUMES: "cron file", IF_MATCH: True},
    status_code=200,
    request_max_body_size=BODY_BYTES_MAX,
)
async def set_cron(request: ApiRequest, user: DefaultUser = "") -> Accepted:
    """Set a cron, whether or not there is one of that name. The body is the text of a document of
    ``kind: cron``, YAML or JSON."""
    spec = await read_document(request, user)
    check_owner(request.user, spec.user)
    if not isinstance(spec, CronSpec):
        raise Invalid(
            f"{spec.key} is a job, not a cron", "send it to /v1/jobs, or add kind: cron and schedule"
        )
    return await request.command(SetCron(spec))


@post("/v1/crons/{user:str}/{name:str}/pause", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def pause_cron(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Let no runs of a cron begin; those that go on do."""
    return await request.command(PauseCron(job_key(user, name)))


@post("/v1/crons/{user:str}/{name:str}/resume", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def resume_cron(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Let runs of a cron begin again. What was due meanwhile does not count as missed."""
    return await request.command(ResumeCron(job_key(user, name)))


@post("/v1/crons/{user:str}/{name:str}/run", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def run_cron(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Begin a run of a cron now, whatever its schedule says."""
    return await request.command(RunCron(job_key(user, name)))


@post("/v1/crons/{user:str}/{name:str}/remove", opt={POLICY: Policy.OWN, IF_MATCH: True}, status_code=200)
async def remove_cron(request: ApiRequest, user: Owner, name: JobName) -> Accepted:
    """Remove a cron. Its runs stay, and are jobs like any other."""
    return await request.command(RemoveCron(job_key(user, name)))


CRONS = (list_crons, show_cron, set_cron, pause_cron, resume_cron, run_cron, remove_cron)
