"""Real cells for tests: the daemons as users start them, in a folder of their own, always taken down."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from borgish.cli.changes import Deadline
from borgish.cli.daemons import running_pid
from borgish.cli.local_cell import borglets_of, master_of
from borgish.client import Client
from tests.forked import BORGCTL, Ended, call, plain_environment

ROOT = Path(__file__).resolve().parent.parent
COMMAND_SECONDS_MAX = 300.0
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.02, 0.15


class RealCell(msgspec.Struct, frozen=True):
    """A cell in a folder, whose commands and daemons are forked, or else started by exec as users do."""

    folder: Path
    forked: bool = True

    def borgctl(self, *arguments: object, stdin: str = "") -> Ended:
        """Call borgctl as a user would, and wait for it."""
        words = ["--dir", str(self.folder), *map(str, arguments)]
        if self.forked:
            return call(BORGCTL, words, stdin, COMMAND_SECONDS_MAX)
        done = subprocess.run(
            [sys.executable, "-m", BORGCTL, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            env=plain_environment(),
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: object, stdin: str = "") -> str:
        """Call borgctl, which must succeed, and return what it wrote to stdout."""
        said = self.borgctl(*arguments, stdin=stdin)
        assert said.code == 0, f"borgctl {arguments}: {said}\n{self.logs()}"
        return said.out

    def items(self, *arguments: object) -> Any:
        """Return what a listing or showing command says, from its JSON."""
        return json.loads(self.ok(*arguments, "-o", "json"))

    def client(self) -> Client:
        """Return a client of its master."""
        return Client.find(self.folder)

    def pid(self, name: str) -> int:
        """Return the pid of ``borgmaster`` or of a machine's borglet; 0 when it does not run."""
        return running_pid(next(one for one in self._daemons() if one.name == name))

    def kill(self, name: str) -> None:
        """Kill a daemon with SIGKILL, and wait until it is gone."""
        pid = self.pid(name)
        assert pid, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.pid(name))

    def logs(self) -> str:
        """Return the end of every daemon's log."""
        return "\n".join(
            f"--- {one.name}\n{one.log.read_text(errors='replace')[-2000:]}"
            for one in self._daemons()
            if one.log.exists()
        )

    def _daemons(self) -> list[Any]:
        return [master_of(self.folder), *borglets_of(self.folder)]


@contextmanager
def cell(folder: Path, machines: int = 1, *, forked: bool = True) -> Iterator[RealCell]:
    """Bring a cell up in ``folder`` and take it down in any case, with every task."""
    made = RealCell(folder, forked)
    with taken_down(made):
        made.ok("up", "--machines", machines)
        yield made


@contextmanager
def taken_down(made: RealCell) -> Iterator[None]:
    """Take a cell down afterwards, with every task."""
    try:
        yield
    finally:
        said = made.borgctl("down", "--purge", "--yes")
        assert said.code == 0, f"the cell could not be taken down: {said}"


def pauses() -> Iterator[None]:
    """Wait between two looks at a cell: what takes long is looked at less often."""
    seconds = LOOK_SECONDS_MIN
    while True:
        yield
        time.sleep(seconds)
        seconds = min(1.25 * seconds, LOOK_SECONDS_MAX)


def wait_until(condition: Any, seconds_max: float = 60.0) -> Any:
    """Wait until the condition holds and return what it returned; fail when it does not in time."""
    deadline = Deadline(seconds_max)
    for _ in pauses():
        if (found := condition()) or not deadline.left:
            break
    assert found, f"not within {seconds_max:g}s"
    return found


def runs(pid: int) -> bool:
    """Whether a process runs; an ended one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # gone before it was opened, or between opening and reading
        return False
