"""The master taken apart: a store that only decides what it is asked, and an actor for each reconciler and
one for the scheduler.

The same code: an actor *is* a core (``master.core.Core``), with the same reconcilers, the same scheduler and
the same bookkeeping, and the store is one, too, with the leader, the turn, the commits and the polls of a
master around it. An actor runs one loop only, and what that asks for it does not decide: it sends it to the
store, where ``decide`` judges it as any command.

The lab's own: how they are apart. Each actor has a cell and what is observed of it for itself, a cache, fed
with the store's entries and what machines reported (Kubernetes' watch and informer). Messages take time, in
their order, and are lost; a gap is noticed by the number of the next message, at the latest by that which
comes once a second, and what is missing is asked for. A write names the position of the cache that it was
decided on, and is refused when what it is about was written by somebody else since (``resourceVersion``).
After its writes an actor waits until its cache has them.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import Observe
from borgish.cell.events import Entry
from borgish.cell.free_space import AMPLE, FreeSpace
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import watch
from borgish.cell.touched import Touched
from borgish.clock import Now
from borgish.errors import BorgishError, PreconditionFailed, Refused
from borgish.master.core import Core, evict_command, place_command, promise_command
from borgish.master.step import CommandRequest, Input, Noted, Step
from borgish.reconcilers import RECONCILERS, Reconcile
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.plan import Plan
from borgish.scheduler.schedule import TASKS_MAX
from borgish.sim.lab.cell import LabCell
from borgish.sim.loop import Process
from borgish.sim.network import settle
from borgish.wire.api import Accepted

SCHEDULER = "scheduler"
LOOPS = (*(loop.name for loop in RECONCILERS), SCHEDULER)
ASK_AGAIN_SECONDS = 2.0
TICK_SECONDS = 0.5
BEAT_SECONDS = 1.0

About = str | tuple[str, int]
"""A job or a machine, or a task by its job and index."""


def about(command: Command, *, whole_jobs: bool = False) -> Iterator[About]:
    """Yield what a command of a loop is about: the tasks that it names, else the job or the machine.

    With ``whole_jobs`` it is jobs in place of their tasks.
    """
    fields = msgspec.structs.asdict(command)
    by_job = {fields["job"]: fields.get("indexes")} if "job" in fields else {}
    for value in fields.values():
        by_job |= value if isinstance(value, dict) else {}
    for job, indexes in by_job.items():
        if isinstance(indexes, tuple) and indexes and not whole_jobs:
            yield from ((job, index) for index in indexes)
        else:
            yield job
    if "machine" in fields:
        yield fields["machine"]


def written(touched: Touched) -> Iterator[About]:
    """Yield what an entry wrote to, in the same terms."""
    yield from touched.jobs | touched.jobs_gone | touched.machines | touched.machines_gone
    for by_job in (touched.tasks, touched.handovers):
        for job, indexes in by_job.items():
            yield from ((job, index) for index in indexes)


class Counts(msgspec.Struct):
    """What came to pass between actors and store."""

    messages: int = 0
    writes: int = 0
    conflicts: int = 0  # of the writes: refused, since what they were about was written since
    idle: int = 0  # of the writes: nothing followed from them
    stale: int = 0  # of the writes: decided on a cell that was no more the latest
    ages: list[float] = []  # of the caches that writes were decided on: for so long there was something newer
    commits: int = 0
    entries: int = 0


class IdleCore(Core):
    """A core that decides what it is asked, and asks for nothing itself."""

    def _reconcile(self, now: Now) -> None:
        pass

    def _schedule(self, now: Now, tasks_max: int) -> bool:
        del tasks_max
        watch_new(self, now)
        return False


class StoreCore(IdleCore):
    """One that others write to: it says what there is to see, and refuses what was decided on an old cell."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.counts, self.whole_jobs = Counts(), False
        self.seen: list[Input] = []  # what was observed since this was last taken
        self._written: dict[About, tuple[int, str]] = {}  # by what: position and actor of the last entry
        self._written_at: list[tuple[int, float]] = []  # position, time

    def prepare(self, counts: Counts, *, whole_jobs: bool) -> None:
        """Count there from now on. ``whole_jobs``: two writes about tasks of one job are in conflict, too."""
        self.counts, self.whole_jobs = counts, whole_jobs

    def step(
        self, inputs: Iterable[Input], now: Now, free_space: FreeSpace = AMPLE, tasks_max: int = TASKS_MAX
    ) -> Step:
        return super().step(self._noting(inputs), now, free_space, tasks_max)

    def _noting(self, inputs: Iterable[Input]) -> Iterator[Input]:
        for each in inputs:
            yield each
            if isinstance(each, CommandRequest):
                if isinstance(each.command, Observe):
                    self.seen.append(each)
            elif not isinstance(each, Noted):
                self.seen.append(each)

    def _answer(self, ask: CommandRequest, now: Now) -> Accepted | Refused:
        if ask.actor not in LOOPS or ask.expected is None:
            return super()._answer(ask, now)
        counts, basis, before = self.counts, ask.expected, self.cell.position
        newer = [at for position, at in self._written_at if position > basis]
        counts.writes += 1
        counts.stale += bool(newer)
        counts.ages.append(now.mono - newer[0] if newer else 0.0)
        for each in about(ask.command, whole_jobs=self.whole_jobs):
            position, actor = self._written.get(each, (0, ""))
            if position > basis and actor != ask.actor:
                counts.conflicts += 1
                return PreconditionFailed(f"{each} was written to by {actor} at {position}")
        answer = super()._answer(msgspec.structs.replace(ask, expected=None), now)
        counts.idle += self.cell.position == before
        return answer

    def _take_in(self, entry: Entry, now: Now) -> None:
        before = self.cell.take_touched()
        super()._take_in(entry, now)
        for each in written(self.cell.touched):
            self._written[each] = entry.position, entry.actor
            if self.whole_jobs and isinstance(each, tuple):
                self._written[each[0]] = entry.position, entry.actor
        self._written_at = [*self._written_at[-500:], (entry.position, now.mono)]
        before.add(self.cell.touched)
        self.cell.touched = before


