"""A master that leads: its parts, what each durable step lets out, and how it ends. Who asks it is in
``daemon``; what comes before it leads is in ``process``.

It takes its store, transport, clock, timers and threads as parameters (``Host``), and runs in any event loop:
the simulator runs this very code on a virtual clock.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from borgish.audit import AuditChain
from borgish.cell.access.commands import AdmitTokens
from borgish.cell.access.model import Asker, Secret
from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    Seen,
)
from borgish.cell.decide_cell import decide_rules
from borgish.cell.free_space import Level, refusing
from borgish.cell.model import Cell, Machine
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Clock
from borgish.credentials import poll_token
from borgish.errors import BorgishError, Fenced, Forbidden, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.link.fencing import REFUSED_SECONDS_MAX
from borgish.link.holds import PollSettings
from borgish.link.link import Link
from borgish.link.transport import Transport
from borgish.master.core import Core
from borgish.master.host.settings import Settings
from borgish.master.inbox import Inbox
from borgish.master.lease import LeaderGuard, Lease, Renewal
from borgish.master.past.checkpoints import Checkpointer, CheckpointKeeper
from borgish.master.past.sampler import Sampler
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.sealing import Sealer
from borgish.store.base import Store
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import DAY_SECONDS
from borgish.store.replay import replay
from borgish.wire.api import Accepted
from borgish.wire.link import JoinReply, JoinRequest
from borgish.wire.link import Leader as LeaderName

CHECKPOINT, SAMPLE = "checkpoint", "sample"  # what housekeeping does at intervals
REFUSALS_CHECK_SECONDS = 0.5
CLIENTS_SECONDS = 60.0

log = logging.getLogger("borgmaster")

Work = Callable[[], Awaitable[None]]


class Housekeeping(Protocol):
    """Does work at intervals, each piece once at a time; what is late is done, and done once."""

    def begin(self, works: Mapping[str, Work], seconds: Mapping[str, float]) -> None:
        """Begin; both by the work's name."""
        ...

    def reschedule(self, name: str, seconds: float) -> None:
        """Do a piece of work at another interval from now on."""
        ...

    def end(self) -> None:
        """Begin no more work."""
        ...


class Host(msgspec.Struct, frozen=True):
    """What a master takes from where it runs.

    ``holder`` is what this process is called in the store, ``nonce`` a word that no other master has,
    ``secret`` what the tokens of the cell's machines are derived from. ``in_background`` has a call made
    again and again where a busy loop does not hold it up, after as many seconds as it returned, until that is
    None; it returns what ends that. ``authorities`` gives the hash of those that the cell trusts, if any.
    ``core`` makes what decides; labs of the simulator have others.
    """

    holder: str
    nonce: str
    secret: str
    clock: Clock
    transport: Transport
    housekeeping: Housekeeping
    in_background: Callable[[Callable[[], float | None]], Callable[[], None]]
    authorities: Callable[[], str] = lambda: ""
    core: Callable[..., Core] = Core


class Clients(Protocol):
    """Whoever asks a master, and looks on."""

    @property
    def works(self) -> Mapping[str, Work]:
        """What is to be done for them once a minute, by name."""
        ...

    def serve(self) -> None:
        """Answer what comes from now on."""
        ...

    def publish(self, step: Step) -> None:
        """Let a step be seen: it is durable."""
        ...

    def stop_serving(self) -> None:
        """Answer nothing that comes from now on."""
        ...


