"""Moments of the past on the command line: ``--at`` for commands that read, and times as people type them."""

from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.render import Form
from borgish.cli.screen import print_err, print_out
from borgish.cli.session import Session, session_of
from borgish.text import age, day_and_time, safe, zoned
from borgish.wire.api import AsOf

if TYPE_CHECKING:
    from borgish.client import Client


SECONDS = 30.0
SECONDS_MAX = 120.0  # a long way from the nearest checkpoint takes its time
MOMENT = "TIME|POSITION|CHECKPOINT"
MOMENTS = "2026-01-31T12:00, 12:00, 5m ago, a position of the journal, or a checkpoint's name"
_TIMES = "2026-01-31T12:00, with your zone unless it names one, or an age: 30m, 2h, 1d"
_NOT_KEPT = "phases, usage, what was up and why something waited were not journalled"
_NOT_SEEN = "phases, usage, what is up and why something waits are known to the leader"


def _refuse_empty(context: typer.Context, parameter: typer.CallbackParam, text: str) -> str:
    """Refuse what a script's empty variable becomes: what is now must not be taken for what was then."""
    source = context.get_parameter_source(parameter.name or "")
    if not text and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter(f"must not be empty; give {MOMENTS}, or leave it out for the present")
    return text


AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar=MOMENT,
        help=f"Show the cell as it was at this moment: {MOMENTS}.",
        callback=_refuse_empty,
        autocompletion=complete.moments,
    ),
]


SinceOption = Annotated[
    str, typer.Option("--since", metavar="TIME|AGE", help=f"Start of the period: {_TIMES}.")
]
UntilOption = Annotated[
    str, typer.Option("--until", metavar="TIME|AGE", help="End of the period, in the same forms.")
]


def _refuse_past(text: str) -> str:
    if text:
        raise typer.BadParameter("is not supported here: the past has no running programs")
    return text


NowOnly = Annotated[str, typer.Option("--at", hidden=True, callback=_refuse_past)]
"""Accepted by commands that have no past, in order to refuse it with the reason."""


def client_at(
    context: typer.Context, at: str, form: Form, *, leader_only: bool = False, seconds: float = SECONDS
) -> "Client":
    """Return the client of a command that reads; with ``at``, one to which the cell is as it was then.

    The moment is looked up once, so that all the reads of one command are of the same, and is printed: above
    a table, and beside all else. ``leader_only``: no standby knows what is asked for. ``seconds``: how long
    an answer may take, without ``at``.
    """
    session = session_of(context)
    client = session.client(SECONDS_MAX if at else seconds)
    if session.from_standby and not leader_only:
        return _of_standby(session, client, at, form)
    if not at and not session.at_least:
        return client
    found = client.get("/v1/moment", _moment(session, at), AsOf)
    if not at:  # asked only to have a position refused that does not exist yet
        return client
    _print_moment(moment_lines(found), form)
    return client.as_of(found.position)


def standby_of(session: Session, client: "Client") -> "Client | None":
    """Return the client of a standby that has what is asked for; None, which is said, where there is none."""
    standby = client.of_standby(session.at_least)
    if standby is None:
        print_err("no borgmaster stands by with a copy of the cell; the leader answers")
    return standby


def _of_standby(session: Session, client: "Client", at: str, form: Form) -> "Client":
    """Return a client of a master that stands by, and print which moment is shown, with ``at`` one of the
    past; of the leader, and print why, where none has what is asked for."""
    standby = standby_of(session, client) or client
    asked, params = standby.url, _moment(session, at)
    found = standby.get("/v1/moment", params, AsOf)
    if standby.url != asked:
        lacks = "cannot show that" if at else f"does not have position {session.at_least} yet"
        print_err(f"{asked} {lacks}; the leader answers")
        standby = client
    answers = f"; {asked} stands by" if standby is not client else ""
    if at or answers:
        _print_moment(moment_lines(found, f"{_NOT_KEPT if at else _NOT_SEEN}{answers}"), form)
    return standby.as_of(found.position) if at else standby


def _moment(session: Session, at: str) -> dict[str, str]:
    """Return which moment is asked for, and the position without which the answer is a refusal."""
    params = {"at": zoned(at)} if at else {}
    return params | ({"at_least": str(session.at_least)} if session.at_least else {})


def _print_moment(lines: list[str], form: Form) -> None:
    for line in lines:
        (print_out if form.is_for_people else print_err)(line)


def moment_lines(moment: AsOf, unknown: str = _NOT_KEPT) -> list[str]:
    """Return which moment it is, what is not known of it, and what was wrong on the way."""
    when = f"{day_and_time(moment.at)}, {age(moment.at)} ago" if moment.at else "before the first entry"
    line = f"As of position {moment.position} ({when}); {unknown}."
    return [line, *(f"warning: {safe(warning)}" for warning in moment.warnings)]
