"""A borgmaster that leads, from becoming the leader to its end; what comes before is in ``life``."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from borgish.api.app import create_app
from borgish.api.auth import Tokens
from borgish.api.door import Door, hosts_of
from borgish.api.limits import Limits
from borgish.cell.commands import Seen
from borgish.cell.decide_quota import decide_rules
from borgish.cell.room import Level, refusing
from borgish.cell.state import Cell
from borgish.clock import SystemClock
from borgish.credentials import Credentials
from borgish.errors import BorgishError, CellBroken, Fenced
from borgish.failpoints import reach
from borgish.ids import new_instance
from borgish.link.link import Link
from borgish.link.poller import PollSettings
from borgish.master.archive import Archive
from borgish.master.checkpointer import Checkpointer
from borgish.master.core import Core
from borgish.master.front import Front
from borgish.master.gateway import MasterGateway
from borgish.master.health import holder_here
from borgish.master.history import EVENTS_KEPT, History
from borgish.master.inbox import Inbox
from borgish.master.keeper import Keeper
from borgish.master.lease import Lease
from borgish.master.mandate import Mandate
from borgish.master.meeting import meet_machines
from borgish.master.metrics import Metrics
from borgish.master.moments import Moments
from borgish.master.past import Past
from borgish.master.reading import Reader
from borgish.master.renewal import Renewal
from borgish.master.rival import until_refused
from borgish.master.rollbacks import Rollbacks
from borgish.master.sampler import Sampler
from borgish.master.settings import Settings
from borgish.master.step import Step
from borgish.master.suspects import Suspects
from borgish.master.turn import Turn
from borgish.master.watch import WatchHub
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.base import Store
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.replay import replay
from borgish.store.retention import DAY_SECONDS
from borgish.wire.link import Leader

CHECKPOINT, SAMPLE = "checkpoint", "sample"  # what housekeeping does at intervals

log = logging.getLogger("borgmaster")


class Daemon:
    """The parts of a borgmaster that leads. ``store`` is open and was won; ``cell`` is what it holds, or held
    a moment ago. ``address`` is where this master is found.

    ``seen`` is what machines have seen and the store has not, where such a store is taken over. ``files`` is
    where checkpoints are kept beside it.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        credentials: Credentials,
        cell: Cell,
        address: str,
        tokens: Tokens,
        limits: Limits,
        tls: ssl.SSLContext | None,
        seen: Seen | None = None,
        files: CheckpointFiles | None = None,
    ) -> None:
        self._address = address
        self._tokens = tokens
        self._limits = limits
        self._settings = settings
        self._store = store
        self._credentials = credentials
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._failed: asyncio.Future[BorgishError] = asyncio.get_running_loop().create_future()
        self._doubted: asyncio.Task[None] | None = None
        holder = holder_here()
        decide_rules(cell, settings.rules)  # before this one leads: what cannot be must not depose anybody
        asked = self._clock.now().mono
        epoch = store.lead(holder, address)
        lease = Lease(settings.lease, asked) if store.kind == "postgresql" else None
        self._mandate = Mandate(self._clock, lease)
        self._renewal = self._renewing(store, lease) if lease else None
        replay(cell, store.entries(cell.position))  # what the one before wrote until then
        self._suspects = Suspects(settings.folder)
        poison = self._suspects.known()
        self._core = Core(
            cell,
            self._reconcile_settings(),
            self._clock.now(),
            poison=poison,
            scheduling=settings.scheduling,
        )
        self._first = self._core.begin(epoch, holder, self._clock.now(), settings.rules, seen)
        self._inbox = Inbox()
        self._metrics = Metrics()
        self._turn = Turn(
            self._core, store, self._inbox, self._clock, self._released, self._metrics.turn, self._mandate
        )
        self._level = Level.AMPLE  # of the store's room, as it was last logged
        self._history = History(store.entries(max(0, cell.position - EVENTS_KEPT)))
        self._checkpointer = Checkpointer(self._core, self._turn, store, self._clock, files)
        self._keeper = Keeper(cell.name, store, self._checkpointer)
        self._keeping: asyncio.Task[None] | None = None
        self._sampler = Sampler(self._core, self._turn, store, self._clock, settings.usage)
        self._rollbacks: Rollbacks | None = None
        self._housekeeping: AsyncIOScheduler | None = None
        self._reader = Reader(
            self._core,
            self._turn,
            self._history,
            self._checkpointer,
            self._clock,
            store.kind,
            lambda: refused.text if (refused := self._link.refusals.found()) else "",
        )
        self._hub = WatchHub(epoch, self._reader)
        self._link = Link(
            cell,
            self._core.observed,
            self._inbox,
            self._clock,
            self._poll_settings(),
            credentials.secret,
            tls,
            self._doubt,
            self._mandate.expect,
            Leader(address, new_instance()),
        )

    def _reconcile_settings(self) -> ReconcileSettings:
        return ReconcileSettings(
            down_after_seconds=self._settings.poll.down_after_seconds,
            down_after_refused_seconds=self._settings.poll.down_after_refused_seconds,
            dead_jobs_seconds=self._settings.keep.dead_jobs_hours * 3600,
            lost_share_max=self._settings.eviction.lost_share_max,
            rollback_stops_max=self._settings.rollback.stops_per_second,
        )

    def _released(self, step: Step) -> None:
        """Let out what a step brought about; it is durable now."""
        self._log_room()
        for failure in step.failures:
            log.error(
                "the master failed at %s, position %d, and goes on:\n%s",
                failure.what,
                failure.position,
                failure.trace,
            )
        self._reader.changed(step)
        reach("release.read")
        for entry in step.entries:
            self._hub.publish_events(self._history.add(entry))
        self._hub.tasks_changed(step.touched.tasks)
        self._hub.tasks_changed(step.seen)
        self._hub.summary_changed()
        reach("release.published")
        self._link.drop(sorted(step.touched.machines_gone))
        self._link.sync(sorted(step.touched.machines))
        reach("release.synced")
        self._link.renew(sorted(step.assignments))
        reach("release.renewed")
        if self._checkpointer.is_due(self._settings.checkpoints.every_entries):
            self._keep_soon(lambda: self._keep("the journal has grown"))
        elif self._checkpointer.is_file_due:
            self._keep_soon(self._checkpointer.make_file)

    def _log_room(self) -> None:
        room = self._turn.room
        if room.level is not self._level:
            self._level = room.level
            if words := refusing(room):
                log.warning("%s; make room there, and it goes on by itself", words)
            else:
                log.info("the database's disk has room again: nothing is refused for that any more")

    def _keep_soon(self, keep: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        """Make a checkpoint beside the turns, once at a time."""
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(keep(), name="checkpoint")
        return self._keeping

    def _doubt(self, fenced: Fenced) -> None:
        """A machine obeys somebody newer: look into the store whether we still lead, once at a time."""
        if self._doubted is None or self._doubted.done():
            self._doubted = asyncio.create_task(self._look_who_leads(fenced), name="who leads")

    async def _look_who_leads(self, fenced: Fenced) -> None:
        try:
            if await self._turn.in_store(self._store.leads):
                log.warning("%s", fenced)
            else:
                self._fail(fenced)
        except BorgishError as error:
            self._fail(error)

    def _fail(self, error: BorgishError) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    async def run(self, front: Front, stopping: "asyncio.Future[None]") -> None:
        """Serve until it is to stop. Raises what ended it otherwise."""
        turns = asyncio.create_task(self._turn.run(self._first), name="turns")
        minding = asyncio.create_task(self._mind_lease(), name="lease")
        obeyed = asyncio.create_task(self._mind_refusals(), name="refusals")
        cell = self._core.cell
        meeting = asyncio.create_task(meet_machines(cell, self._link, self._turn, self._inbox, self._clock))
        housekeeping = self._housekeeping = self._begin_housekeeping()
        front.answer_with(self._app())
        log.info("serving %s on %s", self._settings.name, front.url)
        reach("start.serving")
        try:
            ends: set[asyncio.Future[Any]] = {turns, minding, stopping, self._failed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            reach("shutdown.begun")
            if stopping.done():
                # While it still serves: a large cell takes seconds, in which nobody else could lead.
                ends.discard(stopping)
                last = self._keep_soon(lambda: self._keep("shutdown"))
                await asyncio.wait({last, *ends}, return_when=asyncio.FIRST_COMPLETED)
                reach("shutdown.kept")
        finally:
            housekeeping.shutdown(wait=False)
            meeting.cancel()
            obeyed.cancel()
            await self._close(front, turns, minding)
        await self._hand_over(turns)

    async def _mind_lease(self) -> None:
        """Fail the daemon when its lease is over; where there is none nothing ever happens here."""
        if self._renewal is None:
            await asyncio.Future()
            return
        await self._renewal.over()
        try:
            self._mandate.expect()
        except Fenced as over:
            self._fail(over)

    async def _mind_refusals(self) -> None:
        """Fail the daemon when the machines are led by another one, which its store has never heard of."""
        self._fail(await until_refused(self._link.refusals, self._clock))

    def _renewing(self, store: Store, lease: Lease) -> Renewal:
        loop = asyncio.get_running_loop()
        renewal = Renewal(
            store, lease, self._clock, lambda error: loop.call_soon_threadsafe(self._fail, error)
        )
        renewal.start()
        return renewal

    def _app(self) -> Door:
        moments = Moments(self._core, self._turn, self._store, self._clock, self._reader.daemon)
        self._rollbacks = Rollbacks(
            self._core,
            self._turn,
            self._inbox,
            self._store,
            moments,
            self._checkpointer,
            self._clock,
            self._settings.rollback,
        )
        gateway = MasterGateway(
            self._core,
            self._turn,
            self._inbox,
            self._link,
            self._hub,
            self._reader,
            self._checkpointer,
            self._keeper,
            self._clock,
            self._credentials.secret,
            Past(self._turn, self._store, self._clock),
            moments,
            self._rollbacks,
            Archive(self._core, self._turn, self._store, self._clock),
            self._address,
        )
        hosts = hosts_of(self._settings.host)
        return create_app(
            gateway, self._tokens, self._metrics.render, hosts, self._mandate.expect, self._limits
        )

    def _begin_housekeeping(self) -> AsyncIOScheduler:
        # No misfire limit: a late checkpoint is better than none.
        scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True}
        )
        works = {CHECKPOINT: self._periodic_checkpoint, SAMPLE: self._sampler.sample}
        for name, seconds in self._intervals().items():
            scheduler.add_job(works[name], "interval", seconds=seconds, id=name)
        scheduler.start()
        return scheduler

    def _intervals(self) -> dict[str, float]:
        checkpoints, usage = self._settings.checkpoints, self._settings.usage
        return {CHECKPOINT: checkpoints.every_minutes * 60, SAMPLE: usage.sample_seconds}

    def change(self, settings: Settings) -> None:
        """Go by other settings from now on; they differ only in what ``settings.LIVE`` names."""
        before, self._settings = self._intervals(), settings
        self._core.change(self._reconcile_settings())
        self._link.change(self._poll_settings())
        self._sampler.change(settings.usage)
        if self._rollbacks is not None:
            self._rollbacks.change(settings.rollback)
        for name, seconds in self._intervals().items():
            if self._housekeeping is not None and seconds != before[name]:
                self._housekeeping.reschedule_job(name, trigger="interval", seconds=seconds)

    def _poll_settings(self) -> PollSettings:
        return PollSettings(self._settings.poll.hold_seconds, self._settings.poll.timeout_seconds)

    async def _periodic_checkpoint(self) -> None:
        await self._keep("periodic")
        days = self._settings.journal.keep_days
        if days and self._checkpointer.has_room:
            wall = self._clock.now().wall_unless_set_on(self._began)
            await self._keeper.prune(wall - days * DAY_SECONDS)

    async def _keep(self, reason: str) -> None:
        try:
            await self._checkpointer.make_if_changed(reason)
        except BorgishError as error:  # one that ends us comes again with the next commit
            log.error("%s", error)

    async def _close(self, front: Front, turns: "asyncio.Task[None]", minding: "asyncio.Task[None]") -> None:
        """Stop taking questions, then stop asking machines; what was accepted is durable or unanswered.

        Whoever asks from now on is told that nobody leads. Answers under way are not waited for: they may go
        on until the listener stops, which is after the next master could take over.
        """
        front.answer_as_before()
        self._hub.close()
        reach("shutdown.unserved")
        await self._link.close()
        reach("shutdown.unlinked")
        self._turn.stop()
        if self._mandate.is_over:
            return  # whoever leads has taken over, and a commit of ours may hang for long
        await asyncio.wait({turns})
        minding.cancel()
        if self._keeping is not None:
            if turns.exception() is not None:
                self._keeping.cancel()  # it may wait for a commit that will never be
            await asyncio.wait({self._keeping})
        reach("shutdown.turned")

    async def _hand_over(self, turns: "asyncio.Task[None]") -> None:
        """Let the next one lead, as the last thing. Raises what ended this one, unless that was a signal."""
        self._mandate.expect()
        ended = (await asyncio.gather(turns, return_exceptions=True))[0]
        if isinstance(ended, CellBroken):
            self._note_broken(ended)
        if isinstance(ended, Exception):
            raise ended
        if self._failed.done():
            raise self._failed.result()
        if self._renewal is not None:
            self._renewal.stop()
        if self._turn.room.level is not Level.FULL:
            try:
                await self._turn.in_store(self._store.release)
            except BorgishError as error:
                log.error("%s", error)  # a standby has to wait for the end of the lease
        self._mandate.give_up()
        reach("shutdown.released")
        log.info("stopped in order; tasks go on")

    def _note_broken(self, broken: CellBroken) -> None:
        log.error("the cell in memory is broken", exc_info=broken)
        if broken.digest:
            try:
                self._suspects.note(broken.digest, broken.message)
            except OSError as error:
                log.error("%s cannot be written: %s", self._suspects.path, error.strerror)

    def close(self) -> None:
        """Let go of the store; of one whose database may hang, only with the end of the process."""
        is_over = self._mandate.is_over
        if self._renewal is not None:
            self._renewal.stop()
        self._turn.close(wait=not is_over)
        if not is_over:
            self._store.close()
