"""A simulated borgmaster: the real core, store contract and conversations; only the waiting is ours."""

from collections.abc import Callable, Mapping
from typing import ParamSpec

from borgish.cell.commands import Command, Observe, Seen
from borgish.cell.invariants import violations
from borgish.cell.observed import Miss
from borgish.cell.room import Level
from borgish.cell.state import Cell
from borgish.errors import (
    BorgishError,
    Conflict,
    NotListening,
    OutcomeUnknown,
    Refused,
    StoreFull,
    Unreachable,
)
from borgish.link.conversation import Conversation
from borgish.link.refusals import REFUSED_SECONDS_MAX, Refusals
from borgish.master.core import Core
from borgish.master.rival import Found, RivalSearch, TakeOver, to_take_over
from borgish.master.step import Ask, Heard, Input, Missed, Step
from borgish.reconcilers.settings import ReconcileSettings
from borgish.sim.clock import VirtualClock
from borgish.sim.faults import Fate
from borgish.sim.machine import SimMachine
from borgish.sim.network import Network
from borgish.store.base import records_of
from borgish.store.codec import encode_snapshot
from borgish.store.memory import MemoryStore
from borgish.wire.api import Accepted
from borgish.wire.link import HeadReply, Leader, PollReply, PollRequest

HEADS_SECONDS, HEADS_SECONDS_MAX = 0.5, 4.0
LOOK_SECONDS = 0.2
TICK_SECONDS = 0.5
COMMIT_SECONDS = 0.002
HOLD_SECONDS = 2.0
TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 1.0
CHECKPOINT_SECONDS = 60.0
ENDED = -1

P = ParamSpec("P")
Reply = Callable[[Accepted | Refused], None]


