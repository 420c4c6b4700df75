"""Job files on their way into the cell: read and checked here, sent as they are, then followed; and
``borgctl plan``, which says what would follow."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from borgish.cli.errors import (
    DONE,
    FAILED,
    GONE,
    KILLED,
    NOT_ALLOWED,
    NOT_PLACED,
    USAGE,
    print_error,
    print_hint,
    print_note,
    report,
)
from borgish.cli.render import Column, Form, FormOption, draw, show_one
from borgish.cli.screen import print_err, print_out
from borgish.cli.session import Session, session_of, single
from borgish.cli.sources import STDIN, VarOption, load, name_of, values_of
from borgish.errors import BorgishError, Invalid
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from borgish.text import local_times, safe, show_indexes
from borgish.wire.api import Accepted
from borgish.wire.api_plans import PlannedPlace, PlanView

if TYPE_CHECKING:
    from borgish.bands import Bands
    from borgish.client import Client


T = TypeVar("T")
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class JobFile(msgspec.Struct, frozen=True):
    """A job file without mistakes: where it came from, the text that says it to the master, and what it says.

    The text is that of the file, unless the master could not read the same in it: values given for its
    variables are filled in, and what Jsonnet says is written out.
    """

    source: str
    text: str
    spec: JobSpec  # of a cron the job of its runs
    cron: CronSpec | None = None


def submit_files(
    session: Session,
    paths: Sequence[Path],
    user: str,
    timeout_seconds: float | None,
    *,
    detach: bool,
    plan: str = "",
    settle_seconds: float | None = None,
    expected: int | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> int:
    """Submit all files, or none when one has mistakes; follow the jobs; return the exit code.

    ``plan`` is the token of the plan of the only file, ``expected`` the generation of its job;
    ``settle_seconds`` as in ``follow``.
    """
    user = user or session.who_asks()
    files = read_files(session, paths, user, variables)
    if files is None:
        return USAGE
    client = session.client()
    codes, jobs = [], []
    for file in files:
        try:
            name = submit_file(client, file, user, plan, expected)
            if file.cron is None:  # a cron has nothing to follow yet
                jobs.append(name)
        except Invalid as error:
            show_found(error, file.source)
            codes.append(USAGE)
        except BorgishError as error:
            codes.append(report(error))
    if jobs and not detach:
        codes += follow_all(client, jobs, timeout_seconds, settle_seconds)
    return worst(codes)


def worst(codes: Sequence[int]) -> int:
    """Return the exit code that stands for several."""
    order = (NOT_ALLOWED, USAGE, FAILED, KILLED, GONE, NOT_PLACED)
    return next((code for code in order if code in codes), DONE)


def submit_file(
    client: "Client", file: JobFile, user: str, plan: str = "", expected: int | None = None
) -> str:
    """Submit one file and say what was done; return the job's name."""
    params = {"user": user} | ({"plan": plan} if plan else {})
    body = file.text.encode()
    if file.cron is not None and plan:
        raise Invalid(f"{file.spec.key} is a cron, which has no plan", "leave out --plan")
    path = "/v1/jobs" if file.cron is None else "/v1/crons"
    accepted = client.post(
        path, body, Accepted, params=params, content_type="application/yaml", expected=expected
    )
    print_out(safe(local_times(accepted.text)))
    for note in accepted.notes:
        print_note(note)
    return file.spec.key


def follow_all(
    client: "Client", jobs: Sequence[str], timeout_seconds: float | None, settle_seconds: float | None
) -> list[int]:
    """Follow jobs until they are up; return the exit codes. Ctrl-C detaches."""
    from borgish.cli.follow import Goal, follow

    sys.stdout.flush()
    return follow(client, jobs, Goal.UP, timeout_seconds, settle_seconds, submitted=True)