class ActorCore(Core):
    """A core that runs one loop, on a cell that is a copy. What the loop asks for is in ``asked``."""

    def __init__(self, loop: str, settings: ReconcileSettings, now: Now) -> None:
        super().__init__(Cell(Snapshot("lab")), settings, now)
        self.asked: list[Command] = []
        self._loop = loop

    def follow(self, entries: Iterable[Entry], now: Now) -> None:
        """Take in what the store has written."""
        for entry in entries:
            self._take_in(entry, now)

    def _wanted(self, actor: str, reconcile: Reconcile, now: Now) -> list[Command]:
        return super()._wanted(actor, reconcile, now) if actor == self._loop else []

    def _record(self, command: Command, actor: str, now: Now, ask: CommandRequest | None = None) -> Accepted:
        del ask
        if isinstance(command, Observe):
            if command.machine in self.cell.machines:
                self._absorb(command, now)
        elif actor == self._loop:
            self.asked.append(command)
        return Accepted(self.cell.position, "", "")

    def _schedule(self, now: Now, tasks_max: int) -> bool:
        if self._loop == SCHEDULER:
            return super()._schedule(now, tasks_max)
        watch_new(self, now)
        return False

    def _carry_out(self, plan: Plan, now: Now, *, is_trial: bool = False) -> None:
        del now, is_trial
        self.asked += map(evict_command, plan.preemptions)
        self.asked += map(promise_command, plan.promises)
        self.asked += map(place_command, plan.placements)


def watch_new(core: Core, now: Now) -> None:
    """Judge the silence of machines that have joined, as the core does before it schedules."""
    if new := [name for name in core.cell.touched.machines if name not in core.observed.machines]:
        watch(core.observed, new, now)


class Message(msgspec.Struct, frozen=True):
    """What one step of the store brought about; its number follows that of the one before."""

    number: int
    entries: bytes
    seen: tuple[Input, ...]


_entries = msgspec.msgpack.Decoder(tuple[Entry, ...])


