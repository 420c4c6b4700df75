"""Hosts with the real daemons on them: machines with a borglet, and those on which a borgmaster runs.

Nothing is decided here. A daemon gets its clock, disk, network and runtime from these hosts, and the rest is
what runs in a real cell: ``agent``, ``server`` and ``join`` of borglets, ``standby``, ``rival``, ``leader``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from borgish.borglet.agent import Agent
from borgish.borglet.entry import Entry, Head
from borgish.borglet.join import REQUEST_SECONDS, Joiner
from borgish.borglet.server import BorgletApp
from borgish.borglet.state_folder import Membership
from borgish.cell.commands import Command
from borgish.cell.invariants import violations
from borgish.cell.room import Level
from borgish.cell.state import Cell
from borgish.errors import BorgishError, Unreachable
from borgish.master.core import Core
from borgish.master.leader import Host, Leader, Work
from borgish.master.rival import TakeOver, seen_by_machines
from borgish.master.settings import Checkpoints, Settings
from borgish.master.standby import Standby
from borgish.master.step import Step
from borgish.resources import Resources
from borgish.sim.faults import Fate
from borgish.sim.loop import Process, VirtualLoop
from borgish.sim.network import App, Network, SimTransport
from borgish.sim.runtime import Programs, SimRuntime, Watcher
from borgish.sim.store import MemoryCandidate, SimStore
from borgish.vocabulary import Runtime
from borgish.wire.api import Accepted
from borgish.wire.link import Facts, JoinReply, JoinRequest

GIB = 1024**3
FACTS = Facts(Resources(8000, 16 * GIB, 100 * GIB), {"os": "sim"}, (Runtime.FAKE,), 20000, 20199)
SECRET = "simulated"  # noqa: S105 - opens nothing
SETTINGS = Settings("sim", checkpoints=Checkpoints(every_minutes=1.0))
STATE = Path("/state")  # no file of it is ever opened

T = TypeVar("T")
Asked = Callable[[Leader], Awaitable[T]]
Answer = Callable[[T | BorgishError], None]


class BorgletDisk:
    """A machine's disk, as far as its borglet has files there: the ledger (``borglet.agent.Ledger``) and the
    membership. What was not synced outlives the borglet, and not a power cut."""

    def __init__(self, machine: str) -> None:
        self.head = Head(machine)
        self.entries: dict[str, Entry] = {}
        self.membership = b""
        self._synced: tuple[Head, dict[str, Entry]] = self.head, {}
        self._owed = self._paid = 0

    def append(self, records: Mapping[str, Entry | None], head: Head | None) -> None:
        for key, entry in records.items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry
        self.head = head or self.head
        self._owed += head is not None or any(e is not None and e.ended is not None for e in records.values())

    @property
    def owes_sync(self) -> bool:
        return self._owed > self._paid

    def syncing(self) -> Callable[[], None]:
        state, owed = (self.head, dict(self.entries)), self._owed

        def sync() -> None:
            if owed > self._paid:
                self._synced, self._paid = state, owed

        return sync

    def close(self) -> None:
        self.syncing()()

    def keep_membership(self, kept: bytes) -> None:
        """Keep the membership, at once and durably."""
        self.membership = kept

    def cut_power(self) -> None:
        """Lose what was not synced."""
        self.head, entries = self._synced
        self.entries = dict(entries)
        self._owed = self._paid


class Machine:
    """A machine. ``begin`` and ``die`` are its borglet's; the programs know nothing of that.

    Each run of the borglet listens on a port of its own, and has to join with it. ``masters`` finds the one
    that leads, which a borglet joins.
    """

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        fate: Fate,
        watcher: Watcher,
        network: Network | None = None,
        facts: Facts = FACTS,
    ) -> None:
        self.name = name
        self.facts = facts
        self.programs = Programs(loop, fate)
        self.disk = BorgletDisk(name)
        self.network = network
        self.process: Process | None = None
        self.app: App | None = None
        self.agent: Agent | None = None
        self.leader: Callable[[], MasterHost | None] = lambda: None  # whom a borglet joins
        self.is_on = True
        self.is_deaf = self.is_mute = False
        self.answered_at: list[float] = []  # when a master took in an answer of it
        self.refused_at: list[float] = []  # when a master took in that its host refused a connection
        self.boots = 1
        self.booted_at = 0.0
        self._is_joined = False  # this run of its borglet
        self._reached: list[tuple[float, bool]] = []  # since when it could be reached, or not
        self._loop = loop
        self._fate = fate
        self._watcher = watcher
        self._lives = 0

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
    def is_up(self) -> bool:
        """Whether its borglet runs."""
        return self.process is not None

    def begin(self) -> None:
        """Start the borglet, from its disk and what runs."""
        self.is_on = True
        self._lives += 1
        self.process = Process(self._loop, self.instance)
        self.process.spawn(self._live(self.process), "borglet")

    async def _live(self, process: Process) -> None:
        """What ``borglet.main`` does, with what is simulated in the places of files, sockets and runtimes."""
        membership = Membership(self.disk.membership, self.disk.keep_membership)
        agent = self.agent = Agent(
            self.name,
            self.boot_id,
            self.instance,
            self.facts,
            state=STATE,
            ledger=self.disk,
            factories={
                kind: lambda _cell: SimRuntime(self.name, self.programs, self._fate, self._watcher)
                for kind in self.facts.runtimes
            },
            clock=process,
            free_bytes=lambda _folder: 100 * GIB,
        )
        await agent.begin(membership.cell)
        app = BorgletApp(agent, membership)
        if self.network is not None:
            app.is_open = self.network.is_open
        self.app = app

        async def ask(master: str) -> JoinReply:
            del master  # there is one, by whatever address
            core = agent.core
            request = JoinRequest(
                self.name,
                self.name,
                self.port,
                core.boot_id,
                core.instance,
                core.facts,
                membership.poll_token,
            )
            return await self._join(request)

        def joined(cell: str) -> None:
            agent.joined(cell)
            self._is_joined = True
            self._note()

        await Joiner(("sim",), membership, process, ask, lambda: agent.heard, joined).run()

    async def _join(self, request: JoinRequest) -> JoinReply:
        """Ask the master that leads over the network, within a time limit."""
        answer: asyncio.Future[JoinReply] = asyncio.get_running_loop().create_future()

        def back(reply: JoinReply | BorgishError) -> None:
            seconds = None if self.network is None else self.network.travel_seconds(self, is_to=True)
            if seconds is not None:
                self._loop.after(seconds, lambda: _settle(answer, reply))

        def arrive() -> None:
            master = self.leader()
            if master is None:
                back(Unreachable("nobody leads"))
            else:
                master.ask(lambda leader: leader.join(request), back)

        seconds = None if self.network is None else self.network.travel_seconds(self, is_to=False)
        if seconds is not None:
            self._loop.after(seconds, arrive)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await answer
        except TimeoutError:
            raise Unreachable("no answer from the borgmaster") from None

    def runs_already(self, entry: Entry) -> None:
        """Have an attempt run that an earlier borglet started. Before ``begin``."""
        assert entry.spec is not None
        self.programs.start(entry.spec, entry.run)
        self.disk.append({entry.key: entry}, None)

    def die(self) -> None:
        """End the borglet as kill -9 does: what it held in memory is gone, the programs go on."""
        process, self.process, self.app, self.agent = self.process, None, None, None
        if process is not None:
            process.kill()
            if self.network is not None:
                self.network.closed(self, process.name)
        self._is_joined = False
        self.programs.changed = None
        self._note()

    def switch_off(self) -> None:
        """End the borglet and be silent until one is started."""
        self.is_on = False
        self.die()

    def lose_programs(self) -> None:
        """End as a machine does that loses its power: no program is left, nor word of how it ended."""
        self.switch_off()
        self.disk.cut_power()
        self.boots += 1
        self.booted_at = self._loop.now().mono
        self.programs.by_key.clear()

    def lose_disk(self) -> None:
        """Come to be another machine of the same name."""
        self.lose_programs()
        self.disk = BorgletDisk(self.name)

    def hang(self, *, hung: bool) -> None:
        """Let its runtime give no answer to starts and stops any more, or answer again."""
        self.programs.is_hung = hung

    def cut_off(self, *, cut: bool, to: bool = True, of: bool = True) -> None:
        """Let no message through any more, ``to`` it, ``of`` it or both; or all of them again."""
        self.is_deaf, self.is_mute = cut and to, cut and of
        self._note()

    @property
    def is_cut_off(self) -> bool:
        """Whether messages to it or of it do not get through."""
        return self.is_deaf or self.is_mute

    def missed(self) -> None:
        self._reached.append((self._loop.now().mono, self._is_reached()))

    def answered(self) -> None:
        self.answered_at.append(self._loop.now().mono)

    def refused(self) -> None:
        self.refused_at.append(self._loop.now().mono)

    def was_reachable(self, since: float, until: float) -> bool:
        """Return whether it could be reached all the time between two moments, and missed nothing."""
        before = [reached for at, reached in self._reached if at <= since]
        return bool(before) and before[-1] and not any(since < at <= until for at, _ in self._reached)

    def _note(self) -> None:
        if not self._reached or self._reached[-1][1] is not self._is_reached():
            self.missed()

    def _is_reached(self) -> bool:
        return self._is_joined and not self.is_cut_off


def _settle(answer: "asyncio.Future[T]", reply: T | BorgishError) -> None:
    if answer.done():
        return
    if isinstance(reply, BorgishError):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)


class TimedHousekeeping:
    """Work at intervals, by timers of the loop (``master.leader.Housekeeping``)."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, works: Mapping[str, Work], seconds: Mapping[str, float]) -> None:
        self._seconds = dict(seconds)
        self._tasks = [asyncio.create_task(self._do(name, work), name=name) for name, work in works.items()]

    def reschedule(self, name: str, seconds: float) -> None:
        self._seconds[name] = seconds

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _do(self, name: str, work: Work) -> None:
        while True:
            await asyncio.sleep(self._seconds[name])
            await work()


