"""``cli``: how long borgctl takes, and how large a real borgmaster is, with simulated machines on sockets.

A command is a new process, from its start to its end as a shell sees it, in a cell full of tasks whose
borgmaster is on the same host. ``task_list`` prints all tasks, of which the header is the first line. The
master's memory is as the kernel counts
it, with what it shares with other processes (``rss``) and with its share of that (``pss``). What a terminal
takes to show it is left out.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from borgish.cli import daemons
from borgish.cli import local_cell as cell_folder
from borgish.client import Client
from borgish.errors import Unreachable
from borgish.vocabulary import TASKS_PER_JOB_MAX
from borgish.wire.api import Accepted, StatusView
from tests.bench.control import job_specs
from tests.bench.figure import Figure, Goal, at_most
from tests.bench.served import READY_SECONDS_MAX, served_borglets
from tests.bench.sizes import Sizes
from tests.cells import ROOT
from tests.invited import invite_many

MIB = 1024**2
UP_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 20.0
LOOK_SECONDS = 0.02
COMMANDS = {
    "version": ["--version"],
    "help": ["--help"],
    "job_list": ["job", "list"],
    "status": ["status"],
    "machine_list": ["machine", "list"],
}
"""Short commands, which answer at once however full the cell is."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield wall times of borgctl, then the master's memory, all with the cell full of tasks."""
    with (
        lone_master() as master,
        served_borglets(master.address, master.join_token, sizes.fake_borglets),
    ):
        empty = memory_bytes(master.pid)["Rss"] / MIB
        rate = sizes.cell_tasks / _fill(master.client, "first", sizes.cell_tasks)
        for name, arguments in COMMANDS.items():
            samples = [_seconds(master.folder, arguments)[1] for _ in range(sizes.commands)]
            yield Figure(f"cli.{name}", "s", samples, at_most(0.3))
        yield from _task_lists(master.folder, sizes.cell_tasks, sizes.rounds)
        memory = [memory_bytes(master.pid) for _ in range(sizes.rounds)]
        tasks = sizes.cell_tasks
        yield Figure("cli.master_rss.empty", "MiB", [empty])
        yield Figure(f"cli.master_rss.{tasks}_tasks", "MiB", [m["Rss"] / MIB for m in memory])
        yield Figure(f"cli.master_pss.{tasks}_tasks", "MiB", [m["Pss"] / MIB for m in memory])
        yield Figure(f"cli.up_over_http.{tasks}_on_{sizes.fake_borglets}", "tasks/s", [rate])
        _fill(master.client, "more", sizes.listed_tasks - tasks, tasks)
        yield from _task_lists(master.folder, sizes.listed_tasks, sizes.rounds, at_most(3.0))


class LoneMaster(NamedTuple):
    """A borgmaster of a new cell, without machines."""

    pid: int
    folder: Path
    client: Client
    address: str  # host:port
    join_token: str


@contextmanager
def lone_master() -> Iterator[LoneMaster]:
    """Run a borgmaster of a new cell, alone."""
    with tempfile.TemporaryDirectory(prefix="borgish-bench-") as parent:
        folder = Path(parent) / "cell"
        cell_folder.make(folder, 1)
        daemon = cell_folder.master_of(folder)
        process = daemons.start(daemon)
        try:
            client = Client.find(folder)
            until_served(client, process, daemon)
            address = urlsplit(client.url).netloc
            admin = (folder / "tokens" / "admin.token").read_text().strip()
            yield LoneMaster(process.pid, folder, client, address, invite_many(address, admin))
        finally:
            daemons.stop([daemon], STOP_SECONDS_MAX)
            process.wait()


def until_served(client: Client, process: "subprocess.Popen[bytes]", daemon: cell_folder.Daemon) -> None:
    """Wait until a borgmaster that was started answers."""
    began = time.perf_counter()
    while process.poll() is None and time.perf_counter() - began < READY_SECONDS_MAX:
        try:
            client.get("/v1/status", None, StatusView)
            return
        except Unreachable:
            time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"the borgmaster does not serve:\n{daemons.last_words(daemon)}")


def _fill(client: Client, name: str, tasks: int, up_before: int = 0) -> float:
    """Submit jobs and return the seconds until all their tasks are up."""
    began = time.perf_counter()
    for spec in job_specs(tasks, max(2, -(-tasks // TASKS_PER_JOB_MAX))):
        body = {"name": f"{name}-{spec.name}", "user": spec.user, "tasks": spec.tasks, "run": list(spec.run)}
        needs = {"cpu": "5m", "ram": "16MiB"}
        text = json.dumps(body | {"runtime": "fake", "resources": needs})
        client.post("/v1/jobs", text.encode(), Accepted)
    while (up := (client.get("/v1/status", None, StatusView).up or 0) - up_before) < tasks:
        if time.perf_counter() - began > UP_SECONDS_MAX:
            raise TimeoutError(f"{up} of {tasks} tasks are up")
        time.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


def _task_lists(folder: Path, tasks: int, rounds: int, goal: Goal | None = None) -> Iterator[Figure]:
    samples = [_seconds(folder, ["task", "list"]) for _ in range(rounds)]
    yield Figure(f"cli.task_list.{tasks}_tasks.first_line", "s", [first for first, _ in samples])
    yield Figure(f"cli.task_list.{tasks}_tasks", "s", [all_of_it for _, all_of_it in samples], goal)


def _seconds(folder: Path, arguments: list[str]) -> tuple[float, float]:
    """Return how long one call of borgctl takes, as a shell would see it: until its first line, and all."""
    borgctl = Path(sys.executable).with_name("borgctl")
    program = [str(borgctl)] if borgctl.exists() else [sys.executable, "-m", "borgish.cli.borgctl"]
    environment = os.environ | {"BORGISH_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None  # a pipe
        process.stdout.readline()
        first = time.perf_counter() - began
        process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return first, time.perf_counter() - began


def memory_bytes(pid: int) -> dict[str, int]:
    """Return what the kernel says of a process's memory, by its names."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {row.split(":")[0]: int(row.split()[1]) * 1024 for row in rows}
