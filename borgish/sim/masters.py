"""Hosts on which the real borgmaster runs.

Nothing is decided here. A master gets its clock, disk, network and timers from its host, and the rest is what
runs in a real cell: ``master.standby``, ``master.host.preflight``, ``master.leader``, and all that they are
made of.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from borgish.cell.access.commands import AdmitTokens
from borgish.cell.access.model import Asker, Invitation, Principal, Role
from borgish.cell.command import Command
from borgish.cell.free_space import Level
from borgish.cell.invariants import violations
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Now
from borgish.errors import BorgishError, Forbidden, Unreachable
from borgish.join_token import digest_of
from borgish.master.core import Core
from borgish.master.host.preflight import TakeOver, check_machines
from borgish.master.host.settings import Checkpoints, Settings
from borgish.master.leader import Host, Leader, Work
from borgish.master.standby import Standby
from borgish.master.step import Step
from borgish.sim.faults import FaultInjector
from borgish.sim.loop import Process, VirtualLoop
from borgish.sim.machines import STATE
from borgish.sim.network import Network, SimTransport
from borgish.sim.store import MemoryCandidate, SimStore
from borgish.wire.api import Accepted
from borgish.wire.link import JoinReply, JoinRequest

SECRET = "simulated"  # noqa: S105 - opens nothing
SETTINGS = Settings("sim", checkpoints=Checkpoints(every_minutes=1.0))

T = TypeVar("T")
Asked = Callable[[Leader], Awaitable[T]]
Answer = Callable[[T | BorgishError], None]


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
    """Call a step again and again, as a thread does (``master.lease.in_thread``)."""

    async def run() -> None:
        pause_seconds: float | None = 0.0
        while pause_seconds is not None:
            await asyncio.sleep(pause_seconds)
            pause_seconds = await asyncio.to_thread(step)

    task = asyncio.create_task(run(), name="beside")

    def end() -> None:
        task.cancel()

    return end


FOR_EVER = 1e12


class MasterHost:
    """One borgmaster after another on one disk. ``die`` is kill -9; ``begin`` starts the next."""

    def __init__(
        self,
        loop: VirtualLoop,
        injector: FaultInjector,
        network: Network,
        store: SimStore,
        name: str = "sim",
        core: Callable[..., Core] = Core,
    ) -> None:
        """``name`` is that of its host; no two have the same. ``core`` makes what decides there."""
        self.name = name
        self.published: Callable[[Step], None] = lambda _step: None  # is called with what is durable
        self.store = store  # the latest that was opened
        self.ended: BorgishError | None = None  # what a life ended with by itself, the last that did
        self.problems: list[str] = []
        self.began_at: list[float] = []  # each time that it came to lead
        self.settings = SETTINGS
        self.leader: Leader | None = None  # as long as it answers
        self.process: Process | None = None
        self._loop = loop
        self._injector = injector
        self._network = network
        self._lives = 0
        self._core = core
        self._stopping: asyncio.Future[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether its process runs; whether it leads, ``leader`` shows."""
        return self.process is not None

    @property
    def core(self) -> Core | None:
        """The core of one that leads."""
        return self.leader.core if self.leader else None

    def now(self) -> Now:
        """Return this moment of the world."""
        return self._loop.now()

    def begin(self, take_over: TakeOver = TakeOver.NOTHING) -> None:
        """Start on the disk as it is."""
        self._lives += 1
        process = self.process = Process(self._loop, f"{self.name}-{self._lives}")
        process.offloaded_seconds = self._injector.offloaded_seconds
        process.spawn(self._live(process, take_over), "borgmaster")

    async def _live(self, process: Process, take_over: TakeOver) -> None:
        """What ``master.process`` does, without its listener and its files."""
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
            transport = SimTransport(
                self._network, SECRET, process, (self.name, self._lives), partial(self._judge_lease, store)
            )
            seen = await check_machines(
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
                in_background=beside,
                core=self._core,
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

    def _judge_lease(self, store: SimStore, what: str) -> None:
        """One whose lease is over asks machines nothing more, and acknowledges nothing."""
        over = self._loop.now().mono - store.renewed_at - self.settings.lease.deadline_seconds
        if store.has_lease and self.leader is not None and over > 0:
            self.problems.append(f"{self.name} {what} {over:.1f} s after the end of its lease")

    def stop(self) -> None:
        """Ask it to end in order, as SIGTERM does."""
        if self._stopping is not None and not self._stopping.done() and self.process is not None:
            self._stopping.set_result(None)

    def die(self) -> None:
        """End at once; what was not committed is gone."""
        if self.process is not None:
            self.process.kill()
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

    def join(self, request: JoinRequest, answer: Answer[JoinReply]) -> None:
        """Ask the one that leads here to take a machine in."""

        async def join(leader: Leader) -> JoinReply:
            is_known = request.machine in leader.cell.machines
            if is_known and request.poll_token == leader.poll_token(request.machine):
                return await leader.join(request)
            # Its operator has a new invitation for it at hand each time that it was removed. Whoever asks
            # again, since the answer was lost or the request came twice, has the same one: with another it
            # would be let in anew, and the token that it got be none.
            number = 0
            while True:
                digest = digest_of(f"{request.machine} {request.instance} {number}")
                invitation = Invitation(digest, request.machine, 1, expires_at=FOR_EVER)
                await leader.command(AdmitTokens((), (invitation,)), "host")
                try:
                    new = msgspec.structs.replace(request, poll_token="")
                    invited = Principal("invitation", Role.JOIN, token=digest, machine=request.machine)
                    return await leader.join(new, Asker(invited))
                except Forbidden:
                    if request.machine in leader.cell.machines:
                        raise
                number += 1

        self.ask(join, answer)

    def command(
        self,
        command: Command,
        answer: Answer[Accepted],
        actor: str,
        request_id: str,
        digest: str,
        target: RollbackTarget | None = None,
        expected: int | None = None,
    ) -> None:
        """Give a command to the one that leads here."""
        store = self.store

        def answered(reply: Accepted | BorgishError) -> None:
            if isinstance(reply, Accepted):
                self._judge_lease(store, "acknowledges a command")
            answer(reply)

        self.ask(
            lambda leader: leader.command(command, actor, request_id, digest, target, expected), answered
        )


class _Clients:
    """Whoever asks a simulated master."""

    def __init__(self, host: MasterHost, leader: Leader) -> None:
        self._host, self._leader = host, leader

        self.works: dict[str, Work] = {}

    def serve(self) -> None:
        self._host.leader = self._leader

    def publish(self, step: Step) -> None:
        self._host.published(step)
        if step.entries:
            self._host.problems += violations(self._leader.core.cell)
            is_election = step.entries[0].cause == "BeginEpoch"  # for which there is a reserve
            if self._leader.turn.free_space.level is Level.FULL and not is_election:
                self._host.problems.append(
                    f"entry {step.entries[0].position} is written, and the store is full"
                )
        for failure in step.failures:
            self._host.problems.append(f"the master failed at {failure.what}: {failure.trace}")

    def stop_serving(self) -> None:
        self._host.leader = None
