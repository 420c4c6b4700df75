"""``borgctl job update``, ``job undo`` and ``job restart``: what runs is changed, a few tasks at a time."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from borgish.cli.at_option import AtOption, client_at
from borgish.cli.commands.job import JobName, app, indexes_of, say_accepted, tasks_path
from borgish.cli.errors import print_hint
from borgish.cli.render import Form, FormOption, show_one
from borgish.cli.rollouts import status_in_full
from borgish.cli.session import IfGeneration, MaxAffected, noun, session_of
from borgish.text import safe
from borgish.wire.api import Accepted, JobDetail, LastRolloutView, RestartRequest, RolloutView, UndoRequest

if TYPE_CHECKING:
    from borgish.client import Client

update_app = noun("See and steer how a change reaches the running tasks of a job.")
app.add_typer(update_app, name="update")

ToVersion = Annotated[
    int | None,
    typer.Option(
        "--to",
        metavar="V",
        min=1,
        help="This version, which `job history` lists. Default: the one before.",
    ),
]


class UpdateStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The update, restart or rollback of a job that is under way, and how the last one came out."""

    job: str
    version: int
    generation: int
    versions: dict[int, int]  # how many running tasks are of which
    rollout: RolloutView | None = None
    last_rollout: LastRolloutView | None = None


@update_app.command()
def status(context: typer.Context, job: JobName, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show how far an update, a restart or a rollback of a job is: what it waits for, and what to type."""
    from borgish.cli.follow import look
    from borgish.cli.lookup import find_job

    client = client_at(context, at, output)
    detail = look(client, find_job(client, job))
    if not output.is_for_people and output is not Form.NAME:
        show_one(_status(detail), output, detail.job.name, lambda *_: "")
    else:
        show_one(detail, output, detail.job.name, lambda it, _: status_in_full(it))


@update_app.command()
def pause(context: typer.Context, job: JobName, if_generation: IfGeneration = None) -> None:
    """Let the update or the restart of a job reach no more tasks, until it is resumed."""
    _steer(context, job, "pause", None, if_generation, follows=False)


@update_app.command()
def resume(context: typer.Context, job: JobName, if_generation: IfGeneration = None) -> None:
    """Let an update or a restart go on that somebody paused, or that paused since a task failed."""
    _steer(context, job, "resume", None, if_generation)


@update_app.command()
def promote(context: typer.Context, job: JobName, if_generation: IfGeneration = None) -> None:
    """Let an update whose canaries are up go on with the other tasks."""
    _steer(context, job, "promote", None, if_generation)


@update_app.command()
def undo(
    context: typer.Context, job: JobName, to: ToVersion = None, if_generation: IfGeneration = None
) -> None:
    """Take an update back: the version before it comes back. The same as `borgctl job undo`."""
    _steer(context, job, "undo", UndoRequest(to or 0), if_generation)


@app.command("undo")
def undo_job(
    context: typer.Context, job: JobName, to: ToVersion = None, if_generation: IfGeneration = None
) -> None:
    """Give a job an earlier version again, with as many tasks as it has now.

    It is an update under a new number, and reaches the tasks a few at a time. Without --to it is the version
    before the update that is under way, or before the present one.
    """
    _steer(context, job, "undo", UndoRequest(to or 0), if_generation)


@app.command()
def restart(
    context: typer.Context,
    job: JobName,
    indexes: Annotated[
        str | None, typer.Argument(metavar="[INDEXES]", help="Which tasks: 0-2,5. Default: all.")
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--now", help="Stop them all at once, whatever the budgets say.")
    ] = False,
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
) -> None:
    """Give tasks a fresh attempt.

    The running are stopped and placed anew, a few at a time within the budgets of the job; the dead run
    again at once.
    """
    if max_affected is not None and not at_once:
        raise typer.BadParameter(
            "is for --now; else a few are stopped at a time", param_hint="--max-affected"
        )
    chosen = None if indexes is None else indexes_of(indexes)
    body = RestartRequest(chosen, at_once, max_affected)
    _steer(context, job, "restart", body, if_generation, follows=not at_once)


def _steer(
    context: typer.Context,
    job: str,
    verb: str,
    body: msgspec.Struct | None,
    expected: int | None,
    *,
    follows: bool = True,
) -> None:
    """Ask for it, say what was done, and how to see what comes of it where it ``follows``."""
    from borgish.cli.lookup import find_job

    client: Client = session_of(context).client()
    name = find_job(client, job)
    say_accepted(client.post(tasks_path(name, verb), body, Accepted, expected=expected))
    if follows:
        print_hint(f"`borgctl job wait {safe(name)}` follows it")


def _status(detail: JobDetail) -> UpdateStatus:
    job = detail.job
    return UpdateStatus(
        job.name, job.version, job.generation, detail.versions, detail.rollout, detail.last_rollout
    )
