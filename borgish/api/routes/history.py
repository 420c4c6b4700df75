"""What happened, and why: ``/v1/events``, ``/v1/why``, ``/v1/history``, ``/v1/diff``, ``/v1/window``,
``/v1/usage``, ``/v1/archive``."""

import re

import msgspec
from litestar import get
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import (
    AT,
    AT_LEAST,
    LEADER_ONLY,
    NOW,
    READ_IS_AUDITED,
    moment,
    read_moment,
)
from borgish.api.openapi import PRODUCES
from borgish.api.parameters import (
    AfterPosition,
    AroundMoment,
    BeforePosition,
    FromMoment,
    JobFilter,
    JobName,
    Limit,
    Owner,
    Since,
    SubjectMachine,
    TaskFilter,
    TaskIndex,
    ToMoment,
    Until,
)
from borgish.api.request import ApiRequest, find_job, find_task
from borgish.api.services import Reading, UsageOf
from borgish.api.views.history import HistoryFilter
from borgish.api.views.why import why_job, why_task
from borgish.cell.diff import Change, difference
from borgish.cell.model import Cell
from borgish.errors import Invalid
from borgish.text import show_indexes
from borgish.vocabulary import NAME_PATTERN, TASKS_PER_JOB_MAX, job_key, split_task_name
from borgish.wire.api import EventList, WhyView
from borgish.wire.api_figures import UsageSeries
from borgish.wire.api_past import ChangeView, DiffView, HistoryList, PastWindow

EVENTS_DEFAULT = 200
ENTRIES_DEFAULT = 100
USAGE_SECONDS = 3 * 3600.0
_JOB = re.compile(f"{NAME_PATTERN}/{NAME_PATTERN}", re.ASCII)
_TASK = re.compile(f"{_JOB.pattern}/(0|[1-9][0-9]{{0,5}})", re.ASCII)


@get("/v1/events", opt={POLICY: Policy.READ, AT: True})
async def list_events(
    request: ApiRequest,
    job: JobFilter = "",
    task: TaskFilter = "",
    after: AfterPosition = 0,
    limit: Limit = EVENTS_DEFAULT,
) -> EventList:
    """List the latest events, in order."""
    key, index = _about(job, task)
    return await request.events(key, after, limit, index)


@get("/v1/why/{user:str}/{name:str}", opt={POLICY: Policy.READ, AT: True})
async def explain_job(request: ApiRequest, user: Owner, name: JobName) -> WhyView:
    """Say why a job is as it is, and what can be done."""
    await request.expect_reasons()
    events = (await request.events(job_key(user, name), 0, EVENTS_DEFAULT)).items

    def view(reading: Reading) -> WhyView:
        job = find_job(reading.cell, job_key(user, name))
        refusals = reading.refusals.get(job.key, ())
        return why_job(reading.cell, reading.observed, job, refusals, events, reading.now)

    return await request.read(view)


@get("/v1/why/{user:str}/{name:str}/{index:int}", opt={POLICY: Policy.READ, AT: True})
async def explain_task(request: ApiRequest, user: Owner, name: JobName, index: TaskIndex) -> WhyView:
    """Say why a task is as it is, and what can be done."""
    await request.expect_reasons()
    events = (await request.events(job_key(user, name), 0, EVENTS_DEFAULT)).items

    def view(reading: Reading) -> WhyView:
        job = find_task(reading.cell, user, name, index)
        refusals = reading.refusals.get(job.key, ())
        return why_task(reading.cell, reading.observed, job, index, refusals, events, reading.now)

    return await request.read(view)


@get("/v1/history", opt={POLICY: Policy.READ, AT_LEAST: True})
async def list_history(
    request: ApiRequest,
    job: JobFilter = "",
    task: TaskFilter = "",
    machine: SubjectMachine = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = ENTRIES_DEFAULT,
    before: BeforePosition = 0,
) -> HistoryList:
    """List the latest entries of the journal that match, in order. Older ones: page.next as before."""
    now, as_of = await request.read(lambda reading: (reading.now.wall, reading.as_of))
    key, index = _about(job, task)
    wanted = HistoryFilter(key, index, machine, moment(since, "since", now), moment(until, "until", now))
    if wanted.since is not None and wanted.until is not None and wanted.since > wanted.until:
        raise Invalid("since is after until", "Swap the two")
    if as_of is not None:  # the database that a standby reads may have more than its copy by now
        before = min(before or as_of.position + 1, as_of.position + 1)
    found = await request.services.past.latest(wanted, before, limit)
    return msgspec.structs.replace(found, as_of=as_of)


