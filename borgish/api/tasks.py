"""``/v1/tasks``: list, show, logs, exec."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from litestar import get, post
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.middleware import LASTS
from borgish.api.moments import AT
from borgish.api.openapi import CONSUMES, PRODUCES
from borgish.api.parameters import (
    LIMIT_MAX,
    AfterTask,
    Flag,
    JobFilter,
    JobName,
    Limit,
    MachineFilter,
    Offset,
    Owner,
    ProgramName,
    RequiredSession,
    Session,
    StateFilter,
    Tail,
    TaskIndex,
    cut,
)
from borgish.api.request import ApiRequest, find_job, find_machine, find_task
from borgish.api.services import Reading
from borgish.api.views.tasks import task_view_of
from borgish.cell.model import Cell, Job
from borgish.errors import Invalid
from borgish.vocabulary import job_key, split_task_name, task_name
from borgish.wire.api import ExecCall, TaskList, TaskView
from borgish.wire.link import ExecReply, StdinReply

EXEC_SECONDS_MAX = 3600.0
EXEC_WORDS_MAX = 1000
EXEC_BYTES_MAX = 256 * 1024  # two words of the longest that Linux gives to a program
STDIN_PIECE_BYTES_MAX = 1024 * 1024  # a borglet takes as much
FIRST_PIECE_SECONDS = 1.0


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
        found = _on_machine(cell, machine, job) if machine else _of_jobs(cell, job, start)
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
    return Stream(await _begun(pieces), media_type="application/octet-stream")


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/exec",
    opt={POLICY: Policy.OWN, CONSUMES: ExecCall},
    status_code=200,
    request_max_body_size=EXEC_BYTES_MAX,
)
async def exec_beside_task(request: ApiRequest, user: Owner, name: JobName, index: TaskIndex) -> ExecReply:
    """Run a command beside a running task, with its folder, limits and environment."""
    call = await _exec_call(request)
    await request.read(lambda reading: find_task(reading.cell, user, name, index))
    task = task_name(job_key(user, name), index)
    await request.note("exec", task)
    return await request.services.programs.exec(task, call.run, call.timeout_seconds, call.program)


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/exec/stream",
    opt={POLICY: Policy.OWN, CONSUMES: ExecCall, PRODUCES: {"application/x-ndjson": {}}},
    status_code=200,
    request_max_body_size=EXEC_BYTES_MAX,
)
async def exec_and_stream(
    request: ApiRequest, user: Owner, name: JobName, index: TaskIndex, session: Session = ""
) -> Stream:
    """Run a command as exec does, and answer while it runs: lines of JSON with output, base64, and in the
    last one exit_code, or error. It ends when nobody reads them. With a session it reads what is sent to
    exec/stdin."""
    call = await _exec_call(request)
    await request.read(lambda reading: find_task(reading.cell, user, name, index))
    task = task_name(job_key(user, name), index)
    await request.note("exec", task)
    programs = request.services.programs
    lines = await programs.exec_stream(task, call.run, call.timeout_seconds, call.program, session)
    return Stream(await _begun(lines), media_type="application/x-ndjson")


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/exec/stdin",
    opt={POLICY: Policy.OWN, CONSUMES: "piece of input"},
    status_code=200,
    request_max_body_size=STDIN_PIECE_BYTES_MAX,
)
async def pass_input(
    request: ApiRequest,
    user: Owner,
    name: JobName,
    index: TaskIndex,
    session: RequiredSession,
    offset: Offset = 0,
    program: ProgramName = "",
    *,
    end: Flag = False,
) -> StdinReply:
    """Pass a piece of input to a command of exec/stream. The answer says how much was taken so far: what
    was not is to be sent again, and is not while the command does not read."""
    await request.read(lambda reading: find_task(reading.cell, user, name, index))
    task = task_name(job_key(user, name), index)
    data = await request.body()
    return await request.services.programs.exec_stdin(task, program, session, offset, data, end=end)


async def _exec_call(request: ApiRequest) -> ExecCall:
    request.scope["state"][LASTS] = True
    call = await request.json_as(ExecCall)
    if not call.run or len(call.run) > EXEC_WORDS_MAX:
        raise Invalid(f"run needs 1 to {EXEC_WORDS_MAX} words", 'Write it like {"run": ["ls", "-l"]}')
    if not call.run[0] or any("\0" in word for word in call.run):
        raise Invalid("run must name a program and contain no NUL", "No program can be given a NUL")
    if not 0 < call.timeout_seconds <= EXEC_SECONDS_MAX:
        raise Invalid(f"timeout_seconds is outside 0 to {EXEC_SECONDS_MAX:.0f}", "The default is one minute")
    return call


def _view(reading: Reading, job: Job, index: int) -> TaskView:
    refusals = reading.refusals.get(job.key, ())
    return task_view_of(reading.cell, reading.observed, job, index, refusals)


async def _begun(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Wait a moment for the first piece, so that what is in its way can still be answered as an error."""
    first = asyncio.create_task(_next(pieces))
    await asyncio.wait({first}, timeout=FIRST_PIECE_SECONDS)
    if first.done():
        first.result()
    return _from(first, pieces)


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces, b"")


async def _from(first: asyncio.Task[bytes], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield await first
        async for piece in pieces:
            yield piece
    finally:
        first.cancel()


def _position(after: str) -> tuple[str, int]:
    """Return the (job, index) to go on after. Raises Invalid."""
    if not after:
        return "", -1
    try:
        return split_task_name(after)
    except ValueError:
        raise Invalid(f"after: '{after}' is not a task", "Pass page.next of the previous page") from None


def _of_jobs(cell: Cell, job: str, start: tuple[str, int]) -> Iterator[tuple[str, int]]:
    keys = [find_job(cell, job).key] if job else sorted(key for key in cell.jobs if key >= start[0])
    return ((key, task.index) for key in keys for task in cell.jobs[key].tasks)


def _on_machine(cell: Cell, machine: str, job: str) -> list[tuple[str, int]]:
    placed = cell.placed.get(find_machine(cell, machine).name, set())
    return sorted((key, index) for key, index in placed if not job or key == job)


TASKS = (list_tasks, show_task, task_logs, exec_beside_task, exec_and_stream, pass_input)