def read_files(
    session: Session, paths: Sequence[Path], user: str, variables: Mapping[str, str] = NO_VARIABLES
) -> list[JobFile] | None:
    """Read all files; None when one has mistakes, which were reported."""
    read = [checked_file(session, path, user, variables) for path in paths]
    files = [file for file in read if file is not None]
    if len(files) == len(paths):
        return files
    if files:
        print_error("nothing was submitted: correct every file first")
    return None


def checked_file(
    session: Session, path: Path, user: str, variables: Mapping[str, str] = NO_VARIABLES
) -> JobFile | None:
    """Read a file of one job; None when it has mistakes, which were reported."""
    from borgish.bands import DEFAULT_BANDS
    from borgish.spec.cron import read_job_or_cron

    source = name_of(path)
    if path != STDIN and path.is_dir():
        print_error(f"{source} is a folder")
        print_hint("`borgctl apply` takes folders; submit takes the file of one job")
        return None
    loaded = load([path], variables)
    if loaded.mistakes:
        show_found(Invalid("", mistakes=tuple(loaded.mistakes)), source)
        return None
    (file,) = loaded.sources
    try:
        if not variables and not loaded.programs:
            found = with_bands(session, lambda bands: read_job_or_cron(file.text, user, bands))
            return _file_of(source, file.text, found)
        # What is written anew names bands, so that they have to be the cell's.
        bands = session.bands() or DEFAULT_BANDS
        found = read_job_or_cron(file.text, user, bands, loaded.left(variables))
        return _file_of(source, written(found, bands), found)
    except Invalid as error:
        named = [msgspec.structs.replace(it, source=it.source or source) for it in error.mistakes]
        show_found(Invalid(error.message, error.hint, loaded.located(named)), source)
    return None


def _file_of(source: str, text: str, found: JobSpec | CronSpec) -> JobFile:
    return (
        JobFile(source, text, found.job, found)
        if isinstance(found, CronSpec)
        else JobFile(source, text, found)
    )


def written(found: JobSpec | CronSpec, bands: "Bands") -> str:
    """Return the document of a job or of a cron as YAML."""
    from borgish.spec.cron import write_cron
    from borgish.spec.file.write import write_job

    return write_cron(found, bands) if isinstance(found, CronSpec) else write_job(found, bands)


def with_bands(session: Session, read: "Callable[[Bands], T]") -> T:
    """Return what is read; the cell is asked for its bands only where the usual ones are not those meant."""
    from borgish.bands import DEFAULT_BANDS

    try:
        return read(DEFAULT_BANDS)
    except Invalid as error:
        in_priority = any(re.search(r"(^|\.)priority$", it.path) for it in error.mistakes)
        bands = session.bands() if in_priority else None
        if bands is None:
            raise
    return read(bands)


def show_times(cron: CronSpec) -> None:
    """Say when a cron is due next."""
    from borgish.clock import SystemClock
    from borgish.spec.cron import next_times_text

    print_out(next_times_text(cron, SystemClock().now().wall))


def show_found(error: Invalid, source: str) -> None:
    """Show the mistakes in files; ``source`` is the file of those that name none."""
    if not error.mistakes:
        report(error)
        return
    from borgish.spec.file.mistakes import show_mistakes

    print_err(show_mistakes(error.mistakes, source).rstrip("\n"))


plan_app = single()

LEAVING_SHOWN = 4

_Row = tuple[PlannedPlace, str]
"""Places that are alike, and the indexes of their tasks."""

_UPDATE_COLUMNS: tuple[Column[tuple[str, str]], ...] = (
    Column("TASKS", lambda pair: pair[1]),
    Column("WHAT BECOMES OF THEM", lambda pair: pair[0]),
)