class Leader:
    """One that leads, from becoming the leader to its end.

    ``store`` is open and was won; ``cell`` is what it holds, or held a moment ago. ``address`` is where this
    master is found. ``seen`` is what machines have seen and the store has not, where such a store is taken
    over. ``files`` is where checkpoints are kept beside it. ``poison``: the error messages of requests that
    broke a master, by their digests. ``timed`` is called with the seconds that a turn with a commit took.
    ``admitted`` is what the host's administrators let in.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        host: Host,
        cell: Cell,
        address: str,
        timed: Callable[[float], None],
        seen: Seen | None = None,
        files: CheckpointFiles | None = None,
        poison: dict[str, str] | None = None,
        admitted: AdmitTokens | None = None,
    ) -> None:
        self.address = address
        self.cell = cell
        self.clock = clock = host.clock
        self.store = store
        self._settings = settings
        self._host = host
        self._began = clock.now()
        self._failed: asyncio.Future[BorgishError] = asyncio.get_running_loop().create_future()
        self._verification: asyncio.Task[None] | None = None
        decide_rules(cell, settings.rules)  # before this one leads: what cannot be must not depose anybody
        asked = clock.now().mono
        self.epoch = store.lead(host.holder, address)
        lease = Lease(settings.lease, asked) if store.has_lease else None
        self.guard = LeaderGuard(clock, lease)
        self._renewal = self._make_renewal(store, lease) if lease else None
        self._end_renewal = host.in_background(self._renewal.step) if self._renewal else lambda: None
        replay(cell, store.entries(cell.position))  # what the one before wrote until then
        self.core = host.core(
            cell, self._reconcile_settings(), clock.now(), poison=poison, scheduling=settings.scheduling
        )
        self._first = self.core.begin(self.epoch, host.holder, clock.now(), settings.rules, seen, admitted)
        self.inbox = Inbox()
        self.sealer = Sealer(host.secret)
        chain = AuditChain(host.secret, store.last_audit())
        self.turn = Turn(self.core, store, self.inbox, clock, self._released, timed, self.guard, chain)
        self._clients: Clients | None = None
        self._level = Level.AMPLE  # of the store's room, as it was last logged
        self.checkpointer = Checkpointer(self.core, self.turn, store, clock, files)
        self.keeper = CheckpointKeeper(cell.name, store, self.checkpointer)
        self._checkpointing: asyncio.Task[None] | None = None
        self._sampler = Sampler(self.core, self.turn, store, clock, settings.usage)
        self.link = Link(
            cell,
            self.core.observed,
            self.inbox,
            clock,
            self._poll_settings(),
            host.transport,
            self._verify_leadership,
            self.guard.check,
            LeaderName(address, host.nonce),
            self._reveal,
        )

    # What it is asked

    async def command(
        self,
        command: Command,
        actor: str,
        request_id: str = "",
        digest: str = "",
        target: RollbackTarget | None = None,
        expected: int | None = None,
        asker: Asker | None = None,
    ) -> Accepted:
        """Hand in a command; return when it is durable. ``target``, ``expected`` and ``asker``: see
        ``CommandRequest``.

        Raises what it was refused with, and Fenced while most machines obey another master.
        """
        self.link.fencing.check()
        return await self.inbox.ask(command, actor, request_id, digest, target, expected, asker)

    async def join(self, request: JoinRequest, invited: Asker | None = None, key: str = "") -> JoinReply:
        """Take a machine into the cell, or back into it. ``invited`` is who asks by an invitation, for the
        audit log; ``key`` is the digest of the key for which it wants a certificate.

        Raises Forbidden when its token is another machine's, and what ``JoinMachine`` is refused with.
        """
        self.link.fencing.check()  # its borglet asks the next master that it knows
        name, known = request.machine, bool(request.poll_token)
        if known and not hmac.compare_digest(request.poll_token, self.poll_token(name)):
            raise Forbidden(
                f"this is not the token of {name}",
                "the borglet's state folder is of another machine or another cell, or was let in anew since: "
                f"give it an empty one, and let it in by `borgctl machine invite {name}`",
            )
        machine = _joined(request, self.clock.now().wall)
        invited = None if known else invited
        invitation = invited.principal.token if invited else ""
        command = JoinMachine(machine, request.instance, known, invitation)
        # Of an invitation the answer may be lost: the same borglet asks once more, and is answered the same.
        # With another key it is somebody else, who has the invitation as well: it lets in nobody twice.
        request_id = f"join-{invitation[:32]}-{name}-{key or request.instance}" if invitation else ""
        await self.inbox.ask(command, name, request_id, invitation, asker=invited)
        if name not in self.cell.machines:  # it was removed since this was answered first
            raise Forbidden(
                f"{name} was removed from the cell", f"let it in by `borgctl machine invite {name}`"
            )
        reach("join.accepted")
        return JoinReply(self.cell.name, name, self.poll_token(name))

    def poll_token(self, machine: str) -> str:
        """Return the token of a machine, as it is in the cell or would be."""
        there = self.cell.machines.get(machine)
        return poll_token(self._host.secret, machine, there.admission if there else 0)

    def _reveal(self, secret: Secret) -> bytes | None:
        """Return what a secret is worth; None, and a line in the log, where it cannot be opened."""
        try:
            return self.sealer.open(secret.key, secret.sealed)
        except UnsafeConfiguration as error:
            log.error("%s", error)
            return None

    # What a turn brings about

    def _released(self, step: Step) -> None:
        """Let out what a step brought about; it is durable now."""
        self._log_room()
        self.checkpointer.released(step)
        for failure in step.failures:
            log.error(
                "the master failed at %s, position %d, and goes on:\n%s",
                failure.what,
                failure.position,
                failure.trace,
            )
        if self._clients is not None:
            self._clients.publish(step)
        self.link.drop(sorted(step.touched.machines_gone))
        self.link.sync(sorted(step.touched.machines))
        reach("release.synced")
        self.link.renew(sorted(step.assignments))
        reach("release.renewed")
        if self.checkpointer.is_due(self._settings.checkpoints.every_entries):
            self._checkpoint_soon(lambda: self._checkpoint("the journal has grown"))
        elif self.checkpointer.is_file_due:
            self._checkpoint_soon(self.checkpointer.make_file)

    def _log_room(self) -> None:
        free_space = self.turn.free_space
        if free_space.level is not self._level:
            self._level = free_space.level
            if words := refusing(free_space):
                log.warning("%s; make room there, and it goes on by itself", words)
            else:
                log.info("the database's disk has room again: nothing is refused for that any more")

    def _checkpoint_soon(self, keep: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        """Make a checkpoint beside the turns, once at a time."""
        if self._checkpointing is None or self._checkpointing.done():
            self._checkpointing = asyncio.create_task(keep(), name="checkpoint")
        return self._checkpointing

    async def _checkpoint(self, reason: str) -> None:
        try:
            await self.checkpointer.make_if_changed(reason)
        except BorgishError as error:  # one that ends us comes again with the next commit
            log.error("%s", error)

    # Whether it still leads

    def _verify_leadership(self, fenced: Fenced) -> None:
        """A machine obeys somebody newer: ask the store whether this one still leads, once at a time.

        A machine alone cannot depose a master, for it may be the one that errs: only if the store names
        another does this one end, with 71. What half of them say against the store is for ``_watch_fencing``.
        """
        if self._verification is None or self._verification.done():
            self._verification = asyncio.create_task(self._verify_in_store(fenced), name="who leads")

    async def _verify_in_store(self, fenced: Fenced) -> None:
        try:
            if await self.turn.in_store(self.store.leads):
                log.warning("%s", fenced)
            else:
                self._fail(fenced)
        except BorgishError as error:
            self._fail(error)

    def _fail(self, error: BorgishError) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    async def _watch_lease(self) -> None:
        """Fail when the lease is over; where there is none nothing ever happens here."""
        if self._renewal is None:
            await asyncio.Future()
            return
        await self._renewal.over()
        try:
            self.guard.check()
        except Fenced as over:
            self._fail(over)

    async def _watch_fencing(self) -> None:
        """Fail when half of the machines have refused this master for too long: they are led by another one,
        which the store has never heard of."""
        fencing, was_refused = self.link.fencing, False
        while True:
            await asyncio.sleep(REFUSALS_CHECK_SECONDS)
            seconds, refused = fencing.seconds(self.clock.now().mono), fencing.fenced()
            if refused is not None and seconds > REFUSED_SECONDS_MAX:
                self._fail(refused.error())
                return
            if refused is not None and not was_refused:
                log.error("%s", refused.error())
            elif refused is None and was_refused:
                log.info("the machines obey this borgmaster again; commands are accepted")
            was_refused = refused is not None

    def _make_renewal(self, store: Store, lease: Lease) -> Renewal:
        loop = asyncio.get_running_loop()
        return Renewal(store, lease, self.clock, lambda error: loop.call_soon_threadsafe(self._fail, error))

    def _stop_renewing(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._end_renewal()

    # From its first turn to its last

    async def run(self, clients: Clients, stopping: "asyncio.Future[None]") -> None:
        """Lead until it is to stop. Raises what ended it otherwise."""
        self._clients = clients
        turns = asyncio.create_task(self.turn.run(self._first), name="turns")
        # Where the lease is over that is raised, and what this raises is no news that nobody has retrieved.
        turns.add_done_callback(lambda done: done.cancelled() or done.exception())
        lease_watch = asyncio.create_task(self._watch_lease(), name="lease")
        fencing_watch = asyncio.create_task(self._watch_fencing(), name="refusals")
        ramp_up = asyncio.create_task(self.link.ramp_up(self.turn.durable), name="poll ramp-up")
        renewing = asyncio.create_task(self.link.keep_renewed(self.turn.durable), name="assignments")
        works: dict[str, Work] = {CHECKPOINT: self._periodic_checkpoint, SAMPLE: self._sampler.sample}
        works |= clients.works
        self._host.housekeeping.begin(works, self._intervals())
        clients.serve()
        reach("start.serving")
        try:
            ends: set[asyncio.Future[Any]] = {turns, lease_watch, stopping, self._failed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            reach("shutdown.begun")
            if stopping.done():
                # While it still serves: a large cell takes seconds, in which nobody else could lead.
                ends.discard(stopping)
                last = self._checkpoint_soon(lambda: self._checkpoint("shutdown"))
                await asyncio.wait({last, *ends}, return_when=asyncio.FIRST_COMPLETED)
                reach("shutdown.kept")
        finally:
            self._host.housekeeping.end()
            ramp_up.cancel()
            renewing.cancel()
            fencing_watch.cancel()
            await self._close(clients, turns, lease_watch)
        await self._hand_over(turns)

    def _intervals(self) -> dict[str, float]:
        checkpoints, usage = self._settings.checkpoints, self._settings.usage
        own = {CHECKPOINT: checkpoints.every_minutes * 60, SAMPLE: usage.sample_seconds}
        return own | dict.fromkeys(self._clients.works if self._clients else (), CLIENTS_SECONDS)

    async def _periodic_checkpoint(self) -> None:
        await self._checkpoint("periodic")
        if not self.checkpointer.has_room:
            return
        if days := self._settings.journal.keep_days:
            wall = self.clock.now().wall_unless_set_on(self._began)
            await self.keeper.prune(wall - days * DAY_SECONDS)
        await self.keeper.give_back()

    async def _close(
        self, clients: Clients, turns: "asyncio.Task[None]", lease_watch: "asyncio.Task[None]"
    ) -> None:
        """Stop taking questions, then stop asking machines; what was accepted is durable or unanswered.

        An orderly end costs a cell as little as a sudden one: the last checkpoint was made while this one
        still served, whoever asks from now on is told that nobody leads, and ``_hand_over`` lets go of the
        row and the lock of the session, by which one candidate follows at once. Answers under way are not
        waited for: they may go on until the listener stops, which is after the next master could take over.
        """
        clients.stop_serving()
        reach("shutdown.unserved")
        await self.link.close()
        reach("shutdown.unlinked")
        self.turn.stop()
        if self.guard.is_over:  # whoever leads has taken over, and a commit of ours may hang for long
            return
        await asyncio.wait({turns})
        lease_watch.cancel()
        if self._checkpointing is not None:
            if turns.exception() is not None:
                self._checkpointing.cancel()  # it may wait for a commit that will never be
            await asyncio.wait({self._checkpointing})
        reach("shutdown.turned")

    async def _hand_over(self, turns: "asyncio.Task[None]") -> None:
        """Let the next one lead, as the last thing. Raises what ended this one, unless that was a signal."""
        self.guard.check()
        ended = (await asyncio.gather(turns, return_exceptions=True))[0]
        if isinstance(ended, Exception):
            raise ended
        if self._failed.done():
            raise self._failed.result()
        self._stop_renewing()
        if self.turn.free_space.level is not Level.FULL:
            try:
                await self.turn.in_store(self.store.release)
            except BorgishError as error:
                log.error("%s", error)  # a standby has to wait for the end of the lease
        self.guard.resign()
        reach("shutdown.released")
        log.info("stopped in order; tasks go on")

    def close(self) -> None:
        """Let go of the store; of one whose database may hang, only with the end of the process."""
        is_over = self.guard.is_over
        self._stop_renewing()
        self.turn.close(wait=not is_over)
        if not is_over:
            self.store.close()

    # Its settings

    def change(self, settings: Settings) -> None:
        """Go by other settings from now on; they differ only in what ``settings.LIVE`` names."""
        before, self._settings = self._intervals(), settings
        self.core.change(self._reconcile_settings())
        self.link.change(self._poll_settings())
        self._sampler.change(settings.usage)
        for name, seconds in self._intervals().items():
            if seconds != before[name]:
                self._host.housekeeping.reschedule(name, seconds)

    def _reconcile_settings(self) -> ReconcileSettings:
        return ReconcileSettings(
            down_after_seconds=self._settings.poll.down_after_seconds,
            down_after_refused_seconds=self._settings.poll.down_after_refused_seconds,
            dead_jobs_seconds=self._settings.keep.dead_jobs_hours * 3600,
            dead_tasks_max=self._settings.keep.dead_tasks,
            lost_share_max=self._settings.eviction.lost_share_max,
            rollout_stops_max=self._settings.rollback.stops_per_second,
        )

    def _poll_settings(self) -> PollSettings:
        poll = self._settings.poll
        return PollSettings(
            poll.hold_seconds,
            poll.timeout_seconds,
            self._host.authorities(),
            poll.hold_seconds_max,
            poll.down_after_seconds,
        )


def _joined(request: JoinRequest, wall: float) -> Machine:
    facts = request.facts
    return Machine(
        name=request.machine,
        host=request.host,
        port=request.port,
        tls=request.tls,
        capacity=facts.capacity,
        attributes=facts.attributes,
        runtimes=facts.runtimes,
        ports_low=facts.ports_low,
        ports_high=facts.ports_high,
        boot_id=request.boot_id,
        joined_at=wall,
        port_next=facts.ports_low,
    )
