"""``borgctl job``: submit, check, list, show, history, edit, kill, scale, wait; how jobs read. Updates and
restarts are in ``update``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import (
    CellsOption,
    LabelOption,
    LatestOption,
    LimitOption,
    Listing,
    UserFilterOption,
    WatchOption,
    cells_option,
    columns_option,
    paged,
    show_asked,
    sort_option,
)
from borgish.cli.render import (
    Column,
    FileFormOption,
    Form,
    FormOption,
    age_column,
    draw,
    fields,
    outcomes,
    parse_indexes,
    show_list,
    show_one,
    state_text,
)
from borgish.cli.screen import print_out
from borgish.cli.session import IfGeneration, MaxAffected, noun, session_of
from borgish.cli.sources import VarOption, values_of
from borgish.resources import parse_seconds, show_bytes, show_cpu
from borgish.spec.job import Health, JobSpec
from borgish.text import age, local_times, plural, safe
from borgish.vocabulary import Phase, State
from borgish.wire.api import (
    Accepted,
    JobDetail,
    JobList,
    JobView,
    KillRequest,
    OwnerView,
    ScaleRequest,
    TaskView,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from borgish.cli.lookup import Params
    from borgish.client import Client
    from borgish.wire.api import VersionView


app = noun("Submit, inspect, change and end jobs.")

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="user/job, or job where only one user has it.", autocompletion=complete.jobs
    ),
]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files; - is stdin.")]
UserOption = Annotated[
    str, typer.Option("--user", help="Owner of the job, if the file does not name one. Default: you.")
]
JOB_SORTS = ("name", "trouble", "since", "tasks", "up", "pending", "failed", "priority")
_NO_JOBS = "no jobs; `borgctl job submit FILE` makes one"
SettleOption = Annotated[
    str | None,
    typer.Option("--settle", help="How long tasks must stay up. Default: 3s, and 1s where a probe answers."),
]
TimeoutOption = Annotated[
    str,
    typer.Option(
        "--timeout",
        help="How long to wait: 500ms, 60s, 5m. Default: 60s, and as long as an update goes on.",
    ),
]


@app.command()
def submit(
    context: typer.Context,
    files: Files,
    user: UserOption = "",
    timeout: TimeoutOption = "",
    settle: SettleOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
    plan: Annotated[
        str,
        typer.Option(
            "--plan", metavar="TOKEN", help="Carry out this plan of `borgctl plan` exactly, or fail."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would follow, as `borgctl plan` does.")
    ] = False,
    if_generation: IfGeneration = None,
    given: VarOption = None,
    cells: Annotated[
        str | None,
        cells_option("To the one of these cells that has the job already, or room for all of it. One file."),
    ] = None,
) -> None:
    """Submit jobs and follow them until they are up, and stay so for a moment.

    Says at once when every task is up; ends when all stayed so or finished, or says exactly what is missing
    and what failing programs wrote last. A job that runs is updated by another specification: that is
    followed until it is complete, waits for its canaries to be promoted, or is paused or undone since a task
    failed. Ctrl-C detaches: the jobs go on, and the exit code is 130.
    With --cells a job that is in none of them goes to one where all of it has a place: if possible without
    preemption, then where the least is asked for of cpu or ram, whichever is fuller with it. Where no cell
    has room for all of it, or one does not answer, nothing is submitted.
    Exit code 3: not all tasks were placed, or changed, in time; 1: not up, or not for long, or paused, undone
    or replaced.
    """
    from borgish.cli.commands.submit import plan_files, submit_files

    seconds, session = _timeout_of(timeout), session_of(context)
    settle_seconds = None if settle is None else seconds_of(settle, "--settle")
    if plan and (dry_run or len(files) > 1):
        raise typer.BadParameter(
            "needs exactly one file, and cannot be combined with --dry-run", param_hint="--plan"
        )
    if if_generation is not None and (dry_run or len(files) > 1):
        raise typer.BadParameter(
            "needs exactly one file, and cannot be combined with --dry-run", param_hint="--if-generation"
        )
    variables = values_of(given)
    if cells is not None:
        from borgish.cli.commands.submit_over import submit_over

        # Several would be planned each as if it were alone, and may then stand in several cells, or in part.
        if len(files) > 1 or plan or if_generation is not None:
            why = "takes one file, and neither --plan nor --if-generation, which are of one cell"
            raise typer.BadParameter(why, param_hint="--cells")
        raise typer.Exit(
            submit_over(
                context,
                cells,
                files[0],
                user,
                seconds,
                settle_seconds,
                variables,
                detach=detach,
                dry_run=dry_run,
            )
        )
    if dry_run:
        raise typer.Exit(plan_files(session, files, user, variables))
    raise typer.Exit(
        submit_files(
            session,
            files,
            user,
            seconds,
            detach=detach,
            plan=plan,
            settle_seconds=settle_seconds,
            expected=if_generation,
            variables=variables,
        )
    )


@app.command()
def check(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Files, or folders of them; - is stdin."),
    ],
    user: UserOption = "",
    given: VarOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Report every mistake in files; submit nothing.

    The files are read together, as `borgctl apply` does: each may hold several documents. Of a folder the
    files in it are read that end in .yaml, .yml, .json and .jsonnet, in the order of their names; hidden ones
    and folders inside it are left out. With -o yaml or -o json all of it is shown as it is understood, with
    the values of variables filled in.
    """
    from borgish.cli.commands.check import check_paths

    raise typer.Exit(check_paths(session_of(context), paths, user, values_of(given), output))


