"""A machine of a copied cell: the real borglet core, without a network that could fail.

It runs what the record of a real one says that it ran, and is made when its first new assignment is.
"""

from collections.abc import Callable

import msgspec

from borgish.borglet.actions import Action, Forget, Kill, Signal, Start
from borgish.borglet.core import Actions, BorgletCore
from borgish.borglet.entry import Entry, Head
from borgish.borglet.runtimes.base import RunState
from borgish.borglet.transitions import Stage
from borgish.cell.model import Machine
from borgish.errors import Conflict, Unreachable
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import VirtualLoop
from borgish.sim.runtime import FORGET_SECONDS, KILLED, START_SECONDS, TERMINATED, Program, Programs
from borgish.wire.link import AttemptSpec, Facts, PollReply, PollRequest, main_key

Answer = Callable[[PollReply | Conflict | Unreachable], None]


class _Held(msgspec.Struct):
    request: PollRequest
    answer: Answer


class CopiedMachine:
    """One machine. Its programs do not end by themselves: of real ones nobody knows when they would."""

    def __init__(self, record: Machine, loop: VirtualLoop, injector: FaultInjector) -> None:
        self.name = record.name
        self._boot_id = record.boot_id
        self._facts = Facts(
            record.capacity, record.attributes, record.runtimes, record.ports_low, record.ports_high
        )
        self._programs = Programs(loop, injector, lasting=True)
        self._loop = loop
        self._ledger: dict[str, Entry] = {}
        self._head: Head | None = None
        self._core: BorgletCore | None = None
        self._held: _Held | None = None

    def begin(self) -> None:
        """Start the borglet, from its ledger and what runs."""
        now = self._loop.now()
        instance = f"{self.name}-1"
        ledger, head = self._ledger.values(), self._head
        self._core = BorgletCore(
            self.name, self._boot_id, instance, self._facts, ledger=ledger, head=head, now=now
        )
        self._programs.changed = self._changed
        for kind in self._facts.runtimes:
            there = [p.state for p in self._programs.by_key.values() if p.spec.runtime is kind]
            self._core.adopted(kind, there, now)
        self._turn()

    def runs_already(self, spec: AttemptSpec, started_at: float) -> None:
        """Have an attempt be there, started by a borglet before the first one here. Before ``begin``."""
        run = RunState(spec.key, 1, 1, started_at)
        self._programs.by_key[spec.key] = Program(spec, run, self._loop.now().mono)
        self._ledger[spec.key] = Entry(
            spec.task,
            spec.attempt,
            spec,
            Stage.UP,
            run=1,
            started_at=started_at,
            first_started_at=started_at,
        )

    def switch_off(self) -> None:
        """End the borglet, without a word."""
        self._core = self._held = self._programs.changed = None

    def poll(self, request: PollRequest, answer: Answer) -> None:
        """Take in a poll; ``answer`` is called at once or later, or never when the machine is lost."""
        if self._core is None:
            return
        try:
            fresh = self._core.poll(request, self._loop.now())
        except Conflict as conflict:
            answer(conflict)
            return
        self._release()
        self._held = _Held(request, answer)
        if fresh or not request.wait_seconds:
            self._turn()
            self._release()
        else:
            held = self._held
            self._loop.after(request.wait_seconds, lambda: self._release_if(held))
            self._turn()

    def _release_if(self, held: _Held) -> None:
        if self._held is held:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None and self._core is not None:
            held.answer(self._core.reply(held.request))

    def _turn(self) -> None:
        if self._core is None:
            return
        actions = self._core.step(self._loop.now())
        self._keep(actions)
        for action in actions.todo:
            self._do(action)
        if actions.wake_at is not None:
            core = self._core
            self._loop.after(actions.wake_at - self._loop.now().mono, lambda: self._alarm(core))
        if self._held is not None and self._core.differs(self._held.request):
            self._release()

    def _alarm(self, core: BorgletCore) -> None:
        if self._core is core:
            self._turn()

    def _keep(self, actions: Actions) -> None:
        self._head = actions.head or self._head
        for key, entry in actions.records.items():
            if entry is None:
                self._ledger.pop(key, None)
            else:
                self._ledger[key] = entry

    def _do(self, action: Action) -> None:
        match action:
            case Start(spec, run):
                core = self._core
                self._loop.after(START_SECONDS, lambda: self._start(core, spec, run))
            case Signal(key):
                self._programs.stop(key, TERMINATED)
            case Kill(key):
                self._programs.stop(key, KILLED)
            case Forget(key):
                self._programs.forget(key)
                core = self._core
                self._loop.after(FORGET_SECONDS, lambda: self._forgotten(core, key))

    def _start(self, core: BorgletCore | None, spec: AttemptSpec, run: int) -> None:
        if core is None or self._core is not core:
            return
        if spec.program and not self._programs.is_alive(main_key(spec.key)):
            core.start_failed(spec.key, run, "its main program does not run", self._loop.now())
        else:
            core.ran(spec.key, self._programs.start(spec, run), self._loop.now())
        self._turn()

    def _forgotten(self, core: BorgletCore | None, key: str) -> None:
        if core is not None and self._core is core:
            core.forgotten(key)
            self._turn()

    def _changed(self, key: str) -> None:
        if self._core is not None:
            self._core.ran(key, self._programs.by_key[key].state, self._loop.now())
            self._turn()
