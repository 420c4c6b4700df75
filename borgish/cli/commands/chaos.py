"""``borgctl chaos``: break things in a local cell, and see it heal. A game day, for a cell that ``up`` made.

What fails here is what fails in a cell of many hosts, as far as one host can show it: a machine that dies is
its borglet and all that runs there killed at once; one that freezes has all of that stopped; one that is cut
off has its borglet stopped alone, and its programs run on. ``chaos heal`` mends all of it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.commands.job import seconds_of
from borgish.cli.screen import print_err, print_out
from borgish.cli.session import Session, noun, session_of
from borgish.errors import Conflict, NotFound, Unreachable
from borgish.text import plural, span

if TYPE_CHECKING:
    from borgish.cli.local_cell import Daemon
    from borgish.client import Client
    from borgish.wire.api import TaskView

app = noun("Break things in a local cell, and see it heal.")

MASTER = "master"
FILLER = "chaos-fill"
FOR_DEFAULT = "20s"
RACK = "rack"

Victim = Annotated[str, typer.Argument(metavar="master|MACHINE|TASK", help="What: master, m1, web/0.")]
For = Annotated[str, typer.Option("--for", help="For how long; then it is mended.")]


class LocalCell:
    """A local cell, with the processes of its daemons and of its tasks."""

    def __init__(self, folder: Path) -> None:
        """Raises Conflict for what is not a cell that ``borgctl up`` made here."""
        from borgish.cli import local_cell

        if not local_cell.exists(folder):
            raise Conflict(
                "chaos is for a local cell, and there is none in this folder",
                "`borgctl up` makes one; things are only broken on the host that they run on",
            )
        local_cell.refuse_initialised(folder)
        local_cell.refuse_copy(folder)
        self.folder = folder
        self.master = local_cell.master_of(folder)
        self.borglets = {each.name: each for each in local_cell.borglets_of(folder)}

    def client(self) -> "Client":
        """Return a client of its master."""
        from borgish.client import Client

        return Client.find(self.folder, timeout_seconds=10.0)

    def borglet(self, machine: str) -> "Daemon":
        """Return the borglet of a machine. Raises NotFound."""
        if machine not in self.borglets:
            raise NotFound(f"there is no machine '{machine}' here", f"There are {', '.join(self.borglets)}")
        return self.borglets[machine]

    def tasks(self, machine: str = "") -> "list[TaskView]":
        """Return the tasks that have a program, of one machine or of all. None while nobody answers."""
        from borgish.cli.lookup import every_task

        with contextlib.closing(self.client()) as client:
            try:
                return [each for each in every_task(client, machine=machine, state="running") if each.pid]
            except Unreachable:
                return []

    def machines_of(self, rack: str) -> list[str]:
        """Return the machines of a rack. Raises NotFound."""
        from borgish.cli.lookup import every_machine

        with contextlib.closing(self.client()) as client:
            known = every_machine(client)
        found = [each.name for each in known if each.attributes.get(RACK) == rack]
        if not found:
            racks = sorted({each.attributes[RACK] for each in known if RACK in each.attributes})
            nowhere = "No machine says in its borglet.toml which it is in"
            there = f"There are {', '.join(racks)}" if racks else nowhere
            raise NotFound(f"no machine is in rack '{rack}'", there)
        return found

    def signal_programs(self, tasks: "Sequence[TaskView]", number: signal.Signals) -> int:
        """Signal the programs of tasks, all of each one's process group; return how many there were."""
        count = 0
        for pid in [
            pid for task in tasks for pid in (task.pid, *(each.pid for each in task.programs)) if pid
        ]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), number)
                count += 1
        return count

    @cached_property
    def user(self) -> str:
        """Whose jobs those are that chaos brings."""
        return Session(self.folder).who_asks()

    def kill_job(self, name: str) -> None:
        """End a job of the user for good, however many tasks it has. Raises NotFound and Conflict."""
        from borgish.client import quoted
        from borgish.wire.api import Accepted, KillRequest

        with contextlib.closing(self.client()) as client:
            path = quoted("jobs", self.user, name) + "/kill"
            client.post(path, KillRequest(max_affected=100_000), Accepted)

    def up(self) -> int:
        """Start what does not run; return the exit code."""
        from borgish.cli.commands.up import bring_up
        from borgish.cli.local_cell import alone

        with alone(self.folder, make=False):
            return bring_up(self.folder, None)


def cell_of(context: typer.Context) -> LocalCell:
    """Return the local cell that is meant. Raises Conflict where it is elsewhere."""
    session = session_of(context)
    if session.url:
        raise Conflict("chaos is for a local cell: it breaks processes of this host", "Leave --url out")
    return LocalCell(session.local_folder)


@app.command()
def kill(context: typer.Context, victim: Victim) -> None:
    """Kill the master, a machine with all that runs on it, or a task's program, with SIGKILL.

    The master and a machine stay away until `borgctl chaos heal`, or `borgctl up`.
    """
    made = cell_of(context)
    print_out(killed(made, victim))


@app.command()
def freeze(context: typer.Context, victim: Victim, seconds: For = FOR_DEFAULT) -> None:
    """Stop all processes of the master, a machine or a task, as a host that hangs; then let them go on.

    A machine that is silent for ten seconds is down: its tasks run elsewhere, and when it wakes up it is told
    to end its own.
    """
    made, left = cell_of(context), seconds_of(seconds, "--for")
    with stopped(made, victim, programs=True) as words:
        _wait(words, left)
    print_out(f"{victim} goes on")


