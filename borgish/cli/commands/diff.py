"""``borgctl diff``: what differs between two moments of the cell."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from borgish.cli import complete
from borgish.cli.at_option import MOMENTS, SECONDS_MAX, client_at
from borgish.cli.render import Form, FormOption, show_list, show_one
from borgish.cli.session import session_of, single
from borgish.cli.sources import VarOption
from borgish.text import day_and_time, plural, safe, zoned
from borgish.wire.api import AsOf
from borgish.wire.api_apps import ApplyRequest
from borgish.wire.api_past import ChangeView, DiffView

app = single()

SHOWN_MAX = 40
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_AGE = re.compile(r"-[0-9.]+[a-z]+", re.ASCII)


class AgesAllowed(TyperCommand):
    """A command whose arguments may be ages like -5m, which look like options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"{arg[1:]} ago" if _AGE.fullmatch(arg) else arg for arg in args])


@app.command(cls=AgesAllowed)
def diff(
    context: typer.Context,
    old: Annotated[
        str, typer.Argument(metavar="[A]", help=f"A moment: {MOMENTS}.", autocompletion=complete.moments)
    ] = "",
    new: Annotated[
        str,
        typer.Argument(metavar="[B]", help="Second moment. Default: now.", autocompletion=complete.moments),
    ] = "now",
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "-f", metavar="PATH", help="Files of an application: what `borgctl apply` would change."
        ),
    ] = None,
    app_name: Annotated[str, typer.Option("--app", metavar="NAME", help="As of `borgctl apply`.")] = "",
    user: Annotated[str, typer.Option("--user", help="As of `borgctl apply`.")] = "",
    var: VarOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Show what differs between two moments, or in files.

    Rules, machines, quotas, budgets, crons, jobs and tasks are compared, by what is journalled of them. Tasks
    of a job that differ alike are one line. With -o wide nothing is left out, however long.
    """
    if files:
        from borgish.cli.commands.apply import show_file_diff

        asked = ApplyRequest((), app_name, user)
        raise typer.Exit(show_file_diff(session_of(context), files, var or [], asked, output))
    if not old:
        raise typer.BadParameter(f"name a moment, {MOMENTS}, or files with -f", param_hint="A")
    client = client_at(context, "", output, seconds=SECONDS_MAX)
    found = client.get("/v1/diff", {"from": zoned(old), "to": zoned(new)}, DiffView)
    if output is Form.NAME:
        changes = [change for section in found.changes.values() for change in section]
        show_list(changes, (), output, subject, "")
    else:
        show_one(found, output, "", lambda it, wide: in_words(it, wide=wide))


def in_words(found: DiffView, *, wide: bool) -> str:
    """Return the differences as people read them."""
    old, new = found.old, found.new
    lines = [f"From {_when(old)} to {_when(new)}: {_counted(found)}"]
    lines += [f"warning: {safe(warning)}" for warning in dict.fromkeys((*old.warnings, *new.warnings))]
    for section, changes in found.changes.items():
        if changes:
            lines += ["", section, *_section(changes, len(changes) if wide else SHOWN_MAX)]
    return "\n".join(lines) + "\n"


def subject(change: ChangeView) -> str:
    """Return what a change is about: ``ann/web``, ``ann/web/0-4``, ``m1``."""
    return f"{change.name}/{change.indexes}" if change.indexes else change.name


def _section(changes: Sequence[ChangeView], shown_max: int) -> list[str]:
    lines = [f"  {_SIGNS[change.kind]} {safe(subject(change))}: {_what(change)}" for change in changes]
    left = len(lines) - shown_max
    return [*lines[:shown_max], *([f"  and {left} more: -o wide shows them"] if left > 0 else [])]


def _what(change: ChangeView) -> str:
    return safe("; ".join(change.lines))


def _counted(found: DiffView) -> str:
    counts = {name: sum(change.tasks or 1 for change in changes) for name, changes in found.changes.items()}
    shown = [plural(count, name.removesuffix("s")) for name, count in counts.items() if count]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:]))) or "nothing differs"


def _when(moment: AsOf) -> str:
    return f"position {moment.position} ({day_and_time(moment.at) if moment.at else 'the beginning'})"
