"""``borgctl machine drain``, ``undrain`` and ``maintain``: machines that are to be empty, and when.

To follow a drain is to look at the machines until each is empty, and to say what does not leave and why.
"""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from borgish.cli import complete
from borgish.cli.commands.machine import app
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.errors import DONE, FAILED, NOT_PLACED, print_error
from borgish.cli.render import Column, Form, FormOption, Progress, show_list
from borgish.cli.screen import print_err, print_out
from borgish.cli.session import MaxAffected, session_of
from borgish.clock import SystemClock
from borgish.errors import Invalid, NotFound, Unreachable
from borgish.resources import parse_seconds
from borgish.text import plural, safe, span
from borgish.wire.api import Accepted, DrainRequest, DrainView, MachineView, MaintainRequest, UndrainRequest

if TYPE_CHECKING:
    from borgish.client import Client

ONE_BY_ONE_MAX = 20
"""So many machines are looked at one by one; of more the whole list is read."""
NAMED_MAX = 5
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)

Machines = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MACHINE...", help="Names, or beginnings that are unique.", autocompletion=complete.machines
    ),
]
WhereOption = Annotated[
    str,
    typer.Option(
        "--where", metavar="CONDITION", help="Instead of names: 'rack == r2', 'machine in (m1, m2)'."
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Reason, shown with the machines.")]


@app.command()
def drain(
    context: typer.Context,
    machines: Machines = None,
    where: WhereOption = "",
    deadline: Annotated[
        str,
        typer.Option("--deadline", help="How long what runs to completion may go on; 0s: it moves at once."),
    ] = "1h",
    force: Annotated[
        bool, typer.Option("--force", help="Stop all at once, as --max-affected says; ask no budget.")
    ] = False,
    max_affected: MaxAffected = None,
    reason: ReasonOption = "",
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long to follow: 60s, 2h. Default: until all are empty.")
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as it is accepted.")] = False,
    yes: YesOption = False,
) -> None:
    """Empty machines: nothing new comes, and what runs there moves within its budgets.

    Says what is left and what it waits for, and ends when the machines can be switched off. Ctrl-C detaches:
    the drain goes on until `borgctl machine undrain`.
    Exit code 3: not all were empty in time, or no machine was meant; 1: somebody took it back; 130: Ctrl-C.
    """
    from borgish.cli.commands.job import seconds_of

    seconds = seconds_of(timeout, "--timeout") if timeout else float("inf")
    client = session_of(context).client()
    names = _named(client, machines)
    if force and (names or where):
        which = ", ".join(names) or f"the machines where {where}"
        confirm(f"This stops every task on {safe(which)} at once, whatever the budgets say.", yes=yes)
    body = DrainRequest(names, where, reason, seconds_of(deadline, "--deadline"), force, max_affected)
    _post(client, "/v1/drains", body)
    if not detach:
        raise typer.Exit(follow(client, names or _drained(client, where), seconds))


@app.command()
def undrain(context: typer.Context, machines: Machines = None, where: WhereOption = "") -> None:
    """Let machines take tasks again. Maintenance windows stay, and so does a cordon."""
    client = session_of(context).client()
    _post(client, "/v1/drains/delete", UndrainRequest(_named(client, machines), where))


@app.command()
def maintain(
    context: typer.Context,
    machines: Machines = None,
    where: WhereOption = "",
    begins: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="22:00, 2026-12-31T22:00, or 2h for in two hours."),
    ] = "",
    length: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long it lasts: 2h.")] = "",
    lead: Annotated[
        str, typer.Option("--lead", metavar="DURATION", help="How long before that machines are drained.")
    ] = "1h",
    reason: ReasonOption = "",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Take the windows of these machines back.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the windows there are.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Plan maintenance: machines are empty when it begins, as far as budgets let, and return at its end.

    A time of day that is over today is tomorrow's, in your time zone. What a person drains stays drained.
    """
    from borgish.cli.commands.job import seconds_of

    client = session_of(context).client()
    if list_:
        show_list(
            _windows(client), WINDOW_COLUMNS, output, lambda row: row.machine, "no maintenance is planned"
        )
        return
    names = _named(client, machines)
    if cancel:
        _post(client, "/v1/windows/delete", UndrainRequest(names, where))
        return
    if not (begins and length):
        raise typer.BadParameter("--from and --for are needed: --from 22:00 --for 2h")
    start = moment_to_come(begins, SystemClock().now().wall)
    end = start + timedelta(seconds=seconds_of(length, "--for"))
    body = MaintainRequest(
        machines=names,
        where=where,
        begins=_utc(start),
        ends=_utc(end),
        lead_seconds=seconds_of(lead, "--lead"),
        reason=reason,
    )
    _post(client, "/v1/windows", body)
    print_out(f"in your time zone: {_local(start)} to {_local(end)} (UTC{start.isoformat()[-6:]})")


# What is meant


def moment_to_come(text: str, wall: float) -> datetime:
    """Return the time that ``--from`` means, in the zone of who asks; ``wall`` is now, in seconds since 1970.

    A time of day is the next such. Raises BadParameter.
    """
    now = datetime.fromtimestamp(wall, UTC).astimezone()
    try:
        if found := _TIME_OF_DAY.fullmatch(text):
            today = now.replace(
                tzinfo=None, hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0
            )
            at = today.astimezone()
            return at if at > now else (today + timedelta(days=1)).astimezone()
        if text == "now":
            return now
        if text[-1:].isalpha() and not text.endswith("Z"):
            return now + timedelta(seconds=parse_seconds(text))
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is no time: write 22:00, 2026-12-31T22:00 or 2h", param_hint="--from"
        ) from None


def _named(client: "Client", machines: Sequence[str] | None) -> tuple[str, ...]:
    from borgish.cli.lookup import every_machine, match_machine

    if not machines:
        return ()
    known = [machine.name for machine in every_machine(client)]
    return tuple(dict.fromkeys(match_machine(each, known) for each in machines))


def _post(client: "Client", path: str, body: UndrainRequest) -> None:
    """Ask for it and say what was answered; ends with exit code 3 where no machine is meant."""
    from borgish.cli.commands.job import say_accepted

    if bool(body.machines) is bool(body.where):
        raise Invalid("name machines, or choose them with --where", "Like m3, or --where 'rack == r2'")
    accepted = client.post(path, body, Accepted)
    say_accepted(accepted)
    if not accepted.subject:
        raise typer.Exit(NOT_PLACED)


def _drained(client: "Client", where: str) -> tuple[str, ...]:
    """Return the machines that meet a condition and are drained."""
    from borgish.cli.lookup import every_machine
    from borgish.spec.constraints import matches, parse_constraint
    from borgish.spec.job import MACHINE

    condition = parse_constraint(where)
    return tuple(
        machine.name
        for machine in every_machine(client)
        if machine.drains and matches(condition, machine.attributes | {MACHINE: machine.name})
    )


# Following


def follow(client: "Client", names: Sequence[str], timeout_seconds: float) -> int:
    """Look at machines until each is empty; return the exit code."""
    from borgish.cli.changes import Changes, Deadline

    sys.stdout.flush()
    left, code = list(names), DONE
    deadline, changes, progress = Deadline(timeout_seconds), Changes(client, "tasks,event"), Progress()
    views: list[MachineView] = []
    try:
        while left:
            try:
                views = _look(client, left)
            except Unreachable:
                progress.show(f"{_some(left)}: the master does not answer; still trying")
            else:
                for name, text, is_well in _over(left, views):
                    progress.end()
                    print_out(text) if is_well else print_error(text)
                    code = code if is_well else FAILED
                    left.remove(name)
                views = [view for view in views if view.name in left]
                if left:
                    progress.show(_line(views))
            if left and not deadline.left:
                progress.end()
                _say_what_stays(views, timeout_seconds)
                return NOT_PLACED
            if left:
                changes.wait(min(deadline.left, 60.0))
    except KeyboardInterrupt:
        progress.end()
        names_left = " ".join(left[:NAMED_MAX])
        print_err(
            f"{_some(left)}: the drain goes on. See: borgctl machine list   "
            f"Take it back: borgctl machine undrain {names_left}"
        )
        raise  # it may not be switched off yet
    finally:
        changes.close()
        progress.end()
    return code


def _look(client: "Client", names: Sequence[str]) -> list[MachineView]:
    """Return those of the machines that are in the cell."""
    from borgish.cli.lookup import every_machine
    from borgish.client import quoted

    if len(names) > ONE_BY_ONE_MAX:
        wanted = set(names)
        return [machine for machine in every_machine(client) if machine.name in wanted]
    views = []
    for name in names:
        try:
            views.append(client.get(quoted("machines", name), None, MachineView))
        except NotFound:
            continue
    return views


def _over(names: Sequence[str], views: Sequence[MachineView]) -> list[tuple[str, str, bool]]:
    """Return the machines that need no more looking at, what to say of them, and whether that is well."""
    found = {view.name: view for view in views}
    over = []
    for name in names:
        view = found.get(name)
        if view is None:
            over.append((name, f"{name} is not in the cell any more", True))
        elif not any(each.begun for each in view.drains):
            over.append((name, f"{name} is not drained any more: somebody took it back", False))
        elif view.state == "drained":
            over.append((name, f"{name} is empty: safe to switch off", True))
        elif view.state == "down" and not view.tasks:
            over.append((name, f"{name} is down, and nothing is placed there any more", True))
    return over


def _line(views: Sequence[MachineView]) -> str:
    """Return what is left and what that waits for, as one line."""
    parts = []
    for view in views[:NAMED_MAX]:
        ending = f", {plural(view.ending, 'program')} ending" if view.ending else ""
        parts.append(f"{view.name}: {plural(view.tasks, 'task')} left{ending}")
    more = len(views) - NAMED_MAX
    parts += [f"{more} more machines"] if more > 0 else []
    why = next((line for view in views for line in view.staying), "")
    return safe("; ".join(parts) + (f"; {why}" if why else ""))


def _say_what_stays(views: Sequence[MachineView], timeout_seconds: float) -> None:
    print_error(
        f"not empty after {span(timeout_seconds)}: {_some([view.name for view in views])}; it goes on"
    )
    for view in views[:NAMED_MAX]:
        for line in view.staying:
            print_err(f"  {view.name}: {safe(line)}")


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# Windows


class WindowRow(msgspec.Struct, frozen=True):
    """One maintenance window of one machine."""

    machine: str
    state: str
    window: DrainView


WINDOW_COLUMNS: tuple[Column[WindowRow], ...] = (
    Column("MACHINE", lambda row: row.machine),
    Column("FROM", lambda row: _local(datetime.fromisoformat(row.window.begins))),
    Column("TO", lambda row: _local(datetime.fromisoformat(row.window.ends))),
    Column("STATE", lambda row: row.state),
    Column("BY", lambda row: row.window.by),
    Column("REASON", lambda row: row.window.reason),
)


def _windows(client: "Client") -> list[WindowRow]:
    from borgish.cli.lookup import every_machine

    return [
        WindowRow(machine.name, machine.state if each.begun else "planned", each)
        for machine in every_machine(client)
        for each in machine.drains
        if each.begins
    ]


def _local(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
