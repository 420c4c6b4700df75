"""``borgctl job edit``: a job's present specification in an editor, and what was made of it submitted.

What a person wrote is never lost: whatever is in the way, it stays in its file, and it is said where.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from borgish.bands import DEFAULT_BANDS
from borgish.cli.commands.submit import (
    JobFile,
    ask_for_plan,
    checked_file,
    follow_all,
    planned,
    submit_file,
    worst,
)
from borgish.cli.errors import DONE, FAILED, USAGE, print_error, print_hint, print_note, report
from borgish.cli.screen import is_terminal, print_err, print_out
from borgish.cli.session import Session
from borgish.errors import BorgishError, Forbidden, PreconditionFailed
from borgish.spec.job import JobSpec
from borgish.wire.api import WhoamiView

if TYPE_CHECKING:
    from borgish.client import Client

EDITORS = ("VISUAL", "EDITOR")
_HEAD = """\
# {job}, generation {generation}. What you save is submitted, unless somebody else changes it meanwhile.
# Saved as it is, nothing is done.
"""


def edit_job(
    session: Session,
    job: str,
    timeout_seconds: float | None,
    *,
    detach: bool,
    settle_seconds: float | None,
    yes: bool,
) -> int:
    """Have a job edited, show what follows from it, submit it on the condition that it is still the one
    shown, follow it; return the exit code."""
    from borgish.cli.follow import look
    from borgish.cli.lookup import find_job
    from borgish.spec.file.write import write_job

    client = session.client()
    detail = look(client, find_job(client, job))
    name, generation = detail.job.name, detail.job.generation
    _expect_allowed(client, detail.spec.user)
    text = write_job(detail.spec, session.bands() or DEFAULT_BANDS)
    folder = Path(tempfile.mkdtemp(prefix="borgctl-edit-"))  # for its user alone: there may be secrets in it
    path = folder / f"{detail.spec.name}.yaml"
    path.write_text(_HEAD.format(job=name, generation=generation) + text, "utf-8")
    code, edited = _edited(session, path, detail.spec)
    if edited is None:
        if code == DONE:
            shutil.rmtree(folder, ignore_errors=True)
        return code
    try:
        if not _is_wanted(client, edited, detail.spec.user, yes=yes):
            print_err("nothing was submitted")
            _say_kept(path, name)
            return FAILED
        submit_file(client, edited, detail.spec.user, expected=generation)
    except BorgishError as error:
        code = report(error)
        _say_kept(path, name, changed=isinstance(error, PreconditionFailed))
        return code
    shutil.rmtree(folder, ignore_errors=True)
    return DONE if detach else worst(follow_all(client, [name], timeout_seconds, settle_seconds))


def _edited(session: Session, path: Path, before: JobSpec) -> tuple[int, JobFile | None]:
    """Return the file as it was edited; without one, the exit code: DONE where nothing was changed."""
    written = path.read_bytes()
    while True:
        if (failure := open_editor(path)) is not None:
            print_error(f"nothing was submitted: {failure}")
            if _is_untouched(path, written):
                shutil.rmtree(path.parent, ignore_errors=True)
            else:
                print_hint(f"what there is of it is in {path}")
            return FAILED, None
        file = checked_file(session, path, before.user)
        if file is not None and file.spec.key != before.key:
            print_error(f"nothing was submitted: this is {file.spec.key}, and not {before.key} any more")
            print_hint(f"a job keeps its name and user; `borgctl job submit {path}` makes another one of it")
            return USAGE, None
        if file is not None and file.spec == before:
            print_err(f"{before.key} stays as it is: nothing was changed")
            return DONE, None
        if file is not None:
            return DONE, file
        if not _asks_to_go_on():
            _say_kept(path, before.key)
            return USAGE, None


def _is_untouched(path: Path, written: bytes) -> bool:
    """Whether a file is as it was written, and no editor that was killed left its own beside it."""
    return [*path.parent.iterdir()] == [path] and path.read_bytes() == written


def open_editor(path: Path) -> str | None:
    """Let a person edit a file; return why that was not possible, None when it was."""
    editor = next((found for name in EDITORS if (found := os.environ.get(name))), "vi")
    try:
        words = [*shlex.split(editor), str(path)]
        code = subprocess.run(words, check=False).returncode
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        return f"the editor '{editor}' cannot be started: {why}; set EDITOR to another"
    return f"the editor '{editor}' ended with exit code {code}" if code else None


def _expect_allowed(client: "Client", user: str) -> None:
    """Raise Forbidden before anybody writes what they may not submit."""
    whoami = client.get("/v1/whoami", None, WhoamiView)
    if whoami.role != "admin" and (whoami.role != "user" or whoami.name != user):
        raise Forbidden(
            f"this token is {whoami.name}'s, and the job is {user}'s", "Ask its user, or use an admin's token"
        )


def _is_wanted(client: "Client", file: JobFile, user: str, *, yes: bool) -> bool:
    """Show what would follow, and ask whether it is wanted where there is somebody to ask."""
    try:
        print_out(planned(ask_for_plan(client, file, user), file.source, token=False))
        sys.stdout.flush()
    except BorgishError as error:  # what is wrong with it the submission says as well
        print_note(f"what would follow is not known: {error.message}")
    return yes or not _has_person() or typer.confirm("Submit this?", default=True, err=True)


def _asks_to_go_on() -> bool:
    return _has_person() and typer.confirm("Edit it again?", default=True, err=True)


def _has_person() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def _say_kept(path: Path, job: str, *, changed: bool = False) -> None:
    print_hint(
        f"your text is in {path}; `borgctl job submit {path}` submits it"
        + (f" all the same, `borgctl job edit {job}` begins anew from what is there now" * changed)
    )
