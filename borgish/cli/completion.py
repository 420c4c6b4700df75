"""``borgctl completion``: the script with which a shell completes borgctl's words."""

from enum import StrEnum
from typing import Annotated

import typer

from borgish.cli.commands import single

app = single()


class Shell(StrEnum):
    """The shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="[SHELL]", help="bash, zsh or fish.")] = Shell.BASH,
) -> None:
    """Print the completion script of a shell.

    It completes commands and options. For bash: source <(borgctl completion bash)
    """
    from typer._completion_shared import get_completion_script

    from borgish.cli.screen import data

    data(get_completion_script(prog_name="borgctl", complete_var="_BORGCTL_COMPLETE", shell=shell))