class SimMaster:
    """One master after another on one disk. ``die`` is kill -9; ``begin`` starts the next.

    Everything planned by one life is void in the next: ``guarded`` sees to it.
    """

    def __init__(
        self,
        clock: VirtualClock,
        fate: Fate,
        network: Network,
        machines: Mapping[str, SimMachine],
        store: MemoryStore,
        name: str = "sim",
    ) -> None:
        """``name`` is that of its host; no two that live at a time have the same."""
        self.name = name
        self.ended: BorgishError | None = None  # what a life ended with by itself, the last that did
        self.refusals = Refusals()
        self.problems: list[str] = []
        self.began_at: list[float] = []  # each life
        self.committed_at: dict[int, float] = {}  # by position; monotonic, as wall clocks are stepped
        self.store = store
        self.core: Core | None = None
        self._clock = clock
        self._fate = fate
        self._network = network
        self._machines = machines
        self._life = 0
        self._is_up = False
        self.leader = Leader(name)
        self._inputs: list[Input] = []
        self._heard: dict[str, float] = {}
        self._missed: dict[str, Miss] = {}
        self._replies: dict[int, Reply] = {}
        self._handles = 0
        self._is_turning = False
        self._stalled_until = 0.0
        self._pollers: dict[str, SimPoller] = {}
        self._generations: dict[str, int] = {}  # of machines that were let go of

    @property
    def is_up(self) -> bool:
        """Whether its process runs; whether it leads, is said by ``core``."""
        return self._is_up

    def begin(self, take_over: TakeOver = TakeOver.NOTHING) -> None:
        """Start on the disk as it is: ask the machines for another leader, then lead."""
        self._life += 1
        self._is_up = True
        self._stalled_until = 0.0
        self.store = self.store.reopen()
        self._look(self.store.load(), RivalSearch(self._clock.now().mono), take_over)

    def _look(self, cell: Cell, search: RivalSearch, take_over: TakeOver) -> None:
        """Ask the machines, and judge when all have answered, or enough when it takes long."""
        known = [machine for _, machine in sorted(cell.machines.items())]
        asked = [machine for machine in known if machine.up] or known
        heads: list[HeadReply] = []
        judged: list[bool] = []

        def judge(enough: int) -> None:
            if not judged and len(heads) >= enough:
                judged.append(True)
                self._judge(cell, heads, search, take_over)

        def take(head: HeadReply) -> None:
            heads.append(head)
            judge(len(asked))

        for machine in asked:
            self._network.head(self._machines[machine.name], machine.port, self.guarded(take))
        judge(len(asked))  # at once where there is nobody to ask
        self.after(HEADS_SECONDS, lambda: judge((len(asked) + 1) // 2))
        self.after(HEADS_SECONDS_MAX, lambda: judge(0))

    def _judge(self, cell: Cell, heads: list[HeadReply], search: RivalSearch, take_over: TakeOver) -> None:
        found = search.look(heads, self._clock.now().mono)
        if found is Found.UNSURE:
            self.after(LOOK_SECONDS, lambda: self._look(cell, search, take_over))
            return
        try:
            self._lead(cell, to_take_over(cell, heads, found, take_over))
        except BorgishError as error:
            self._end(error)

    def _lead(self, cell: Cell, seen: Seen | None) -> None:
        now = self._clock.now()
        self.began_at.append(now.mono)
        epoch = self.store.lead(self.name, self.name)
        self.core = Core(cell, ReconcileSettings(), now, seed=self._fate.seed)
        self.leader = Leader(self.name, f"{self.name}-{self._life}")
        self.refusals = Refusals()
        self._inputs, self._heard, self._missed, self._replies = [], {}, {}, {}
        self._pollers, self._generations = {}, {}
        self._is_turning = True
        self._commit(self.core.begin(epoch, self.name, now, seen=seen))
        if self.core is not None:
            self._sync(sorted(cell.machines))
            self.after(TICK_SECONDS, self._tick)
            self.after(CHECKPOINT_SECONDS, self._checkpoint)

    def die(self) -> None:
        """End at once; what was not committed is gone."""
        self._life += 1
        self._is_up, self.core = False, None

    def _end(self, error: BorgishError) -> None:
        self.ended = error
        self.die()

    def is_living(self) -> Callable[[], bool]:
        """Return what tells whether this life goes on, as its connections do."""
        life = self._life
        return lambda: self._life == life

    def stall(self, seconds: float) -> None:
        """Do nothing for a while, as a process that is stopped; what arrives waits."""
        self._stalled_until = self._clock.now().mono + seconds

    def guarded(self, call: Callable[P, None]) -> Callable[P, None]:
        """Return the call, for this life only: after that it does nothing."""
        life = self._life

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._life != life:
                return
            stalled_seconds = self._stalled_until - self._clock.now().mono
            if stalled_seconds > 0:
                self._clock.after(stalled_seconds, lambda: guarded(*args, **kwargs))
            else:
                call(*args, **kwargs)

        return guarded

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Plan something for this life only."""
        self._clock.after(seconds, self.guarded(call))

    def ask(
        self, command: Command, reply: Reply, actor: str = "sim", request_id: str = "", digest: str = ""
    ) -> None:
        """Hand in a command. The reply never comes when the master dies first, nor where it is refused, since
        the machines obey another one."""
        if not isinstance(command, Observe) and self.refusals.found():
            return
        self._handles += 1
        self._replies[self._handles] = reply
        self._inputs.append(Ask(self._handles, command, actor, request_id, digest))
        self._wake()

    def heard(self, machine: str) -> None:
        """Note that a machine answered."""
        self._missed.pop(machine, None)
        self._heard[machine] = self._clock.now().mono

    def missed(self, machine: str, miss: Miss) -> None:
        """Note that a poll of a machine got no valid answer."""
        before = self._missed.get(machine)
        self._missed[machine] = before.then(miss) if before else miss

    def _tick(self) -> None:
        refused = self.refusals.found()
        if self.refusals.seconds(self._clock.now().mono) > REFUSED_SECONDS_MAX and refused:
            self._end(refused.error())
            return
        self._wake()
        self.after(TICK_SECONDS, self._tick)

    def _checkpoint(self) -> None:
        assert self.core is not None
        cell = self.core.cell
        if self.store.room().level is Level.AMPLE and cell.position == self.store.disk.head:
            body = encode_snapshot(cell.snapshot())
            self.store.save_checkpoint(body, cell.position, self._clock.now().wall, "sim")
        self.after(CHECKPOINT_SECONDS, self._checkpoint)

    def _wake(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            self.after(0.0, self._turn)

    def _turn(self) -> None:
        assert self.core is not None
        inputs: list[Input] = [Heard(self._heard)] if self._heard else []
        if self._missed:
            inputs.append(Missed(self._missed))
        inputs += self._inputs
        self._inputs, self._heard, self._missed = [], {}, {}
        room = self.store.room()
        step = self.core.step(inputs, self._clock.now(), room)
        if step.entries and room.level is Level.FULL:
            self.problems.append(f"entry {step.entries[0].position} is written, and the store is full")
        self._commit(step)

    def _commit(self, step: Step) -> None:
        """Persist, then speak: what a step came to is let out one commit later."""
        assert self.core is not None
        if not step.entries:  # nothing else changes a cell
            self._release(step)
            return
        self.problems += violations(self.core.cell)
        if self._fate.happens(self._fate.faults.append_fails):
            self.store.fail_next_append(kept=self._fate.happens(0.5))
        self.committed_at |= dict.fromkeys((entry.position for entry in step.entries), self._clock.now().mono)
        try:
            self.store.append(step.entries, records_of(self.core.cell, step.touched))
        except OutcomeUnknown:
            self.die()
            return
        self.after(COMMIT_SECONDS, lambda: self._release(step))

    def _release(self, step: Step) -> None:
        for name in sorted(step.touched.machines_gone & self._pollers.keys()):
            self._generations[name] = self._pollers.pop(name).end()
        self._sync(sorted(step.touched.machines))
        for name in sorted(step.assignments & self._pollers.keys()):
            self._pollers[name].renew()
        for handle, answer in step.replies:
            self._replies.pop(handle)(answer)
        self._is_turning = False
        if step.more or self._inputs:
            self._wake()

    def _sync(self, machines: list[str]) -> None:
        assert self.core is not None
        for name in machines:
            if name not in self._pollers:
                self._pollers[name] = SimPoller(
                    self,
                    self.core,
                    self._machines[name],
                    self._network,
                    self._clock,
                    self._generations.get(name, 0),
                )
                self._pollers[name].begin()
            else:
                self._pollers[name].move()


class SimPoller:
    """One machine's poll, over and over; the conversation is the real one."""

    def __init__(
        self,
        master: SimMaster,
        core: Core,
        machine: SimMachine,
        network: Network,
        clock: VirtualClock,
        generation: int,
    ) -> None:
        self._master = master
        self._machine = machine
        self._network = network
        self._clock = clock
        self._records = core.cell.machines
        self._port = self._records[machine.name].port
        self._cell = core.cell
        self._conversation = Conversation(core.cell, core.observed, machine.name, generation, master.leader)
        self._asked = 0  # polls so far; only the latest one's answer or silence moves on
        self._lost = 0  # the latest poll when all that was known of the machine was last let go of

    def begin(self) -> None:
        """Make the first assignment and poll."""
        self._master.refusals.note(self._machine.name)
        self._conversation.renew(self._clock.now())
        self._ask()

    def move(self) -> None:
        """Poll where the machine's record now says it is."""
        port = self._records[self._machine.name].port
        if port != self._port:
            self._port = port
            self._ask()

    def renew(self) -> None:
        """A new assignment overtakes the poll that is held."""
        self._conversation.renew(self._clock.now())
        self._ask()

    def end(self) -> int:
        """Poll no more; return the generation of the last assignment."""
        self._master.refusals.drop(self._machine.name)
        self._asked = ENDED
        return self._conversation.generation

    def _ask(self) -> None:
        if self._asked == ENDED:
            return
        self._asked += 1
        number = self._asked
        request = self._conversation.request(HOLD_SECONDS)
        answer = self._master.guarded(lambda reply: self._take(number, request, reply))
        self._network.poll(self._machine, self._port, request, answer, self._master.is_living())
        self._master.after(
            request.wait_seconds + TIMEOUT_SECONDS, lambda: self._give_up(number, Unreachable("no answer"))
        )

    def _give_up(self, number: int, why: Unreachable) -> None:
        if number != self._asked:
            return
        now = self._clock.now().mono
        is_refused = isinstance(why, NotListening)
        if is_refused:
            self._machine.refused_at.append(now)
        self._master.missed(self._machine.name, Miss(why.message, now if is_refused else 0.0))
        self._master.refusals.drop(self._machine.name)
        self._ask_again()

    def _ask_again(self) -> None:
        """Have the whole reported again, a moment later."""
        if self._asked == ENDED:
            return
        self._asked += 1
        self._conversation.lose()
        again = self._lost = self._asked
        self._master.after(RETRY_SECONDS, lambda: self._ask() if self._asked == again else None)

    def _take(self, number: int, request: PollRequest, reply: PollReply | Conflict | Unreachable) -> None:
        if isinstance(reply, Conflict):
            self._refused(number, request, reply)
            return
        if isinstance(reply, Unreachable):
            self._give_up(number, reply)
            return
        self._master.refusals.note(self._machine.name)
        self._machine.answered_at.append(self._clock.now().mono)
        self._master.heard(self._machine.name)
        report = self._conversation.observe(reply)
        if report is None:
            self._done(number, reply)
        else:
            self._master.ask(report, lambda answer: self._reported(number, reply, answer), self._machine.name)

    def _reported(self, number: int, reply: PollReply, answer: Accepted | Refused) -> None:
        if isinstance(answer, StoreFull):
            self._ask_again()  # it was heard, and is not missed; what came after it, told only what differed
        elif number >= self._lost:
            self._done(number, reply)

    def _refused(self, number: int, request: PollRequest, reply: Conflict) -> None:
        """Who leads is for the store to say. If we do, it was asked on a timeline that is over by now, or the
        machine obeys a master on another store."""
        if not self._master.store.leads():
            self._master.die()
            return
        self._give_up(number, Unreachable("obeys another master"))
        if request.timeline == self._cell.timeline:
            self._master.refusals.note(self._machine.name, reply.message)

    def _done(self, number: int, reply: PollReply) -> None:
        self._conversation.acknowledge(reply)
        if number == self._asked:
            self._ask()
