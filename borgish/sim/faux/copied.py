"""A copy of a cell that goes its own way: the real turns, link and borglets, on a virtual clock.

Each machine that is up runs what the cell says it runs, and says so. A machine is polled and has a borglet
from when something first happens there: a new assignment, or its loss. Of the others, which may be ten
thousand, it is known what they would answer, that nothing differs, and only that is played. Programs start
in an instant, and end when they are asked to.
"""

import asyncio
from collections.abc import Collection

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    Observe,
    SeenAttempt,
)
from borgish.cell.events import Entry
from borgish.cell.limits.availability import RECOVERED_SECONDS
from borgish.cell.model import Cell, Job, Task
from borgish.cell.tasks.allocs import alloc_name, is_alloc_set
from borgish.clock import Now
from borgish.credentials import poll_token
from borgish.errors import Fenced
from borgish.link.conversation import attempt_spec
from borgish.link.holds import PollSettings
from borgish.link.link import Link
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.quarantine import Failure
from borgish.master.step import CommandRequest, PollsAnswered, Step
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.sim.faults import NO_FAULTS, FaultInjector
from borgish.sim.faux.copied_machine import CopiedMachine
from borgish.sim.loop import OFFLOADED_SECONDS, Process, VirtualLoop
from borgish.sim.network import Network, SimTransport
from borgish.store.codec import decode_snapshot, encode_snapshot
from borgish.store.memory import Disk, MemoryStore
from borgish.vocabulary import Phase, State, split_task_name, task_name
from borgish.wire.api import Accepted
from borgish.wire.link import AttemptSpec

ACTOR = "fauxmaster"
HEARTBEAT_SECONDS = 0.5
QUIET_SECONDS = 3.0
"""So long nothing happens, and nothing more is expected; longer than the pauses of any loop."""
SETTLE_SECONDS_MAX = 900.0
_NOBODY = 0  # the handle of a reply for which nobody waits


def copy_cell(cell: Cell) -> Cell:
    """Return the same cell, to be changed apart from this one."""
    return Cell(decode_snapshot(encode_snapshot(cell.snapshot()), cell.name))


