"""``borgctl task``: list, show, logs, kill, exec, cp; and how tasks read."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, NowOnly, client_at
from borgish.cli.listing import (
    CellsOption,
    LabelOption,
    LimitOption,
    Listing,
    UserFilterOption,
    WatchOption,
    columns_option,
    paged,
    show_asked,
)
from borgish.cli.problems import last_exit
from borgish.cli.render import Column, Form, FormOption, fields, show_one, state_text
from borgish.cli.screen import print_err
from borgish.cli.session import noun, session_of
from borgish.errors import BorgishError
from borgish.resources import DEVICE_MILLIS, parse_bytes, show_bytes, show_cpu, show_devices
from borgish.text import age, local_times, plural, safe
from borgish.vocabulary import Outcome, Phase, State, task_name
from borgish.wire.api import IncomingView, ProgramView, TaskList, TaskView
from borgish.wire.api_commands import CopyCall, ExecCall, TerminalCall

if TYPE_CHECKING:
    from borgish.cli.lookup import Params
    from borgish.client import Client


app = noun("List and inspect tasks, and read their output.")

TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="user/job/index, or job/index where unique.", autocompletion=complete.tasks
    ),
]
ProgramOption = Annotated[
    str, typer.Option("--program", metavar="NAME", help="One of its `group`; the main program unless given.")
]
TAIL_LINES_MAX = 100_000
TASK_SORTS = ("name", "trouble", "since", "restarts", "cpu", "ram")


@app.command("list")
def list_(
    context: typer.Context,
    job: Annotated[
        str, typer.Argument(metavar="[JOB]", help="Only the tasks of this job.", autocompletion=complete.jobs)
    ] = "",
    of_job: Annotated[
        str,
        typer.Option("--job", metavar="JOB", help="The same, as an option.", autocompletion=complete.jobs),
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", "-a", help="A line for each dead task, also where many came out alike.")
    ] = False,
    label: LabelOption = "",
    user: UserFilterOption = "",
    machine: Annotated[
        str, typer.Option("--machine", help="Only tasks on this machine.", autocompletion=complete.machines)
    ] = "",
    state: Annotated[State | None, typer.Option("--state", help="Only tasks in this state.")] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="KEY",
            help="By name, trouble, since, restarts, or use of cpu or ram; -KEY is the reverse.",
            autocompletion=complete.among(*TASK_SORTS),
        ),
    ] = "",
    columns: Annotated[str, columns_option(lambda: TASK_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    cells: CellsOption = None,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List tasks. In the table, dead ones of a job that follow each other and came out alike are one line.

    As in: borgctl task list web --sort restarts -o wide
    """
    from borgish.cli.lookup import find_job, find_machine

    wanted = job or of_job

    def listing(client: "Client") -> Listing[TaskView]:
        params: Params = {
            "job": find_job(client, wanted) if wanted else "",
            "machine": find_machine(client, machine) if machine else "",
            "user": user,
            "label": label,
            "state": state,
            "sort": sort,
        }
        return Listing(
            items=paged(client, "task", params, TaskList, limit),
            columns=TASK_COLUMNS,
            form=output,
            name=lambda task: task.name,
            none="no such tasks",
            chosen=columns,
            limit=limit,
            noun="task",
            sorted_by=sort,
            folded=iter if every else folded,
            client=client,
        )

    show_asked(context, listing, cells, at, output, watch=watch)


FOLDED_MIN = 4
"""So many dead tasks that are alike are one line; fewer are shown each by itself."""


def folded(tasks: Iterable[TaskView]) -> Iterator[TaskView]:
    """Yield tasks, and in place of dead ones of a job that follow each other and came out alike one that is
    named by all of their indexes."""
    run: list[TaskView] = []
    for task in tasks:
        if run and not _goes_on(run[-1], task):
            yield from _as_one(run)
            run = []
        run.append(task)
    yield from _as_one(run)


def _goes_on(last: TaskView, task: TaskView) -> bool:
    alike = all(task.state is State.DEAD for task in (last, task)) and _how(last) == _how(task)
    return alike and (task.job, task.index) == (last.job, last.index + 1)


def _how(task: TaskView) -> tuple[object, ...]:
    return task.outcome, task.exit_code, task.signal


