"""``borgctl app``: list, show, status, history, diff, undo, run, wait, kill, remove."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.errors import DONE, FAILED, NOT_PLACED, print_hint
from borgish.cli.listing import (
    LabelOption,
    LatestOption,
    LimitOption,
    Listing,
    UserFilterOption,
    WatchOption,
    columns_option,
    latest,
    of_user,
    sort_option,
)
from borgish.cli.render import Column, Form, FormOption, age_column, draw, fields, outcomes, show_one
from borgish.cli.session import IfGeneration, MaxAffected, noun, session_of
from borgish.errors import Invalid, NotFound
from borgish.text import age, local_times, plural, safe
from borgish.vocabulary import Outcome, State
from borgish.wire.api import Accepted, JobView
from borgish.wire.api_apps import (
    AppDetail,
    AppKillRequest,
    AppRunRequest,
    AppUndoRequest,
    AppVersionList,
    AppVersionView,
    AppView,
)
from borgish.wire.api_crons import CronView

if TYPE_CHECKING:
    from borgish.client import Client

app = noun("Inspect, undo, run and end applications.")

AppName = Annotated[
    str,
    typer.Argument(
        metavar="APP", help="user/app, or app where only one user has it.", autocompletion=complete.apps
    ),
]


def app_state(view: AppView) -> str:
    """Return how an application is, in a word or two."""
    if view.state is State.DEAD:
        return str(view.outcome or "no jobs")
    if view.up is not None and view.up + view.finished < view.tasks:
        return f"{view.up + view.finished} of {view.tasks}"
    if view.absent:
        return "incomplete"
    return "healthy" if view.up is not None else str(view.state)


def _style(view: AppView) -> str:
    if view.failed or view.outcome is Outcome.FAILED:
        return "red"
    is_well = not view.absent and (view.up is None or view.up + view.finished >= view.tasks)
    return "green" if is_well else "yellow"


def _counts(view: AppView | JobView) -> str:
    live = {"up": view.up, "pending": view.pending}
    counts = [f"{count} {word}" for word, count in live.items() if count]
    return ", ".join([*counts, *outcomes(view.finished, view.failed, view.killed)]) or "-"


APP_COLUMNS: tuple[Column[AppView], ...] = (
    Column("APP", lambda view: view.name),
    Column("STATE", app_state, _style),
    Column("VERSION", lambda view: str(view.version), right=True),
    Column("JOBS", lambda view: str(view.jobs), right=True),
    Column("TASKS", lambda view: str(view.tasks), right=True),
    Column("OF THESE", _counts),
    age_column("APPLIED", lambda view: view.applied_at),
    Column("BY", lambda view: view.applied_by, wide=True),
    Column("LABELS", lambda view: ",".join(f"{k}={v}" for k, v in view.labels.items()), wide=True),
    Column("IN THE WAY", lambda view: view.reason or "-"),
)

JOB_COLUMNS: tuple[Column[JobView], ...] = (
    Column("JOB", lambda job: job.name),
    Column("STATE", lambda job: str(job.outcome or job.state), lambda job: "red" if job.failed else ""),
    Column("VERSION", lambda job: str(job.version), right=True),
    Column("TASKS", lambda job: str(job.tasks), right=True),
    Column("OF THESE", _counts),
    Column("IN THE WAY", lambda job: job.reason or "-"),
)

VERSION_COLUMNS: tuple[Column[AppVersionView], ...] = (
    Column("VERSION", lambda it: f"{it.version}{'*' * it.present}", right=True, by=lambda it: it.version),
    age_column("AGE", lambda it: it.at),
    Column("BY", lambda it: it.by),
    Column("JOBS", lambda it: str(it.jobs), right=True),
    Column("CHANGES", lambda it: "; ".join(it.changes) or "-"),
)


@app.command("list")
def list_(
    context: typer.Context,
    label: LabelOption = "",
    user: UserFilterOption = "",
    state: Annotated[State | None, typer.Option("--state", help="Only applications in this state.")] = None,
    sort: Annotated[str, sort_option(lambda: APP_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: APP_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the applications, and what is in their way."""
    from borgish.cli.lookup import every_app

    is_labelled = _labelled(label)
    client = client_at(context, at, output)
    none = "no applications; `borgctl apply PATH` makes one"
    Listing(
        items=lambda: (
            view
            for view in of_user(every_app(client), user)
            if state in (None, view.state) and is_labelled(view)
        ),
        columns=APP_COLUMNS,
        form=output,
        name=lambda view: view.name,
        none="no such applications" if label or user or state else none,
        chosen=columns,
        sort=sort,
        limit=limit,
        client=client,
    ).show(watch=watch)


def _labelled(label: str) -> Callable[[AppView], bool]:
    """Return what says whether an application has the labels that are asked for. Raises Invalid."""
    if not label:
        return lambda _: True
    from borgish.spec.selectors import read_label, selects

    wanted = read_label(label)
    return lambda view: selects(wanted, view.labels)


