"""A borgmaster's core in simulated time, with machines that are stood in for by what they answer.

The core gets what a link would give it: a held poll of each machine ends when its hold is over and brings
samples of what its tasks use; a machine that is told something answers at once, and again with each change,
which is a report, and wakes the turn. Only the steps of the core count, in cpu seconds: neither the store,
nor the polls themselves (HTTP, JSON, and what of an answer is new), nor what borglets do is there.
"""

import heapq
import itertools
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    Observe,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.model import Cell, Snapshot
from borgish.clock import Now
from borgish.link.holds import PollSettings
from borgish.master.core import Core
from borgish.master.host.garbage import settle
from borgish.master.step import CommandRequest, Input, PollsAnswered, Step, UsageSeen
from borgish.master.turn import TICK_SECONDS
from borgish.reconcilers.settings import ReconcileSettings
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Phase, task_name
from borgish.wire.api import Accepted
from tests.bench.borglets import BOOT, machine_record

START_SECONDS = 1.0
STOP_SECONDS = 0.2
"""From being told of a task to its being up, or to its end; on each machine up to ``SPREAD_SECONDS`` more."""
SPREAD_SECONDS = 0.2
ANSWER_SECONDS = 0.01
"""From a request to an answer that need not wait, and for each machine that is told something in the same
step ``WRITE_SECONDS`` more: a leader writes one request after the other."""
WRITE_SECONDS = 0.0005
TURN_SECONDS = 0.005
"""Between two steps at least, for a step and its commit. What arrives meanwhile is taken together."""
USED = (100, 64 * 1024**2)

Key = tuple[str, int]
"""A task's name and its attempt."""


class Answer(NamedTuple):
    """What a machine has to say at a time: ``seen`` of its attempts, and which are ``gone``."""

    at: float
    number: int  # in the order in which they were foreseen
    machine: str
    seen: tuple[SeenAttempt, ...] = ()
    gone: tuple[Key, ...] = ()


class StandIn:
    """A cell in which all that was submitted is up."""

    def __init__(self, machines: int, specs: Sequence[JobSpec]) -> None:
        self._now = Now(1_000_000.0, 1_000.0)
        self._names = [f"m{number}" for number in range(machines)]
        cell = Cell(Snapshot("bench", machines={name: machine_record(name) for name in self._names}))
        self.core = Core(cell, ReconcileSettings(), self._now)
        self.core.begin(1, "bench", self._now)
        self._spread = {name: SPREAD_SECONDS * place / machines for place, name in enumerate(self._names)}
        self._told: dict[str, set[Key]] = {name: set() for name in self._names}
        self._usage: dict[str, dict[Key, tuple[int, int]]] = {name: {} for name in self._names}
        self._answers: list[Answer] = []  # a heap
        self._numbers = itertools.count()
        self._began, self._polled = self.at, 0  # so many held polls have ended
        self.cpu_seconds, self.steps = 0.0, 0
        self._step([self._observe(name, (), (), whole=True) for name in self._names])
        self.ask(*(SubmitJob(spec) for spec in specs))
        while cell.waiting or self._answers:
            self.step()
        settle()  # as the borgmaster does when it has loaded its cell

    @property
    def at(self) -> float:
        """The time, in simulated seconds."""
        return self._now.mono

    @property
    def wall(self) -> float:
        """The time of day, in seconds since 1970."""
        return self._now.wall

    def ask(self, *commands: Command) -> None:
        """Have commands decided now; all must be taken."""
        self._now = self._now.later(0.001)
        asks = [CommandRequest(number, command, "bench") for number, command in enumerate(commands)]
        step = self._step(asks)
        for _, reply in step.replies:
            assert isinstance(reply, Accepted), reply

    def seconds(self, count: int) -> list[float]:
        """Let so many seconds pass; return the cpu seconds of each."""
        found, began = [], self.at
        for second in range(count):
            before = self.cpu_seconds
            while self.at < began + second + 1:
                self.step()
            found.append(self.cpu_seconds - before)
        return found

    def step(self) -> None:
        """Let time pass until a machine reports something, or to the next tick; take in what has arrived."""
        wait = self._answers[0].at - self.at if self._answers else TICK_SECONDS
        self._now = self._now.later(min(max(wait, TURN_SECONDS), TICK_SECONDS))
        step = self._step(self._arrived())
        while step.more:
            step = self._step(())

    def _step(self, inputs: Iterable[Input]) -> Step:
        given = tuple(inputs)
        began = time.process_time()
        step = self.core.step(given, self._now)
        self.cpu_seconds += time.process_time() - began
        self.steps += 1
        for place, name in enumerate(sorted(step.assignments)):
            self._tell(name, self.at + ANSWER_SECONDS + WRITE_SECONDS * place)
        return step

    # What machines do

    def _tell(self, machine: str, at: float) -> None:
        """Give a machine its assignment, which it answers ``at`` that time and, as it follows it, later."""
        cell = self.core.cell
        wanted = {
            (task_name(key, index), cell.jobs[key].tasks[index].attempt)
            for key, index in cell.placed[machine]
        }
        told = self._told[machine]
        self._told[machine], self._usage[machine] = wanted, dict.fromkeys(sorted(wanted), USED)
        stopped, started = sorted(told - wanted), sorted(wanted - told)
        stopping = [SeenAttempt(*key, Phase.STOPPING, pid=4711, started_at=1.0) for key in stopped]
        starting = [SeenAttempt(*key, Phase.STARTING) for key in started]
        self._foresee(at, machine, (*stopping, *starting))
        at += self._spread[machine]
        if stopped:
            ended = [msgspec.structs.replace(each, ended=Ending.KILL, signal=15) for each in stopping]
            self._foresee(at + STOP_SECONDS, machine, tuple(ended))
            self._foresee(at + STOP_SECONDS + ANSWER_SECONDS, machine, gone=tuple(stopped))
        if started:
            up = [SeenAttempt(*key, Phase.UP, pid=4711, started_at=1.0) for key in started]
            self._foresee(at + START_SECONDS, machine, tuple(up))

    def _foresee(
        self, at: float, machine: str, seen: tuple[SeenAttempt, ...] = (), gone: tuple[Key, ...] = ()
    ) -> None:
        heapq.heappush(self._answers, Answer(at, next(self._numbers), machine, seen, gone))

    def _arrived(self) -> list[Input]:
        """Return what the inbox would have now, in its order."""
        heard: dict[str, float] = {}
        every = PollSettings().hold_of(len(self._names)) / len(self._names)
        while (at := self._began + every * self._polled) <= self.at:
            heard[self._names[self._polled % len(self._names)]] = at
            self._polled += 1
        reports: list[Input] = []
        while self._answers and self._answers[0].at <= self.at:
            answer = heapq.heappop(self._answers)
            heard[answer.machine] = answer.at
            told = self._told[answer.machine]
            # What was to come up and is not to run any more does not.
            seen = tuple(
                each
                for each in answer.seen
                if each.phase is Phase.STOPPING or (each.task, each.attempt) in told
            )
            if seen or answer.gone:
                reports.append(self._observe(answer.machine, seen, answer.gone))
        samples = [UsageSeen(name, self._usage[name]) for name in heard]
        return [PollsAnswered(heard), *samples, *reports]

    @staticmethod
    def _observe(
        machine: str, seen: tuple[SeenAttempt, ...], gone: tuple[Key, ...], *, whole: bool = False
    ) -> CommandRequest:
        report = Observe(machine, BOOT, f"{machine}-1", seen, gone, whole=whole)
        return CommandRequest(0, report, machine)
