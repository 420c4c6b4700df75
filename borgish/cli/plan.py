"""``borgctl plan``: what would follow if a job were submitted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import single
from borgish.cli.render import Form, FormOption, show_one
from borgish.cli.session import Session, session_of
from borgish.wire.api import PlannedPlace, PlanView

if TYPE_CHECKING:
    from borgish.cli.submit import JobFile
    from borgish.client import Client

app = single()

LEAVING_SHOWN = 4

_Row = tuple[PlannedPlace, str]
"""Places that are alike, and the indexes of their tasks."""


@app.command()
def plan(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file; - is stdin.")],
    user: Annotated[
        str, typer.Option("--user", help="Whose job it is, when the file does not say. Default: you.")
    ] = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Say what would follow if a job were submitted.

    Where each task would go, who would have to leave for it, what would wait and why. Nothing is
    changed. `borgctl job submit --plan TOKEN FILE` does just that, or refuses because the cell
    changed. Exit code 3: not all tasks would be placed.
    """
    from borgish.cli.failing import DONE, NOT_PLACED, USAGE
    from borgish.cli.submit import checked_file

    session = session_of(context)
    user = user or session.who_asks()
    found = checked_file(session, file, user)
    if found is None:
        raise typer.Exit(USAGE)
    view = ask_for_plan(session.client(), found, user)
    show_one(view, output, view.token, lambda it, wide: planned(it, found.source, wide=wide))
    raise typer.Exit(NOT_PLACED if view.refusals else DONE)


def plan_files(session: Session, paths: Sequence[Path], user: str) -> int:
    """Print for each file what would follow if it alone were submitted; return the exit code."""
    from borgish.cli.failing import DONE, NOT_PLACED, USAGE, report
    from borgish.cli.screen import data
    from borgish.cli.submit import read_files, worst
    from borgish.errors import BorgishError

    user = user or session.who_asks()
    files = read_files(session, paths, user)
    if files is None:
        return USAGE
    client = session.client()
    codes = []
    for file in files:
        try:
            view = ask_for_plan(client, file, user)
            data(planned(view, file.source, token=False))
            codes.append(NOT_PLACED if view.refusals else DONE)
        except BorgishError as error:
            codes.append(report(error))
    return worst(codes)


def ask_for_plan(client: "Client", file: "JobFile", user: str) -> PlanView:
    """Return what would follow from a job file; ``user`` is whose it is when it does not say."""
    body = file.text.encode()
    return client.post("/v1/plan", body, PlanView, params={"user": user}, content_type="application/yaml")


def planned(view: PlanView, source: str, *, wide: bool = False, token: bool = True) -> str:
    """Return a plan as people read it. Without ``token`` it is for looking only."""
    from borgish.cli.missing import refusal_lines
    from borgish.cli.table import Column, draw
    from borgish.text import safe

    columns: list[Column[_Row]] = [
        Column("TASKS", lambda row: row[1]),
        Column("MACHINE", lambda row: row[0].machine),
        Column("ALLOC", _alloc, right=True, wide=all(place.alloc < 0 for place in view.places)),
        Column("DEVICES", _devices, wide=not any(place.devices for place in view.places)),
        Column("WHEN", lambda row: _when(row[0])),
    ]
    parts = [f"{safe(view.text)}\n"]
    if view.places:
        parts.append(draw(list(_rows(view.places)), [c for c in columns if wide or not c.wide]))
    if view.refusals:
        parts.append("\n".join(line for each in view.refusals for line in refusal_lines(each)) + "\n")
    if view.changes:
        parts.append("".join(f"  {safe(line)}\n" for line in ("Against the job that ended:", *view.changes)))
    if notes := [note for note in view.notes if not any(note in each.hint for each in view.refusals)]:
        parts.append("".join(f"note: {safe(note)}\n" for note in notes))
    if token and view.token and view.places:
        parts.append(f"To do just that: borgctl job submit --plan {safe(view.token)} {safe(source)}\n")
    return "\n".join(parts)


def _rows(places: tuple[PlannedPlace, ...]) -> Iterator[_Row]:
    """Yield places that are alike once, with the indexes of their tasks."""
    from borgish.text import show_indexes

    alike: dict[tuple[object, ...], list[PlannedPlace]] = {}
    for place in places:
        alone = place.index if place.devices or place.victims else -1
        alike.setdefault((place.machine, place.alloc, place.kept, alone), []).append(place)
    for group in alike.values():
        yield group[0], show_indexes(place.index for place in group)


def _alloc(row: _Row) -> str:
    return str(row[0].alloc) if row[0].alloc >= 0 else "-"


def _devices(row: _Row) -> str:
    return ",".join(row[0].devices)


def _when(place: PlannedPlace) -> str:
    if not place.kept:
        return "at once"
    if not place.victims:
        return "when the others of its gang can start"
    more = len(place.victims) - LEAVING_SHOWN
    shown = [*place.victims[:LEAVING_SHOWN], *([f"{more} more"] if more > 0 else [])]
    return f"when preempted: {', '.join(shown)}"
