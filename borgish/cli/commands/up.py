"""``borgctl up`` and ``borgctl down``: a cell on this machine, in the background."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.confirm import YesOption, confirm
from borgish.cli.session import DirOption, session_of, single
from borgish.errors import BorgishError

if TYPE_CHECKING:
    import subprocess

    from borgish.cli.changes import Deadline
    from borgish.cli.local_cell import Daemon
    from borgish.wire.api import MachineView

    Started = dict[Daemon, subprocess.Popen[bytes]]
    from collections.abc import Sequence


up_app = single()

READY_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.03
MACHINES = 3


@up_app.command()
def up(
    context: typer.Context,
    machines: Annotated[
        int | None,
        typer.Option("--machines", min=1, help=f"Number of machines. Default for a new cell: {MACHINES}."),
    ] = None,
    folder: DirOption = None,
) -> None:
    """Start a local cell and wait until it serves.

    Starts what does not run and leaves the rest alone.
    A machine of the folder that was removed from the cell is invited again.
    Machines are borglets on this host, each with a share of it. A larger number later adds machines.
    The cell goes on when the terminal is closed; `borgctl down` stops it.
    """
    from borgish.cli.local_cell import alone, check_machines, refuse_foreign
    from borgish.cli.screen import print_err

    if machines is not None:
        check_machines(machines)
    session = session_of(context)
    session.use(folder)
    refuse_foreign(session.local_folder)
    with alone(session.local_folder, make=True):
        try:
            code = bring_up(session.local_folder, machines)
        except KeyboardInterrupt:
            print_err("interrupted: what was started runs. `borgctl up` goes on, `borgctl down` stops it")
            raise
    raise typer.Exit(code)


def bring_up(folder: Path, machines: int | None) -> int:
    """Make and start what is missing; return the exit code."""
    from borgish.cli import daemons, local_cell
    from borgish.cli.changes import Deadline
    from borgish.cli.errors import print_note
    from borgish.cli.screen import print_out

    spent = Deadline(READY_SECONDS_MAX)
    is_new = not local_cell.exists(folder)
    added = local_cell.make(folder, machines or len(local_cell.machine_names(folder)) or MACHINES)
    every = [local_cell.master_of(folder), *local_cell.borglets_of(folder)]
    ran = {daemon.name: pid for daemon in every if (pid := daemons.running_pid(daemon))}
    if "borgmaster" in ran:
        removed = _removed(folder, [daemon for daemon in every[1:] if daemon.name in ran])
        for name in daemons.stop(removed, _DAEMON_SECONDS_MAX):  # it asks with an invitation at its start
            print_note(f"{name} was removed from the cell: it is invited again")
            del ran[name]
    for daemon in every[1:]:
        if daemon.name not in ran and local_cell.has_joined(folder, daemon.name):
            local_cell.invite(folder, daemon.name)  # it may have been removed from the cell since
    if "borgmaster" in ran:
        os.kill(ran["borgmaster"], signal.SIGHUP)  # it lets in the machines that are added
    started = {daemon: daemons.start(daemon) for daemon in every if daemon.name not in ran}
    code = wait_until_ready(folder, started, spent)
    if code == 0:
        done = _what_was_done(list(ran), [daemon.name for daemon in started], [] if is_new else added)
        made = f"new cell in {folder}" if is_new else f"cell in {folder}"
        print_out(f"{made}: {done}")
        _print_ready(folder, spent.spent)
    return code


def _what_was_done(ran: list[str], started: list[str], added: list[str]) -> str:
    if not started:
        return "everything is already running"
    parts = [f"added {', '.join(added)}"] if added else []
    parts.append(f"started {', '.join(started)}")
    return "; ".join([*parts, f"already running: {', '.join(ran)}"] if ran else parts)


def wait_until_ready(folder: Path, started: "Started", deadline: "Deadline") -> int:
    """Wait until the master serves and has heard every machine; say who is missing otherwise."""
    from borgish.cli.errors import FAILED, print_error, print_hint

    missing = ["borgmaster"]
    while deadline.left:
        ended = [daemon for daemon, process in started.items() if process.poll() is not None]
        # A borglet may have ended for the same reason as a master that is about to: the master's words first.
        for daemon in ended:
            if daemon.name == "borgmaster" or missing != ["borgmaster"]:
                return _print_ended(daemon, started[daemon].returncode)
        missing = not_heard(folder)
        if not missing:
            return 0
        time.sleep(_LOOK_SECONDS)
    print_error(f"not ready after {READY_SECONDS_MAX:.0f}s; missing: {', '.join(missing)}")
    print_hint(f"Their logs are in {folder}; `borgctl down` stops the rest")
    return FAILED


def not_heard(folder: Path) -> list[str]:
    """Return the names of the daemons that do not serve yet: the master, or machines it has not heard."""
    from borgish.cli.local_cell import machine_names

    machines = _machines(folder)
    if machines is None:
        return ["borgmaster"]
    heard = {
        it.name for it in machines if it.heard_seconds_ago is not None and it.answering and it.state != "down"
    }
    return [name for name in machine_names(folder) if name not in heard]


def _removed(folder: Path, borglets: "Sequence[Daemon]") -> "list[Daemon]":
    """Return those whose machines have joined the cell and are in it no more; none where nobody says."""
    from borgish.cli.local_cell import has_joined

    joined = [daemon for daemon in borglets if has_joined(folder, daemon.name)]
    machines = _machines(folder) if joined else None
    there = {it.name for it in machines or ()}
    return [] if machines is None else [daemon for daemon in joined if daemon.name not in there]


def _machines(folder: Path) -> "Sequence[MachineView] | None":
    """Return the machines of the cell; None while its master does not serve."""
    from borgish.cli.lookup import every_machine
    from borgish.client import Client
    from borgish.errors import Unreachable

    client = Client.find(folder, timeout_seconds=5.0)
    try:
        return every_machine(client)
    except Unreachable:
        return None
    finally:
        client.close()


def _print_ended(daemon: "Daemon", code: int) -> int:
    from borgish.cli.daemons import last_words
    from borgish.cli.errors import FAILED, print_error, print_hint
    from borgish.cli.screen import print_err

    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    print_error(f"{daemon.name} ended with {how}; the end of its log:")
    print_err("\n".join(f"  {line}" for line in last_words(daemon).splitlines()))
    print_hint(f"The whole log is {daemon.log}")
    return FAILED


def _print_ready(folder: Path, seconds: float) -> None:
    from borgish.cli.screen import print_err, print_out
    from borgish.client import Client
    from borgish.text import plural
    from borgish.wire.api import StatusView

    client = Client.find(folder)
    status = client.get("/v1/status", None, StatusView)
    machines = plural(status.machines_up, "machine")
    print_out(f"ready after {seconds:.1f}s: {client.url}, {machines} up, {plural(status.jobs, 'job')}")
    if not status.jobs:
        print_err("Next: borgctl job submit FILE; borgctl dashboard; borgctl down")


down_app = single()

_DAEMON_SECONDS_MAX = 20.0


@down_app.command()
def down(
    context: typer.Context,
    purge: Annotated[bool, typer.Option("--purge", help="Also remove the cell's folder.")] = False,
    yes: YesOption = False,
    folder: DirOption = None,
) -> None:
    """Stop the local cell and every task.

    The jobs stay in the cell's state: `borgctl up` finds them and runs them again.
    """
    from borgish.cli.local_cell import alone, exists, is_rest, refuse_copy, refuse_initialised
    from borgish.cli.screen import print_err, print_out

    session = session_of(context)
    session.use(folder)
    where = session.local_folder
    if not exists(where) and not (purge and is_rest(where)):
        print_out(f"nothing to stop: `borgctl up` made no cell in {where}")
        raise typer.Exit
    refuse_initialised(where)
    refuse_copy(where)
    if purge:
        confirm(f"This removes {_what_is_in(where)}: {where}.", yes=yes, typed=_name_of(where))
    with alone(where, make=False):
        try:
            code = take_down(where)
            if code == 0 and purge:
                _remove(where)
        except KeyboardInterrupt:
            again = "borgctl down --purge" if purge else "borgctl down"
            print_err(f"interrupted: some of it may run, or be there, yet. `{again}` goes on")
            raise
    raise typer.Exit(code)


def _name_of(folder: Path) -> str:
    from borgish.cli.commands.init import cell_name

    try:
        return cell_name(folder)
    except BorgishError:
        return ""  # its file is damaged, or one that is gone


def _what_is_in(folder: Path) -> str:
    """Return what goes with a cell's folder, as far as that can be seen now."""
    from borgish.client import Client
    from borgish.text import plural
    from borgish.wire.api import StatusView

    jobs = "its jobs"
    try:
        client = Client.find(folder, timeout_seconds=2.0)
        jobs = plural(client.get("/v1/status", None, StatusView).jobs, "job")
        client.close()
    except BorgishError:
        pass  # it does not run
    cell = f"the cell {_name_of(folder)}".rstrip()
    return f"{cell} with {jobs}, its database, its checkpoints and all output of tasks"


