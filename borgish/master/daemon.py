"""A borgmaster that leads, as its clients see it: the API over one ``Leader``, and where the two run."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from apscheduler.schedulers.asyncio import AsyncIOScheduler

import borgish
from borgish.api import serve
from borgish.api.admission import Admission
from borgish.api.app import create_app
from borgish.api.auth import CellTokens
from borgish.api.middleware import AuthMiddleware, Receive, Scope, Send, hosts_of
from borgish.api.rate_limits import Limits
from borgish.api.routes.authority import AuthorityDoor
from borgish.api.services import Services
from borgish.cell.access.commands import (
    AdmitTokens,
    NoteTokenUse,
)
from borgish.cell.access.model import BY_HOST, HOST
from borgish.cell.commands import Seen
from borgish.cell.model import Cell
from borgish.clock import SystemClock
from borgish.credentials import Credentials, write_private
from borgish.errors import CellBroken, UnsafeConfiguration
from borgish.failpoints import reach
from borgish.ids import new_instance
from borgish.master.certificates import Certificates, SignedJoining
from borgish.master.expiry import Expiry
from borgish.master.health import Metrics, holder_here, leader_health
from borgish.master.host.programs import Programs
from borgish.master.host.settings import Settings
from borgish.master.leader import Host, Leader, Work
from borgish.master.lease import in_thread
from borgish.master.past.archive import Archive
from borgish.master.past.audit_log import AuditLog, Refusals
from borgish.master.past.history import History
from borgish.master.past.moments import Moments
from borgish.master.past.rollbacks import Rollbacks
from borgish.master.past.usage_history import UsageHistory
from borgish.master.reading import EVENTS_KEPT, Planner, Reader, RecentEvents
from borgish.master.step import Step
from borgish.master.watch import WatchHub
from borgish.store.base import Store
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import DAY_SECONDS
from borgish.tls.files import ENDORSEMENT_FILE
from borgish.wire.api_certificates import RotationView

POISON_FILE = "poison.json"
POISON_KEPT_MAX = 100
AUDIT_PRUNED_MAX = 1000  # entries a minute
USE_SECONDS = 3600.0
"""When a token was last used is known to this."""

log = logging.getLogger("borgmaster")


class Listener:
    """Where one borgmaster listens, all its life. Answers with one app, then with another: a standby's and,
    once it leads, the leader's."""

    def __init__(
        self, app: AuthMiddleware, tokens: CellTokens, limits: Limits, shown: serve.Tls | None
    ) -> None:
        """``shown``: its certificate, and by whose signature it knows its callers; None without TLS."""
        self.url = ""  # where it listens
        self._app = self._first = app
        self._shown, self._strangers = shown, limits.connections
        self._door = AuthorityDoor(self, limits, *_shown(shown))
        self._admission = Admission(self._door, tokens, SystemClock())
        self._serving: serve.Serving | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app of the moment answer (ASGI)."""
        await self._app(scope, receive, send)

    def drop_revoked(self) -> None:
        """End the streams of tokens that are none any more."""
        self._app.drop_revoked()

    def reload(self, shown: serve.Tls) -> None:
        """Show to new connections what is in these files now. Raises OSError for what cannot be used."""
        self._shown = shown
        self._door.bundle, self._door.endorsement = _shown(shown)
        if self._serving is not None:
            self._serving.reload(shown)

    def busy(self) -> tuple[str, ...]:
        """Return why requests were turned away lately, a sentence for each reason."""
        return self._admission.busy()

    def answer_with(self, app: AuthMiddleware) -> None:
        """Have another app answer what comes from now on."""
        self._app = app

    def answer_as_before(self) -> None:
        """Have the first app answer again: nothing that comes from now on reaches the one of a leader."""
        self._app = self._first

    async def open(self, settings: Settings) -> None:
        """Begin to listen. Raises what ``serve`` does."""
        self._serving = await serve.serve(
            self._admission, settings.host, settings.port, self._shown, self._strangers
        )
        self.url = self._serving.url

    async def stop(self) -> None:
        """Listen no more, within a second. Idempotent."""
        if self._serving is not None:
            await self._serving.stop()
            self._serving = None


def _shown(shown: serve.Tls | None) -> tuple[bytes, str]:
    """Return the cell's authorities, and by which signature those know them who know the one before."""
    if shown is None or not shown.is_own:
        return b"", ""
    endorsed = Path(shown.ca).with_name(ENDORSEMENT_FILE)
    return Path(shown.ca).read_bytes(), endorsed.read_text("ascii").strip() if endorsed.exists() else ""


