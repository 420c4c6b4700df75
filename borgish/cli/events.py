"""``borgctl events``: what happened."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import single
from borgish.cli.moments import AtOption, client_at
from borgish.cli.render import Form, FormOption, as_json_line, as_yaml, show_list
from borgish.cli.screen import data, painted
from borgish.cli.table import Column
from borgish.text import clock_time, safe, show_indexes
from borgish.wire.api import EventView

if TYPE_CHECKING:
    from borgish.client import Client

app = single()

_AT_ONCE_MAX = 1000


def about(event: EventView) -> str:
    """Return what an event is about: a job, some of its tasks, or a machine."""
    if event.job:
        return f"{event.job}/{show_indexes(event.indexes)}" if event.indexes else event.job
    return event.machine or "cell"


EVENT_COLUMNS: tuple[Column[EventView], ...] = (
    Column("AT", lambda event: clock_time(event.at)),
    Column("POSITION", lambda event: str(event.position), right=True, wide=True),
    Column("ABOUT", about),
    Column("MACHINE", lambda event: event.machine or "-", wide=True),
    Column("KIND", lambda event: event.kind, lambda event: "red" if event.bad else ""),
    Column("WHAT", lambda event: event.text),
)


@app.command()
def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="Only of this job.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_AT_ONCE_MAX, help="The latest N.")] = 50,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Show what happened, the latest last.

    With -f and -o json each event is one object on a line.
    """
    from borgish.cli.names import find_job
    from borgish.cli.pages import latest_events

    if follow and at:
        raise typer.BadParameter("what follows comes now", param_hint="--follow")
    client = client_at(context, at, output)
    key = find_job(client, job) if job else ""
    if follow:
        follow_events(client, key, limit, output)
        return
    items = latest_events(client, job=key, limit=limit)
    show_list(items, EVENT_COLUMNS, output, lambda event: str(event.position), "nothing has happened yet")


def follow_events(client: "Client", job: str, limit: int, form: Form) -> None:
    """Show the latest events and then each as it comes, until interrupted. A master away is waited for."""
    from borgish.cli.changes import TICK_SECONDS, Changes
    from borgish.cli.pages import latest_events
    from borgish.errors import Unreachable

    changes = Changes(client, "event", job)
    seen = _show_after(latest_events(client, job=job, limit=limit), 0, form)
    try:
        while True:
            changes.wait(TICK_SECONDS)
            try:
                news = latest_events(client, job=job, after=seen, limit=_AT_ONCE_MAX)
            except Unreachable:
                continue
            seen = _show_after(news, seen, form)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _show_after(items: Sequence[EventView], seen: int, form: Form) -> int:
    """Show the events above a position and return the position now seen."""
    for event in items:
        if event.position > seen:
            data(_line(event, form))
    sys.stdout.flush()
    return max([seen, *(event.position for event in items)])


def _line(event: EventView, form: Form) -> str:
    if form is Form.JSON:
        return as_json_line(event)
    if form is Form.YAML:
        return f"---\n{as_yaml(event)}"
    if form is Form.NAME:
        return str(event.position)
    kind = painted(safe(event.kind), "red" if event.bad else "", sys.stdout)
    return f"{clock_time(event.at)}  {safe(about(event))}  {kind}  {safe(event.text)}"
