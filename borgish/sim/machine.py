"""One simulated machine: the real borglet core, with a runtime, a ledger and a network of our own."""

from collections.abc import Callable

import msgspec

from borgish.borglet.actions import Action, Actions, Forget, Kill, Signal, Start
from borgish.borglet.core import BorgletCore
from borgish.borglet.entry import Entry, Head, Stage
from borgish.borglet.runtimes.base import RunState
from borgish.errors import Conflict, Unreachable
from borgish.resources import Resources
from borgish.sim.clock import VirtualClock
from borgish.sim.faults import Fate
from borgish.sim.runtime import START_SECONDS, Program, SimRuntime
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Facts, HeadReply, PollReply, PollRequest, main_key

GIB = 1024**3
FORGET_SECONDS = 0.005
UNHEARD_SECONDS = 15.0
"""A borglet that was not polled for so long joins again."""
FACTS = Facts(Resources(8000, 16 * GIB, 100 * GIB), {"os": "sim"}, (Runtime.FAKE,), 20000, 20199)
Answer = Callable[[PollReply | Conflict | Unreachable], None]


class Watcher:
    """What a checker is told of: every start and every stop, before it is done."""

    def starting(self, machine: str, spec: AttemptSpec) -> None:
        """A program is about to be started."""

    def stopping(self, machine: str, key: str) -> None:
        """A program is about to be ended."""


class _Held(msgspec.Struct):
    request: PollRequest
    answer: Answer


