"""``borgctl task``: list, show, logs, kill, exec."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import noun
from borgish.cli.moments import AtOption, NowOnly, client_at
from borgish.cli.render import Form, FormOption, show_list, show_one
from borgish.cli.session import session_of
from borgish.vocabulary import State, task_name

if TYPE_CHECKING:
    from borgish.client import Client

app = noun("The tasks of jobs: look at them, read what they write.")

TaskName = Annotated[str, typer.Argument(metavar="TASK", help="user/job/index, or job/index where unique.")]
ProgramOption = Annotated[
    str, typer.Option("--program", metavar="NAME", help="One of its `group`; the main program unless given.")
]
TAIL_LINES_MAX = 100_000


@app.command("list")
def list_(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Only the tasks of this job.")] = "",
    of_job: Annotated[str, typer.Option("--job", metavar="JOB", help="The same, as an option.")] = "",
    machine: Annotated[str, typer.Option("--machine", help="Only tasks on this machine.")] = "",
    state: Annotated[State | None, typer.Option("--state", help="Only tasks in this state.")] = None,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List tasks."""
    from borgish.cli.names import find_job, find_machine
    from borgish.cli.pages import every_task
    from borgish.cli.task_view import TASK_COLUMNS

    client = client_at(context, at, output)
    job = job or of_job
    tasks = every_task(
        client,
        job=find_job(client, job) if job else "",
        machine=find_machine(client, machine) if machine else "",
        state=state or "",
    )
    show_list(tasks, TASK_COLUMNS, output, lambda task: task.name, "no such tasks")


@app.command()
def show(context: typer.Context, task: TaskName, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show one task."""
    from borgish.cli.task_view import task_in_full
    from borgish.wire.api import TaskView

    client = client_at(context, at, output)
    view = client.get(_path(client, task), None, TaskView)
    show_one(view, output, view.name, lambda it, wide: task_in_full(it, wide=wide))


@app.command()
def logs(
    context: typer.Context,
    task: TaskName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the task writes.")] = False,
    previous: Annotated[bool, typer.Option("--previous", help="Of the program before this one.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, max=TAIL_LINES_MAX, help="Only the last lines.")
    ] = None,
    _at: NowOnly = "",
    program: ProgramOption = "",
) -> None:
    """Show what a task wrote.

    On a terminal every control character but line end and tab is shown escaped, so that a program's
    output cannot act on the terminal. Into a file or pipe the bytes go unchanged.
    """
    client = session_of(context).client()
    params = {"previous": int(previous), "follow": int(follow), "tail": tail, "program": program}
    pass_on(client.stream(f"{_path(client, task)}/logs", params))


@app.command()
def kill(context: typer.Context, task: TaskName) -> None:
    """End one task; the rest of its job goes on.

    It stays dead until `borgctl job restart`, or submitting the same job file again, brings it back.
    """
    from borgish.cli.job import change_tasks
    from borgish.cli.names import find_task

    client = session_of(context).client()
    job, index = find_task(client, task)
    change_tasks(client, job, "kill", (index,))


@app.command("exec")
def exec_(
    context: typer.Context,
    task: TaskName,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARG]...")],
    timeout: Annotated[str, typer.Option("--timeout", help="How long it may take.")] = "60s",
    _at: NowOnly = "",
    program: ProgramOption = "",
    stdin: Annotated[
        bool | None,
        typer.Option(
            "--stdin/--no-stdin",
            "-i",
            help="Whether it reads the standard input. Unless given: when that is not a terminal.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a command beside a task: in its folder, limits and environment. Ends with its exit code.

    A pipe or a file at the standard input is passed to it, so in a loop that reads one itself write
    --no-stdin. Its output is shown as it comes, like that of `borgctl task logs -f`.
    """
    from borgish.cli.beside import run_beside
    from borgish.cli.job import seconds_of
    from borgish.wire.api import ExecCall

    seconds = seconds_of(timeout, "--timeout")
    call = ExecCall(_words(command), seconds, program)
    client = session_of(context).client()
    raise typer.Exit(run_beside(client, f"{_path(client, task)}/exec", call, _input(wanted=stdin), pass_on))


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
        from borgish.cli.text import safe_output

        _write(text.encode(errors="backslashreplace") for text in safe_output(pieces))
    else:
        _write(pieces)


def _write(pieces: Iterable[bytes] | Iterator[bytes]) -> None:
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _path(client: "Client", task: str) -> str:
    from borgish.cli.names import find_task
    from borgish.client import quoted

    return quoted("tasks", *task_name(*find_task(client, task)).split("/"))
