"""A borgmaster's core in simulated time, with machines that are stood in for by their reports.

A task is reported up ``START_SECONDS`` after its machine was told of it, and gone ``STEP_SECONDS`` after.
Only the steps of the core count, in cpu seconds: neither the store, nor HTTP, nor what borglets do is there.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from borgish.cell.commands import Command, Observe, SeenAttempt, SubmitJob
from borgish.cell.model import Cell, Snapshot
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.garbage import settle
from borgish.master.step import CommandRequest, Input, PollsAnswered, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import JobSpec
from borgish.vocabulary import Phase, task_name
from borgish.wire.api import Accepted
from tests.bench.borglets import BOOT, machine_record

START_SECONDS = 1.0
STEP_SECONDS = 0.5
"""Between two steps; every other one is a resync."""

Key = tuple[str, int]
"""A task's name and its attempt."""


class StandIn:
    """A cell in which all that was submitted is up."""

    def __init__(self, machines: int, specs: Sequence[JobSpec]) -> None:
        self._now = Now(1_000_000.0, 1_000.0)
        names = [f"m{number}" for number in range(machines)]
        cell = Cell(Snapshot("bench", machines={name: machine_record(name) for name in names}))
        self.core = Core(cell, ReconcileSettings(), self._now)
        self.core.begin(1, "bench", self._now)
        self._running: dict[str, set[Key]] = defaultdict(set)  # by machine: what it was told of
        self._starting: list[tuple[float, str, Key]] = []  # up when, in order
        self._gone: dict[str, list[Key]] = defaultdict(list)
        self.cpu_seconds = 0.0
        self._step([self._observe(Observe(name, BOOT, f"{name}-1", (), whole=True)) for name in names])
        self.ask(*(SubmitJob(spec) for spec in specs))
        while cell.waiting or self._starting:
            self.step()
        settle()  # as the borgmaster does when it has loaded its cell

    @property
    def at(self) -> float:
        """The time, in simulated seconds."""
        return self._now.mono

    def ask(self, *commands: Command) -> None:
        """Have commands decided now; all must be taken."""
        self._now = self._now.later(0.001)
        asks = [CommandRequest(number, command, "bench") for number, command in enumerate(commands)]
        step = self._step(asks)
        for _, reply in step.replies:
            assert isinstance(reply, Accepted), reply

    def seconds(self, count: int) -> list[float]:
        """Let so many seconds pass; return the cpu seconds of each."""
        found = []
        for _ in range(count):
            before = self.cpu_seconds
            for _ in range(round(1 / STEP_SECONDS)):
                self.step()
            found.append(self.cpu_seconds - before)
        return found

    def step(self) -> None:
        """Let a step's time pass, and take in what machines have to report then."""
        self._now = self._now.later(STEP_SECONDS)
        step = self._step([PollsAnswered(dict.fromkeys(self.core.cell.machines, self.at)), *self._reports()])
        while step.more:
            step = self._step(())

    def _step(self, inputs: Iterable[Input]) -> Step:
        given = tuple(inputs)
        began = time.process_time()
        step = self.core.step(given, self._now)
        self.cpu_seconds += time.process_time() - began
        for name in sorted(step.assignments):
            self._tell(name)
        return step

    def _tell(self, machine: str) -> None:
        cell = self.core.cell
        wanted = {
            (task_name(key, index), cell.jobs[key].tasks[index].attempt)
            for key, index in cell.placed[machine]
        }
        told = self._running[machine]
        self._gone[machine] += sorted(told - wanted)
        self._starting += [(self.at + START_SECONDS, machine, key) for key in sorted(wanted - told)]
        self._running[machine] = wanted

    def _reports(self) -> list[Input]:
        changed: dict[str, list[SeenAttempt]] = defaultdict(list)
        due = [each for each in self._starting if each[0] <= self.at]
        self._starting = self._starting[len(due) :]
        for _, machine, key in due:
            if key in self._running[machine]:
                changed[machine].append(SeenAttempt(*key, Phase.UP, pid=4711, started_at=1.0))
        gone, self._gone = self._gone, defaultdict(list)
        return [
            self._observe(
                Observe(name, BOOT, f"{name}-1", tuple(changed.get(name, ())), tuple(gone.get(name, ())))
            )
            for name in sorted(changed.keys() | {name for name, keys in gone.items() if keys})
        ]

    @staticmethod
    def _observe(report: Observe) -> CommandRequest:
        return CommandRequest(0, report, report.machine)
