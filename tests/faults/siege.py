"""A cell under load whose master is killed again and again, and judged each time."""

import contextlib
import http.client
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    KillTasks,
    SubmitJob,
)
from borgish.cell.model import Cell
from borgish.cli.changes import Deadline
from borgish.clock import SystemClock
from borgish.credentials import poll_token
from borgish.failpoints import VARIABLE
from borgish.master.core import Core
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import JobSpec
from borgish.store.base import records_of
from borgish.store.codec import compress, encode_snapshot
from borgish.store.open import open_store
from borgish.vocabulary import Runtime
from tests.bench.served import join_master
from tests.faults.clients import PATIENCE_SECONDS, PAUSE_SECONDS, Client, Where, asked, join
from tests.faults.judge import CELL, problems_of, wrongly_running
from tests.faults.ledger import AppOwner, JobOwner, Keeper, MachineOwner, Owner, Request
from tests.faults.machines import Machines
from tests.faults.nursery import Nursery
from tests.invited import invite_many

CONFIG = """\
name = "{name}"
listen = "127.0.0.1:0"
state = "."
db = "{url}"
{more}
[poll]
hold_seconds = 0.5
down_after_seconds = 600  # only a clock that leaps makes it so long, no busy host
[checkpoints.keep]
latest = 2
hourly = 0
[lease]
ttl_seconds = {lease}
renew_seconds = 1
deadline_seconds = {deadline}
"""
LOOK_SECONDS = 0.01
REST_SECONDS = 0.2
_SERVING = re.compile(r"serving \S+ on (http\S+)")