class SimMachine:
    """A machine. ``die`` and ``begin`` are its borglet's; the programs know nothing of that.

    Each borglet listens on a port of its own, and has to join with it.
    """

    def __init__(
        self, name: str, clock: VirtualClock, fate: Fate, watcher: Watcher, facts: Facts = FACTS
    ) -> None:
        self.name = name
        self.facts = facts
        self.runtime = SimRuntime(clock, fate)
        self.is_cut_off = False
        self.is_on = True  # the host, whether or not its borglet runs
        self.answered_at: list[float] = []  # when a master got an answer of it
        self.refused_at: list[float] = []  # when a master was refused a connection by its host
        self.is_known = True  # has the token of its first joining
        self._is_joined = False  # this run of its borglet
        self.polled_at = 0.0
        self.boots = 1
        self.booted_at = 0.0
        self._reached: list[tuple[float, bool]] = []  # since when it could be reached, or not
        self._clock = clock
        self._fate = fate
        self._watcher = watcher
        self._ledger: dict[str, Entry] = {}
        self._head: Head | None = None
        self._lives = 0
        self._core: BorgletCore | None = None
        self._held: _Held | None = None
        self._is_connected: Callable[[], bool] = lambda: False  # who polled last

    @property
    def instance(self) -> str:
        """The name of this run of the borglet."""
        return f"{self.name}-{self._lives}"

    @property
    def port(self) -> int:
        """Where its borglet listens."""
        return self._lives

    @property
    def boot_id(self) -> str:
        """The name of this run of the machine."""
        return f"boot-{self.boots}"

    @property
    def is_unheard(self) -> bool:
        """Whether its borglet has joined and nobody has polled it for long."""
        return self._is_joined and self._clock.now().mono - self.polled_at > UNHEARD_SECONDS

    @property
    def is_up(self) -> bool:
        """Whether its borglet runs."""
        return self._core is not None

    def begin(self) -> None:
        """Start the borglet, from its ledger and what runs."""
        self.is_on = True
        self._lives += 1
        now = self._clock.now()
        self._core = BorgletCore(
            self.name,
            self.boot_id,
            self.instance,
            self.facts,
            ledger=self._ledger.values(),
            head=self._head,
            now=now,
        )
        self.runtime.changed = self._changed
        for kind in self.facts.runtimes:
            there = [p.state for p in self.runtime.programs.values() if p.spec.runtime is kind]
            self._core.adopted(kind, there, now)
        self._turn()

    def runs_already(self, spec: AttemptSpec, started_at: float) -> None:
        """Have an attempt be there, started by a borglet before the first one here. Before ``begin``."""
        run = RunState(spec.key, 1, 1, started_at)
        self.runtime.programs[spec.key] = Program(spec, run)
        self._ledger[spec.key] = Entry(
            spec.task,
            spec.attempt,
            spec,
            Stage.UP,
            run=1,
            started_at=started_at,
            first_started_at=started_at,
        )

    def die(self) -> None:
        """End the borglet as kill -9 does: what it held in memory is gone, the programs go on."""
        self._core = None
        held, self._held = self._held, None
        if held is not None and self.is_on:
            held.answer(Unreachable("closed the connection"))
        self._is_connected = lambda: False
        self._is_joined = False
        self.runtime.changed = None
        self._note()

    def switch_off(self) -> None:
        """End the borglet and be silent until one is started."""
        self.is_on = False
        self.die()

    def joined(self) -> None:
        """Take in that the master knows where this run of the borglet listens."""
        self._is_joined = self.is_known = True
        self._note()

    def lose_programs(self) -> None:
        """End as a machine does that boots: no program is left, nor word of how it ended."""
        self.switch_off()
        self.boots += 1
        self.booted_at = self._clock.now().mono
        self.runtime.programs.clear()

    def lose_disk(self) -> None:
        """Come to be another machine of the same name."""
        self.lose_programs()
        self._ledger, self._head, self.is_known = {}, None, False

    def cut_off(self, *, cut: bool) -> None:
        """Let no message through any more, or all of them again."""
        self.is_cut_off = cut
        self._note()

    def missed(self) -> None:
        """Take in that a message from or to it came to nothing."""
        self._reached.append((self._clock.now().mono, self._is_reached()))

    def was_reachable(self, since: float, until: float) -> bool:
        """Return whether it could be reached all the time between two moments, and missed nothing."""
        before = [reached for at, reached in self._reached if at <= since]
        return bool(before) and before[-1] and not any(since < at <= until for at, _ in self._reached)

    def _note(self) -> None:
        if not self._reached or self._reached[-1][1] is not self._is_reached():
            self.missed()

    def _is_reached(self) -> bool:
        return self._is_joined and not self.is_cut_off

    def head(self) -> HeadReply | None:
        """Return what its borglet has seen of masters; None while none runs."""
        if self._core is None:
            return None
        return self._core.seen(self._clock.now(), connected=self._is_connected())

    def poll(self, request: PollRequest, answer: Answer, is_open: Callable[[], bool] = lambda: False) -> None:
        """Take in a poll; ``answer`` is called at once or later, or never when the borglet dies. ``is_open``
        tells whether its connection still is."""
        if self._core is None:
            return
        self.polled_at = self._clock.now().mono
        try:
            fresh = self._core.poll(request, self._clock.now())
        except Conflict as conflict:
            answer(conflict)
            return
        self._is_connected = is_open
        self._release()
        self._held = _Held(request, answer)
        if fresh or not request.wait_seconds:
            self._turn()
            self._release()
        else:
            held = self._held
            self._clock.after(request.wait_seconds, lambda: self._release_if(held))
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
        actions = self._core.step(self._clock.now())
        self._keep(actions)
        for action in actions.todo:
            self._do(action)
        if actions.wake_at is not None:
            core = self._core
            self._clock.after(actions.wake_at - self._clock.now().mono, lambda: self._alarm(core))
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
                self._clock.after(START_SECONDS, lambda: self._start(core, spec, run))
            case Signal(key):
                self._watcher.stopping(self.name, key)
                self.runtime.signal(key)
            case Kill(key):
                self._watcher.stopping(self.name, key)
                self.runtime.kill(key)
            case Forget(key):
                self.runtime.forget(key)
                core = self._core
                self._clock.after(FORGET_SECONDS, lambda: self._forgotten(core, key))

    def _start(self, core: BorgletCore | None, spec: AttemptSpec, run: int) -> None:
        if core is None or self._core is not core:
            return
        if self._fate.happens(self._fate.faults.start_fails):
            core.start_failed(spec.key, run, "the simulator said no", self._clock.now())
        elif spec.program and not self.runtime.is_alive(main_key(spec.key)):
            core.start_failed(spec.key, run, "its main program does not run", self._clock.now())
        else:
            self._watcher.starting(self.name, spec)
            core.ran(spec.key, self.runtime.start(spec, run), self._clock.now())
        self._turn()

    def _forgotten(self, core: BorgletCore | None, key: str) -> None:
        if core is not None and self._core is core:
            core.forgotten(key)
            self._turn()

    def _changed(self, key: str) -> None:
        if self._core is not None:
            self._core.ran(key, self.runtime.programs[key].state, self._clock.now())
            self._turn()