@app.command()
def show(context: typer.Context, name: AppName, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show an application and its jobs."""
    detail = find_app(client_at(context, at, output), name)
    show_one(detail, output, detail.app.name, lambda it, _: app_in_full(it))


@app.command()
def status(context: typer.Context, name: AppName, output: FormOption = Form.TABLE) -> None:
    """Say how many tasks of an application are healthy, which version runs, and what is in the way.

    Exit code 0: all of it is up or finished; 3: something waits; 1: something failed, or does not run well.
    """
    detail = find_app(session_of(context).client(), name)
    show_one(detail, output, detail.app.name, lambda it, _: status_words(it))
    raise typer.Exit(status_code(detail))


@app.command()
def history(
    context: typer.Context,
    name: AppName,
    sort: Annotated[str, sort_option(lambda: VERSION_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: VERSION_COLUMNS)] = "",
    limit: LatestOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the versions of an application: who applied them, when, and what was changed."""
    client = client_at(context, "", output)
    Listing(
        items=lambda: latest(_versions(client, find_app(client, name).app.name), limit),
        columns=VERSION_COLUMNS,
        form=output,
        name=lambda it: str(it.version),
        none="no versions",
        chosen=columns,
        sort=sort,
    ).show()


@app.command()
def diff(
    context: typer.Context,
    name: AppName,
    version: Annotated[
        int | None, typer.Option("--version", metavar="V", min=1, help="Default: the present one.")
    ] = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Show what a version of an application changed, against the one before.

    `borgctl diff -f PATH` shows what files would change.
    """
    client = session_of(context).client()
    key = find_app(client, name).app.name
    kept = {it.version: it for it in _versions(client, key)}
    number = version or max(kept)
    if number not in kept:
        raise NotFound(f"version {number} of {key} is not kept", f"There are {', '.join(map(str, kept))}")
    show_one(kept[number], output, str(number), lambda it, _: _changes(key, it))


@app.command()
def undo(
    context: typer.Context,
    name: AppName,
    to: Annotated[
        int, typer.Option("--to", metavar="V", min=0, help="The version. Default: the one before.")
    ] = 0,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also change back what others have set since.")
    ] = False,
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
) -> None:
    """Apply what an application was before, as a new version. What came since ends."""
    from borgish.cli.commands.submit import follow_all, worst

    body = AppUndoRequest(to, take_over, max_affected)
    client, before, position = _change(context, name, "undo", body, if_generation)
    if not detach:
        raise typer.Exit(worst(follow_all(client, _begun(client, before, position), None, None)))


@app.command()
def run(
    context: typer.Context,
    name: AppName,
    stage: Annotated[
        str, typer.Option("--from", metavar="STAGE", help="Only from this stage on, as after a mend.")
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait. Default: no limit.")] = "",
) -> None:
    """Run the stages of an application once: those of its jobs that run to completion, in their order.

    Shows each stage as it ends. Exit code 0: all finished; 1: one failed, and what comes after it was not
    started; 3: not in time.
    """
    from borgish.cli.commands.job import seconds_of
    from borgish.cli.commands.submit import worst
    from borgish.cli.follow import Goal, follow

    seconds = seconds_of(timeout, "--timeout") if timeout else float("inf")
    client, before, position = _change(context, name, "run", AppRunRequest(stage), None)
    if detach:
        return
    key, started = before.app.name, _begun(client, before, position)
    codes = follow(client, started, Goal.FINISHED, seconds, submitted=True)
    failed = [job.name for job in find_app(client, key).jobs if job.name in started and job.failed]
    if failed:
        first = failed[0].partition("/")[2]
        print_hint(f"mend it with `borgctl apply`; `borgctl app run {key} --from {first}` goes on from there")
    raise typer.Exit(worst(codes))


@app.command()
def wait(
    context: typer.Context,
    name: AppName,
    goal: Annotated[
        str, typer.Option("--for", metavar="up|dead|finished", help="What to wait for. Default: up.")
    ] = "up",
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait. Default: 60s.")] = "",
) -> None:
    """Wait until all jobs of an application are up, dead, or finished.

    Exit codes as of `borgctl job wait`, the worst of its jobs.
    """
    from borgish.cli.commands.job import seconds_of
    from borgish.cli.commands.submit import worst
    from borgish.cli.follow import Goal, follow

    if goal not in set(Goal):
        raise typer.BadParameter(f"'{goal}' is not one of {', '.join(Goal)}", param_hint="--for")
    client = session_of(context).client()
    detail = find_app(client, name)
    jobs = list(detail.stages) if goal == Goal.FINISHED else [job.name for job in detail.jobs]
    if not jobs:
        raise Invalid(
            f"{detail.app.name} has no job that could be {goal}", "`borgctl app show` shows its jobs"
        )
    seconds = seconds_of(timeout, "--timeout") if timeout else None
    raise typer.Exit(worst(follow(client, jobs, Goal(goal), seconds, None)))


@app.command()
def kill(
    context: typer.Context,
    name: AppName,
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
    yes: YesOption = False,
) -> None:
    """End all jobs of an application. `borgctl apply` brings it back."""
    if not yes:
        app = find_app(session_of(context).client(), name).app
        live = f"{app.running} running and {app.pending} pending tasks"
        confirm(f"This ends {safe(app.name)}: {plural(app.jobs, 'job')} with {live}.", yes=yes)
    _change(context, name, "kill", AppKillRequest(max_affected), if_generation)


@app.command()
def remove(
    context: typer.Context, name: AppName, if_generation: IfGeneration = None, yes: YesOption = False
) -> None:
    """Forget an application whose jobs are over, with its versions."""
    confirm(f"This forgets the application {safe(name)}, with all of its versions.", yes=yes)
    _change(context, name, "remove", None, if_generation)


def find_app(client: "Client", text: str) -> AppDetail:
    """Return the application that ``text`` means. Raises NotFound, and Invalid where several fit."""
    from borgish.cli.lookup import every_app, match_app
    from borgish.client import quoted

    key = text if "/" in text else match_app(text, [view.name for view in every_app(client)])
    return client.get(quoted("apps", *key.split("/", 1)), None, AppDetail)


def _versions(client: "Client", key: str) -> tuple[AppVersionView, ...]:
    from borgish.client import quoted

    return client.get(quoted("apps", *key.split("/"), "versions"), None, AppVersionList).items


def _change(
    context: typer.Context,
    name: str,
    verb: str,
    body: AppUndoRequest | AppRunRequest | AppKillRequest | None,
    expected: int | None,
) -> "tuple[Client, AppDetail, int]":
    """Ask for a change and say what was done; return what was there before it, and its position."""
    from borgish.cli.commands.job import say_accepted
    from borgish.client import quoted

    client = session_of(context).client()
    before = find_app(client, name)
    key = before.app.name
    path = quoted("apps", *key.split("/"), verb)
    accepted = client.post(path, body, Accepted, expected=expected)
    say_accepted(accepted)
    sys.stdout.flush()
    return client, before, accepted.position


def _begun(client: "Client", before: AppDetail, position: int) -> list[str]:
    """Return the jobs of an application that a change began, and those that waited: perhaps for these."""
    waited = {job.name for job in before.jobs if job.waiting}
    jobs = find_app(client, before.app.name).jobs
    return [job.name for job in jobs if job.generation >= position or job.name in waited]


def app_in_full(detail: AppDetail) -> str:
    """Return an application as people read it."""
    view = detail.app
    head = fields(
        [
            ("app", view.name),
            ("state", f"{app_state(view)}, generation {view.generation}"),
            ("version", str(view.version)),
            ("tasks", f"{view.tasks}: {_counts(view)}"),
            ("in the way", local_times(view.reason)),
            ("labels", ", ".join(f"{key}={value}" for key, value in view.labels.items())),
            ("applied", f"{age(view.applied_at)} ago by {view.applied_by}"),
            ("crons", ", ".join(_cron_words(cron) for cron in detail.crons)),
            ("run by", ", ".join(_cron_words(cron) for cron in detail.run_by)),
            ("stages", ", ".join(stage.partition("/")[2] for stage in detail.stages)),
            ("not of it", ", ".join(f"{key} {why}" for key, why in detail.absent.items())),
            ("not in files", ", ".join(detail.orphans)),
        ]
    )
    return f"{head}\n{draw(list(detail.jobs), JOB_COLUMNS)}" if detail.jobs else head


def _cron_words(cron: CronView) -> str:
    from borgish.cli.commands.cron import due_text

    due = "never due"
    if cron.next:
        due = f"next {due_text(cron.next, cron.time_zone, cron.schedule)}"
    elif cron.paused:
        due = f"paused by {cron.paused}"
    return f"{cron.name.partition('/')[2]} ({due})"


def status_words(detail: AppDetail) -> str:
    """Return how an application is, job by job."""
    view = detail.app
    up = "?" if view.up is None else str(view.up + view.finished)
    lines = [f"{view.name} version {view.version}: {up} of {plural(view.tasks, 'task')} up or finished"]
    lines += (f"{key} is in its files, and {why}" for key, why in detail.absent.items())
    lines += (f"cron {_cron_words(cron)}{cron.note and f': {cron.note}'}" for cron in detail.crons)
    jobs = draw(list(detail.jobs), JOB_COLUMNS) if detail.jobs else ""
    return "".join(f"{safe(local_times(each))}\n" for each in lines) + jobs


def status_code(detail: AppDetail) -> int:
    """Return the exit code that says how an application is."""
    view = detail.app
    if view.failed or view.killed:
        return FAILED
    if view.pending or detail.absent:
        return NOT_PLACED
    return DONE if (view.up or 0) + view.finished >= view.tasks else FAILED


def _changes(key: str, version: AppVersionView) -> str:
    head = f"{key} version {version.version}, applied {age(version.at)} ago by {version.by}"
    lines = version.changes or ("nothing is known of a version before",)
    return "\n".join([safe(head), *(f"  {safe(line)}" for line in lines)]) + "\n"