class Copy:
    """A cell of its own from now on, until it is closed. It is the caller's no more: see ``copy_cell``."""

    def __init__(self, cell: Cell, wall: float, seed: int = 0) -> None:
        """``wall`` is what time it is there, in seconds since 1970."""
        self.clock = VirtualLoop(wall_at_start=wall)
        self.core = Core(cell, ReconcileSettings(), self.clock.now(), seed)
        self.entries: list[Entry] = []  # what happened here
        self.failures: list[Failure] = []
        self._injector = FaultInjector(seed, NO_FAULTS)
        self._specs = {key: job.spec for key, job in cell.jobs.items()}  # as they were copied
        self._outdated = {  # what attempts run that is another version of their job
            (job.key, task.index, task.attempt): job.spec_of(task)
            for job in cell.jobs.values()
            for task in job.tasks
            if task.version != job.version
        }
        self._asleep = dict.fromkeys(sorted(name for name, machine in cell.machines.items() if machine.up))
        self._awake: dict[str, CopiedMachine] = {}
        self._network = Network(self.clock, self._injector, self._awake)
        self._inbox = Inbox()
        self._happened_at, self._position = 0.0, cell.position  # of the last entry that was released
        self._master = master = Process(self.clock, "borgmaster")
        # It goes on as the master that led the cell: an election would be an entry that was not asked for.
        store = MemoryStore(cell.name, disk=Disk(cell.name, pruned=cell.position))
        store.lead(ACTOR, "")
        self._link = Link(
            cell,
            self.core.observed,
            self._inbox,
            master,
            PollSettings(),
            SimTransport(self._network, ACTOR, master, (ACTOR, 1)),
            _fenced,
        )
        reports = [CommandRequest(_NOBODY, whole_report(cell, name), name) for name in self._asleep]
        first = self.core.step([PollsAnswered(dict.fromkeys(self._asleep, self._mono)), *reports], self.now())
        self._turn = Turn(self.core, store, self._inbox, master, self._released, lambda _seconds: None)
        self._turns = master.spawn(self._turn.run(first))
        master.spawn(self._link.keep_renewed(self._turn.durable))
        master.spawn(self._play_heartbeats())

    def close(self) -> None:
        """Let nothing happen here any more."""
        self.clock.close()
        self._turn.close()

    @property
    def cell(self) -> Cell:
        """The cell as it is here; only to be read."""
        return self.core.cell

    @property
    def _mono(self) -> float:
        return self.clock.now().mono

    def now(self) -> Now:
        """Return this moment of the copy."""
        return self.clock.now()

    # What is done to it

    def ask(self, command: Command, actor: str = ACTOR) -> Accepted:
        """Hand in a command and return its answer. Raises Refused."""
        asked = self._master.spawn(self._inbox.ask(command, actor))
        while not asked.done():
            self.run(OFFLOADED_SECONDS)
        return asked.result()

    def lose(self, machines: Collection[str]) -> None:
        """End machines, with all that runs on them, without a word."""
        for name in machines:
            if name in self._asleep:
                self._wake(name)
            if name in self._awake:
                self._awake[name].switch_off()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run_until(self._mono + seconds)
        if self._turns.done():
            self._turns.result()

    def settle(self) -> float:
        """Let time pass until nothing happens any more; return how long that took."""
        began = self._happened_at = self.clock.now().mono
        while not self._is_quiet and self._mono - began < SETTLE_SECONDS_MAX:
            self.run(HEARTBEAT_SECONDS)
        return self._happened_at - began

    @property
    def _is_quiet(self) -> bool:
        # In a copy all has just come up, and who starts after it waits until it has stayed so.
        known = self.core.observed.availability
        is_awaited = known is not None and known.settling
        seconds = QUIET_SECONDS + RECOVERED_SECONDS if is_awaited else QUIET_SECONDS
        is_released = self.cell.position == self._position
        return is_released and self._mono - self._happened_at >= seconds

    def runs_again(self, key: str, index: int) -> bool:
        """Return whether a task's program is seen to run."""
        job = self.cell.jobs[key]
        task = job.tasks[index]
        if task.state is not State.RUNNING or not self._is_alive(task.machine):
            return False
        if is_alloc_set(job):
            return True
        seen = self.core.observed.attempt(task.machine, task_name(key, index), task.attempt)
        return seen is not None and seen.ended is None and seen.phase in (Phase.UP, Phase.HEALTHY)

    def _is_alive(self, machine: str) -> bool:
        return machine in self._asleep or (machine in self._awake and self._awake[machine].is_up)

    # What its master brings about

    def _released(self, step: Step) -> None:
        if step.entries:
            self._happened_at, self._position = self._mono, step.entries[-1].position
            self.entries += step.entries
        self.failures += step.failures
        self._link.drop(sorted(step.touched.machines_gone))
        self._link.sync(sorted(step.touched.machines & self._awake.keys()))
        for name in sorted(step.assignments & self.cell.machines.keys()):
            if name in self._asleep:
                self._wake(name).begin()
            else:
                self._link.renew([name])

    async def _play_heartbeats(self) -> None:
        while True:
            for name in self._asleep:
                self._inbox.heard(name, self._mono)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    # Machines

    def _wake(self, name: str) -> CopiedMachine:
        """Poll from now on a machine that runs what it said it runs, once its borglet begins."""
        del self._asleep[name]
        machine = CopiedMachine(self.cell.machines[name], self.clock, self._injector, self._network)
        machine.join(self.cell.name, poll_token(ACTOR, name, self.cell.machines[name].admission))
        for seen in self.core.observed.machines[name].attempts.values():
            if seen.ended is None:
                machine.runs_already(self._spec(name, seen), seen.started_at)
        self._awake[name] = machine
        self._master.call(self._link.sync, [name])
        return machine

    def _spec(self, machine: str, seen: SeenAttempt) -> AttemptSpec:
        """Return what an attempt runs that was there when the cell was copied.

        By now it may have been asked to leave, and its job be another.
        """
        key, index = split_task_name(seen.task)
        spec = self._outdated.get((key, index, seen.attempt)) or self._specs[key]
        there = Task(index, State.RUNNING, seen.attempt, machine, seen.ports, devices=seen.devices)
        run = attempt_spec(self.cell, Job(key, 0, spec, 0.0, ""), there)
        return msgspec.structs.replace(run, alloc=seen.alloc)


def _fenced(fenced: Fenced) -> None:
    raise fenced  # nobody else leads a copy


def whole_report(cell: Cell, machine: str) -> Observe:
    """Return what a machine says that runs all that it should and nothing else."""
    attempts = []
    for key, index in sorted(cell.placed.get(machine, ())):
        job = cell.jobs[key]
        if not is_alloc_set(job):  # nothing to run
            attempts.append(_seen(cell, job, job.tasks[index]))
    for key, index in sorted(cell.arriving.get(machine, ())):
        attempts.append(_seen(cell, cell.jobs[key], cell.handovers[key][index].task(index)))
    return Observe(machine, cell.machines[machine].boot_id, f"{machine}-0", tuple(attempts), whole=True)


def _seen(cell: Cell, job: Job, task: Task) -> SeenAttempt:
    spec = job.spec_of(task)
    return SeenAttempt(
        task_name(job.key, task.index),
        task.attempt,
        # Not healthy yet would be down, and free to be taken down by whoever asks.
        Phase.UP if spec.health is None else Phase.HEALTHY,
        spec.needs(task.index),
        task.ports,
        started_at=task.since,
        restarts=task.restarts,
        devices=task.devices,
        alloc=alloc_name(cell.jobs[spec.inside], task.alloc) if task.alloc >= 0 else "",
    )
