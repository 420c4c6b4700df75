"""Machines with the real borglet on them.

Nothing is decided here. A borglet gets its clock, disk, network and runtime from its machine, and the rest is
what runs in a real cell: ``borglet.agent``, ``server`` and ``joining``.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from borgish.borglet.agent import Agent
from borgish.borglet.attempts.entry import Entry, Head
from borgish.borglet.joining.join import REQUEST_SECONDS, Joiner
from borgish.borglet.runtimes.secrets import SecretFolders
from borgish.borglet.server import BorgletApp
from borgish.borglet.state_folder import Membership
from borgish.errors import BorgishError, Unreachable
from borgish.resources import Resources
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import Process, VirtualLoop
from borgish.sim.network import App, Network, settle
from borgish.sim.runtime import Programs, SimRuntime, Watcher
from borgish.vocabulary import LEASES_ATTRIBUTE, Runtime
from borgish.wire.link import AttemptSpec, Facts, JoinReply, JoinRequest

GIB = 1024**3
ATTRIBUTES = {"os": "sim", LEASES_ATTRIBUTE: str(Runtime.FAKE)}
FACTS = Facts(Resources(8000, 16 * GIB, 100 * GIB), ATTRIBUTES, (Runtime.FAKE,), 20000, 20199)
STATE = Path("/state")  # no file of it is ever opened


class Master(Protocol):
    """One that leads, and takes machines in."""

    def join(self, request: JoinRequest, answer: Callable[[JoinReply | BorgishError], None]) -> None:
        """Ask it to take a machine in."""
        ...


class BorgletDisk:
    """A machine's disk, as far as its borglet has files there: the ledger (``borglet.agent.Ledger``) and the
    membership. What was not synced outlives the borglet, and not a power cut."""

    def __init__(self, machine: str) -> None:
        self.head = Head(machine)
        self.entries: dict[str, Entry] = {}
        self.membership = b""
        self.problems: list[str] = []
        self._synced: tuple[Head, dict[str, Entry]] = self.head, {}
        self._owed = self._paid = 0

    def append(self, records: Mapping[str, Entry | None], head: Head | None) -> None:
        for key, entry in records.items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry
        if head is not None and head.term < self.head.term:
            self.problems.append(f"a borglet obeys the term {head.term} after {self.head.term}")
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


class _UnreadSecrets(SecretFolders):
    """The secrets of programs that do not read them: none is kept, and none is lacking."""

    def lacking(self, specs: Iterable[AttemptSpec]) -> dict[str, str]:
        del specs
        return {}


UNREAD = _UnreadSecrets(None)


class Machine:
    """A machine. ``begin`` and ``die`` are its borglet's; the programs know nothing of that.

    Each run of the borglet listens on a port of its own, and has to join with it. ``leader`` finds the
    master that a borglet joins.
    """

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        injector: FaultInjector,
        watcher: Watcher,
        network: Network,
        facts: Facts = FACTS,
    ) -> None:
        self.name = name
        self.facts = facts
        self.programs = Programs(loop, injector, name)
        self.disk = BorgletDisk(name)
        self.process: Process | None = None
        self.app: App | None = None
        self.leader: Callable[[], Master | None] = lambda: None  # whom a borglet joins
        self.clock_rate = 1.0  # of its monotonic clock
        self.is_on = True
        self.is_inbound_cut = self.is_outbound_cut = False
        self.answered_at: list[float] = []  # when a master ingested an answer of it
        self.refused_at: list[float] = []  # when a master noted that its host refused a connection
        self.boots = 1
        self.stopped: list[tuple[float, float]] = []  # from when to when its borglet did nothing
        self.booted_at = 0.0
        self._is_joined = False  # this run of its borglet
        self._reached: list[tuple[float, bool]] = []  # since when it could be reached, or not
        self._loop = loop
        self._injector = injector
        self._watcher = watcher
        self._network = network
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
        self.programs.clock_rate = self.clock_rate
        self._lives += 1
        self.process = Process(self._loop, self.instance, self.clock_rate)
        self.process.spawn(self._live(self.process), "borglet")

    async def _live(self, process: Process) -> None:
        """What ``borglet.main`` does, with what is simulated in the places of files, sockets and runtimes."""
        membership = Membership(self.disk.membership, self.disk.keep_membership)
        agent = await self._open(process, membership)

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

    async def _open(self, process: Process, membership: Membership) -> Agent:
        """Return the borglet's agent, which now answers whoever polls the machine."""
        agent = Agent(
            self.name,
            self.boot_id,
            self.instance,
            self.facts,
            state=STATE,
            ledger=self.disk,
            factories={kind: partial(self._runtime, kind) for kind in self.facts.runtimes},
            clock=process,
            free_bytes=lambda _folder: 100 * GIB,
            connect=self.programs.connect,
            secrets=UNREAD,
        )
        await agent.begin(membership.cell)
        app = BorgletApp(agent, membership)
        app.is_open = self._network.is_open
        self.app = app
        return agent

    def _runtime(self, kind: Runtime, cell: str) -> SimRuntime:
        del cell
        return SimRuntime(self.name, self.programs, self._injector, self._watcher, kind)

    async def _join(self, request: JoinRequest) -> JoinReply:
        """Ask the master that leads over the network, within a time limit."""
        answer: asyncio.Future[JoinReply] = asyncio.get_running_loop().create_future()

        def back(reply: JoinReply | BorgishError) -> None:
            seconds = self._network.travel_seconds(self, is_to=True)
            if seconds is not None:
                self._loop.after(seconds, lambda: settle(answer, reply))

        def arrive() -> None:
            master = self.leader()
            if master is None:
                back(Unreachable("nobody leads"))
            else:
                master.join(request, back)

        seconds = self._network.travel_seconds(self, is_to=False)
        if seconds is not None:
            self._loop.after(seconds, arrive)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await answer
        except TimeoutError:
            raise Unreachable("no answer from the borgmaster") from None

    def die(self) -> None:
        """End the borglet as kill -9 does: what it held in memory is gone, the programs go on."""
        process, self.process, self.app = self.process, None, None
        if process is not None:
            process.kill()
            self._network.closed(self, process.name)
        self._is_joined = False
        self.programs.changed.clear()
        self._note()

    def stop_borglet(self, seconds: float) -> None:
        """Stop the borglet for a while, as SIGSTOP does; its programs and their shims go on."""
        if self.process is not None:
            self.process.stop_for(seconds)
            self.stopped.append((self._loop.now().mono, self.process.stopped_until))
            self._note()
            self._loop.after(seconds + 0.001, self._note)

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
        self.programs.vanish()

    def lose_disk(self) -> None:
        """Come to be another machine of the same name."""
        self.lose_programs()
        self.disk = BorgletDisk(self.name)

    def hang(self, *, hung: bool) -> None:
        """Let its runtime give no answer to starts and stops any more, or answer again."""
        self.programs.is_hung = hung

    def cut_off(self, *, cut: bool, to: bool = True, of: bool = True) -> None:
        """Let no message through any more, ``to`` it, ``of`` it or both; or all of them again."""
        self.is_inbound_cut, self.is_outbound_cut = cut and to, cut and of
        self._note()

    @property
    def is_cut_off(self) -> bool:
        """Whether messages to it or of it do not get through."""
        return self.is_inbound_cut or self.is_outbound_cut

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
        is_stopped = self.process is not None and self.process.stopped_until > self._loop.now().mono
        return self._is_joined and not self.is_cut_off and not is_stopped