class Siege:
    """A cell in a folder, its clients and its machines. One master at a time."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        url: str = "",
        more: str = "",
        seed: int = 0,
        lease_seconds: float = 60.0,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """``url`` is of an empty database; SQLite in the folder when empty. ``more`` goes into the file.
        ``pause_seconds`` is for how long each client does nothing after an answer.

        The lease is long: a host that stands still for some seconds must not end a master. Who leads next
        does not wait for it, since a killed one's session is gone.
        """
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/cell.db"
        self.machines = Machines(2)
        self._nursery = nursery
        self._log = folder / "log"
        self._config = folder / "cell.toml"
        self._config.write_text(_configured(self.url, more, lease_seconds))
        self._where = Where()
        self._pid = 0
        self._said_before = 0
        chance = random.Random(seed)
        jobs = [JobOwner(f"job{n}", random.Random(chance.random())) for n in range(2)]
        apps = [AppOwner(f"app{n}", random.Random(chance.random())) for n in range(2)]
        self.owners: tuple[Owner, ...] = (*jobs, *apps, MachineOwner("m2"), Keeper())
        self.clients = [Client(owner, self._where, pause_seconds) for owner in self.owners]

    def found_cell(self) -> None:
        """Give the cell a past: machines, a job that is dead, two checkpoints and entries after them."""
        store = open_store(self.url, CELL)
        try:
            now, past = SystemClock().now(), _Past(store.load(), store.lead("past", ""))
            core = past.core
            step = core.begin(past.epoch, "past", now)
            store.append(step.entries, records_of(core.cell, step.touched))
            for number, command in enumerate(self._past()):
                step = core.step([CommandRequest(number, command, "past", f"past-{number}")], now)
                store.append(step.entries, records_of(core.cell, step.touched))
                if number < 2:
                    stored = compress(encode_snapshot(core.cell.snapshot()))
                    store.save_checkpoint(stored, core.cell.position, now.wall, "past")
            step = core.step([], now.later(2))
            store.append(step.entries, records_of(core.cell, step.touched))
        finally:
            store.close()

    def _past(self) -> Iterator[Command]:
        for record in self.machines.records():
            yield JoinMachine(record, "", known=True)
        spec = JobSpec(name="old", user="ann", tasks=2, run=("serve",), runtime=Runtime.FAKE)
        yield SubmitJob(spec)
        yield KillTasks(spec.key)

    def begin(self) -> None:
        """Let the clients begin; they wait until there is a master."""
        for client in self.clients:
            client.start()

    def go_home(self) -> None:
        """Let the clients end, each with its last answer."""
        self._where.go_home()
        join([client for client in self.clients if client.ident])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = Deadline(PATIENCE_SECONDS)
        while not condition():
            assert deadline.left, f"it did not come to be:\n{self.said()}"
            time.sleep(LOOK_SECONDS)

    # A master's life

    def start(
        self,
        failpoint: str = "",
        environment: Mapping[str, str] | None = None,
        before: str = "",
        file_bytes_max: int = 0,
    ) -> None:
        """Start a master, which may be one that is to die at a failpoint."""
        known = dict(environment or {}) | ({VARIABLE: failpoint} if failpoint else {})
        self.run(["--config", str(self._config)], known, before, file_bytes_max)

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        before: str = "",
        file_bytes_max: int = 0,
    ) -> None:
        """Start borgmaster with these arguments."""
        self._log.touch(0o600)
        self._said_before = self._log.stat().st_size
        self._pid = self._nursery.start(arguments, self._log, environment, before, file_bytes_max)

    def serves(self) -> bool:
        """Wait until it serves or has ended; let the clients know if it serves. Return whether it does."""
        deadline = Deadline(PATIENCE_SECONDS)
        while deadline.left:
            ended = self.has_ended()  # before what it said is read: it may serve and end in between
            if found := _SERVING.search(self.said()):
                token = (self.folder / "tokens" / "admin.token").read_text().strip()
                self._where.is_at(found[1], token)
                return True
            if ended:
                return False
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"the master neither serves nor ends:\n{self.said()}")

    def has_ended(self) -> bool:
        """Return whether the process of the master has ended; nobody has waited for it yet."""
        state = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX"

    def said(self) -> str:
        """Return what this life of the master wrote to its log."""
        with self._log.open("rb") as log:
            log.seek(self._said_before)
            return log.read().decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send the master a signal."""
        assert self._pid > 0, "there is no master"
        os.kill(self._pid, number)

    def ended(self) -> int:
        """Wait for the end of the master and return its exit code."""
        deadline = Deadline(PATIENCE_SECONDS)
        while not self.has_ended():
            assert deadline.left, f"the master goes on:\n{self.said()}"
            time.sleep(LOOK_SECONDS)
        self._where.is_gone()
        pid, self._pid = self._pid, 0
        return self._nursery.wait(pid)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.ended()

    def more(self, count: int) -> None:
        """Wait until so many more requests were acknowledged."""
        assert self._where.wait_for_more(count), f"nothing more was done:\n{self.said()}"

    def full(self, count: int) -> None:
        """Wait until so many more requests were refused since the store is full."""
        assert self._where.wait_for_full(count), f"nothing more was refused:\n{self.said()}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Ask the master once how something is; return status and body."""
        address = self._where.find()
        assert address is not None
        connection = http.client.HTTPConnection(address[0], timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {address[1]}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def join_machines(self) -> None:
        """Have the machines join, as their borglets would; those that get no answer are for another time."""
        address = self._where.find()
        assert address is not None
        secret = (self.folder / "secret").read_text().strip()
        with contextlib.suppress(OSError, http.client.HTTPException):
            token = invite_many(*address)
            for name, request in self.machines.joins.items():
                proof = msgspec.structs.replace(request, poll_token=poll_token(secret, name))
                join_master(address[0], token, proof)

    def ask(self, request: Request) -> tuple[int, bytes]:
        """Ask the master once for something else than its clients do; return status and body."""
        address = self._where.find()
        assert address is not None
        connection = http.client.HTTPConnection(address[0], timeout=PATIENCE_SECONDS)
        try:
            return asked(connection, request, address[1])
        finally:
            connection.close()

    def say_the_same_again(self) -> None:
        """Ask again what was done, and something else under the same id: the same answer, and a refusal."""
        for client in self.clients:
            client.ask_again()

    # The verdict

    def problems(self) -> list[str]:
        """Return all that is wrong now, while there is no master."""
        told = [problem for client in self.clients for problem in client.problems]
        return told + problems_of(self.url, self.owners, self.machines)

    def end_in_peace(self) -> list[str]:
        """Send the clients home, each with its last answer, let the machines come to rest, and kill.

        Returns all that is wrong.
        """
        self.go_home()
        deadline, rest_seconds = Deadline(PATIENCE_SECONDS), REST_SECONDS
        while True:
            self.kill()
            wrong = wrongly_running(self.url, self.machines)
            if not wrong or not deadline.left:
                return wrong + self.problems()
            self.start()
            assert self.serves(), self.said()
            time.sleep(rest_seconds)  # for the machines to be asked; looked at again as often as it takes
            rest_seconds *= 2  # and each time a busy host gets more for it

    def close(self) -> None:
        """End whatever goes on."""
        self._where.end()
        if self._pid:
            self.kill()
        self.machines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _configured(url: str, more: str, lease_seconds: float) -> str:
    deadline = 0.8 * lease_seconds
    return CONFIG.format(name=CELL, url=url, more=more, lease=lease_seconds, deadline=deadline)


class _Past:
    """A master that was."""

    def __init__(self, cell: Cell, epoch: int) -> None:
        self.epoch = epoch
        self.core = Core(cell, ReconcileSettings(), SystemClock().now())