@plan_app.command()
def plan(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file; - is stdin.")],
    user: Annotated[
        str, typer.Option("--user", help="Owner of the job, if the file does not name one. Default: you.")
    ] = "",
    given: VarOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Say what would follow if a job were submitted.

    Where each task would go, who would have to leave for it, what would wait and why. Nothing is
    changed. `borgctl job submit --plan TOKEN FILE` does just that, or refuses because the cell
    changed. Exit code 3: not all tasks would be placed.
    """

    session = session_of(context)
    user = user or session.who_asks()
    variables = values_of(given)
    found = checked_file(session, file, user, variables)
    if found is None:
        raise typer.Exit(USAGE)
    view = ask_for_plan(session.client(), found, user)
    again = " ".join([found.source, *(f"--var {shlex.quote(each)}" for each in given or ())])
    has_token = found.cron is None  # the plan of a cron is that of one of its runs
    show_one(view, output, view.token, lambda it, wide: planned(it, again, wide=wide, token=has_token))
    raise typer.Exit(NOT_PLACED if view.refusals else DONE)


def plan_files(
    session: Session, paths: Sequence[Path], user: str, variables: Mapping[str, str] = NO_VARIABLES
) -> int:
    """Print for each file what would follow if it alone were submitted; return the exit code."""

    user = user or session.who_asks()
    files = read_files(session, paths, user, variables)
    if files is None:
        return USAGE
    client = session.client()
    codes = []
    for file in files:
        try:
            view = ask_for_plan(client, file, user)
            print_out(planned(view, file.source, token=False))
            codes.append(NOT_PLACED if view.refusals else DONE)
        except BorgishError as error:
            codes.append(report(error))
    return worst(codes)


def ask_for_plan(client: "Client", file: "JobFile", user: str) -> PlanView:
    """Return what would follow from a job file; ``user`` is whose it is when it does not say."""
    from borgish.spec.file.write import write_job

    if file.cron is not None and file.cron.app:
        message = f"{file.spec.key} runs {file.cron.app_key}, and has no job of its own to plan"
        raise Invalid(message, f"`borgctl app status {file.cron.app_key}` shows its stages")
    body = (file.text if file.cron is None else write_job(file.spec)).encode()
    return client.post("/v1/plan", body, PlanView, params={"user": user}, content_type="application/yaml")


def planned(view: PlanView, source: str, *, wide: bool = False, token: bool = True) -> str:
    """Return a plan as people read it. Without ``token`` it is for looking only."""
    from borgish.cli.problems import refusal_lines

    columns: list[Column[_Row]] = [
        Column("TASKS", lambda row: row[1]),
        Column("MACHINE", lambda row: row[0].machine),
        Column("ALLOC", _alloc, right=True, wide=all(place.alloc < 0 for place in view.places)),
        Column("DEVICES", _devices, wide=not any(place.devices for place in view.places)),
        Column("WHEN", lambda row: _when(row[0], view.waits)),
    ]
    parts = [f"{safe(view.text)}\n"]
    if view.updates:
        parts.append(draw(list(view.updates.items()), _UPDATE_COLUMNS))
    if view.places:
        parts.append(draw(list(_rows(view.places)), [c for c in columns if wide or not c.wide]))
    if view.refusals:
        parts.append("\n".join(line for each in view.refusals for line in refusal_lines(each)) + "\n")
    if view.changes:
        against = "Against the job as it is:" if view.updates else "Against the job that ended:"
        parts.append("".join(f"  {safe(line)}\n" for line in (against, *view.changes)))
    if notes := [note for note in view.notes if not any(note in each.hint for each in view.refusals)]:
        parts.append("".join(f"note: {safe(note)}\n" for note in notes))
    if token and view.token and (view.places or view.updates):
        parts.append(f"To do just that: borgctl job submit --plan {safe(view.token)} {safe(source)}\n")
    return "\n".join(parts)


def _rows(places: tuple[PlannedPlace, ...]) -> Iterator[_Row]:
    """Yield places that are alike once, with the indexes of their tasks."""

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


def _when(place: PlannedPlace, waits: str) -> str:
    if not place.kept:
        return waits or "at once"
    if not place.victims:
        return "when the others of its gang can start"
    more = len(place.victims) - LEAVING_SHOWN
    shown = [*place.victims[:LEAVING_SHOWN], *([f"{more} more"] if more > 0 else [])]
    return f"when preempted: {', '.join(shown)}"
