"""A cell with a history, in a database: the real master core on a real store, borglets played by hand."""

from pathlib import Path

from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    RollBack,
    Seen,
    SubmitJob,
)
from borgish.cell.model import Machine
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Now
from borgish.errors import Refused
from borgish.master.core import Core
from borgish.master.step import CommandRequest, Input, PollsAnswered, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.sim.faux.copied import whole_report
from borgish.spec.file.read import read_job
from borgish.store.base import CheckpointInfo, Store, records_of
from borgish.store.codec import compress, encode_snapshot
from borgish.store.memory import MemoryStore
from borgish.store.open import open_store
from borgish.store.replay import cell_at
from borgish.vocabulary import Runtime
from borgish.wire.checkpoint_file import CheckpointHeader, pack_checkpoint

NAME = "kept"
NOON = 1_700_000_000.0
GIB = 1024**3


class KeptCell:
    """A cell that is written down as it goes on. Time passes only when it is told to."""

    def __init__(self, folder: Path, store: Store | None = None, seen: Seen | None = None) -> None:
        self.file = folder / "cell.db"
        self.store = store or open_store(f"sqlite:///{self.file}", NAME)
        self.now = Now(NOON, 1000.0)
        self.silent: set[str] = set()  # machines that are no longer heard of
        self.core = Core(self.store.load(), ReconcileSettings(), self.now)
        self._write(self.core.begin(self.store.lead("me", ""), "me", self.now, seen=seen))

    @classmethod
    def in_memory(cls) -> "KeptCell":
        """Return one without any file."""
        return cls(Path(), MemoryStore(NAME))

    @property
    def position(self) -> int:
        return self.core.cell.position

    def step(self, *inputs: Input) -> Step:
        """Make a step, and as many more as it asks for, and let every machine that is up report."""
        up = self._answering()
        first = step = self._write(
            self.core.step([PollsAnswered(dict.fromkeys(up, self.now.mono)), *inputs], self.now)
        )
        while step.more:
            step = self._write(self.core.step([], self.now))
        for name in self._answering():
            self._write(
                self.core.step([CommandRequest(2, whole_report(self.core.cell, name), name)], self.now)
            )
        return first

    def _answering(self) -> list[str]:
        machines = self.core.cell.machines
        return sorted(name for name in machines if machines[name].up and name not in self.silent)

    def _write(self, step: Step) -> Step:
        if step.entries:
            self.store.append(step.entries, records_of(self.core.cell, step.touched))
        return step

    def do(self, command: Command, actor: str = "ann") -> None:
        """Have somebody ask for something a second later; it must be accepted."""
        self.now = self.now.later(1.0)
        target = None
        if isinstance(command, RollBack):
            target = RollbackTarget(cell_at(self.store, NAME, command.to).cell)
        ((_, reply),) = self.step(CommandRequest(1, command, actor, target=target)).replies
        assert not isinstance(reply, Refused), reply

    def submit(self, text: str, user: str = "ann") -> None:
        self.do(SubmitJob(read_job(text, user)), user)

    def machines(self, count: int, cpu: int = 4, gib: int = 8) -> None:
        """Let machines join: two on each rack."""
        for number in range(1, count + 1):
            self.machine(f"m{number}", cpu, gib, rack=f"r{(number + 1) // 2}")

    def machine(self, name: str, cpu: int = 4, gib: int = 8, **attributes: str) -> None:
        facts = Machine(
            name=name,
            host="127.0.0.1",
            port=7500,
            tls=False,
            capacity=Resources(cpu * 1000, gib * GIB, 100 * GIB),
            attributes=attributes,
            runtimes=(Runtime.PROCESS,),
            ports_low=20000,
            ports_high=20099,
            boot_id="boot",
            joined_at=self.now.wall,
            port_next=20000,
        )
        self.do(JoinMachine(facts, name, known=False), name)

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps of a second."""
        for _ in range(round(seconds)):
            self.now = self.now.later(1.0)
            self.step()

    def checkpoint(self, name: str = "") -> CheckpointInfo:
        stored = compress(encode_snapshot(self.core.cell.snapshot()))
        return self.store.save_checkpoint(stored, self.position, self.now.wall, "test", name)

    def exported(self, file: Path, position: int) -> Path:
        """Write a checkpoint to a file, as `borgctl checkpoint export` does."""
        info, stored = self.store.checkpoint_body(position)
        header = CheckpointHeader(
            NAME, info.position, info.at, info.reason, info.name, info.bytes, info.sha256
        )
        file.write_bytes(pack_checkpoint(header, stored))
        return file


JOB = """\
name: {name}
user: ann
tasks: {tasks}
priority: {priority}
run: [serve]
env: {{VERSION: {version}}}
resources: {{cpu: {cpu}, ram: 1GiB}}
"""


def job(name: str, tasks: int, cpu: float = 1, version: str = "good", priority: str = "free") -> str:
    return JOB.format(name=name, tasks=tasks, cpu=cpu, version=version, priority=priority)
