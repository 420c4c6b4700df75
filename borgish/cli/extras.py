"""``borgctl dashboard``, ``borgctl schema`` and ``borgctl completion``."""

from enum import StrEnum
from typing import Annotated

import typer

from borgish.cli.at_option import NowOnly
from borgish.cli.session import session_of, single

dashboard_app = single()


@dashboard_app.command()
def dashboard(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    _at: NowOnly = "",
) -> None:
    """Show the cell, live.

    Machines, jobs, what is pending and why, the latest events. q leaves it, p pauses it.
    """
    from borgish.dashboard.app import run

    raise typer.Exit(run(session_of(context).client(), once=once))


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