def beside(step: Callable[[], float | None]) -> Callable[[], None]:
    """Call a step again and again, as a thread does (``master.renewal.in_thread``)."""

    async def run() -> None:
        pause_seconds: float | None = 0.0
        while pause_seconds is not None:
            await asyncio.sleep(pause_seconds)
            pause_seconds = await asyncio.to_thread(step)

    task = asyncio.create_task(run(), name="beside")

    def end() -> None:
        task.cancel()

    return end


class MasterHost:
    """One borgmaster after another on one disk. ``die`` is kill -9; ``begin`` starts the next."""

    def __init__(
        self, loop: VirtualLoop, fate: Fate, network: Network, store: SimStore, name: str = "sim"
    ) -> None:
        """``name`` is that of its host; no two have the same."""
        self.name = name
        self.store = store  # the latest that was opened
        self.ended: BorgishError | None = None  # what a life ended with by itself, the last that did
        self.problems: list[str] = []
        self.began_at: list[float] = []  # each time that it came to lead
        self.settings = SETTINGS
        self.leader: Leader | None = None  # as long as it answers
        self.process: Process | None = None
        self._loop = loop
        self._fate = fate
        self._network = network
        self._lives = 0
        self._stopping: asyncio.Future[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether its process runs; whether it leads is said by ``leader``."""
        return self.process is not None

    @property
    def core(self) -> Core | None:
        """The core of one that leads."""
        return self.leader.core if self.leader else None

    def begin(self, take_over: TakeOver = TakeOver.NOTHING) -> None:
        """Start on the disk as it is."""
        self._lives += 1
        process = self.process = Process(self._loop, f"{self.name}-{self._lives}")
        process.offloaded_seconds = self._fate.offloaded_seconds
        process.spawn(self._live(process, take_over), "borgmaster")

    async def _live(self, process: Process, take_over: TakeOver) -> None:
        """What ``master.life`` does, without its listener and its files."""
        leader: Leader | None = None
        candidate = MemoryCandidate(self.store, process, self._loop)
        try:
            stopping = self._stopping = self._loop.create_future()
            standby = Standby(self.store.disk.cell, candidate, process)
            standby.address = self.name
            store = await standby.at_once(stopping, may_wait=True) or await standby.until_won(stopping)
            if store is None:
                return
            self.store = store
            cell = await asyncio.to_thread(standby.follow, store)
            transport = SimTransport(self._network, SECRET, process, (self.name, self._lives))
            seen = await seen_by_machines(
                cell,
                STATE,
                transport,
                process,
                stopping,
                settle_seconds=self.settings.lease.deadline_seconds if store.has_lease else 0.0,
                take_over=take_over,
                one_of_several=False,
            )
            if stopping.done():
                return
            self.began_at.append(self._loop.now().mono)
            host = Host(
                holder=process.name,
                nonce=process.name,
                secret=SECRET,
                clock=process,
                transport=transport,
                housekeeping=TimedHousekeeping(),
                beside=beside,
            )
            leader = Leader(self.settings, store, host, cell, self.name, lambda _seconds: None, seen)
            await leader.run(_Clients(self, leader), stopping)
        except BorgishError as error:
            self.ended = error
        finally:
            if leader is not None:
                leader.close()
            candidate.close()
            self.die()

    def stop(self) -> None:
        """Ask it to end in order, as SIGTERM does."""
        if self._stopping is not None and not self._stopping.done() and self.process is not None:
            self._stopping.set_result(None)

    def die(self) -> None:
        """End at once; what was not committed is gone."""
        if self.process is not None:
            self.process.kill()
            self._gone()

    def _gone(self) -> None:
        self.process = self.leader = None

    def stall(self, seconds: float) -> None:
        """Do nothing for a while, as a process that is stopped; what arrives waits."""
        if self.process is not None:
            self.process.stop_for(seconds)

    def ask(self, asked: Asked[T], answer: Answer[T]) -> None:
        """Ask the one that leads here. There is no answer when it dies first."""
        process, leader = self.process, self.leader
        if process is None or leader is None:
            answer(Unreachable("nobody leads there"))
            return

        async def call() -> T:
            return await asked(leader)

        def answered(task: "asyncio.Task[T]") -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                answer(task.result())
            elif isinstance(error, BorgishError):
                answer(error)
            else:
                self._loop.call_exception_handler({"message": process.name, "exception": error})

        process.spawn(call(), "ask").add_done_callback(answered, context=self._loop.world.context)

    def command(
        self,
        command: Command,
        answer: Answer[Accepted],
        actor: str,
        request_id: str,
        digest: str,
        then: Cell | None = None,
    ) -> None:
        """Give a command to the one that leads here."""
        self.ask(lambda leader: leader.command(command, actor, request_id, digest, then), answer)


class _Clients:
    """Whoever asks a simulated master."""

    def __init__(self, host: MasterHost, leader: Leader) -> None:
        self._host, self._leader = host, leader

    def serve(self) -> None:
        self._host.leader = self._leader

    def publish(self, step: Step) -> None:
        if step.entries:
            self._host.problems += violations(self._leader.core.cell)
            is_election = step.entries[0].cause == "BeginEpoch"  # for which there is a reserve
            if self._leader.turn.room.level is Level.FULL and not is_election:
                self._host.problems.append(
                    f"entry {step.entries[0].position} is written, and the store is full"
                )
        for failure in step.failures:
            self._host.problems.append(f"the master failed at {failure.what}: {failure.trace}")

    def unserve(self) -> None:
        self._host.leader = None
