"""Commands beside tasks, copies of files, connections to ports: ``/v1/tasks/...`` exec, copy, forward.

A command with a *session* is a conversation: its output is the answer to the request that began it, a line
of JSON a piece, and its input comes in requests of their own, each answered when it was taken. So whoever
reads or writes slowly slows the other end, no more than two pieces wait anywhere, and every one of these
requests passes the same door. It ends with the request that began it.
"""

import re

from litestar import post
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.copying import copy_command
from borgish.api.errors import TOO_LARGE
from borgish.api.middleware import LASTS
from borgish.api.openapi import CONSUMES, PRODUCES
from borgish.api.parameters import (
    Columns,
    Flag,
    JobName,
    Offset,
    Owner,
    ProgramName,
    RequiredSession,
    Rows,
    Session,
    TaskIndex,
)
from borgish.api.request import ApiRequest, find_task
from borgish.api.services import Reading
from borgish.api.streams import begun
from borgish.cell.access.authorization import authorize_commands
from borgish.errors import Invalid
from borgish.vocabulary import job_key, task_name
from borgish.wire.api_commands import CopyCall, ExecCall, ForwardCall, TerminalCall
from borgish.wire.link import ExecReply, StdinReply, Terminal

COMMAND_SECONDS_MAX = 86_400.0
EXEC_WORDS_MAX = 1000
EXEC_BYTES_MAX = 256 * 1024  # two words of the longest that Linux gives to a program
LONG_HINT = "Put what is long into a file, bring that by `borgctl task cp`, and let the command read it"
LONGER = ("the command is larger than {limit} bytes", LONG_HINT)
STDIN_PIECE_BYTES_MAX = 1024 * 1024  # a borglet takes as much
TERMINAL_SIDE_MAX = 10_000
PATH_CHARACTERS_MAX = 4096
_TERMINAL_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/exec",
    opt={POLICY: Policy.OWN, CONSUMES: ExecCall, TOO_LARGE: LONGER},
    status_code=200,
    request_max_body_size=EXEC_BYTES_MAX,
)
async def exec_beside_task(request: ApiRequest, user: Owner, name: JobName, index: TaskIndex) -> ExecReply:
    """Run a command beside a running task, with its folder, limits and environment."""
    call = await _exec_call(request, "")
    task = await _open_task(request, user, name, index, "exec")
    return await request.services.programs.exec(task, call.run, call.timeout_seconds, call.program)


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/exec/stream",
    opt={
        POLICY: Policy.OWN,
        CONSUMES: ExecCall,
        PRODUCES: {"application/x-ndjson": {}},
        TOO_LARGE: LONGER,
    },
    status_code=200,
    request_max_body_size=EXEC_BYTES_MAX,
)
async def exec_and_stream(
    request: ApiRequest, user: Owner, name: JobName, index: TaskIndex, session: Session = ""
) -> Stream:
    """Run a command as exec does, and answer while it runs: lines of JSON with output, base64, and in the
    last one exit_code, or error. It ends when nobody reads them. With a session it reads what is sent to
    exec/stdin."""
    call = await _exec_call(request, session)
    task = await _open_task(request, user, name, index, "exec")
    asked = call.terminal
    terminal = Terminal(asked.rows, asked.columns, asked.kind) if asked else None
    lines = await request.services.programs.exec_stream(
        task,
        call.run,
        call.timeout_seconds,
        call.program,
        session,
        terminal=terminal,
        silence_seconds=call.silence_seconds,
    )
    return Stream(await begun(lines), media_type="application/x-ndjson")


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/copy",
    opt={POLICY: Policy.OWN, CONSUMES: CopyCall, PRODUCES: {"application/x-ndjson": {}}},
    status_code=200,
    request_max_body_size=EXEC_BYTES_MAX,
)
async def copy_files(
    request: ApiRequest, user: Owner, name: JobName, index: TaskIndex, session: Session = ""
) -> Stream:
    """Copy a file or folder out of a running task, or into it, as the task itself could: by sh and tar beside
    it. Out of it, the output is an archive and, behind that, what tar said. Into it: the first line of output
    is folder, where the path is one and what is copied goes into it, or name; then tar reads an archive from
    exec/stdin. Lines and session are as for exec/stream."""
    call = await _copy_call(request, session)
    task = await _open_task(request, user, name, index, "cp")
    lines = await request.services.programs.exec_stream(
        task,
        copy_command(call.path, to_task=call.to_task),
        call.timeout_seconds,
        call.program,
        session,
        silence_seconds=call.silence_seconds,
    )
    return Stream(await begun(lines), media_type="application/x-ndjson")


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
    rows: Rows = 0,
    columns: Columns = 0,
    *,
    end: Flag = False,
) -> StdinReply:
    """Pass a piece of input, or the new size of its terminal, to a command of exec/stream or copy. The answer
    says how much was taken so far: what was not is to be sent again, and is not while the command does not
    read. An empty piece says that somebody is there."""
    task = await _allowed_task(request, user, name, index)
    data = await request.body()
    if bool(rows) != bool(columns):
        raise Invalid("rows and columns are given together", "Send both, or neither")
    return await request.services.programs.exec_stdin(
        task, program, session, offset, data, end=end, size=(rows, columns)
    )


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/forward",
    opt={POLICY: Policy.OWN, CONSUMES: ForwardCall, PRODUCES: {"application/x-ndjson": {}}},
    status_code=200,
)
async def forward_port(
    request: ApiRequest, user: Owner, name: JobName, index: TaskIndex, session: RequiredSession
) -> Stream:
    """Join a port of a running task, also where its machine cannot be reached: what comes from the program is
    the output in lines of JSON, as of exec/stream, and what is sent to forward/stdin with the session goes to
    it. It needs no allow_exec: a port is what a program offers."""
    request.scope["state"][LASTS] = True
    call = await request.json_as(ForwardCall)
    _check_seconds(call.timeout_seconds, call.silence_seconds, session)
    task = await _task(request, user, name, index)
    await request.note("port-forward", task)
    lines = await request.services.programs.forward(
        task, call.port, session, call.silence_seconds, call.timeout_seconds
    )
    return Stream(await begun(lines), media_type="application/x-ndjson")


