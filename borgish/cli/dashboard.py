"""``borgctl dashboard``: the cell, live."""

from typing import Annotated

import typer

from borgish.cli.commands import single
from borgish.cli.moments import NowOnly
from borgish.cli.session import session_of

app = single()


@app.command()
def dashboard(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    _at: NowOnly = "",
) -> None:
    """Show the cell, live.

    Machines, jobs, what is pending and why, the latest events. q leaves it, p pauses it.
    """
    from borgish.dashboard.app import run

    raise typer.Exit(run(session_of(context).client(), once=once))
