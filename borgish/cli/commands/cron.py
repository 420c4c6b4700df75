"""``borgctl cron``: list, show, run, pause, resume, remove. They are set with ``job submit`` or ``apply``."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import (
    LimitOption,
    Listing,
    UserFilterOption,
    WatchOption,
    columns_option,
    of_user,
    sort_option,
)
from borgish.cli.render import Column, Form, FormOption, draw, fields, show_one, state_text
from borgish.cli.session import IfGeneration, noun, session_of
from borgish.text import age, local_times, plural, safe, span, wall_time
from borgish.wire.api import Accepted
from borgish.wire.api_crons import CronDetail, CronRunView, CronStageView, CronView

if TYPE_CHECKING:
    from datetime import datetime

    from borgish.client import Client
    from borgish.spec.job import JobSpec

app = noun("Jobs that run on time.")

Name = Annotated[
    str, typer.Argument(metavar="CRON", help="Cron, as user/cron or cron.", autocompletion=complete.crons)
]


class CronState(StrEnum):
    """Whether a cron is ever due."""

    ACTIVE = "active"
    PAUSED = "paused"


def _state(cron: CronView) -> CronState:
    return CronState.PAUSED if cron.paused else CronState.ACTIVE


@app.command("list")
def list_(
    context: typer.Context,
    user: UserFilterOption = "",
    state: Annotated[CronState | None, typer.Option("--state", help="Only crons in this state.")] = None,
    sort: Annotated[str, sort_option(lambda: CRON_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: CRON_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the crons: when each is due next, and what became of its last run.

    With -o wide, json or yaml the next five times are shown.
    """
    from borgish.cli.lookup import every_cron

    client = client_at(context, at, output)
    # The next times take the master a while; the table has them where THEN is among its columns.
    times = output not in (Form.TABLE, Form.NAME) or "then" in columns.lower()
    none = "no crons; `borgctl job submit FILE` of a file with kind: cron sets one"
    Listing(
        items=lambda: (
            cron for cron in of_user(every_cron(client, times=times), user) if state in (None, _state(cron))
        ),
        columns=CRON_COLUMNS,
        form=output,
        name=lambda cron: cron.name,
        none="no such crons" if user or state else none,
        chosen=columns,
        sort=sort,
        limit=limit,
        client=client,
        kinds="event",
    ).show(watch=watch)


