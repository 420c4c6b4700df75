"""``borgctl job``: submit, check, list, show, kill, restart, scale, wait."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import noun
from borgish.cli.moments import AtOption, client_at
from borgish.cli.render import Form, FormOption, show_list, show_one
from borgish.cli.session import session_of

if TYPE_CHECKING:
    from borgish.client import Client

app = noun("What runs: submit, look at, change and end jobs.")

JobName = Annotated[str, typer.Argument(metavar="JOB", help="user/job, or job where only one user has it.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files; - is stdin.")]
UserOption = Annotated[
    str, typer.Option("--user", help="Whose job it is, when the file does not say. Default: you.")
]
_NO_JOBS = "no jobs; `borgctl job submit FILE` makes one"
SettleOption = Annotated[
    str | None,
    typer.Option(
        "--settle", help="How long what is up must stay so. Default: 3s, and 1s where a probe answers."
    ),
]
TimeoutOption = Annotated[str, typer.Option("--timeout", help="How long to wait: 500ms, 60s, 5m.")]


@app.command()
def submit(
    context: typer.Context,
    files: Files,
    user: UserOption = "",
    timeout: TimeoutOption = "60s",
    settle: SettleOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
    plan: Annotated[
        str, typer.Option("--plan", metavar="TOKEN", help="Do as planned by `borgctl plan`, or refuse.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would follow, as `borgctl plan` does.")
    ] = False,
) -> None:
    """Submit jobs and follow them until they are up, and stay so for a moment.

    Says at once when every task is up; ends when all stayed so or finished, or says exactly what is missing
    and what failing programs wrote last. Ctrl-C detaches: the jobs go on.
    Exit code 3: not all tasks were placed in time; 1: placed, but not up, or not for long.
    """
    from borgish.cli.plan import plan_files
    from borgish.cli.submit import submit_files

    seconds, session = seconds_of(timeout, "--timeout"), session_of(context)
    settle_seconds = None if settle is None else seconds_of(settle, "--settle")
    if plan and (dry_run or len(files) > 1):
        raise typer.BadParameter("goes with one file, and without --dry-run", param_hint="--plan")
    if dry_run:
        raise typer.Exit(plan_files(session, files, user))
    raise typer.Exit(
        submit_files(session, files, user, seconds, detach=detach, plan=plan, settle_seconds=settle_seconds)
    )


@app.command()
def check(context: typer.Context, files: Files, user: UserOption = "") -> None:
    """Report every mistake in job files; submit nothing."""
    from borgish.cli.submit import check_files

    raise typer.Exit(check_files(session_of(context), files, user))


@app.command("list")
def list_(context: typer.Context, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """List the jobs of the cell."""
    from borgish.cli.job_view import JOB_COLUMNS, PAST_JOB_COLUMNS
    from borgish.cli.pages import every_job

    jobs = every_job(client_at(context, at, output))
    columns, none = (PAST_JOB_COLUMNS, "no jobs then") if at else (JOB_COLUMNS, _NO_JOBS)
    show_list(jobs, columns, output, lambda job: job.name, none)


@app.command()
def show(context: typer.Context, job: JobName, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show one job: what it is, what is in its way, its tasks."""
    from borgish.cli.follow import look
    from borgish.cli.job_view import job_in_full
    from borgish.cli.names import find_job
    from borgish.cli.pages import every_task

    client = client_at(context, at, output)
    detail = look(client, find_job(client, job))
    name = detail.job.name
    show_one(detail, output, name, lambda it, wide: job_in_full(it, every_task(client, job=name), wide=wide))


@app.command()
def kill(context: typer.Context, job: JobName) -> None:
    """End all tasks of a job for good."""
    client = session_of(context).client()
    change_tasks(client, _found(client, job), "kill", None)


@app.command()
def restart(
    context: typer.Context,
    job: JobName,
    indexes: Annotated[
        str | None, typer.Argument(metavar="[INDEXES]", help="Which tasks: 0-2,5. Default: all.")
    ] = None,
) -> None:
    """Give tasks a fresh attempt.

    The running are stopped and placed anew, the dead run again.
    """
    client = session_of(context).client()
    change_tasks(client, _found(client, job), "restart", None if indexes is None else indexes_of(indexes))


@app.command()
def scale(
    context: typer.Context,
    job: JobName,
    tasks: Annotated[int, typer.Argument(min=0, metavar="N", help="How many tasks it has from now on.")],
) -> None:
    """Give a job N tasks."""
    from borgish.client import quoted
    from borgish.wire.api import Accepted, ScaleRequest

    client = session_of(context).client()
    path = quoted("jobs", *_found(client, job).split("/"), "scale")
    say_accepted(client.post(path, ScaleRequest(tasks), Accepted))


@app.command()
def wait(
    context: typer.Context,
    job: JobName,
    goal: Annotated[str, typer.Option("--for", metavar="up|dead|finished", help="What to wait for.")] = "up",
    timeout: TimeoutOption = "60s",
    settle: SettleOption = None,
) -> None:
    """Wait for a job. Exit code 0: it is so; 1: it cannot become so, or is not up; 3: not in time."""
    from borgish.cli.follow import Goal, follow, look, refuse_hopeless

    if goal not in set(Goal):
        raise typer.BadParameter("is one of up, dead and finished", param_hint="--for")
    seconds = seconds_of(timeout, "--timeout")
    client = session_of(context).client()
    name = _found(client, job)
    refuse_hopeless(look(client, name), Goal(goal))
    settle_seconds = None if settle is None else seconds_of(settle, "--settle")
    raise typer.Exit(*follow(client, [name], Goal(goal), seconds, settle_seconds))


def change_tasks(client: "Client", job: str, verb: str, indexes: tuple[int, ...] | None) -> None:
    """Kill or restart tasks of a job (None: all) and say what was done."""
    from borgish.client import quoted
    from borgish.wire.api import Accepted, IndexesRequest

    path = quoted("jobs", *job.split("/"), verb)
    say_accepted(client.post(path, IndexesRequest(indexes), Accepted))


def say_accepted(accepted: object) -> None:
    """Say what a command did."""
    from borgish.cli.screen import data
    from borgish.text import safe

    data(safe(getattr(accepted, "text", "")))


def seconds_of(text: str, option: str) -> float:
    """Read a duration of the command line; a plain number is in seconds."""
    from borgish.resources import parse_seconds

    try:
        return parse_seconds(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' {error}", param_hint=option) from None


def indexes_of(text: str) -> tuple[int, ...]:
    """Read indexes of the command line."""
    from borgish.cli.text import parse_indexes

    try:
        return parse_indexes(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' {error}", param_hint="INDEXES") from None


def _found(client: "Client", job: str) -> str:
    from borgish.cli.names import find_job

    return find_job(client, job)
