"""``/v1/tasks``: list, show, logs."""

from litestar import get
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.lists import Order, Scan, listed
from borgish.api.moments import AT, LEADER_ONLY, moment
from borgish.api.openapi import PRODUCES
from borgish.api.parameters import (
    LIMIT_MAX,
    TASK_SORTS,
    AfterTask,
    AttemptId,
    Flag,
    JobFilter,
    JobName,
    LabelFilter,
    Limit,
    MachineFilter,
    Owner,
    ProgramName,
    RestartsOf,
    Since,
    SortTasks,
    StateFilter,
    Tail,
    TaskIndex,
    TextFilter,
    UserFilter,
)
from borgish.api.records import TaskPlace, TaskQuery, TaskRecords
from borgish.api.request import ApiRequest, find_task
from borgish.api.services import Reading
from borgish.api.streams import begun
from borgish.api.views.tasks import task_view_of
from borgish.cell.model import Job
from borgish.errors import Invalid
from borgish.spec.selectors import read_label
from borgish.vocabulary import job_key, split_task_name, task_name
from borgish.wire.api import Page, TaskList, TaskView
from borgish.wire.link import LogWanted


@get("/v1/tasks", opt={POLICY: Policy.READ, AT: True})
async def list_tasks(
    request: ApiRequest,
    job: JobFilter = "",
    machine: MachineFilter = "",
    user: UserFilter = "",
    in_state: StateFilter = None,
    label: LabelFilter = "",
    text: TextFilter = "",
    sort: SortTasks = "",
    limit: Limit = LIMIT_MAX,
    after: AfterTask = "",
) -> TaskList:
    """List tasks. A label is one of their job. What nobody knows of the past, as what was used, counts as
    nothing where it is sorted by that."""
    order = Order(sort, after, TASK_SORTS, lambda place: task_name(*place), split_task_name)
    query = TaskQuery(job, machine, user, in_state, read_label(label), text.lower())

    def view(reading: Reading, places: list[TaskPlace], page: Page) -> TaskList:
        items = (_view(reading, reading.cell.jobs[key], index) for key, index in places)
        return TaskList(tuple(items), page)

    scan = Scan(lambda reading: TaskRecords(reading, query, order.key), order, limit)
    return await listed(request, scan, view)


@get("/v1/tasks/{user:str}/{name:str}/{index:int}", opt={POLICY: Policy.READ, AT: True})
async def show_task(request: ApiRequest, user: Owner, name: JobName, index: TaskIndex) -> TaskView:
    """Show a task."""

    def view(reading: Reading) -> TaskView:
        job = find_task(reading.cell, user, name, index)
        return _view(reading, job, index)

    return await request.read(view)


@get(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/logs",
    opt={
        POLICY: Policy.OWN,
        PRODUCES: {"application/octet-stream": {}},
        LEADER_ONLY: "machines are reached by who leads",
    },
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
    attempt: AttemptId = 0,
    restarts: RestartsOf = None,
    since: Since = "",
    timestamps: Flag = False,
) -> Stream:
    """Show the output of a task's program, or of the one before it, from the machine it is on; of its
    incoming attempt, while it is being replaced. With attempt and restarts, as its view has them, it is that
    of exactly this run: whoever follows a task asks for one run after the other, and gets none twice. With
    timestamps each line has in front when it was written, to a second."""
    if restarts is not None and not attempt:
        raise Invalid("restarts is about an attempt, and none is given", "Pass attempt as well")
    await request.read(lambda reading: find_task(reading.cell, user, name, index))
    task = task_name(job_key(user, name), index)
    if not request.user.owns(user):
        await request.note("logs", task)
    programs = request.services.programs
    begin = 0.0
    if since:
        now = await request.read(lambda reading: reading.now.wall)
        begin = moment(since, "since", now) or 0.0
    wanted = LogWanted(previous, follow, tail, max(0.0, begin), timestamps)
    pieces = await programs.logs(
        task, wanted, incoming=incoming, program=program, attempt=attempt, restarts=restarts
    )
    return Stream(await begun(pieces), media_type="application/octet-stream")


def _view(reading: Reading, job: Job, index: int) -> TaskView:
    refusals = reading.refusals.get(job.key, ())
    return task_view_of(reading.cell, reading.observed, job, index, refusals)


TASKS = (list_tasks, show_task, task_logs)
