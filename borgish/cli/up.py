"""``borgctl up``: a cell on this machine, in the background."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import single
from borgish.cli.session import DirOption, session_of

if TYPE_CHECKING:
    import subprocess

    from borgish.cli.cell import Daemon
    from borgish.cli.changes import Deadline

    Started = dict[Daemon, subprocess.Popen[bytes]]

app = single()

READY_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.03
MACHINES = 3


@app.command()
def up(
    context: typer.Context,
    machines: Annotated[
        int | None, typer.Option("--machines", min=1, help=f"How many machines. New cells: {MACHINES}.")
    ] = None,
    folder: DirOption = None,
) -> None:
    """Start a local cell and wait until it serves.

    Starts what does not run and leaves the rest alone.
    Machines are borglets on this host, each with a share of it. A larger number later adds machines.
    The cell goes on when the terminal is closed; `borgctl down` stops it.
    """
    from borgish.cli.cell import alone, check_machines, refuse_foreign

    if machines is not None:
        check_machines(machines)
    session = session_of(context)
    session.use(folder)
    refuse_foreign(session.cell_folder)
    with alone(session.cell_folder, make=True):
        raise typer.Exit(bring_up(session.cell_folder, machines))


def bring_up(folder: Path, machines: int | None) -> int:
    """Make and start what is missing; return the exit code."""
    from borgish.cli import cell, daemons
    from borgish.cli.changes import Deadline
    from borgish.cli.screen import data

    spent = Deadline(READY_SECONDS_MAX)
    is_new = not cell.exists(folder)
    added = cell.make(folder, machines or len(cell.machine_names(folder)) or MACHINES)
    every = [cell.master_of(folder), *cell.borglets_of(folder)]
    ran = {daemon.name: pid for daemon in every if (pid := daemons.running_pid(daemon))}
    started = {daemon: daemons.start(daemon) for daemon in every if daemon.name not in ran}
    code = wait_until_ready(folder, started, spent)
    if code == 0:
        done = _what_was_done(list(ran), [daemon.name for daemon in started], [] if is_new else added)
        made = f"new cell in {folder}" if is_new else f"cell in {folder}"
        data(f"{made}: {done}")
        _say_ready(folder, spent.spent)
    return code


def _what_was_done(ran: list[str], started: list[str], added: list[str]) -> str:
    if not started:
        return "everything runs already"
    parts = [f"added {', '.join(added)}"] if added else []
    parts.append(f"started {', '.join(started)}")
    return "; ".join([*parts, f"{', '.join(ran)} ran already"] if ran else parts)


def wait_until_ready(folder: Path, started: "Started", deadline: "Deadline") -> int:
    """Wait until the master serves and has heard every machine; say who is missing otherwise."""
    from borgish.cli.failing import FAILED, say_error, say_hint

    missing = ["borgmaster"]
    while deadline.left:
        ended = [daemon for daemon, process in started.items() if process.poll() is not None]
        # A borglet may have ended for the same reason as a master that is about to: the master's words first.
        for daemon in ended:
            if daemon.name == "borgmaster" or missing != ["borgmaster"]:
                return _say_ended(daemon, started[daemon].returncode)
        missing = not_heard(folder)
        if not missing:
            return 0
        time.sleep(_LOOK_SECONDS)
    say_error(f"not ready after {READY_SECONDS_MAX:.0f}s; missing: {', '.join(missing)}")
    say_hint(f"Their logs are in {folder}; `borgctl down` ends the rest")
    return FAILED


def not_heard(folder: Path) -> list[str]:
    """Return the names of the daemons that do not serve yet: the master, or machines it has not heard."""
    from borgish.cli.cell import machine_names
    from borgish.cli.pages import every_machine
    from borgish.client import Client
    from borgish.errors import Unreachable

    client = Client.find(folder, timeout_seconds=5.0)
    try:
        machines = every_machine(client)
    except Unreachable:
        return ["borgmaster"]
    finally:
        client.close()
    heard = {
        it.name for it in machines if it.heard_seconds_ago is not None and it.answering and it.state != "down"
    }
    return [name for name in machine_names(folder) if name not in heard]


def _say_ended(daemon: "Daemon", code: int) -> int:
    from borgish.cli.daemons import last_words
    from borgish.cli.failing import FAILED, say_error, say_hint
    from borgish.cli.screen import say

    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    say_error(f"{daemon.name} ended with {how}; the end of its log:")
    say("\n".join(f"  {line}" for line in last_words(daemon).splitlines()))
    say_hint(f"The whole log is {daemon.log}")
    return FAILED


def _say_ready(folder: Path, seconds: float) -> None:
    from borgish.cli.screen import data, say
    from borgish.cli.text import plural
    from borgish.client import Client
    from borgish.wire.api import StatusView

    client = Client.find(folder)
    status = client.get("/v1/status", None, StatusView)
    machines = plural(status.machines_up, "machine")
    data(f"ready after {seconds:.1f}s: {client.url}, {machines} up, {plural(status.jobs, 'job')}")
    if not status.jobs:
        say("Next: borgctl job submit FILE; borgctl dashboard; borgctl down")
