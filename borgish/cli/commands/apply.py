"""``borgctl apply``: the files of an application on their way into the cell; ``borgctl diff -f`` shows what
they would change."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from borgish.cli.confirm import YesOption, confirm
from borgish.cli.errors import DONE, USAGE, print_error, print_note
from borgish.cli.render import Form, FormOption, show_one
from borgish.cli.screen import print_out
from borgish.cli.session import MaxAffected, Session, session_of, single
from borgish.cli.sources import VarOption
from borgish.errors import Invalid
from borgish.text import local_times, plural, safe
from borgish.wire.api import Accepted
from borgish.wire.api_apps import AppChangeView, ApplyRequest, AppPlanView, SourceText

if TYPE_CHECKING:
    from borgish.client import Client

apply_app = single()

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH...", help="Files of jobs, or folders of them; - is stdin."),
]
AppOption = Annotated[
    str, typer.Option("--app", metavar="NAME", help="Name of the application, rather than that in the files.")
]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="End its jobs and crons that the files have no more. Asks first.")
]
TakeOverOption = Annotated[
    bool,
    typer.Option("--take-over", help="Also change what others have set, and jobs of other applications."),
]
UserOption = Annotated[
    str, typer.Option("--user", help="Owner of the jobs, if the files do not name one. Default: you.")
]

_SIGNS = {"created": "+", "started again": "+", "ended": "-", "removed": "-", "unchanged": "="}


@apply_app.command()
def apply(
    context: typer.Context,
    paths: Paths,
    app: AppOption = "",
    prune: PruneOption = False,
    take_over: TakeOverOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would follow.")] = False,
    yes: YesOption = False,
    var: VarOption = None,
    user: UserOption = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long to wait for what changed to be up. Default: 60s.")
    ] = "",
    max_affected: MaxAffected = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Make an application what its files say.

    What is new is submitted, what changed is updated, the rest is left alone; where one job is refused
    nothing is done. What the files do not name stays as it is: the number of tasks that runs, labels that
    others set. Applied again without a change it says so.
    """
    from borgish.cli.commands.job import seconds_of
    from borgish.cli.commands.submit import follow_all, worst

    session = session_of(context)
    seconds = seconds_of(timeout, "--timeout") if timeout else None
    request = read_request(
        session, paths, var or [], ApplyRequest((), app, user, {}, prune, take_over, max_affected)
    )
    if request is None:
        raise typer.Exit(USAGE)
    client = session.client()
    plan = ask_for_plan(client, request)
    if dry_run:
        show_one(plan, output, plan.app, lambda it, wide: planned(it, wide=wide))
        raise typer.Exit(DONE)
    ending = [change.job for change in plan.changes if change.what == "ended"]
    ending += (change.cron for change in plan.crons if change.what == "removed")
    if ending:
        if not yes:
            print_out(planned(plan))
            sys.stdout.flush()
        confirm(f"This ends {', '.join(ending)}.", yes=yes)
    accepted = client.post("/v1/apply", request, Accepted, expected=plan.generation)
    print_out(safe(local_times(accepted.text)))
    for note in accepted.notes:
        print_note(note)
    changed = [each.job for each in plan.changes if each.what not in ("unchanged", "ended")]
    changed += plan.followers
    if not detach and changed:
        raise typer.Exit(worst(follow_all(client, changed, seconds, None)))


def read_request(
    session: Session, paths: Sequence[Path], given: Sequence[str], asked: ApplyRequest
) -> ApplyRequest | None:
    """Return the request with the files; None where they have mistakes, which were reported."""
    from borgish.cli.commands.check import read_paths
    from borgish.cli.commands.submit import show_found
    from borgish.cli.sources import values_of

    variables = values_of(given)
    user = asked.user or session.who_asks()
    checked = read_paths(session, paths, user, variables)
    if checked.mistakes:
        show_found(Invalid("", mistakes=checked.mistakes), "")
        print_error("nothing was applied: correct every file first")
        return None
    texts = tuple(SourceText(source.name, source.text) for source in checked.loaded.sources)
    left = dict(checked.loaded.left(variables))
    return msgspec.structs.replace(asked, sources=texts, user=user, variables=left)


def ask_for_plan(client: "Client", request: ApplyRequest) -> AppPlanView:
    """Return what would follow from an application's files."""
    return client.post("/v1/apply/plan", request, AppPlanView)


def planned(plan: AppPlanView, *, wide: bool = False) -> str:
    """Return as people read it what an apply would do."""
    lines = [safe(plan.text.replace(" applied, version", ": would be version", 1))]
    jobs = [change.job for change in plan.changes if _is_unchanged(change)]
    crons = [change.cron for change in plan.crons if change.what == "unchanged"]
    for change in plan.changes:
        if not _is_unchanged(change):
            lines += _lines(change)
    for cron in plan.crons:
        if cron.what != "unchanged":
            lines.append(safe(f"  {_SIGNS.get(cron.what, '~')} {cron.cron}: cron {cron.what}"))
            lines += (safe(f"      {line}") for line in cron.changes)
            lines += (safe(f"      note: {note}") for note in cron.notes)
    if unchanged := [*jobs, *crons]:
        counts = [plural(len(names), word) for names, word in ((jobs, "job"), (crons, "cron")) if names]
        names = ", ".join(unchanged if wide or len(unchanged) <= 3 else counts)
        lines.append(safe(f"  = {names}: unchanged"))
    lines += (safe(f"  ? {job}: not in the files, stays; --prune ends it") for job in plan.orphans)
    return "\n".join(lines) + "\n"


def _is_unchanged(change: AppChangeView) -> bool:
    """Return whether nothing is to be said of a job, but that it stays as it is."""
    return change.what == "unchanged" and not change.notes


def _lines(change: AppChangeView) -> list[str]:
    sign = _SIGNS.get(change.what, "~")
    tasks = "; ".join(f"{indexes} {what}" for what, indexes in change.tasks.items())
    lines = [f"  {sign} {change.job}: {change.what}{f': tasks {tasks}' if tasks else ''}"]
    lines += (f"      {line}" for line in change.changes)
    lines += (f"      note: {note}" for note in change.notes)
    return [safe(line) for line in lines]


def show_file_diff(
    session: Session, paths: Sequence[Path], given: Sequence[str], asked: ApplyRequest, form: Form
) -> int:
    """Show what files would change; return the exit code."""
    request = read_request(session, paths, given, asked)
    if request is None:
        return USAGE
    plan = ask_for_plan(session.client(), request)
    show_one(plan, form, plan.app, lambda it, wide: planned(it, wide=wide))
    return DONE
