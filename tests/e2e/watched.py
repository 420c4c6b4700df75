"""What the end-to-end tests share: cells whose daemons' logs stand in every failure, and looks at tasks."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from borgish.cli.changes import Deadline
from borgish.cli.lookup import every_job, every_task
from borgish.client import Client
from borgish.vocabulary import State
from borgish.wire.api import Accepted, IndexesRequest, MachineList, StatusView, TaskView
from tests.cells import ROOT, RealCell, cell, pauses, wait_until
from tests.forked import Ended, Forked, plain_environment

JOBS = ROOT / "configs" / "jobs"
PATIENCE_SECONDS = 60.0
"""How long anything may take on a loaded machine; whoever waits goes on as soon as it is so."""
PATIENT_LEASE = "[lease]\nttl_seconds = 60\nrenew_seconds = 1.5\ndeadline_seconds = 48\n"
"""For masters on Postgres that are not to lose their lead when the host stands still for some seconds. Nobody
waits for it: the session of one that was killed is gone."""

OPEN: list[RealCell] = []
"""The cells that run now: whoever fails shows their logs."""


class Life(NamedTuple):
    """What must not change while a task is left alone."""

    attempt: int
    pid: int | None
    restarts: int
    started_at: str | None


@contextlib.contextmanager
def watched_cell(folder: Path, machines: int = 1, *, forked: bool = True) -> Iterator[RealCell]:
    """Bring a cell up, and have its logs shown by every test that fails meanwhile."""
    known = RealCell(folder, forked)
    OPEN.append(known)
    try:
        with cell(folder, machines, forked=forked) as made:
            yield made
        assert not folder.exists(), f"the purge left {sorted(folder.iterdir())}"
    finally:
        OPEN.remove(known)


def refused_for(made: RealCell, seconds: float) -> None:
    """Have the cell's master give a dead borglet so long while its host lives."""
    made.kill("borgmaster")
    config = made.folder / "cell.toml"
    config.write_text(f"{config.read_text()}\n[poll]\ndown_after_refused_seconds = {seconds}\n")
    made.ok("up")


@contextlib.contextmanager
def asking(made: RealCell) -> Iterator[Client]:
    """A client of the cell's master, let go of afterwards."""
    client = made.client()
    try:
        yield client
    finally:
        client.close()


def tasks_of(made: RealCell, job: str = "") -> dict[str, TaskView]:
    """Return the tasks of a job (``user/job``), or all, by name."""
    with asking(made) as client:
        return {task.name: task for task in every_task(client, job=job)}


def task_of(made: RealCell, name: str) -> TaskView:
    """Return one task by its full name."""
    with asking(made) as client:
        return client.get(f"/v1/tasks/{name}", None, TaskView)


def status_of(made: RealCell) -> StatusView:
    """Return the cell at one glance."""
    with asking(made) as client:
        return client.get("/v1/status", None, StatusView)


def lives(made: RealCell, job: str = "") -> dict[str, Life]:
    """Return the running program of each task that has one."""
    return {
        name: Life(task.attempt, task.pid, task.restarts, task.started_at)
        for name, task in tasks_of(made, job).items()
        if task.pid
    }


def runs_anew(made: RealCell, name: str, before: Life) -> bool:
    """Whether a task has another program than before."""
    now = lives(made).get(name)
    return now is not None and now.pid != before.pid


def becomes(look: Callable[[], object], wanted: object, seconds_max: float = PATIENCE_SECONDS) -> None:
    """Wait until a look gives what is wanted; fail with the difference when it does not in time."""
    deadline = Deadline(seconds_max)
    for _ in pauses():
        if (seen := look()) == wanted or not deadline.left:
            break
    assert seen == wanted


def end_jobs(made: RealCell) -> None:
    """End every job that is not over, and wait until none of its programs runs."""
    with asking(made) as client:
        for job in every_job(client):
            if job.state != State.DEAD:
                client.post(f"/v1/jobs/{job.name}/kill", IndexesRequest(), Accepted)
    wait_until(lambda: not running_tasks(made), PATIENCE_SECONDS)


def running_tasks(made: RealCell) -> int:
    """Return how many attempts the machines have, those that are ending included."""
    with asking(made) as client:
        return sum(machine.tasks for machine in client.get("/v1/machines", None, MachineList).items)


def submitted(made: RealCell, text: str, *options: object) -> str:
    """Submit a job as ann and follow it; it must come up. Returns what was said."""
    return made.ok("job", "submit", "-", "--user", "ann", "--settle", 0, *options, stdin=text)


def said_at_last(made: RealCell, job: str, said: Ended, words: str, follow_for: str) -> Ended:
    """Follow a job again for as long as borgctl says something else, and return what it says then.

    It tells how the job is when its time is over: on a busy host that may be before the trouble, or in the
    moment in which a program runs that is about to end.
    """
    deadline = Deadline(PATIENCE_SECONDS)
    while words not in said.err and deadline.left:
        said = made.borgctl("job", "wait", job, "--timeout", follow_for)
    return said


def end_of(task: TaskView) -> tuple[str, int | None, str]:
    """Return how a task ended: state, exit code, reason."""
    return str(task.state), task.exit_code, task.reason


class Foreground:
    """A daemon as a user starts it in a terminal, with its output at hand."""

    def __init__(
        self,
        output: IO[bytes],
        module: str,
        config: Path,
        *options: str,
        forked: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._output = output
        self.process: Forked | subprocess.Popen[bytes]
        if forked:
            with open(os.devnull, "rb") as nothing:
                streams = (nothing, output, output)
                words = ["--config", config, *options]
                self.process = Forked(module, words, streams, config.parent, environment)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "--config", str(config), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=config.parent,
                env=plain_environment() | dict(environment or {}),
            )

    def said(self) -> str:
        """Return what it has written so far."""
        handle = self._output.fileno()
        return os.pread(handle, os.fstat(handle).st_size, 0).decode(errors="replace")

    def ended(self, seconds_max: float = PATIENCE_SECONDS) -> int:
        """Wait for its end and return the exit code."""
        try:
            return self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on after {seconds_max:g}s:\n{self.said()}") from None

    def end(self) -> None:
        """End it whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def foreground(
    module: str,
    config: Path,
    *options: str,
    forked: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Foreground]:
    """Run a daemon in the foreground, ``environment`` added to its own; it has ended afterwards."""
    with tempfile.TemporaryFile() as output:  # not in the cell's folder, where it would outlive a purge
        daemon = Foreground(output, module, config, *options, forked=forked, environment=environment)
        try:
            yield daemon
        finally:
            daemon.end()
