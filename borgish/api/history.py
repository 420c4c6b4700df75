"""``/v1/history``: who did what, when and why, from the whole journal."""

import re

from litestar import get

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.moments import moment
from borgish.api.parameters import AboutMachine, BeforePosition, Limit, OfJob, OfTask, Since, Until
from borgish.api.views.history import Wanted
from borgish.errors import Invalid
from borgish.vocabulary import NAME_PATTERN, TASKS_PER_JOB_MAX, split_task_name
from borgish.wire.api_past import HistoryList

LIMIT_USUAL = 100
_JOB = re.compile(f"{NAME_PATTERN}/{NAME_PATTERN}", re.ASCII)
_TASK = re.compile(f"{_JOB.pattern}/(0|[1-9][0-9]{{0,5}})", re.ASCII)


@get("/v1/history", opt={POLICY: Policy.READ})
async def list_history(
    request: Asked,
    job: OfJob = "",
    task: OfTask = "",
    machine: AboutMachine = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = LIMIT_USUAL,
    before: BeforePosition = 0,
) -> HistoryList:
    """List the latest entries of the journal that match, in order. Older ones: page.next as before."""
    now = await request.read(lambda reading: reading.now.wall)
    key, index = _about(job, task)
    wanted = Wanted(key, index, machine, moment(since, "since", now), moment(until, "until", now))
    if wanted.since is not None and wanted.until is not None and wanted.since > wanted.until:
        raise Invalid("since is after until", "Exchange the two")
    return await request.services.past.latest(wanted, before, limit)


def _about(job: str, task: str) -> tuple[str, int | None]:
    """Return the job's key, and the index when it is about a task. Raises Invalid.

    Neither need exist any more, but a name that can be nobody's would be a filter that finds nothing.
    """
    if job and task:
        raise Invalid("both a job and a task are named", "Keep one of them: a task's name has its job's")
    if job and not _JOB.fullmatch(job):
        raise Invalid(f"'{job}' is not the full name of a job", "Write it like ann/web")
    if not task:
        return job, None
    if not _TASK.fullmatch(task) or (found := split_task_name(task))[1] >= TASKS_PER_JOB_MAX:
        raise Invalid(f"'{task}' is not the full name of a task", "Write it like ann/web/0")
    return found


HISTORY = (list_history,)