def _about(job: str, task: str) -> tuple[str, int | None]:
    """Return the job's key, and the index when it is about a task. Raises Invalid.

    Neither need exist any more, but a name that can be nobody's would be a filter that finds nothing.
    """
    if job and task:
        raise Invalid("job and task cannot be combined", "Give one of them: a task's name includes its job's")
    if job and not _JOB.fullmatch(job):
        raise Invalid(f"'{job}' is not the full name of a job", "Write it like ann/web")
    if not task:
        return job, None
    if not _TASK.fullmatch(task) or (found := split_task_name(task))[1] >= TASKS_PER_JOB_MAX:
        raise Invalid(f"'{task}' is not the full name of a task", "Write it like ann/web/0")
    return found


@get("/v1/diff", opt={POLICY: Policy.READ, AT_LEAST: True})
async def show_diff(request: ApiRequest, from_moment: FromMoment = "", to_moment: ToMoment = NOW) -> DiffView:
    """Compare the cell at two moments; values of environments are not shown."""
    now = await request.read(lambda reading: reading.now.wall)
    moments = request.services.moments
    with request.one_of_few():
        old, new = [await moments.find(read_moment(text, now)) for text in (from_moment, to_moment)]

    def view(before: Cell, after: Cell) -> DiffView:
        changes = difference(before, after)
        return DiffView(old, new, {name: tuple(map(_change_view, each)) for name, each in changes.items()})

    return await moments.read_both(old, new, view)


def _change_view(change: Change) -> ChangeView:
    indexes = change.indexes
    return ChangeView(change.kind, change.name, change.lines, show_indexes(indexes), len(indexes))


@get("/v1/window", opt={POLICY: Policy.READ, AT_LEAST: True})
async def show_window(request: ApiRequest, around: AroundMoment = NOW) -> PastWindow:
    """Show the entries of the journal around a moment, one by one: what each changed, and the cell before."""
    now = await request.read(lambda reading: reading.now.wall)
    with request.one_of_few():
        return await request.services.moments.window(read_moment(around or NOW, now))


@get("/v1/usage", opt={POLICY: Policy.READ, LEADER_ONLY: "what was used is sampled, and has no position"})
async def show_usage(
    request: ApiRequest,
    job: JobFilter = "",
    task: TaskFilter = "",
    machine: SubjectMachine = "",
    since: Since = "",
) -> UsageSeries:
    """Show what was used over time, in all or by one job, task or machine; of the last three hours unless
    ``since`` says otherwise."""
    now = await request.read(lambda reading: reading.now.wall)
    key, index = _about(job, task)
    began = moment(since, "since", now)
    return await request.services.usage.series(
        UsageOf(key, index, machine), now - USAGE_SECONDS if began is None else began
    )


@get(
    "/v1/archive",
    opt={POLICY: Policy.ADMIN, PRODUCES: {"application/x-ndjson": {}}, LEADER_ONLY: READ_IS_AUDITED},
)
async def stream_archive(request: ApiRequest, since: Since = "", until: Until = "") -> Stream:
    """Stream events, attempts and samples of usage as lines of JSON; the last one of all has ``end``."""
    now = await request.read(lambda reading: reading.now.wall)
    first, last = moment(since, "since", now), moment(until, "until", now)
    if first is not None and last is not None and first > last:
        raise Invalid("since is after until", "Swap the two")
    await request.note("export archive", "")
    return Stream(await request.services.archive.begin(first, last), media_type="application/x-ndjson")


HISTORY = (
    list_events,
    explain_job,
    explain_task,
    list_history,
    show_diff,
    show_window,
    show_usage,
    stream_archive,
)