@app.command()
def cut(
    context: typer.Context,
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="Which: m1.", autocompletion=complete.machines)
    ],
    seconds: For = FOR_DEFAULT,
) -> None:
    """Cut a machine off from the master; its programs run on. Then it is heard again.

    Its borglet is stopped, and nothing else.
    """
    made, left = cell_of(context), seconds_of(seconds, "--for")
    made.borglet(machine)
    with stopped(made, machine, programs=False) as words:
        _wait(words, left)
    print_out(f"{machine} is heard again")


@app.command()
def rack(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="RACK", help="Which: r1.")]
) -> None:
    """Kill all machines of a rack at once, as when its switch or its power goes.

    The rack of a machine is the attribute of that name in its borglet.toml.
    """
    made = cell_of(context)
    for machine in made.machines_of(name):
        print_out(killed(made, machine))


@app.command()
def fill(context: typer.Context, seconds: For = "60s") -> None:
    """Fill the cell with tasks of the free band, whose place all others may take; then end them."""
    made, left = cell_of(context), seconds_of(seconds, "--for")
    _wait(filled(made), left)
    print_out(emptied(made))


@app.command()
def heal(context: typer.Context) -> None:
    """Mend all: what was stopped goes on, what was killed is started, what fills the cell ends."""
    made = cell_of(context)
    for daemon in (made.master, *made.borglets.values()):
        _signal_daemon(daemon, signal.SIGCONT)
    code = made.up()
    made.signal_programs(made.tasks(), signal.SIGCONT)
    if code == 0:
        print_out(emptied(made))
    raise typer.Exit(code)


@app.command()
def play(
    context: typer.Context,
    scenes: Annotated[
        str, typer.Option("--scenes", metavar="N,...", help="Only these scenes of the story, by number.")
    ] = "",
    pause: Annotated[str, typer.Option("--pause", help="How long to pause after a scene, to look.")] = "10s",
) -> None:
    """Play a story of some five minutes in which things break and heal; watch it in the dashboard.

    It brings jobs of its own and ends them. Each scene says what breaks, what to look for, and how long the
    cell took to be as it should be again.
    """
    from borgish.cli.commands.chaos_play import play as told

    raise typer.Exit(told(cell_of(context), scenes, seconds_of(pause, "--pause")))


# What the commands and the story do


def killed(made: LocalCell, victim: str) -> str:
    """Kill something; return what was done. Raises NotFound."""
    from borgish.cli import daemons

    if victim == MASTER:
        ran = daemons.kill(made.master)
        return "killed the master" if ran else "the master does not run"
    if "/" in victim:
        task = _task(made, victim)
        made.signal_programs([task], signal.SIGKILL)
        return f"killed the program of {task.name}, pid {task.pid} on {task.machine}"
    borglet = made.borglet(victim)
    tasks = made.tasks(victim)
    daemons.kill(borglet)  # first: it would start them again
    count = made.signal_programs(tasks, signal.SIGKILL)
    return f"killed {victim}: its borglet and {plural(count, 'program')}"


@contextlib.contextmanager
def stopped(made: LocalCell, victim: str, *, programs: bool) -> Iterator[str]:
    """Stop the processes of something meanwhile, with the ``programs`` of a machine or without; yields what
    was done. Raises NotFound."""
    daemon, tasks = None, []
    if victim == MASTER:
        daemon = made.master
    elif "/" in victim:
        tasks = [_task(made, victim)]
    else:
        daemon, tasks = made.borglet(victim), made.tasks(victim) if programs else []
    try:
        if daemon is not None:
            _signal_daemon(daemon, signal.SIGSTOP)
        count = made.signal_programs(tasks, signal.SIGSTOP)
        yield f"stopped {victim}" + (f" and {plural(count, 'program')}" if daemon and count else "")
    finally:
        made.signal_programs(tasks, signal.SIGCONT)
        if daemon is not None:
            _signal_daemon(daemon, signal.SIGCONT)


def filled(made: LocalCell) -> str:
    """Submit tasks that take what is free; return what was done."""
    import msgspec

    from borgish.wire.api import Accepted, StatusView

    with contextlib.closing(made.client()) as client:
        status = client.get("/v1/status", None, StatusView)
        free = status.capacity.cpu_millis - sum(each.cpu_millis for each in status.bands)
        count = min(1000, max(1, free // 100))
        spec = {
            "name": FILLER,
            "tasks": count,
            "priority": "free",
            "run": ["sleep", "1000000"],
            "resources": {"cpu": "100m", "ram": "4MiB"},
        }
        client.post("/v1/jobs", msgspec.json.encode(spec), Accepted, params={"user": made.user})
    return f"submitted {plural(count, 'task')} of the free band, 100m of cpu each"


def emptied(made: LocalCell) -> str:
    """End what fills the cell; return what was done."""
    try:
        made.kill_job(FILLER)
    except (NotFound, Conflict):  # it is not there, or has ended
        return "nothing fills the cell"
    return "ended what filled the cell"


def _task(made: LocalCell, text: str) -> "TaskView":
    from borgish.cli.lookup import find_task
    from borgish.client import quoted
    from borgish.wire.api import TaskView

    with contextlib.closing(made.client()) as client:
        job, index = find_task(client, text)
        task = client.get(quoted("tasks", *job.split("/"), index), None, TaskView)
    if not task.pid:
        raise NotFound(f"{task.name} has no program now", f"`borgctl why {task.name}` says why")
    return task


def _signal_daemon(daemon: "Daemon", number: signal.Signals) -> None:
    from borgish.cli.daemons import running_pid

    if pid := running_pid(daemon):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait(words: str, seconds: float) -> None:
    print_out(words)
    print_err(f"for {span(seconds)}; Ctrl-C mends it now")
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(seconds)
