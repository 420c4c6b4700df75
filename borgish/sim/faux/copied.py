"""A copy of a cell that goes its own way: the real core, and simulated borglets, on a virtual clock.

Each machine that is up runs what the cell says it runs, and says so. A machine has a simulated borglet
from when its first new assignment is made; of the others it is known what they would answer, that nothing
differs, and only that is played. Programs start in an instant, and end when they are told to.
"""

from collections.abc import Collection

import msgspec

from borgish.cell.allocs import alloc_name, is_alloc_set
from borgish.cell.commands import Command, Observe
from borgish.cell.events import Entry
from borgish.cell.model import Job, Task
from borgish.cell.observed import Miss, SeenAttempt
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Conflict, Refused, Unreachable
from borgish.link.conversation import Conversation
from borgish.link.translate import attempt_spec
from borgish.master.core import Core
from borgish.master.poison import Failure
from borgish.master.step import Ask, Heard, Input, Missed, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.sim.faults import NO_FAULTS, FaultInjector
from borgish.sim.faux.copied_machine import CopiedMachine
from borgish.sim.loop import VirtualLoop
from borgish.store.codec import decode_snapshot, encode_snapshot
from borgish.vocabulary import Phase, State, split_task_name, task_name
from borgish.wire.api import Accepted
from borgish.wire.link import AttemptSpec, PollReply

ACTOR = "fauxmaster"
TICK_SECONDS = 0.5
COMMIT_SECONDS = 0.002
HOLD_SECONDS = 2.0
TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 1.0
TRAVEL_SECONDS = 0.0005
QUIET_SECONDS = 3.0
"""So long nothing happens, and nothing more is expected; longer than the pauses of any loop."""
SETTLE_SECONDS_MAX = 900.0
_ASKED = 0  # the handle of what was asked; reports have others


def twin(cell: Cell) -> Cell:
    """Return the same cell, to be changed apart from this one."""
    return Cell(decode_snapshot(encode_snapshot(cell.snapshot()), cell.name))


