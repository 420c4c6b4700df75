"""``/v1/tasks``: list, show, logs."""

from collections.abc import Iterable, Iterator
from itertools import chain

from litestar import get
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import AT
from borgish.api.openapi import PRODUCES
from borgish.api.parameters import (
    LIMIT_MAX,
    AfterTask,
    Flag,
    JobFilter,
    JobName,
    Limit,
    MachineFilter,
    Owner,
    ProgramName,
    StateFilter,
    Tail,
    TaskIndex,
    cut,
)
from borgish.api.request import ApiRequest, find_job, find_machine, find_task
from borgish.api.services import Reading
from borgish.api.streams import begun
from borgish.api.views.tasks import task_view_of
from borgish.cell.model import Cell, Job
from borgish.errors import Invalid
from borgish.vocabulary import job_key, split_task_name, task_name
from borgish.wire.api import TaskList, TaskView


@get("/v1/tasks", opt={POLICY: Policy.READ, AT: True})
async def list_tasks(
    request: ApiRequest,
    job: JobFilter = "",
    machine: MachineFilter = "",
    in_state: StateFilter = None,
    limit: Limit = LIMIT_MAX,
    after: AfterTask = "",
) -> TaskList:
    """List tasks by job and index."""
    start = _position(after)

    def view(reading: Reading) -> TaskList:
        cell = reading.cell
        found = _on_machine(cell, machine, job) if machine else _of_jobs(reading, job, start)
        named = (
            (task_name(key, index), (key, index))
            for key, index in found
            if (key, index) > start and (in_state is None or cell.jobs[key].tasks[index].state is in_state)
        )
        chosen, page = cut(named, limit)
        items = (_view(reading, cell.jobs[key], i) for key, i in chosen)
        return TaskList(tuple(items), page)

    return await request.read(view)


@get("/v1/tasks/{user:str}/{name:str}/{index:int}", opt={POLICY: Policy.READ, AT: True})
async def show_task(request: ApiRequest, user: Owner, name: JobName, index: TaskIndex) -> TaskView:
    """Show a task."""

    def view(reading: Reading) -> TaskView:
        job = find_task(reading.cell, user, name, index)
        return _view(reading, job, index)

    return await request.read(view)


@get(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/logs",
    opt={POLICY: Policy.OWN, PRODUCES: {"application/octet-stream": {}}},
)
async def task_logs(
    request: ApiRequest,
    user: Owner,
    name: JobName,
    index: TaskIndex,
    program: ProgramName = "",
    *,
    previous: Flag = False,
    incoming: Flag = False,
    follow: Flag = False,
    tail: Tail = 0,
) -> Stream:
    """Show the output of a task's program, or of the one before it, from the machine it is on; of its
    incoming attempt, while it is being replaced."""
    await request.read(lambda reading: find_task(reading.cell, user, name, index))
    task = task_name(job_key(user, name), index)
    if not request.user.owns(user):
        await request.note("logs", task)
    programs = request.services.programs
    pieces = await programs.logs(
        task, previous=previous, incoming=incoming, follow=follow, tail=tail, program=program
    )
    return Stream(await begun(pieces), media_type="application/octet-stream")


def _view(reading: Reading, job: Job, index: int) -> TaskView:
    refusals = reading.refusals.get(job.key, ())
    return task_view_of(reading.cell, reading.observed, job, index, refusals)


def _position(after: str) -> tuple[str, int]:
    """Return the (job, index) to go on after. Raises Invalid."""
    if not after:
        return "", -1
    try:
        return split_task_name(after)
    except ValueError:
        raise Invalid(f"after: '{after}' is not a task", "Pass page.next of the previous page") from None


def _of_jobs(reading: Reading, job: str, start: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the tasks of a job, or of all from one on, by job and index."""
    cell, tally = reading.cell, reading.tally
    if job:
        keys: Iterable[str] = (find_job(cell, job).key,)
    else:
        tally.fill(cell, reading.observed)
        keys = chain((start[0],) if start[0] in cell.jobs else (), tally.jobs_after(start[0]))
    for key in keys:
        first = start[1] + 1 if key == start[0] else 0
        yield from ((key, index) for index in range(first, len(cell.jobs[key].tasks)))


def _on_machine(cell: Cell, machine: str, job: str) -> list[tuple[str, int]]:
    placed = cell.placed.get(find_machine(cell, machine).name, set())
    return sorted((key, index) for key, index in placed if not job or key == job)


TASKS = (list_tasks, show_task, task_logs)
