"""The one place that asks before something is lost.

A command asks where what it takes away does not come back by itself: what is forgotten (a cell, users,
secrets, quotas, checkpoints ...), and what takes down a whole job, a whole machine or the whole cell. What a
job comes back from within its budgets, a restart, an update, a drain, a scale, is everyday and asks nothing.
"""

import sys
from typing import Annotated

import typer

from borgish.cli.errors import FAILED, USAGE, print_error, print_hint
from borgish.cli.screen import is_terminal, print_err

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(loss: str, *, yes: bool, typed: str = "") -> None:
    """Ask whether this may be lost; ``loss`` is a sentence that names it. With ``typed`` that word has to be
    typed, for what nobody is to lose by a habit. Ends the command where the answer is no, and with exit code
    2 where there is nobody to ask."""
    if yes:
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        print_error(f"nothing was done: {loss[:1].lower()}{loss[1:]}")
        print_hint("--yes does it without a question")
        raise typer.Exit(USAGE)
    print_err(loss, "bold")
    if typed:
        agreed = typer.prompt(f"Type {typed} to go on", default="", show_default=False, err=True) == typed
    else:
        agreed = typer.confirm("Go on?", err=True)
    if not agreed:
        print_err("nothing was done")
        raise typer.Exit(FAILED)
