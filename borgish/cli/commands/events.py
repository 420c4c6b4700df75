"""``borgctl events`` and ``borgctl why``: what happened, and why things are as they are."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.listing import Listing, choose, columns_option, one_more, sort_option
from borgish.cli.render import (
    Column,
    Form,
    FormOption,
    as_yaml,
    draw,
    show_one,
    state_text,
    writer,
)
from borgish.cli.screen import print_out, styled
from borgish.cli.session import single
from borgish.text import clock_time, local_times, safe, safe_lines, show_indexes, wall_time
from borgish.wire.api import EventView, WhyView

if TYPE_CHECKING:
    from borgish.client import Client


events_app = single()

_AT_ONCE_MAX = 1000


def about(event: EventView) -> str:
    """Return what an event is about: a job, some of its tasks, or a machine."""
    if event.job:
        return f"{event.job}/{show_indexes(event.indexes)}" if event.indexes else event.job
    return event.machine or "cell"


EVENT_COLUMNS: tuple[Column[EventView], ...] = (
    Column("AT", lambda event: clock_time(event.at), by=lambda event: wall_time(event.at)),
    Column("POSITION", lambda event: str(event.position), right=True, wide=True),
    Column("ABOUT", about),
    Column("MACHINE", lambda event: event.machine or "-", wide=True),
    Column("KIND", lambda event: event.kind, lambda event: "red" if event.bad else ""),
    Column("WHAT", lambda event: event.text),
)


@events_app.command()
def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new events.")] = False,
    job: Annotated[
        str,
        typer.Option("--job", metavar="JOB", help="Only events of this job.", autocompletion=complete.jobs),
    ] = "",
    task: Annotated[
        str,
        typer.Option(
            "--task", metavar="TASK", help="Only events of this task.", autocompletion=complete.tasks
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=_AT_ONCE_MAX, help="Only the latest N events.")
    ] = 50,
    sort: Annotated[str, sort_option(lambda: EVENT_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: EVENT_COLUMNS)] = "",
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Show what happened, the latest last.

    With -f and -o json each event is one object on a line. As in: borgctl events -f --job web
    """
    from borgish.cli.lookup import find_job, find_task, latest_events

    if job and task:
        raise typer.BadParameter("cannot be combined with --job", param_hint="--task")
    if follow and (at or sort):
        raise typer.BadParameter(
            f"cannot be combined with {'--at' if at else '--sort'}", param_hint="--follow"
        )
    client = client_at(context, at, output, leader_only=follow)
    name = "{}/{}".format(*find_task(client, task)) if task else ""
    key = find_job(client, job) if job else ""
    if follow:
        follow_events(client, key, name, limit, output, columns)
        return
    Listing(
        items=lambda: latest_events(client, job=key, task=name, limit=one_more(context, limit)),
        columns=EVENT_COLUMNS,
        form=output,
        name=_name,
        none="no events yet",
        chosen=columns,
        sort=sort,
        latest=limit,
        nouns="events",
    ).show()


def _name(event: EventView) -> str:
    return str(event.position)


def follow_events(client: "Client", job: str, task: str, limit: int, form: Form, columns: str) -> None:
    """Show the latest events, of a job or of a task where one is named, and then each as it comes, until
    interrupted. A master away is waited for."""
    from borgish.cli.changes import TICK_SECONDS, Changes
    from borgish.cli.lookup import latest_events
    from borgish.errors import Unreachable

    changes = Changes(client, "event", job or task.rpartition("/")[0])
    write = _writer(form, columns)
    seen = _show_after(latest_events(client, job=job, task=task, limit=limit), 0, write)
    try:
        while True:
            changes.wait(TICK_SECONDS)
            try:
                news = latest_events(client, job=job, task=task, after=seen, limit=_AT_ONCE_MAX)
            except Unreachable:
                continue
            seen = _show_after(news, seen, write)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _show_after(items: Sequence[EventView], seen: int, write: Callable[[Sequence[EventView]], str]) -> int:
    """Show the events above a position and return the position now seen."""
    if news := [event for event in items if event.position > seen]:
        print_out(write(news))
    sys.stdout.flush()
    return max([seen, *(event.position for event in items)])


def _writer(form: Form, columns: str) -> Callable[[Sequence[EventView]], str]:
    """Return what writes events as they come; of json and yaml, each by itself."""
    chosen, fields = choose(columns, EVENT_COLUMNS, form)
    if form is Form.JSON:
        form = Form.JSONL
    if form is Form.YAML:
        return lambda items: "".join(f"---\n{as_yaml(event)}" for event in items)
    if form.is_for_people and not columns:
        return lambda items: "\n".join(map(_line, items))
    return writer(chosen, form, _name, fields)


def _line(event: EventView) -> str:
    kind = styled(safe(event.kind), "red" if event.bad else "", sys.stdout)
    return f"{clock_time(event.at)}  {safe(about(event))}  {kind}  {safe(local_times(event.text))}"


why_app = single()


@why_app.command()
def why(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TASK-JOB-or-APP",
            help="web/0, web, ann/web, shop",
            autocompletion=complete.jobs_and_tasks,
        ),
    ],
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Say why a task, a job or an application is as it is."""
    from borgish.cli.lookup import why_path

    client = client_at(context, at, output, leader_only=not at)
    view = client.get(why_path(client, name), None, WhyView)
    show_one(view, output, view.name, lambda it, wide: explained(it, wide=wide))


def explained(view: WhyView, *, wide: bool) -> str:
    """Return the answer as people read it: the reason, the refusals, the tasks, what happened."""
    from borgish.cli.commands.task import TASK_COLUMNS
    from borgish.cli.problems import refusal_lines

    reason = safe_lines(local_times(view.text))
    parts = [f"{safe(view.name)} is {state_text(view.state, view.outcome)}: {reason}\n"]
    if view.refusals:
        parts.append("\n".join(line for refusal in view.refusals for line in refusal_lines(refusal)) + "\n")
    if view.tasks:
        parts.append(draw(view.tasks, [c for c in TASK_COLUMNS if wide or not c.wide]))
    if view.events:
        parts.append(draw(view.events, [c for c in EVENT_COLUMNS if wide or not c.wide]))
    return "\n".join(parts)