class Many:
    """A store and its ``actors``; ``processes`` has theirs by the name of their loop."""

    def __init__(self, cell: LabCell, delay: float, loss: float, *, whole_jobs: bool = False) -> None:
        """A message takes about ``delay`` seconds, and is lost by a chance of ``loss``. The cell's core must
        be a ``StoreCore``; before anything of it has begun."""
        self.counts = Counts()
        self.messages: list[Message] = []
        self.cell = cell
        self.processes: dict[str, Process] = {}
        self._delay, self._loss, self._whole_jobs = delay, loss, whole_jobs
        self._chance = cell.injector.of("messages")
        self.actors: list[Actor] = []
        self._arrives: dict[str, float] = {}  # by actor: when the last message to it does
        self._is_ready = False
        cell.host.published = self._publish

    def travel(self) -> float | None:
        """Count a message and return how long it takes; None: it is lost."""
        self.counts.messages += 1
        is_lost, seconds = self._chance.random() < self._loss, self._chance.uniform(0.5, 1.5) * self._delay
        return None if is_lost else seconds

    def _publish(self, step: Step) -> None:
        core = self.cell.host.core
        assert isinstance(core, StoreCore)
        if not self._is_ready:
            self._begin(core)
        if step.entries:
            self.counts.commits += 1
            self.counts.entries += len(step.entries)
        if step.entries or core.seen:
            seen, core.seen = tuple(core.seen), []
            message = Message(len(self.messages) + 1, msgspec.msgpack.encode(step.entries), seen)
            self.messages.append(message)
            self._tell()

    def _begin(self, core: StoreCore) -> None:
        self._is_ready = True
        core.prepare(self.counts, whole_jobs=self._whole_jobs)
        for name in LOOPS:
            process = self.processes[name] = Process(self.cell.clock, name)
            actor = Actor(name, process, self)
            self.actors.append(actor)
            process.spawn(actor.live(), name)
        self.cell.clock.after(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        self._tell()
        self.cell.clock.after(BEAT_SECONDS, self._beat)

    def _tell(self) -> None:
        latest = self.messages[-1:]
        for actor in self.actors:
            self.send(actor, latest)

    def send(self, actor: "Actor", messages: Sequence[Message]) -> None:
        """Send messages to an actor, after all that were sent to it before."""
        if (seconds := self.travel()) is None:
            return
        now = self.cell.clock.now().mono
        at = self._arrives[actor.name] = max(now + seconds, self._arrives.get(actor.name, 0.0))
        self.cell.clock.after(at - now, lambda: actor.process.call(actor.receive, messages))

    def send_missing(self, actor: "Actor", number: int) -> None:
        """Let an actor ask for all that came after a message."""
        if (seconds := self.travel()) is not None:
            self.cell.clock.after(seconds, lambda: self.send(actor, self.messages[number:]))

    async def write(self, actor: str, command: Command, basis: int) -> int:
        """Have the store decide a command; return the position at which the cache of who asks has to be to
        know what came of it. Without an answer that is 0."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        clock, host = self.cell.clock, self.cell.host

        def back(_reply: Accepted | BorgishError) -> None:
            position = host.core.cell.position if host.core is not None else 0
            if (seconds := self.travel()) is not None:
                clock.after(seconds, lambda: settle(answer, position))

        def arrive() -> None:
            host.ask(lambda leader: leader.inbox.ask(command, actor, expected=basis), back)

        if (seconds := self.travel()) is not None:
            clock.after(seconds, arrive)
        try:
            async with asyncio.timeout(ASK_AGAIN_SECONDS + 4 * self._delay):
                return await answer
        except TimeoutError:
            return 0


class Actor:
    """One loop in a process of its own."""

    def __init__(self, name: str, process: Process, many: Many) -> None:
        self.name = name
        self.process = process
        self._many = many
        self.core = ActorCore(name, ReconcileSettings(), process.now())
        self._number = 0  # of the last message that was taken in
        self._asked_at = -1.0  # for what is missing
        self._inputs: list[Input] = []
        self._news = asyncio.Event()

    def receive(self, messages: Sequence[Message]) -> None:
        """Take in what is the next; ask for what is missing."""
        now = self.process.now()
        for message in messages:
            if message.number == self._number + 1:
                self._number = message.number
                self.core.follow(_entries.decode(message.entries), now)
                self._inputs += message.seen
                self._news.set()
        is_missing = bool(messages) and messages[-1].number > self._number
        if is_missing and now.mono - self._asked_at > BEAT_SECONDS:
            self._asked_at = now.mono
            self._many.send_missing(self, self._number)

    async def live(self) -> None:
        """Run the loop at all news, and now and then; write what it asks for."""
        core = self.core
        while True:
            await self._arrival()
            inputs, self._inputs = self._inputs, []
            core.step(inputs, self.process.now())
            asked, core.asked = core.asked, []
            basis = core.cell.position
            writes = [
                self.process.spawn(self._many.write(self.name, command, basis), self.name)
                for command in asked
            ]
            needed = max([await write for write in writes], default=0)
            await self._caught_up(needed)

    async def _arrival(self) -> None:
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _caught_up(self, position: int) -> None:
        """Return when the cache has what was written up to a position."""
        while self.core.cell.position < position:
            await self._arrival()
        if position:
            self._news.set()