class Copy:
    """A cell of its own from now on. It is the caller's no more: see ``twin``."""

    def __init__(self, cell: Cell, wall: float, seed: int = 0) -> None:
        """``wall`` is what time it is there, in seconds since 1970."""
        self.clock = VirtualLoop(wall_at_start=wall)
        self.core = Core(cell, ReconcileSettings(), self.clock.now(), seed)
        self.entries: list[Entry] = []  # what happened here
        self.failures: list[Failure] = []
        self._injector = FaultInjector(seed, NO_FAULTS)
        self._jobs = {key: (job.spec, job.lagging) for key, job in cell.jobs.items()}  # as they were copied
        self._alive = {name for name, machine in cell.machines.items() if machine.up}
        self._awake: dict[str, _Line] = {}
        self._inputs: list[Input] = [Heard(self._heard())]
        self._inputs += [Ask(_ASKED, whole_report(cell, name), name) for name in sorted(self._alive)]
        self._reported: dict[int, tuple[_Line, int, PollReply]] = {}
        self._handles = _ASKED
        self._turn_is_due = False
        self._happened_at = 0.0
        self._tick()

    @property
    def cell(self) -> Cell:
        """The cell as it is here; only to be read."""
        return self.core.cell

    def now(self) -> Now:
        """Return this moment of the copy."""
        return self.clock.now()

    # What is done to it

    def ask(self, command: Command, actor: str = ACTOR) -> Accepted:
        """Hand in a command and return its answer. Raises Refused."""
        self.run(0.0)
        self._inputs.append(Ask(_ASKED, command, actor))
        replies = dict(self._turn().replies)
        answer = replies[_ASKED]
        if isinstance(answer, Refused):
            raise answer
        return answer

    def lose(self, machines: Collection[str]) -> None:
        """End machines, with all that runs on them, without a word."""
        for name in machines:
            self._alive.discard(name)
            if name in self._awake:
                self._awake[name].machine.switch_off()
        self._miss(frozenset(machines), HOLD_SECONDS + TIMEOUT_SECONDS)

    def _miss(self, machines: frozenset[str], seconds: float) -> None:
        """Have polls of machines missed, the first one in so many seconds."""

        def miss() -> None:
            silent = machines - self._alive
            self._inputs.append(Missed(dict.fromkeys(sorted(silent), Miss("no answer"))))
            self._miss(machines, RETRY_SECONDS + TIMEOUT_SECONDS)

        self.clock.after(seconds, miss)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run_until(self.clock.now().mono + seconds)

    def settle(self, quiet_seconds: float = QUIET_SECONDS, seconds_max: float = SETTLE_SECONDS_MAX) -> float:
        """Let time pass until nothing happens any more; return how long that took."""
        began = self._happened_at = self.clock.now().mono
        while self._mono - self._happened_at < quiet_seconds and self._mono - began < seconds_max:
            self.run(TICK_SECONDS)
        return self._happened_at - began

    def runs_again(self, key: str, index: int) -> bool:
        """Return whether a task's program is seen to run."""
        job = self.cell.jobs[key]
        task = job.tasks[index]
        if task.state is not State.RUNNING or task.machine not in self._alive:
            return False
        if is_alloc_set(job):
            return True
        seen = self.core.observed.attempt(task.machine, task_name(key, index), task.attempt)
        return seen is not None and seen.ended is None and seen.phase in (Phase.UP, Phase.HEALTHY)

    # Turns

    @property
    def _mono(self) -> float:
        return self.clock.now().mono

    def _tick(self) -> None:
        self._inputs.append(Heard(self._heard()))
        self._turn()
        self.clock.after(TICK_SECONDS, self._tick)

    def _heard(self) -> dict[str, float]:
        return dict.fromkeys(self._alive, self._mono)

    def _wake(self, seconds: float = 0.0) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self.clock.after(seconds, self._due)

    def _due(self) -> None:
        self._turn_is_due = False
        self._turn()

    def _turn(self) -> Step:
        inputs, self._inputs = self._inputs, []
        step = self.core.step(inputs, self.clock.now())
        if step.entries:
            self._happened_at = self._mono
            self.entries += step.entries
        self.failures += step.failures
        for name in sorted(step.assignments & self._alive):
            self._renew(name)
        for handle, _ in step.replies:
            if handle in self._reported:
                self._told(*self._reported.pop(handle))
        if step.more:
            self._wake(COMMIT_SECONDS)
        return step

    # Machines

    def _renew(self, name: str) -> None:
        if name not in self.cell.machines:
            return
        if name not in self._awake:
            self._awake[name] = _Line(self._machine(name), self._conversation(name))
        line = self._awake[name]
        line.conversation.renew(self.clock.now())
        self._poll(line)

    def _conversation(self, name: str) -> Conversation:
        return Conversation(self.cell, self.core.observed, name)

    def _machine(self, name: str) -> CopiedMachine:
        """Return a machine that runs what it said it runs."""
        machine = CopiedMachine(self.cell.machines[name], self.clock, self._injector)
        for seen in self.core.observed.machines[name].attempts.values():
            if seen.ended is None:
                machine.runs_already(self._spec(name, seen), seen.started_at)
        machine.begin()
        return machine

    def _spec(self, machine: str, seen: SeenAttempt) -> AttemptSpec:
        """Return what an attempt runs that was there when the cell was copied.

        By now it may have been told to leave, and its job be another.
        """
        key, index = split_task_name(seen.task)
        job, lagging = self._jobs[key]
        if lagging is not None and lagging.attempts.get(index) == seen.attempt:
            job = lagging.spec_of(index, seen.attempt)
        there = Task(index, State.RUNNING, seen.attempt, machine, seen.ports, devices=seen.devices)
        run = attempt_spec(self.cell, Job(key, 0, job, 0.0, ""), there)
        return msgspec.structs.replace(run, alloc=seen.alloc)

    def _poll(self, line: "_Line") -> None:
        line.asked += 1
        number, request = line.asked, line.conversation.request(HOLD_SECONDS)

        def back(reply: PollReply | Conflict | Unreachable) -> None:
            self.clock.after(TRAVEL_SECONDS, lambda: self._take(line, number, reply))

        self.clock.after(TRAVEL_SECONDS, lambda: line.machine.poll(request, back))

    def _take(self, line: "_Line", number: int, reply: PollReply | Conflict | Unreachable) -> None:
        if isinstance(reply, Conflict | Unreachable):
            raise reply
        report = line.conversation.observe(reply)
        if report is None:
            self._told(line, number, reply)
            return
        self._handles += 1
        self._reported[self._handles] = line, number, reply
        self._inputs.append(Ask(self._handles, report, line.machine.name))
        self._wake()

    def _told(self, line: "_Line", number: int, reply: PollReply) -> None:
        line.conversation.acknowledge(reply)
        if number == line.asked:
            self._poll(line)


class _Line:
    """A machine, what was said with it, and how often it was asked."""

    def __init__(self, machine: CopiedMachine, conversation: Conversation) -> None:
        self.machine = machine
        self.conversation = conversation
        self.asked = 0


def whole_report(cell: Cell, machine: str) -> Observe:
    """Return what a machine says that runs all that it should and nothing else."""
    attempts = []
    for key, index in sorted(cell.placed.get(machine, ())):
        job = cell.jobs[key]
        if not is_alloc_set(job):  # nothing to run
            attempts.append(_seen(cell, job, job.tasks[index]))
    return Observe(machine, cell.machines[machine].boot_id, f"{machine}-0", tuple(attempts), whole=True)


def _seen(cell: Cell, job: Job, task: Task) -> SeenAttempt:
    spec = job.spec_of(task)
    return SeenAttempt(
        task_name(job.key, task.index),
        task.attempt,
        Phase.UP,
        spec.needs(task.index),
        task.ports,
        started_at=task.since,
        restarts=task.restarts,
        devices=task.devices,
        alloc=alloc_name(cell.jobs[spec.inside], task.alloc) if task.alloc >= 0 else "",
    )