@app.command()
def show(context: typer.Context, cron: Name, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show one cron: its next times, its runs, why one did not begin."""
    client = client_at(context, at, output)
    detail = client.get(_path(_found(client, cron)), None, CronDetail)
    show_one(detail, output, detail.cron.name, lambda it, _: cron_in_full(it))


@app.command()
def run(context: typer.Context, cron: Name, if_generation: IfGeneration = None) -> None:
    """Begin a run now, whatever the schedule says.

    Refused while another goes on where `overlap` is forbid.
    """
    _ask(context, cron, "run", if_generation)


@app.command()
def pause(context: typer.Context, cron: Name, if_generation: IfGeneration = None) -> None:
    """Let no runs begin. Those that go on do."""
    _ask(context, cron, "pause", if_generation)


@app.command()
def resume(context: typer.Context, cron: Name, if_generation: IfGeneration = None) -> None:
    """Let runs begin again. What was due meanwhile does not count as missed."""
    _ask(context, cron, "resume", if_generation)


@app.command()
def remove(
    context: typer.Context, cron: Name, if_generation: IfGeneration = None, yes: YesOption = False
) -> None:
    """Remove a cron. Its runs stay, and are jobs like any other."""
    name = _found(session_of(context).client(), cron)
    confirm(f"This removes the cron {safe(name)}: it is never due again.", yes=yes)
    _ask(context, name, "remove", if_generation)


def _ask(context: typer.Context, cron: str, verb: str, expected: int | None) -> None:
    from borgish.cli.commands.job import say_accepted

    client = session_of(context).client()
    say_accepted(client.post(_path(_found(client, cron), verb), None, Accepted, expected=expected))


def _found(client: "Client", cron: str) -> str:
    from borgish.cli.lookup import find_cron

    return find_cron(client, cron)


def _path(cron: str, *verb: str) -> str:
    from borgish.client import quoted

    return quoted("crons", *cron.split("/"), *verb)


def due_text(moment: str | None, time_zone: str, schedule: str = "") -> str:
    """Return a moment as the clocks of a cron's time zone show it: ``2026-11-22 02:00 CET``; with the seconds
    of a schedule that has some."""
    if moment is None:
        return "-"
    text = _shown(moment, time_zone).strftime("%Y-%m-%d %H:%M:%S %Z")
    return text if _has_seconds(schedule) else text.replace(":00 ", " ")


def _shown(moment: str, time_zone: str) -> "datetime":
    from datetime import datetime
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    at = datetime.fromisoformat(moment)
    with suppress(ZoneInfoNotFoundError, ValueError):  # this host may have fewer than the master's
        at = at.astimezone(ZoneInfo(time_zone))
    return at


def _has_seconds(schedule: str) -> bool:
    fields = schedule.split()
    return len(fields) == 6 and fields[0] != "0"


def _due(cron: CronView, moment: str | None) -> str:
    return due_text(moment, cron.time_zone, cron.schedule)


def _then(cron: CronView) -> str:
    """Return when a cron is due after its next time, of each only what differs from the one before."""
    words = []
    shown = [_shown(each, cron.time_zone) for each in cron.times]
    for before, at in pairwise(shown):
        day = "" if at.date() == before.date() else "%m-%d " if at.year == before.year else "%Y-%m-%d "
        words.append(at.strftime(f"{day}%H:%M{':%S' * _has_seconds(cron.schedule)}"))
    return ", ".join(words)


def _run_text(run: CronRunView | CronStageView | None) -> str:
    return "" if run is None else state_text(run.state, run.outcome)


def _style(cron: CronView) -> str:
    if cron.paused:
        return "dim"
    return "red" if cron.run is not None and cron.run.outcome == "failed" else ""


def _late(cron: CronView) -> str:
    """Say that it was dealt with late, and that many were due with it."""
    if not cron.late_seconds:
        return ""
    spread = f", spread: {plural(cron.among, 'cron')} were due at once" if cron.among else ""
    return f"began {span(cron.late_seconds)} late{spread}"


def _note(cron: CronView) -> str:
    paused = f"paused by {cron.paused}" if cron.paused else ""
    note = (
        f"{'no' if _began_none(cron) else 'a'} run for {_due(cron, cron.last)}: {cron.note}"
        if cron.note
        else ""
    )
    return "; ".join(filter(None, (paused, note, _late(cron))))


def _began_none(cron: CronView) -> bool:
    return cron.run is None or cron.last is None or cron.run.due < cron.last


CRON_COLUMNS: tuple[Column[CronView], ...] = (
    Column("NAME", lambda cron: cron.name, _style),
    Column("SCHEDULE", lambda cron: cron.schedule),
    Column("NEXT", lambda cron: _due(cron, cron.next), by=lambda cron: cron.next and wall_time(cron.next)),
    Column("THEN", _then, wide=True),
    Column("LAST", lambda cron: _due(cron, cron.last), by=lambda cron: cron.last and wall_time(cron.last)),
    Column("RUN", lambda cron: _run_text(cron.run), _style),
    Column(
        "KEPT",
        lambda cron: f"{cron.runs - cron.live}/{cron.keep}",
        right=True,
        by=lambda cron: cron.runs - cron.live,
    ),
    Column("LIVE", lambda cron: str(cron.live), right=True),
    Column("ZONE", lambda cron: cron.time_zone, wide=True),
    Column("GENERATION", lambda cron: str(cron.generation), right=True, wide=True),
    Column("NOTE", _note),
)

_RunRow = tuple[CronRunView | CronStageView, str, str]
"""A run or a stage of one, with when it was due, and when it began."""

_RUN_COLUMNS: tuple[Column[_RunRow], ...] = (
    Column("RUN", lambda row: row[0].name if row[1] else f"  {row[0].name}"),
    Column("STATE", lambda row: _run_text(row[0]), lambda row: "red" if row[0].outcome == "failed" else ""),
    Column("DUE", lambda row: row[1]),
    Column("BEGAN", lambda row: row[2], right=True),
)


def _run_rows(cron: CronView, runs: Iterable[CronRunView]) -> Iterator[_RunRow]:
    for run in runs:
        yield run, _due(cron, run.due), f"{age(run.began)} ago"
        yield from ((stage, "", "") for stage in run.stages)


def _program(spec: "JobSpec") -> str:
    import shlex

    return shlex.join(spec.run) or f"image {spec.image}"


def cron_in_full(detail: CronDetail) -> str:
    """Return one cron as people read it."""
    cron = detail.cron
    times = [_due(cron, each) for each in detail.times]
    parts = [
        fields(
            [
                ("cron", cron.name),
                ("schedule", f"{cron.schedule} ({cron.time_zone})"),
                ("state", f"paused by {cron.paused}" if cron.paused else "active"),
                ("next", times[0] if times else "never"),
                *(("", each) for each in times[1:]),
                ("last", _due(cron, cron.last) if cron.last else ""),
                ("note", local_times(cron.note)),
                ("late", _late(cron)),
                ("overlap", detail.overlap),
                ("missed", detail.missed),
                ("keeps", f"{plural(cron.keep, 'run')}; {cron.runs - cron.live} kept, {cron.live} live"),
                ("runs", f"the stages of {cron.app}" if cron.app else _program(detail.spec)),
                ("generation", str(cron.generation)),
                ("set", f"{age(detail.set_at)} ago by {detail.set_by}"),
            ]
        )
    ]
    if detail.runs:
        parts.append(draw(list(_run_rows(cron, detail.runs)), _RUN_COLUMNS))
    return "\n".join(parts)
