"""``borgctl doctor``: looks at a cell and at this host, and says of each check what to do.

The checks are tables, executed in their order: ``doctor/cell.py`` asks the master, ``doctor/host.py`` looks
at what is on this host. A check that breaks is a finding like any, so that one fault hides no other.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from borgish.cli.doctor.diagnosis import Check, Finding, Found, Level, Patient, fail, warn
from borgish.cli.errors import DONE, FAILED, NOT_PLACED, print_note
from borgish.cli.render import Column, Form, FormOption, show_list
from borgish.cli.session import DirOption, session_of, single
from borgish.errors import BorgishError, Forbidden, Invalid
from borgish.text import safe

app = single()

_STYLES = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "red"}
_CODES = {Level.PASS: DONE, Level.WARN: NOT_PLACED, Level.FAIL: FAILED}

COLUMNS: tuple[Column[Finding], ...] = (
    Column("LEVEL", lambda it: it.level, lambda it: _STYLES[it.level]),
    Column("CHECK", lambda it: it.check),
    Column("ROW", lambda it: it.row or "-"),
    Column("WHAT", lambda it: it.text),
)


@app.command()
def doctor(
    context: typer.Context,
    *,
    security: Annotated[
        bool, typer.Option("--security", help="Also what keeps the cell closed, by the rows S1 to S75.")
    ] = False,
    accept: Annotated[
        Path | None,
        typer.Option("--accept", metavar="FILE", help="Warnings that are known here, each with its reason."),
    ] = None,
    folder: DirOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Look for trouble in the cell and on this host.

    Of each check it says what to do. On a machine, --dir is the folder that has its borglet.toml. Exit code
    0: all passes; 3: there are warnings; 1: something fails, also when the master does not answer.
    """
    from borgish.cli.doctor.cell import CELL_CHECKS
    from borgish.cli.doctor.host import HOST_CHECKS

    session = session_of(context)
    session.use(folder)
    checks = (*CELL_CHECKS, *HOST_CHECKS)
    accepted = read_accepted(accept, {check.name for check in checks}) if accept else {}
    patient = Patient(session)
    findings = examine(patient, checks, accepted, security=security)
    show_findings(findings, output)
    for line in unmatched(findings, accepted):
        print_note(f"accepted and not found here: {line}")
    if patient.trouble is not None:
        print_note("what the master knows was not looked at: ask again when it answers")
    raise typer.Exit(exit_code(findings))


Accepted = Mapping[str, Mapping[str, str]]
"""By the names of checks: which part of what is found is accepted, and why."""


def read_accepted(path: Path, known: set[str]) -> Accepted:
    """Return what a file accepts. Raises Invalid, also for a name that no check has."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, dict[str, str]])
    except (OSError, ValueError) as error:
        raise Invalid(
            f"{path}: {error}",
            'Write a table for each check, as ["core dumps"], with lines like "part of what is found" = "why '
            'that is so here"',
        ) from None
    for name, reasons in found.items():
        if name not in known:
            raise Invalid(f"{path}: no check has the name '{name}'", "The names are those that doctor prints")
        if not all(part.strip() and reason.strip() for part, reason in reasons.items()):
            raise Invalid(
                f"{path}: '{name}' has no reason, or no part of what is found",
                "Say which warning it is, and why it is as it should be here",
            )
    return found


def unmatched(findings: Iterable[Finding], accepted: Accepted) -> list[str]:
    """Return what is accepted of the checks that were executed, and was not found."""
    texts: dict[str, list[str]] = {}
    for it in findings:
        texts.setdefault(it.check, []).append(it.text if it.accepted else "")
    return [
        f"{name}: {part}"
        for name, reasons in accepted.items()
        for part in reasons
        if name in texts and not any(part in text for text in texts[name])
    ]


def examine(
    patient: Patient, checks: Iterable[Check], accepted: Accepted, *, security: bool
) -> list[Finding]:
    """Execute the checks that there is something for; what asks the master only where it has answered."""
    findings: list[Finding] = []
    for check in checks:
        if check.security and not security:
            continue
        if check.of_cell and patient.status is None and check.name != "master":
            continue
        for found in _looked(check, patient):
            reason = _reason(accepted.get(check.name, {}), found) if found.level is Level.WARN else ""
            level = Level.PASS if reason else found.level
            findings.append(Finding(check.name, check.row, level, found.text, found.to_do, reason))
    return findings


def _reason(accepted: Mapping[str, str], found: Found) -> str:
    """Return why a warning is accepted, "" where it is not. One of a check says nothing of its others."""
    return next((reason for part, reason in accepted.items() if part in found.text), "")


def _looked(check: Check, patient: Patient) -> list[Found]:
    try:
        return check.look(patient)
    except Forbidden as error:
        return warn(f"this token may not look: {error}", "Ask with the token of an admin")
    except BorgishError as error:
        return fail(f"could not be seen: {error.message}", error.hint or "Look into the borgmaster's log")
    except PermissionError as error:
        where = error.filename or "it"
        return warn(f"{where} is not for this user to see", "Run doctor as root, or as the folder's owner")
    except OSError as error:
        return fail(f"{error.filename or check.name}: {error.strerror}", "See what became of it")


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code, by the worst."""
    order = list(Level)
    worst = max((finding.level for finding in findings), key=order.index, default=Level.PASS)
    return _CODES[worst]


def show_findings(findings: list[Finding], form: Form) -> None:
    """Show what was found; to people with what to do below it, and the sum on stderr."""
    from borgish.cli.screen import print_err, print_out, styled

    if not form.is_for_people:
        show_list(findings, COLUMNS, form, lambda it: it.check, "nothing was looked at")
        return
    import sys

    width = max((len(_title(it)) for it in findings), default=0)
    for it in findings:
        print_out(
            f"{styled(it.level, _STYLES[it.level], sys.stdout)}  {_title(it):<{width}}  {safe(it.text)}"
        )
        words = f"accepted: {it.accepted}" if it.accepted else it.to_do
        if words:
            print_out(f"{'':<{width + 8}}{safe(words)}")
    counts = Counter(it.level for it in findings)
    print_err(", ".join(f"{counts[level]} {level}" for level in Level))


def _title(finding: Finding) -> str:
    return f"{finding.check} ({finding.row})" if finding.row else finding.check
