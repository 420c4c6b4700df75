"""``borgctl freeze`` and ``borgctl unfreeze``: take nothing down on purpose for a while."""

from typing import Annotated

import typer

from borgish.cli.session import session_of, single
from borgish.wire.api import Accepted, FreezeRequest

freeze_app = single()
unfreeze_app = single()


@freeze_app.command()
def freeze(
    context: typer.Context,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who look.")] = "",
) -> None:
    """Take no task down on purpose until `borgctl unfreeze`.

    Updates, restarts, drains, evicting taints, rollbacks and preemption below production wait. Preemption by
    production goes on, and so does what is killed or stopped at once by name.
    """
    from borgish.cli.commands.job import say_accepted

    say_accepted(session_of(context).client().post("/v1/freeze", FreezeRequest(reason), Accepted))


@unfreeze_app.command()
def unfreeze(context: typer.Context) -> None:
    """Let tasks be taken down on purpose again, within budgets."""
    from borgish.cli.commands.job import say_accepted

    say_accepted(session_of(context).client().post("/v1/unfreeze", None, Accepted))