class PoisonRequest(msgspec.Struct, frozen=True):
    """One request: the digest by which it is known, and the error message when it broke a master."""

    digest: str
    said: str
    version: str


class PoisonFile:
    """The requests that broke a master's memory, so that their retries do not break the next one's.

    In a file of the state folder, because nothing of such a request is in the store. Another version of
    borgish tries them again.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / POISON_FILE
        self._all = self._read()

    def known(self) -> dict[str, str]:
        """Return the error message of each, by digest: of those that this version has not tried yet."""
        return {each.digest: each.said for each in self._all if each.version == borgish.__version__}

    def note(self, digest: str, said: str) -> None:
        """Remember one. Raises OSError."""
        others = [each for each in self._all if each.digest != digest]
        self._all = [*others, PoisonRequest(digest, said, borgish.__version__)][-POISON_KEPT_MAX:]
        write_private(self.path, msgspec.json.format(msgspec.json.encode(self._all)).decode() + "\n")

    def _read(self) -> list[PoisonRequest]:
        if not self.path.exists():
            return []
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[PoisonRequest])
        except (OSError, msgspec.DecodeError) as error:
            raise UnsafeConfiguration(
                f"{self.path} cannot be read: {error}",
                "It names requests that broke a borgmaster; remove it to have them tried again",
            ) from error


class Daemon:
    """A leader and its API. The first parameters are as ``Leader`` takes them."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        credentials: Credentials,
        cell: Cell,
        address: str,
        tokens: CellTokens,
        limits: Limits,
        certificates: Certificates,
        listener: Listener,
        show_certificates: Callable[[], None],
        seen: Seen | None = None,
        files: CheckpointFiles | None = None,
        admitted: AdmitTokens | None = None,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._limits = limits
        self._listener = listener
        self._certificates, self._show_certificates = certificates, show_certificates
        self._poison = PoisonFile(settings.folder)
        self._metrics = Metrics()
        clock = SystemClock()
        host = Host(
            holder_here(),
            new_instance(),
            credentials.secret,
            clock,
            certificates.transport(credentials.secret),
            ScheduledHousekeeping(),
            in_thread,
            lambda: certificates.bundle_hash,
        )
        timed, poison = self._metrics.turn, self._poison.known()
        self._leader = leader = Leader(
            settings, store, host, cell, address, timed, seen, files, poison, admitted
        )
        self._secret = credentials.secret
        self._refusals = Refusals()
        self._access_version = leader.cell.access.version
        self.works: dict[str, Work] = {
            "audit": self._note_refusals,
            "tokens": self._note_use,
            "certificates": lambda: self._expiry.look(leader.command),
        }
        self._history = RecentEvents(store.entries(max(0, cell.position - EVENTS_KEPT)))
        self._expiry = Expiry(
            certificates.held,
            leader.link.certificate_ends,
            clock,
            lambda: leader.cell.machines if certificates.bundle else (),
        )
        fencing = leader.link.fencing
        self._reader = Reader(
            leader.core,
            leader.turn,
            self._history,
            leader.checkpointer,
            clock,
            store.kind,
            lambda: refused.text if (refused := fencing.fenced()) else "",
            self._expiry,
            lambda: (*leader.inbox.busy(), *listener.busy()),
        )
        self._hub = WatchHub(leader.epoch, self._reader)
        self._moments = Moments(leader.core, leader.turn, store, clock, self._reader.daemon)
        self._rollbacks = Rollbacks(
            leader.core, leader.turn, leader.inbox, store, self._moments, leader.checkpointer, clock
        )

    async def run(self, stopping: "asyncio.Future[None]", serving: Callable[[], None]) -> None:
        """Lead and serve until it is to stop; ``serving`` is called when it begins to. Raises what ended it
        otherwise."""
        self._on_serving = serving
        try:
            await self._leader.run(self, stopping)
        except CellBroken as broken:
            self._note_broken(broken)
            raise

    def serve(self) -> None:
        self._listener.answer_with(self._app())
        self._on_serving()
        log.info("serving %s on %s", self._settings.name, self._listener.url)

    def publish(self, step: Step) -> None:
        self._reader.changed(step)
        reach("release.read")
        for entry in step.entries:
            self._hub.publish_events(self._history.add(entry))
        self._rollbacks.released(step)
        self._hub.tasks_changed(step.touched.tasks)
        self._hub.tasks_changed(step.seen)
        self._hub.summary_changed()
        if self._access_version != self._leader.cell.access.version:
            self._access_version = self._leader.cell.access.version
            self._listener.drop_revoked()
        reach("release.published")

    def stop_serving(self) -> None:
        self._listener.answer_as_before()
        self._hub.close()

    def _app(self) -> AuthMiddleware:
        leader, store, clock = self._leader, self._leader.store, self._leader.clock
        services = Services(
            inbox=leader.inbox,
            reader=self._reader,
            planner=Planner(leader.core, leader.turn, clock),
            moments=self._moments,
            past=History(leader.turn, store, clock),
            rollbacks=self._rollbacks,
            usage=UsageHistory(store, clock, lambda: self._settings.usage.sample_seconds),
            archive=Archive(leader.core, leader.turn, store, clock),
            hub=self._hub,
            audit=AuditLog(self._secret, leader.turn, store),
            joining=SignedJoining(leader, self._certificates),
            authority=lambda: self._certificates.bundle,
            rotate_authority=self._rotate,
            rotation_held_up=self._rotation_held_up,
            programs=Programs(leader.core, leader.turn, leader.link),
            checkpointer=leader.checkpointer,
            keeper=leader.keeper,
            bands=lambda: leader.cell.rules.bands,
            free_space=lambda: leader.turn.free_space,
            expect_obeyed=leader.link.fencing.check,
            health=lambda: leader_health(leader.cell, self._reader.daemon(), leader.address),
            metrics=self._metrics.render,
            seal=leader.sealer.seal,
        )
        hosts = hosts_of(self._settings.host)
        return create_app(services, self._tokens, hosts, leader.guard.check, self._limits, self._refusals.add)

    async def _note_refusals(self) -> None:
        """Have the audit log say who was refused, and let go of what is older than it is kept."""
        leader, days = self._leader, self._settings.keep.audit_days
        await self._refusals.note(leader.inbox)
        if days:
            before = leader.clock.now().wall - days * DAY_SECONDS
            await leader.turn.in_store(partial(leader.store.prune_audit, before, AUDIT_PRUNED_MAX))

    async def _note_use(self) -> None:
        """Have the cell note which tokens were used, each once an hour at most."""
        there = self._leader.cell.access
        used = {
            digest: at
            for digest, at in self._tokens.take_used().items()
            if digest in there.tokens and at - there.used.get(digest, 0.0) >= USE_SECONDS
        }
        if used:
            await self._leader.command(NoteTokenUse(used), "tokens")
        self._listener.drop_revoked()  # those whose time is over

    async def admit(self, letters: AdmitTokens) -> str:
        """Take over tokens from the host; return what was done, when it is durable."""
        return (await self._leader.command(letters, HOST, asker=BY_HOST)).text

    def _note_broken(self, broken: CellBroken) -> None:
        log.error("the cell in memory is broken", exc_info=broken)
        if broken.digest:
            try:
                self._poison.note(broken.digest, broken.message)
            except OSError as error:
                log.error("%s cannot be written: %s", self._poison.path, error.strerror)

    def _rotation_held_up(self) -> RotationView | None:
        return self._certificates.rotation_held_up(self._leader.link.not_trusting)

    def _rotate(self) -> RotationView:
        return self._certificates.rotate(self._leader.link.not_trusting, self._show_certificates)

    def trust_changed(self) -> None:
        """Tell machines which authorities the cell trusts now."""
        self._leader.change(self._settings)

    def change(self, settings: Settings) -> None:
        """Go by other settings from now on; they differ only in what ``settings.LIVE`` names."""
        self._settings = settings
        self._leader.change(settings)

    def close(self) -> None:
        """Let go of the store."""
        self._reader.close()
        self._leader.close()


async def _done(work: Work) -> None:
    await work()


class ScheduledHousekeeping:
    """Work at intervals, by APScheduler."""

    def __init__(self) -> None:
        # No misfire limit: a late checkpoint is better than none.
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True}
        )

    def begin(self, works: Mapping[str, Work], seconds: Mapping[str, float]) -> None:
        for name, work in works.items():
            # APScheduler awaits what an ``async def`` returns, and calls all else in a thread and drops it.
            self._scheduler.add_job(_done, "interval", args=(work,), seconds=seconds[name], id=name)
        self._scheduler.start()

    def reschedule(self, name: str, seconds: float) -> None:
        if self._scheduler.running:
            self._scheduler.reschedule_job(name, trigger="interval", seconds=seconds)

    def end(self) -> None:
        self._scheduler.shutdown(wait=False)