def take_down(folder: Path) -> int:
    """Stop the master, then the borglets, then what they ran; return the exit code.

    In this order nobody starts anew what was just stopped, and the cell's state stays as it was.
    """
    from borgish.cli import daemons, local_cell
    from borgish.cli.screen import print_out

    borglets = local_cell.borglets_of(folder)
    stopped = daemons.stop([local_cell.master_of(folder)], _DAEMON_SECONDS_MAX)
    stopped += daemons.stop(borglets, _DAEMON_SECONDS_MAX)
    used = [borglet for borglet in borglets if (borglet.config.parent / "state").is_dir()]
    ended, failed = daemons.stop_everything_run_by(used)
    if failed:
        return _print_failed(failed)
    what = f"stopped {', '.join(stopped)} and every task" if stopped else "nothing runs"
    if ended and not stopped:
        left = (
            "1 program that was left over is" if ended == 1 else f"{ended} programs that were left over are"
        )
        what = f"no daemon ran; {left} stopped"
    print_out(f"cell in {folder}: {what}")
    return 0


def _print_failed(failed: "Sequence[tuple[Daemon, str]]") -> int:
    from borgish.cli.errors import FAILED, print_error
    from borgish.cli.screen import print_err

    for daemon, words in failed:
        print_error(f"not every task of {daemon.name} could be stopped:")
        print_err("\n".join(f"  {line}" for line in words.splitlines()))
    return FAILED


def _remove(folder: Path) -> None:
    from borgish.cli.local_cell import purge
    from borgish.cli.screen import print_out
    from borgish.text import safe

    left = purge(folder)
    print_out(
        f"removed {folder}" if not left else f"removed the cell; {folder} still has {safe(', '.join(left))}"
    )