@app.command("list")
def list_(
    context: typer.Context,
    every: Annotated[
        bool,
        typer.Option("--all", "-a", help="Also those that ended a while ago: over an hour, failed a day."),
    ] = False,
    label: LabelOption = "",
    user: UserFilterOption = "",
    state: Annotated[State | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    machine: Annotated[
        str,
        typer.Option(
            "--machine", help="Only jobs with tasks on this machine.", autocompletion=complete.machines
        ),
    ] = "",
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="KEY",
            help="By name, trouble, since, tasks, up, pending, failed or priority; -KEY is the reverse.",
            autocompletion=complete.among(*JOB_SORTS),
        ),
    ] = "",
    columns: Annotated[str, columns_option(lambda: JOB_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    cells: CellsOption = None,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the jobs of the cell that run, wait, or ended lately; with --all or --state also all others.

    As in: borgctl job list -l app=web --sort trouble -o wide
    """
    from borgish.cli.lookup import find_machine

    is_filtered = bool(label or user or state or machine)
    none = "no such jobs" if is_filtered else "no jobs at that moment" if at else _NO_JOBS

    def listing(client: "Client") -> Listing[JobView]:
        params: Params = {
            "label": label,
            "user": user,
            "state": state,
            "machine": find_machine(client, machine) if machine else "",
            "sort": sort,
            "recent": None if every or state else True,
        }
        asked_again = params | {"limit": 1}
        return Listing(
            items=paged(client, "job", params, JobList, limit),
            columns=JOB_COLUMNS if client.is_present else PAST_JOB_COLUMNS,
            form=output,
            name=lambda job: job.name,
            none=none,
            chosen=columns,
            limit=limit,
            noun="job",
            sorted_by=sort,
            left_out=(lambda: client.get("/v1/jobs", asked_again, JobList).left_out)
            if params["recent"]
            else int,
            client=client,
        )

    show_asked(context, listing, cells, at, output, watch=watch)


@app.command()
def show(
    context: typer.Context,
    job: JobName,
    version: Annotated[
        int | None,
        typer.Option(
            "--version", metavar="V", min=1, help="Show this version of it, which `job history` lists."
        ),
    ] = None,
    owners: Annotated[
        bool, typer.Option("--owners", help="Show who set which field: an application's file, or somebody.")
    ] = False,
    at: AtOption = "",
    output: FileFormOption = Form.TABLE,
) -> None:
    """Show one job: what it is, what is in its way, its tasks.

    With -o file it is a job file, which `job submit` takes as it is: borgctl job show web -o file > web.yaml
    """
    from borgish.cli.follow import look
    from borgish.cli.lookup import every_task, find_job

    client = client_at(context, at, output)
    if version is not None:
        from borgish.cli.commands.versions import show_version

        show_version(client, find_job(client, job), version, session_of(context).bands, output)
        return
    detail = look(client, find_job(client, job))
    name = detail.job.name
    if owners:
        if output is Form.FILE:
            raise typer.BadParameter("cannot be combined with -o file", param_hint="--owners")
        none = f"{name} is all of who submitted it, {detail.job.submitted_by}: no application has applied it"
        show_list(detail.owners, OWNER_COLUMNS, output, lambda owner: owner.field, none)
        return
    if output is Form.FILE:
        from borgish.cli.commands.versions import as_file

        print_out(as_file(detail.spec, session_of(context).bands()))
        return
    show_one(detail, output, name, lambda it, wide: job_in_full(it, every_task(client, job=name), wide=wide))


def _version_columns() -> "Sequence[Column[VersionView]]":
    from borgish.cli.commands.versions import VERSION_COLUMNS

    return VERSION_COLUMNS


@app.command()
def history(
    context: typer.Context,
    job: JobName,
    sort: Annotated[str, sort_option(_version_columns)] = "",
    columns: Annotated[str, columns_option(_version_columns)] = "",
    limit: LatestOption = None,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the versions of a job: who submitted them, when, and what was changed.

    Everything that happened to a job is in `borgctl history JOB`.
    """
    from borgish.cli.commands.versions import show_versions
    from borgish.cli.lookup import find_job

    client = client_at(context, at, output)
    show_versions(client, find_job(client, job), output, sort=sort, columns=columns, limit=limit)


@app.command()
def kill(
    context: typer.Context,
    job: JobName,
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
    yes: YesOption = False,
) -> None:
    """End all tasks of a job for good."""
    from borgish.cli.follow import look

    client = session_of(context).client()
    name = _found(client, job)
    if not yes:
        view = look(client, name).job
        live = f"{view.running} running and {view.pending} pending"
        confirm(f"This ends the job {safe(name)}: {plural(view.tasks, 'task')}, {live}.", yes=yes)
    kill_tasks(client, name, None, max_affected, if_generation)


@app.command()
def scale(
    context: typer.Context,
    job: JobName,
    tasks: Annotated[int, typer.Argument(min=0, metavar="N", help="New number of tasks.")],
    now: Annotated[bool, typer.Option("--now", help="Stop those too many while the cell is frozen.")] = False,
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
) -> None:
    """Give a job N tasks. Those too many, the last ones, are stopped and gone."""
    from borgish.client import quoted

    client = session_of(context).client()
    path = quoted("jobs", *_found(client, job).split("/"), "scale")
    say_accepted(client.post(path, ScaleRequest(tasks, now, max_affected), Accepted, expected=if_generation))


@app.command()
def edit(
    context: typer.Context,
    job: JobName,
    timeout: TimeoutOption = "",
    settle: SettleOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Submit it without a question.")] = False,
) -> None:
    """Edit a job as it is now, in $VISUAL, $EDITOR or vi, and submit it.

    Shows what follows from it first, as `borgctl plan` does, and asks on a terminal whether that is wanted.
    Refused when somebody else has changed the job meanwhile; your text stays in its file then.
    """
    from borgish.cli.commands.edit import edit_job

    seconds = _timeout_of(timeout)
    settle_seconds = None if settle is None else seconds_of(settle, "--settle")
    raise typer.Exit(
        edit_job(session_of(context), job, seconds, detach=detach, settle_seconds=settle_seconds, yes=yes)
    )


@app.command()
def wait(
    context: typer.Context,
    job: JobName,
    goal: Annotated[str, typer.Option("--for", metavar="up|dead|finished", help="What to wait for.")] = "up",
    timeout: TimeoutOption = "",
    settle: SettleOption = None,
) -> None:
    """Wait for a job, also for an update of it.

    Exit code 0: it is so, or canaries wait to be promoted; 1: it cannot become so, is not up, or its update
    is paused or replaced; 3: not in time.

    With `--for finished` 0: all of it finished; 1: a task failed or was lost; 5: none did, but some were
    killed; 6: there is no such job, or no more, so how it came out is not known; 3: not in time.
    """
    from borgish.cli.errors import GONE, report
    from borgish.cli.follow import Goal, follow, look, refuse_unreachable_goal
    from borgish.errors import NotFound

    if goal not in set(Goal):
        raise typer.BadParameter("must be up, dead or finished", param_hint="--for")
    seconds = _timeout_of(timeout)
    client = session_of(context).client()
    try:
        name = _found(client, job)
        refuse_unreachable_goal(look(client, name), Goal(goal))
    except NotFound as error:
        if goal != Goal.FINISHED:
            raise
        report(error)
        raise typer.Exit(GONE) from None
    settle_seconds = None if settle is None else seconds_of(settle, "--settle")
    raise typer.Exit(*follow(client, [name], Goal(goal), seconds, settle_seconds))


def kill_tasks(
    client: "Client",
    job: str,
    indexes: tuple[int, ...] | None,
    max_affected: int | None = None,
    expected: int | None = None,
) -> None:
    """Kill tasks of a job (None: all) and say what was done; ``expected``: see ``Client.post``."""
    asked = KillRequest(indexes, max_affected)
    say_accepted(client.post(tasks_path(job, "kill"), asked, Accepted, expected=expected))


def tasks_path(job: str, verb: str) -> str:
    """Return where something is asked of a job's tasks."""
    from borgish.client import quoted

    return quoted("jobs", *job.split("/"), verb)


def say_accepted(accepted: object) -> None:
    """Say what a command did."""
    print_out(safe(local_times(getattr(accepted, "text", ""))))


def seconds_of(text: str, option: str) -> float:
    """Read a duration of the command line; a plain number is in seconds."""

    try:
        return parse_seconds(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' {error}", param_hint=option) from None


def _timeout_of(text: str) -> float | None:
    return seconds_of(text, "--timeout") if text else None


def indexes_of(text: str) -> tuple[int, ...]:
    """Read indexes of the command line."""

    try:
        return parse_indexes(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' {error}", param_hint="INDEXES") from None


def _found(client: "Client", job: str) -> str:
    from borgish.cli.lookup import find_job

    return find_job(client, job)


_TASKS_SHOWN_MAX = 20
_STYLES = {State.PENDING: "yellow", State.DEAD: "dim"}


def job_style(job: JobView) -> str:
    """Return the colour of a job: red for trouble, green for all is well."""
    well = job.running if job.up is None else job.up
    if job.failed or (job.state is State.RUNNING and well + job.dead < job.tasks and not job.pending):
        return "red" if job.failed else "yellow"
    return _STYLES.get(job.state, "yellow" if job.pending else "green")


JOB_COLUMNS: tuple[Column[JobView], ...] = (
    Column("NAME", lambda job: job.name),
    Column("STATE", lambda job: state_text(job.state, job.outcome), job_style),
    Column("UP", lambda job: f"{job.up}/{job.tasks}", right=True),
    Column("PENDING", lambda job: str(job.pending), right=True),
    Column("FINISHED", lambda job: str(job.finished), right=True, rare=True),
    Column("FAILED", lambda job: str(job.failed), right=True, rare=True),
    Column("KILLED", lambda job: str(job.killed), right=True, rare=True),
    Column("DEAD", lambda job: str(job.dead), right=True, wide=True),
    Column("BAND", lambda job: job.band),
    Column("PRIORITY", lambda job: str(job.priority), right=True, wide=True),
    Column("APPCLASS", lambda job: job.appclass, wide=True),
    Column("KIND", lambda job: "service" if job.service else "to completion", wide=True),
    Column("VERSION", lambda job: str(job.version), right=True, wide=True),
    Column("GENERATION", lambda job: str(job.generation), right=True, wide=True),
    Column("BY", lambda job: job.submitted_by, wide=True),
    Column("APP", lambda job: job.app.partition("/")[2] or "-", wide=True),
    age_column("AGE", lambda job: job.submitted_at),
    Column("REASON", lambda job: job.reason),
)

OWNER_COLUMNS: tuple[Column[OwnerView], ...] = (
    Column("FIELD", lambda owner: owner.field),
    Column("SET BY", lambda owner: owner.by),
    Column("WITH", lambda owner: owner.how),
    Column("AGE", lambda owner: age(owner.at), right=True),
)

_RUNNING: Column[JobView] = Column("RUNNING", lambda job: f"{job.running}/{job.tasks}", right=True)
PAST_JOB_COLUMNS = tuple(_RUNNING if column.title == "UP" else column for column in JOB_COLUMNS)
"""What is up is not known of the past, nor to a standby."""


def job_in_full(detail: JobDetail, tasks: list[TaskView], *, wide: bool) -> str:
    """Return one job as people read it: what it is, what it runs, what is in its way, its tasks."""
    from borgish.cli.commands.task import TASK_COLUMNS
    from borgish.cli.problems import refusal_lines

    parts = [_what_it_is(detail), _what_it_runs(detail.spec)]
    if detail.refusals:
        parts.append("\n".join(line for refusal in detail.refusals for line in refusal_lines(refusal)) + "\n")
    shown = tasks if wide else tasks[:_TASKS_SHOWN_MAX]
    # Of one job where its tasks are reached, for there is room for it.
    other = "PORTS" if any(task.address for task in shown) else "ADDRESS"
    columns = [column for column in TASK_COLUMNS if wide or not column.wide or column.title == "ADDRESS"]
    columns = [column for column in columns if wide or column.title != other]
    if shown:
        parts.append(draw(shown, columns) + _more(detail.job, len(tasks) - len(shown)))
    return "\n".join(parts)


def _more(job: JobView, count: int) -> str:
    return f"and {plural(count, 'task')} more: borgctl task list {safe(job.name)}\n" if count else ""


def _what_it_is(detail: JobDetail) -> str:
    from borgish.cli.rollouts import last_words, versions_words

    job, last = detail.job, detail.last_rollout
    return fields(
        [
            ("job", job.name),
            ("state", f"{state_text(job.state, job.outcome)}, generation {job.generation}"),
            ("version", versions_words(detail)),
            ("app", job.app),
            ("skipped", last_words(detail, last) if last and last.skipped and not detail.rollout else ""),
            ("tasks", _counts(detail)),
            ("reason", local_times(job.reason)),
            ("starts after", ", ".join(map(str, detail.spec.after))),
            ("ends with", detail.spec.parent),
            ("priority", f"{job.priority} ({job.band}), {job.appclass}"),
            ("submitted", f"{age(job.submitted_at)} ago by {job.submitted_by}"),
            *(("not held", f"on {name}: {'; '.join(lines)}") for name, lines in detail.not_held.items()),
        ]
    )


def _counts(detail: JobDetail) -> str:
    job = detail.job
    not_up = {"not healthy yet" if phase is Phase.UP else phase: n for phase, n in detail.not_up.items()}
    running = job.running if job.up is None else 0  # else they are counted by their phases
    pending = {"pending": job.pending - job.waiting, "waiting": job.waiting}
    live = {"up": job.up, **not_up, **pending, "running": running}
    counts = [f"{count} {word}" for word, count in live.items() if count]
    return f"{job.tasks}: {', '.join([*counts, *outcomes(job.finished, job.failed, job.killed)])}"


def _what_it_runs(spec: JobSpec) -> str:
    import shlex

    named = "".join(f", {amount} {name}" for name, amount in spec.resources.named.items())
    return fields(
        [
            ("runs", shlex.join(spec.run)),
            ("with", f"{spec.runtime}, image {spec.image}" if spec.image else str(spec.runtime)),
            (
                "needs",
                f"{show_cpu(spec.resources.cpu_millis)} cpu, {show_bytes(spec.resources.ram_bytes)}{named}",
            ),
            ("ports", ", ".join(spec.ports)),
            ("health", _probe(spec.health) if spec.health else ""),
            ("restart", spec.restart.policy),
            ("on exit", "; ".join(map(str, spec.on_exit))),
            ("may fail", f"{spec.max_failures} of its tasks" if spec.max_failures else ""),
            ("only where", " and ".join(map(str, spec.constraints))),
            ("labels", ", ".join(f"{key}={value}" for key, value in spec.labels.items())),
        ]
    )


def _probe(health: Health) -> str:
    import shlex

    what = f"http {health.http}" if health.http else "tcp" if health.tcp else shlex.join(health.command)
    where = f" on {health.port}" if health.port else ""
    return f"{what}{where}, each {health.interval_seconds:g}s"
