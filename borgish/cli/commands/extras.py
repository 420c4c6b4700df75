"""``borgctl dashboard``, ``borgctl schema`` and ``borgctl completion``."""

from enum import StrEnum
from typing import Annotated

import typer

from borgish.cli.at_option import NowOnly, standby_of
from borgish.cli.session import session_of, single

dashboard_app = single()


@dashboard_app.command()
def dashboard(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only look: offer no commands that change something.")
    ] = False,
    _at: NowOnly = "",
) -> None:
    """Show the cell, live, and walk through it.

    What needs somebody comes first. Enter goes into a job, a task, its log; Esc goes back; t goes back in
    time; ? shows all keys; q quits. What is done from it are commands of borgctl, asked about before. With
    --read-from standby what is of the past comes from there.
    """
    from borgish.dashboard.app import run
    from borgish.dashboard.commands import Commands

    session = session_of(context)
    client = session.client()
    role = "" if once or read_only else session.role() or "admin"  # where nobody says, the master will
    commands = Commands(session.command_line, role)
    past = standby_of(session, client) if session.from_standby else None
    raise typer.Exit(run(client, once=once, commands=commands, past=past))


schema_app = single()


@schema_app.command()
def schema(context: typer.Context) -> None:
    """Print the JSON Schema of a job file.

    It is also that of an application's document (kind: app). It names the bands of the cell when that
    answers, else the usual ones.
    """
    from borgish.bands import DEFAULT_BANDS
    from borgish.cli.render import as_json
    from borgish.cli.screen import print_out
    from borgish.spec.cron import file_schema

    print_out(as_json(file_schema(session_of(context).bands() or DEFAULT_BANDS)))


completion_app = single()


class Shell(StrEnum):
    """The shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@completion_app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="[SHELL]", help="bash, zsh or fish.")] = Shell.BASH,
) -> None:
    """Print the completion script of a shell.

    It completes commands and options. For bash: source <(borgctl completion bash)
    """
    from typer._completion_shared import get_completion_script

    from borgish.cli.screen import print_out

    print_out(get_completion_script(prog_name="borgctl", complete_var="_BORGCTL_COMPLETE", shell=shell))
