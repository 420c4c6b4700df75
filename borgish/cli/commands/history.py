"""``borgctl history``: who did what, when and why, from the whole journal."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from borgish.cli import complete
from borgish.cli.at_option import SinceOption, UntilOption, client_at
from borgish.cli.listing import choose, columns_option, one_more, order_by, say_earlier, sort_option
from borgish.cli.render import Column, Form, FormOption, show_list
from borgish.cli.session import single
from borgish.text import day_and_time, wall_time, zoned
from borgish.wire.api import EventView
from borgish.wire.api_past import HistoryList, HistoryView

if TYPE_CHECKING:
    from borgish.client import Client
    from borgish.errors import BorgishError

app = single()
Params: TypeAlias = dict[str, str | int | bool | None]

LIMIT_MAX = 10_000
_AT_ONCE_MAX = 1000

OF_APPLICATIONS = {"apply", "undo application", "run application", "kill application"}
"""What is asked of many jobs at once, by the words of ``HistoryView.asked``."""


class Line(msgspec.Struct, frozen=True):
    """One thing that happened by an entry of the journal; none where it changed nothing."""

    entry: HistoryView
    event: EventView | None

    @property
    def what(self) -> str:
        """What happened, or the answer that was given."""
        if self.event is not None:
            return self.event.text
        # What follows in the answer of an application are notes, one for each job.
        is_long = self.entry.asked in OF_APPLICATIONS
        return self.entry.text.partition("; ")[0] if is_long else self.entry.text

    @property
    def bad(self) -> bool:
        """Whether something went wrong."""
        return self.event is not None and self.event.bad


HISTORY_COLUMNS: tuple[Column[Line], ...] = (
    Column("AT", lambda line: day_and_time(line.entry.at), by=lambda line: wall_time(line.entry.at)),
    Column("POSITION", lambda line: str(line.entry.position), right=True),
    Column("EPOCH", lambda line: f"{line.entry.timeline}.{line.entry.epoch}", wide=True),
    Column("WHO", lambda line: line.entry.actor),
    Column("ASKED", lambda line: line.entry.asked),
    Column("ABOUT", lambda line: line.entry.subject or "-", wide=True),
    Column("WHAT", lambda line: line.what, lambda line: "red" if line.bad else ""),
)


@app.command()
def history(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[JOB|TASK|MACHINE]",
            help="Job, task or machine: web, ann/web, web/0, m1. Default: the whole cell.",
        ),
    ] = "",
    cell: Annotated[bool, typer.Option("--cell", help="The whole cell.")] = False,
    machine: Annotated[
        str,
        typer.Option("--machine", help="Only what is about this machine.", autocompletion=complete.machines),
    ] = "",
    since: SinceOption = "",
    until: UntilOption = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=LIMIT_MAX, help="The latest N entries of the journal.")
    ] = 100,
    sort: Annotated[str, sort_option(lambda: HISTORY_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: HISTORY_COLUMNS)] = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Show who did what, when and why, the latest last.

    It is read from the whole journal, where `events` shows the latest only. A job that is no longer kept
    is named in full: ann/web.
    """
    if [bool(name), cell, bool(machine)].count(True) > 1:
        option = "--cell" if cell else "--machine"
        other = "a name" if name else "--machine"
        raise typer.BadParameter(f"cannot be combined with {other}", param_hint=option)
    chosen, fields = choose(columns, HISTORY_COLUMNS, output)
    order = order_by(sort, HISTORY_COLUMNS, _name)
    client = client_at(context, "", output)
    subject = _about_machine(client, machine) if machine else about(client, name)
    asked = subject | {"since": zoned(since), "until": zoned(until)}
    every, last = latest(client, asked, one_more(context, limit))
    entries = every[-limit:]
    none = f"the journal has no entries about {name or machine}" if subject else "the journal has no entries"
    none += " at that time" if since or until else ""
    if output.is_for_people:
        found = order(lines(entries, folded=not subject and output is Form.TABLE))
        show_list(found, chosen, output, _name, none)
    else:
        ordered = (line.entry for line in order([Line(entry, None) for entry in entries]))
        show_list(ordered, (), output, lambda entry: str(entry.position), none, fields)
    if len(every) > limit:
        say_earlier("entries", limit)
    _print_limits(last)


def _name(line: Line) -> str:
    return str(line.entry.position)


def _about_machine(client: "Client", name: str) -> Params:
    from borgish.cli.lookup import find_machine
    from borgish.errors import NotFound

    with suppress(NotFound):  # one that has left the cell is in the journal
        name = find_machine(client, name)
    return {"machine": name}


def about(client: "Client", name: str) -> Params:
    """Return the parameter that means what was named.

    A machine by its whole name comes first, since a job of that name can be named with its user; a machine
    by its beginning comes last.
    """
    from borgish.cli.lookup import every_machine, job_keys, match_machine, match_subject
    from borgish.errors import NotFound

    if not name:
        return {}
    machines = [] if "/" in name else [machine.name for machine in every_machine(client)]
    if name in machines:
        return {"machine": name}
    jobs = job_keys(client)
    try:
        return _named(match_subject(name, jobs))
    except NotFound:
        if "/" in name:
            return _named(name)  # perhaps no longer kept; the master says when it is no name at all
    try:
        return {"machine": match_machine(name, machines)}
    except NotFound:
        raise _unknown(name, [*jobs, *machines]) from None


def _unknown(name: str, known: Sequence[str]) -> "BorgishError":
    from borgish.cli.lookup import nearest
    from borgish.errors import NotFound

    near = ", ".join(nearest(name, known))
    hint = f"Did you mean {near}?" if near else "A job that is no longer kept is named in full: ann/web"
    return NotFound(f"there is no job, task or machine '{name}'", hint)


def _named(subject: str) -> Params:
    return {"task" if subject.count("/") > 1 else "job": subject}


def latest(client: "Client", params: Params, limit: int) -> tuple[Sequence[HistoryView], HistoryList]:
    """Return the latest entries, in order, asked for in pages from the end; and the last page."""
    found: list[HistoryView] = []
    before = ""
    while True:
        wanted = min(_AT_ONCE_MAX, limit - len(found))
        page = client.get("/v1/history", params | {"limit": wanted, "before": before}, HistoryList)
        found += reversed(page.items)
        before = page.page.next
        if page.cut_short or not before or len(found) >= limit:
            return found[::-1], page


def lines(entries: Iterable[HistoryView], *, folded: bool) -> list[Line]:
    """Return a line for each thing that happened; ``folded``: of an application one for all of its jobs."""
    return [
        Line(entry, event)
        for entry in entries
        for event in ((None,) if folded and entry.asked in OF_APPLICATIONS else entry.events or (None,))
    ]


def _print_limits(last: HistoryList) -> None:
    from borgish.cli.screen import print_err

    if last.begins:
        print_err(f"the journal begins at {day_and_time(last.begins)}: earlier entries are no longer kept")
    if last.cut_short:
        print_err(f"only the {last.looked_at} entries back to {day_and_time(last.reached)} were scanned")
        print_err(f"hint: `--until {last.reached}` continues from there")
