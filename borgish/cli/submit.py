"""Job files on their way into the cell: read and checked here, sent as they are, then followed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from borgish.cli.failing import DONE, FAILED, NOT_ALLOWED, NOT_PLACED, USAGE, report, say_error, say_note
from borgish.cli.screen import data, say
from borgish.cli.session import Session
from borgish.cli.text import plural
from borgish.errors import BorgishError, Invalid
from borgish.spec.job import JobSpec
from borgish.text import safe
from borgish.vocabulary import BODY_BYTES_MAX

if TYPE_CHECKING:
    from borgish.client import Client

STDIN = Path("-")


class JobFile(msgspec.Struct, frozen=True):
    """A job file without mistakes: where it came from, as it was written, and what it says."""

    source: str
    text: str
    spec: JobSpec


def check_files(session: Session, paths: Sequence[Path], user: str) -> int:
    """Say for each file whether it is right, with all mistakes; return the exit code."""
    from borgish.spec.mistakes import resource_typos

    user = user or session.who_asks()
    files = [checked_file(session, path, user) for path in paths]
    for file in files:
        if file is not None:
            tasks = plural(file.spec.tasks, "task")
            data(f"{safe(file.source)}: right: job {file.spec.key}, {tasks}, {file.spec.runtime}")
            for _, text in resource_typos(file.spec):
                say_note(text)
    return USAGE if None in files else DONE


def submit_files(
    session: Session,
    paths: Sequence[Path],
    user: str,
    timeout_seconds: float,
    *,
    detach: bool,
    plan: str = "",
    settle_seconds: float | None = None,
) -> int:
    """Submit all files, or none when one has mistakes; follow the jobs; return the exit code.

    ``plan`` is the token of the plan of the only file; ``settle_seconds`` as in ``follow``.
    """
    user = user or session.who_asks()
    files = read_files(session, paths, user)
    if files is None:
        return USAGE
    client = session.client()
    codes, jobs = [], []
    for file in files:
        try:
            jobs.append(_sent(client, file, user, plan))
        except Invalid as error:
            _show_mistakes(error, file.source)
            codes.append(USAGE)
        except BorgishError as error:
            codes.append(report(error))
    if not detach:
        codes += _follow_all(client, jobs, timeout_seconds, settle_seconds)
    return worst(codes)


def worst(codes: Sequence[int]) -> int:
    """Return the exit code that stands for several."""
    return next((code for code in (NOT_ALLOWED, USAGE, FAILED, NOT_PLACED) if code in codes), DONE)


def _sent(client: "Client", file: JobFile, user: str, plan: str) -> str:
    from borgish.wire.api import Accepted

    params = {"user": user} | ({"plan": plan} if plan else {})
    body = file.text.encode()
    accepted = client.post("/v1/jobs", body, Accepted, params=params, content_type="application/yaml")
    data(safe(accepted.text))
    for note in accepted.notes:
        say_note(note)
    return file.spec.key


def _follow_all(
    client: "Client", jobs: Sequence[str], timeout_seconds: float, settle_seconds: float | None
) -> list[int]:
    from borgish.cli.follow import Goal, follow

    sys.stdout.flush()
    try:
        return follow(client, jobs, Goal.UP, timeout_seconds, settle_seconds, until_death=True)
    except KeyboardInterrupt:
        for job in jobs:
            say(f"{job} goes on. Follow: borgctl job wait {job}   End it: borgctl job kill {job}")
        return []


def read_files(session: Session, paths: Sequence[Path], user: str) -> list[JobFile] | None:
    """Read all files; None when one has mistakes, which were reported."""
    files = [file for path in paths if (file := checked_file(session, path, user)) is not None]
    if len(files) == len(paths):
        return files
    if files:
        say_error("nothing was submitted: every file must be right first")
    return None


def checked_file(session: Session, path: Path, user: str) -> JobFile | None:
    """Read one file; None when it has mistakes, which were reported."""
    source = "stdin" if path == STDIN else str(path)
    try:
        text = _text_of(path, source)
        return JobFile(source, text, _read(session, text, user))
    except Invalid as error:
        _show_mistakes(error, source)
    except OSError as error:
        say_error(f"{source}: {(error.strerror or str(error)).lower()}")
    return None


def _read(session: Session, text: str, user: str) -> JobSpec:
    """Read a job; the cell is asked for its bands only where the usual ones are not those meant."""
    from borgish.spec.read import read_job

    try:
        return read_job(text, user)
    except Invalid as error:
        bands = session.bands() if any(it.path == "priority" for it in error.mistakes) else None
        if bands is None:
            raise
    return read_job(text, user, bands)


def _show_mistakes(error: Invalid, source: str) -> None:
    if not error.mistakes:
        report(error)
        return
    from borgish.spec.mistakes import show_mistakes

    say(show_mistakes(error.mistakes, source).rstrip("\n"))


def _text_of(path: Path, source: str) -> str:
    if path == STDIN:
        body = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    else:
        with path.open("rb") as file:
            body = file.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise Invalid(f"{source} is larger than 1 MiB, the most a job file may have")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{source} is not UTF-8 text (line {line})", "Save it as UTF-8") from None