@post(
    "/v1/tasks/{user:str}/{name:str}/{index:int}/forward/stdin",
    opt={POLICY: Policy.OWN, CONSUMES: "piece of input"},
    status_code=200,
    request_max_body_size=STDIN_PIECE_BYTES_MAX,
)
async def pass_to_port(
    request: ApiRequest,
    user: Owner,
    name: JobName,
    index: TaskIndex,
    session: RequiredSession,
    offset: Offset = 0,
    *,
    end: Flag = False,
) -> StdinReply:
    """Pass a piece of input to what forward has joined. The answer is that of exec/stdin."""
    task = await _task(request, user, name, index)
    data = await request.body()
    return await request.services.programs.exec_stdin(task, "", session, offset, data, end=end)


async def _task(request: ApiRequest, user: str, name: str, index: int) -> str:
    await request.read(lambda reading: find_task(reading.cell, user, name, index))
    return task_name(job_key(user, name), index)


async def _allowed_task(request: ApiRequest, user: str, name: str, index: int) -> str:
    """Return the name of a task whose job allows commands. Raises NotFound and Forbidden."""

    def look(reading: Reading) -> None:
        authorize_commands(find_task(reading.cell, user, name, index).spec)

    await request.read(look)
    return task_name(job_key(user, name), index)


async def _open_task(request: ApiRequest, user: str, name: str, index: int, action: str) -> str:
    """Return the same, and have the audit log say what begins."""
    task = await _allowed_task(request, user, name, index)
    await request.note(action, task)
    return task


async def _exec_call(request: ApiRequest, session: str) -> ExecCall:
    request.scope["state"][LASTS] = True
    call = await request.json_as(ExecCall)
    if not call.run:
        raise Invalid("run names no command", 'Write it like {"run": ["ls", "-l"]}')
    if len(call.run) > EXEC_WORDS_MAX:
        raise Invalid(f"a command has at most {EXEC_WORDS_MAX} words, this one {len(call.run)}", LONG_HINT)
    if not call.run[0] or any("\0" in word for word in call.run):
        raise Invalid("run must name a program and contain no NUL", "No program can be given a NUL")
    if call.terminal:
        _check_terminal(call.terminal, session)
    _check_seconds(call.timeout_seconds, call.silence_seconds, session)
    return call


async def _copy_call(request: ApiRequest, session: str) -> CopyCall:
    request.scope["state"][LASTS] = True
    call = await request.json_as(CopyCall)
    if not call.path or "\0" in call.path or len(call.path) > PATH_CHARACTERS_MAX:
        raise Invalid(
            f"path needs 1 to {PATH_CHARACTERS_MAX} characters, none of them NUL", "Like logs/today"
        )
    if call.to_task and not session:
        raise Invalid("a copy into a task needs a session", "What is sent to exec/stdin with it is copied")
    _check_seconds(call.timeout_seconds, call.silence_seconds, session)
    return call


def _check_terminal(asked: TerminalCall, session: str) -> None:
    if not (1 <= asked.rows <= TERMINAL_SIDE_MAX and 1 <= asked.columns <= TERMINAL_SIDE_MAX):
        raise Invalid(f"a terminal has 1 to {TERMINAL_SIDE_MAX} rows and columns", "24 and 80 are usual")
    if not _TERMINAL_KIND.fullmatch(asked.kind):
        raise Invalid("kind is no name of a terminal", "Send what TERM says, like xterm-256color")
    if not session:
        raise Invalid("a terminal needs a session", "What is typed comes to exec/stdin with it")


def _check_seconds(timeout_seconds: float, silence_seconds: float, session: str) -> None:
    if not 0 < timeout_seconds <= COMMAND_SECONDS_MAX:
        raise Invalid(f"timeout_seconds is outside 0 to {COMMAND_SECONDS_MAX:.0f}", "It bounds all of it")
    if not 0 <= silence_seconds <= COMMAND_SECONDS_MAX:
        raise Invalid(f"silence_seconds is outside 0 to {COMMAND_SECONDS_MAX:.0f}", "0 means for ever")
    if silence_seconds and not session:
        raise Invalid("silence_seconds needs a session", "It is about what comes to exec/stdin with it")


COMMANDS = (exec_beside_task, exec_and_stream, copy_files, pass_input, forward_port, pass_to_port)
