"""``/v1/events`` and ``/v1/why``: what happened, and why things are as they are."""

from litestar import get

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.finding import find_job, find_task
from borgish.api.moments import AT
from borgish.api.parameters import AfterPosition, JobName, Limit, OfJob, Owner, TaskIndex
from borgish.api.services import Reading
from borgish.api.views.why import why_job, why_task
from borgish.vocabulary import job_key
from borgish.wire.api import EventList, Page, WhyView

LIMIT_USUAL = 200


@get("/v1/events", opt={POLICY: Policy.READ, AT: True})
async def list_events(
    request: Asked, job: OfJob = "", after: AfterPosition = 0, limit: Limit = LIMIT_USUAL
) -> EventList:
    """List the latest events, in order."""
    items = await request.events(job, after, limit)
    return EventList(tuple(items), Page(), await request.as_of())


@get("/v1/why/{user:str}/{name:str}", opt={POLICY: Policy.READ, AT: True})
async def explain_job(request: Asked, user: Owner, name: JobName) -> WhyView:
    """Say why a job is as it is, and what can be done."""
    events = await request.events(job_key(user, name), 0, LIMIT_USUAL)

    def view(reading: Reading) -> WhyView:
        job = find_job(reading.cell, job_key(user, name))
        return why_job(reading.cell, reading.observed, job, reading.refusals.get(job.key, ()), events)

    return await request.read(view)


@get("/v1/why/{user:str}/{name:str}/{index:int}", opt={POLICY: Policy.READ, AT: True})
async def explain_task(request: Asked, user: Owner, name: JobName, index: TaskIndex) -> WhyView:
    """Say why a task is as it is, and what can be done."""
    events = await request.events(job_key(user, name), 0, LIMIT_USUAL)

    def view(reading: Reading) -> WhyView:
        job = find_task(reading.cell, user, name, index)
        refusals = reading.refusals.get(job.key, ())
        return why_task(reading.cell, reading.observed, job, index, refusals, events)

    return await request.read(view)


EVENTS = (list_events, explain_job, explain_task)
