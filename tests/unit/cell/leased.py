"""A cell with an exclusive job, whose programs run on after their tasks were sent away, until they end."""

from collections.abc import Iterable
from typing import Any

from borgish.cell.commands import (
    JoinMachine,
    Observe,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.model import Cell, Machine
from borgish.cell.tasks.leases import CLOCK_RATES_MAX, LEASE_SECONDS
from borgish.clock import Now
from borgish.master.core import Core
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import LEASE_END_SECONDS, Ending, Phase, State
from tests.unit.cell.lived import Lived, machine, spec

LEASES = {"leases": "process"}
GRACE_SECONDS = 10.0
WAIT_SECONDS = LEASE_SECONDS * CLOCK_RATES_MAX + GRACE_SECONDS + LEASE_END_SECONDS
JOB = "ann/db"


class Leased(Lived):
    """Programs run until they are said to end, and are reported as long as their machine is not silent."""

    def __init__(self, machines: Iterable[str] = ("m1", "m2", "m3")) -> None:
        self.runs: dict[tuple[str, int], str] = {}  # by (task, attempt): where
        self.phases: dict[tuple[str, int], Phase] = {}
        self.ended_ones: set[tuple[str, int]] = set()
        self.before = 0  # the position before the job was submitted
        super().__init__(())
        for name in machines:
            self.join(machine(name, attributes=LEASES))

    def join(self, record: Machine) -> None:
        self.do(JoinMachine(record, record.name, known=False))

    def _report(self, name: str) -> Observe | None:
        for key, index in self.cell.placed[name]:
            which = f"{key}/{index}", self.cell.jobs[key].tasks[index].attempt
            if which not in self.ended_ones:
                self.runs[which] = name
        before = self.core.observed.machines[name].attempts
        changed = [
            SeenAttempt(*key, self.phases.get(key, Phase.UP))
            for key, on in sorted(self.runs.items())
            if on == name and (key not in before or before[key].phase is not self.phases.get(key, Phase.UP))
        ]
        return Observe(name, "b1", name, tuple(changed)) if changed else None

    def submit(self, tasks: int = 1, **changes: Any) -> None:
        """Submit the exclusive job, and wait until it runs."""
        self.before = self.position
        self.do(SubmitJob(spec("db", tasks, exclusive=True, **changes)))
        self.wait(2)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.step()

    def end(self, task: str, attempt: int, ending: Ending = Ending.KILL) -> None:
        """Have a program end, and its machine say so."""
        on = self.runs.pop((task, attempt))
        self.ended_ones.add((task, attempt))
        self.report(on, SeenAttempt(task, attempt, Phase.STOPPING, ended=ending, exit_code=0))

    def place(self, index: int = 0) -> tuple[State, str, int]:
        """Return a task's state, machine and attempt."""
        task = self.cell.jobs[JOB].tasks[index]
        return task.state, task.machine, task.attempt

    def is_pending(self) -> bool:
        return self.place()[0] is State.PENDING

    def succeed(self) -> None:
        """Let another master follow, on a clock of its own, that knows what is stored and nothing else."""
        self.now = Now(self.now.wall, 7.0)
        self.core = Core(Cell(self.cell.snapshot()), ReconcileSettings(), self.now)
        self.entries += self.core.begin(self.cell.epoch + 1, "another", self.now).entries