def _as_one(run: Sequence[TaskView]) -> Iterator[TaskView]:
    if len(run) < FOLDED_MIN:
        yield from run
        return
    reasons = {task.reason for task in run}
    yield msgspec.structs.replace(
        run[-1],
        name=f"{run[0].job}/{run[0].index}-{run[-1].index}",
        since=max(task.since for task in run),
        reason=reasons.pop() if len(reasons) == 1 else "",
    )


@app.command()
def show(context: typer.Context, task: TaskName, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show one task. As in: borgctl task show web/0"""
    client = client_at(context, at, output)
    view = client.get(_path(client, task), None, TaskView)
    show_one(view, output, view.name, lambda it, wide: task_in_full(it, wide=wide))


@app.command()
def logs(
    context: typer.Context,
    task: TaskName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new output.")] = False,
    previous: Annotated[bool, typer.Option("--previous", help="Output of the previous run.")] = False,
    incoming: Annotated[
        bool, typer.Option("--incoming", help="Of the attempt that is to take over, while it is replaced.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, max=TAIL_LINES_MAX, help="Only the last N lines.")
    ] = None,
    _at: NowOnly = "",
    program: ProgramOption = "",
) -> None:
    """Show what a task wrote.

    On a terminal every control character but line end and tab is shown escaped, so that a program's
    output cannot act on the terminal. Into a file or pipe the bytes go unchanged.
    """
    client = session_of(context).client()
    params = {
        "previous": int(previous),
        "follow": int(follow),
        "tail": tail,
        "program": program,
    }
    if incoming:  # which an older borgmaster does not know
        params["incoming"] = 1
    pieces = client.stream(f"{_path(client, task)}/logs", params)
    first = next(pieces, b"")
    if not first:
        print_err(f"{safe(task)} has written nothing")
    pass_on(chain((first,), pieces))


@app.command()
def kill(
    context: typer.Context,
    task: TaskName,
    _yes: Annotated[bool, typer.Option("--yes", "-y", hidden=True)] = False,  # as of `job kill`, which asks
) -> None:
    """End one task; the rest of its job goes on.

    It stays dead until `borgctl job restart`, or submitting the same job file again, brings it back.
    """
    from borgish.cli.commands.job import kill_tasks
    from borgish.cli.lookup import find_task

    client = session_of(context).client()
    job, index = find_task(client, task)
    kill_tasks(client, job, (index,))


@app.command("exec")
def exec_(
    context: typer.Context,
    task: TaskName,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARG]...")],
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", help="Time limit of the command. Default: 60s, or 12h with -t.", show_default=False
        ),
    ] = "",
    _at: NowOnly = "",
    program: ProgramOption = "",
    stdin: Annotated[
        bool | None,
        typer.Option(
            "--stdin/--no-stdin",
            "-i",
            help="Pass the standard input to the command. Default: unless it is a terminal.",
            show_default=False,
        ),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--tty", "-t", help="Give it a terminal, joined to this one. Implies -i.")
    ] = False,
) -> None:
    """Run a command beside a task: in its folder, limits and environment. Ends with its exit code.

    Its job has to have `allow_exec: true`. For a shell: borgctl task exec -it web/0 -- sh

    A pipe or a file at the standard input is passed to it, so in a loop that reads one itself write
    --no-stdin. Its output is shown as it comes, like that of `borgctl task logs -f`. With -t the program has
    this terminal to itself: every key goes there, and what it writes is not made safe.
    """
    from borgish.cli.commands.job import seconds_of
    from borgish.cli.commands.task_exec import exec_task

    fd = _terminal_input(wanted=stdin) if terminal else _input(wanted=stdin)
    seconds = seconds_of(timeout or ("12h" if terminal else "60s"), "--timeout")
    call = ExecCall(_words(command), seconds, program, _terminal_call(fd) if terminal else None)
    client = session_of(context).client()
    show = write_out if terminal else pass_on
    raise typer.Exit(exec_task(client, f"{_path(client, task)}/exec", call, fd, show))


@app.command()
def attach(task: TaskName) -> None:
    """Not there: programs of tasks read nothing. Says what to use."""
    name = safe(task)
    raise BorgishError(
        f"{name} cannot be attached to: the program of a task has no input",
        f"`borgctl task logs -f {name}` follows its output, `borgctl task exec -it {name} -- sh` is a shell",
    )


@app.command()
def cp(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file or folder; in a task: TASK:PATH.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where to; in a task: TASK:PATH.")],
    timeout: Annotated[str, typer.Option("--timeout", help="Time limit of the copy.")] = "1h",
    largest: Annotated[
        str, typer.Option("--max", metavar="SIZE", help="Give up when it is more than so much.")
    ] = "10GiB",
    _at: NowOnly = "",
    program: ProgramOption = "",
) -> None:
    """Copy a file or a folder out of a running task or into it.

    As in: borgctl task cp web/0:logs . One of the two is TASK:PATH; a relative PATH is from the folder in
    which the task works. Into a folder that is there it goes under its own name, as `cp -r` has it. The task
    does its part itself: what it may not read or write is not copied, whatever links lead there. It needs sh
    and tar, and `allow_exec: true` in its job.
    """
    from borgish.cli.commands.job import seconds_of
    from borgish.cli.commands.task_cp import copy_in, copy_out, split_place

    here, there = split_place(source), split_place(target)
    if bool(here.task) == bool(there.task):
        raise typer.BadParameter("one of them has to be in a task, like web/0:logs", param_hint="SRC, DST")
    if not (here.path and there.path):
        raise typer.BadParameter("a path is empty; . is the folder that one is in", param_hint="SRC, DST")
    try:
        bytes_max = parse_bytes(largest, low=1)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max") from None
    seconds = seconds_of(timeout, "--timeout")
    client = session_of(context).client()
    path = _path(client, here.task or there.task)
    if here.task:
        copy_out(
            client, path, CopyCall(here.path, timeout_seconds=seconds, program=program), target, bytes_max
        )
    else:
        call = CopyCall(there.path, to_task=True, timeout_seconds=seconds, program=program)
        copy_in(client, path, call, source, bytes_max)


def _terminal_input(*, wanted: bool | None) -> int:
    """Return the descriptor of the terminal that a program is to have. Raises BorgishError."""
    if wanted is False:
        raise typer.BadParameter("goes with the input; leave one out", param_hint="--no-stdin, --tty")
    fd = _input(wanted=True)
    if fd < 0 or not os.isatty(fd):
        raise BorgishError(
            "-t needs a terminal, and the standard input is none",
            "Leave -t out; -i alone passes a pipe or a file",
        )
    return fd


def _terminal_call(fd: int) -> TerminalCall:
    from borgish.cli.raw_terminal import terminal_size

    rows, columns = terminal_size(fd)
    return TerminalCall(rows, columns, os.environ.get("TERM") or "xterm")


def _input(*, wanted: bool | None) -> int:
    """Return the descriptor of the standard input that is to be passed on; -1 for none."""
    try:
        fd = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or replaced by what is no file
        return -1
    return fd if (not os.isatty(fd) if wanted is None else wanted) else -1


def _words(command: list[str]) -> tuple[str, ...]:
    """Return the command, which typer gives without the ``--`` before it."""
    if not command[0]:
        raise typer.BadParameter("is empty; write it like: web/0 -- ls -l", param_hint="COMMAND")
    return tuple(command)


def pass_on(pieces: Iterable[bytes]) -> None:
    """Write a program's output to stdout: made safe for a terminal, unchanged elsewhere."""
    if sys.stdout.isatty():
        from borgish.cli.render import safe_output

        write_out(text.encode(errors="backslashreplace") for text in safe_output(pieces))
    else:
        write_out(pieces)


def write_out(pieces: Iterable[bytes] | Iterator[bytes]) -> None:
    """Write to stdout as it is."""
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _path(client: "Client", task: str) -> str:
    from borgish.cli.lookup import find_task
    from borgish.client import quoted

    return quoted("tasks", *task_name(*find_task(client, task)).split("/"))


_PHASE_STYLES = {
    Phase.HEALTHY: "green",
    Phase.UP: "green",
    Phase.UNHEALTHY: "red",
    Phase.CRASH_LOOPING: "red",
    Phase.UNKILLABLE: "red",
}


def task_style(task: TaskView) -> str:
    """Return the colour of a task's state."""
    if task.state is State.RUNNING:
        return _PHASE_STYLES.get(task.phase or Phase.ASSIGNED, "yellow")
    if task.state is State.PENDING:
        return "yellow"
    return "red" if task.outcome in (Outcome.FAILED, Outcome.LOST) else "dim"


def machine_now(task: TaskView) -> str:
    """Return where a task is; "" for one that is nowhere, whose machine is the last it was on."""
    return task.machine or "" if task.state is State.RUNNING else ""


def show_ports(task: TaskView) -> str:
    """Return ``http=20001,admin=20002``."""
    return ",".join(f"{name}={port}" for name, port in task.ports.items())


def show_addresses(task: TaskView) -> str:
    """Return ``http=10.0.0.7:20001,admin=10.0.0.7:20002``: where each port is reached."""
    return ",".join(f"{name}={address}" for name, address in task.address.items())


def devices_text(task: TaskView) -> str:
    """Return ``gpu:0,gpu:1``, with what it has of them where that is a part: ``gpu:0 (500m)``."""
    parts = [show_devices(m) for m in task.resources.devices.values() if m % DEVICE_MILLIS]
    return ",".join(task.devices) + (f" ({', '.join(parts)})" if parts and task.devices else "")


def program_text(program: ProgramView) -> str:
    """Return ``proxy: up, pid 4711, 2 restarts``."""
    parts = [program.phase, f"pid {program.pid}" * bool(program.pid)]
    parts += [plural(program.restarts, "restart") * bool(program.restarts), program.reason]
    return f"{program.name}: {', '.join(filter(None, parts))}"


def incoming_text(incoming: IncomingView) -> str:
    """Return what is to take over from a task, what it waits for, and why the task is replaced."""
    ports = ",".join(f"{name}={port}" for name, port in incoming.ports.items())
    return f"{incoming.text}{ports and f' ({ports})'}; {incoming.why}"


TASK_COLUMNS: tuple[Column[TaskView], ...] = (
    Column("NAME", lambda task: task.name),
    Column("STATE", lambda task: state_text(task.state, task.outcome), task_style),
    Column("PHASE", lambda task: task.phase or "-", task_style),
    Column("MACHINE", lambda task: machine_now(task) or "-"),
    Column("PORTS", lambda task: show_ports(task) or "-"),
    Column("ADDRESS", lambda task: show_addresses(task) or "-", wide=True),
    Column("RESTARTS", lambda task: str(task.restarts), right=True, wide=True),
    Column("PID", lambda task: str(task.pid or "-"), right=True, wide=True),
    Column("VERSION", lambda task: str(task.version), right=True, wide=True),
    Column("ATTEMPT", lambda task: str(task.attempt), right=True, wide=True),
    Column("PRIORITY", lambda task: str(task.priority), right=True, wide=True),
    Column("CPU", lambda task: _usage_text(task, cpu=True), right=True, wide=True, restless=True),
    Column("RAM", lambda task: _usage_text(task, cpu=False), right=True, wide=True, restless=True),
    Column("EXIT", lambda task: last_exit(task) or "-", wide=True),
    Column("AGE", lambda task: age(task.since), right=True, restless=True),
    Column("REASON", lambda task: task.reason or (task.incoming.text if task.incoming else "")),
)


def _usage_text(task: TaskView, *, cpu: bool) -> str:
    """Return usage and limit: ``12m/500m``."""
    if cpu:
        used = show_cpu(task.usage.cpu_millis) if task.usage else "-"
        return f"{used}/{show_cpu(task.resources.cpu_millis)}"
    used = show_bytes(task.usage.ram_bytes) if task.usage else "-"
    return f"{used}/{show_bytes(task.resources.ram_bytes)}"


def task_in_full(task: TaskView, *, wide: bool) -> str:
    """Return one task as people read it."""
    del wide  # it is always shown in full
    return fields(
        [
            ("task", task.name),
            ("state", f"{state_text(task.state, task.outcome)} {task.phase or ''}".strip()),
            ("reason", local_times(task.reason)),
            ("since", f"{age(task.since)} ago"),
            ("machine", machine_now(task)),
            ("last machine", "" if machine_now(task) else task.machine or ""),
            ("alloc", task.alloc),
            ("attempt", str(task.attempt) if task.attempt else ""),
            ("version", str(task.version) if task.attempt else ""),
            ("pid", str(task.pid) if task.pid else ""),
            ("programs", "; ".join(map(program_text, task.programs))),
            ("ports", show_ports(task)),
            ("address", show_addresses(task)),
            ("incoming", incoming_text(task.incoming) if task.incoming else ""),
            ("devices", devices_text(task)),
            ("started", f"{age(task.started_at)} ago" if task.started_at else ""),
            ("restarts", str(task.restarts)),
            ("last exit", last_exit(task)),
            ("priority", str(task.priority)),
            ("cpu", f"{_usage_text(task, cpu=True)} used/limit"),
            ("ram", f"{_usage_text(task, cpu=False)} used/limit"),
            ("not held", "; ".join(task.not_held)),
        ]
    )
