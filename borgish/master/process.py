"""One borgmaster from start to end: it stands by while another leads, then leads, and lets go in order."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from borgish.addresses import WILDCARDS
from borgish.api.auth import CellTokens
from borgish.api.middleware import AuthMiddleware, hosts_of
from borgish.api.rate_limits import Limits
from borgish.api.standby import StandbyApp
from borgish.cell.access.commands import AdmitTokens
from borgish.cell.model import Cell
from borgish.clock import SystemClock
from borgish.credentials import (
    LETTER_BOX,
    Credentials,
    make_credentials,
    read_credentials,
)
from borgish.errors import BorgishError, LostElection, UnsafeConfiguration
from borgish.master.certificates import Certificates
from borgish.master.daemon import Daemon, Listener
from borgish.master.host.garbage import settle
from borgish.master.host.letter_box import Letters, letters_to_lead, put_away, read_letters
from borgish.master.host.members import MemberList
from borgish.master.host.preflight import TAKE_OVER_FLAG, TakeOver, check_machines, seen_in_files
from borgish.master.host.settings import LIVE, Settings
from borgish.master.past.audit_log import is_of_another_secret
from borgish.master.standby import Standby
from borgish.reload import Hangup, Pem, changes, reload
from borgish.store.base import Store
from borgish.store.election import make_candidate
from borgish.store.sql import SqlStore

FILES_SECONDS_MAX = 5.0
"""How long a standby waits for secrets that the leader of the same folder is about to write."""
_LOOK_SECONDS = 0.1
SWITCH_SECONDS = 0.0005
"""For so long one thread keeps the interpreter while another waits for it. A commit asks for it some ten
times, and nobody may read before it is over: beside a loop that is busy Python's 5 ms make that 50 ms."""

log = logging.getLogger("borgmaster")


ReadAnew = Callable[[Settings], tuple[Settings, Settings]]


async def live(
    settings: Settings, hangup: Hangup, read_anew: ReadAnew, *, may_wait: bool, take_over: TakeOver
) -> None:
    """Live until a signal asks to stop. Raises what ended it otherwise.

    ``read_anew`` returns what the cell's file says now, and what follows for who runs by some settings.
    ``may_wait``: stand by while another leads, rather than refuse to run. ``take_over``: what to lead though
    the machines say that it should not be.
    """
    stopping = _stop_signals()
    while not stopping.done():
        process = Process(settings, stopping, may_wait=may_wait, take_over=take_over)
        hangup.handle(asyncio.get_running_loop(), partial(process.reload, read_anew))
        try:
            await process.run()
        except LostElection as lost:  # as where several start at the same moment
            if not may_wait:
                raise
            log.info("%s", lost.message)
        else:
            return
        finally:
            await process.end()


class _Reading(msgspec.Struct, frozen=True):
    """What a reload has read and checked. ``settings`` are those to go by, of what is in the file ``new``."""

    new: Settings
    settings: Settings
    letters: Letters
    pem: Pem


class Process:
    """What one borgmaster is at the moment, and becomes."""

    def __init__(
        self, settings: Settings, stopping: "asyncio.Future[None]", *, may_wait: bool, take_over: TakeOver
    ) -> None:
        self._settings = settings
        self._stopping = stopping
        self._may_wait = may_wait
        self._take_over = take_over
        keep, lease = settings.checkpoints.keep, settings.lease
        self._candidate = make_candidate(
            settings.db_url, settings.name, settings.folder, keep, lease.ttl_seconds, settings.disk
        )
        self._standby = Standby(settings.name, self._candidate, SystemClock())
        # Made at the start: files that break while it stands by must not end it when it is to lead.
        self._certificates = Certificates(settings, SystemClock())
        self._members = MemberList(settings.folder, self._certificates.ca_for_clients, settings.masters)
        self._store: SqlStore | None = None
        self._listener: Listener | None = None
        self._daemon: Daemon | None = None
        self._tokens: CellTokens | None = None
        self._admitting: asyncio.Task[None] | None = None
        self._limits = Limits(settings.limits, SystemClock())

    async def run(self) -> None:
        """Stand by until the store is ours, then lead it."""
        sys.setswitchinterval(SWITCH_SECONDS)
        renewing = asyncio.create_task(self._certificates.keep_good(self._show))
        try:
            await self._stand_by_and_lead()
        finally:
            renewing.cancel()

    async def _stand_by_and_lead(self) -> None:
        self._store = await self._standby.at_once(self._stopping, may_wait=self._may_wait)
        await self._wait_for_secrets()
        if self._store is None:  # whose tokens are good is known by a copy of the cell
            self._store = await self._standby.look()
        listener = await self._listen()
        if self._store is None:
            self._say_standing_by(listener)
            self._store = await self._standby.until_won(self._stopping)
        if self._store is not None:
            await self._lead(self._store, listener)

    async def _listen(self) -> Listener:
        """Answer as a standby, whatever comes then."""
        settings = self._settings
        secret = read_credentials(settings.folder).secret
        self._tokens = CellTokens(self._known_cell, secret, SystemClock())
        door = AuthMiddleware(
            StandbyApp(self._standby), self._tokens, hosts_of(settings.host), limits=self._limits
        )
        self._listener = Listener(door, self._tokens, self._limits, self._certificates.files)
        await self._listener.open(settings)
        self._standby.address = address = _advertised(settings, self._listener.url)
        if self._candidate.owns_folder and (words := unlisted(address, settings.masters)):
            log.warning("%s", words)
        self._members.enter(address)
        return self._listener

    def _known_cell(self) -> Cell | None:
        """Return the cell, where it is known whom its tokens stand for: nobody leads a cell without any, and
        one that is about to lead may have to let in the first."""
        cell = self._standby.copy.cell
        return cell if cell is not None and (self._daemon is not None or cell.access.tokens) else None

    def _say_standing_by(self, listener: Listener) -> None:
        log.info("standing by for %s on %s", self._settings.name, listener.url)

    async def _lead(self, store: SqlStore, listener: Listener) -> None:
        """Take in what the copy lacks, become the leader, and be it to the end."""
        credentials = credentials_to_lead(store, self._settings.folder, self._take_over)
        self._members.lead()
        _set_floor(store, self._settings)  # it may have changed since this one stands by
        cell = await asyncio.to_thread(self._standby.follow, store)
        seen = await check_machines(
            cell,
            self._settings.folder,
            self._certificates.transport(credentials.secret),
            SystemClock(),
            self._stopping,
            settle_seconds=self._settings.lease.deadline_seconds if store.has_lease else 0.0,
            take_over=self._take_over,
            one_of_several=self._may_wait,
        )
        if self._stopping.done():
            return
        if store.files is not None:
            # Beside the loop: to verify one of a large cell takes a while.
            older = self._take_over >= TakeOver.OLDER_STORE
            seen = await asyncio.to_thread(seen_in_files, cell, store.files, seen, take_over=older)
        assert self._tokens is not None
        is_posted, letters = (self._settings.folder / LETTER_BOX).exists(), self._letters(cell)
        self._daemon = Daemon(
            self._settings,
            store,
            credentials,
            cell,
            self._standby.address,
            self._tokens,
            self._limits,
            self._certificates,
            listener,
            self._show,
            seen,
            store.files,
            AdmitTokens(letters.tokens, letters.invitations) if letters else None,
        )
        settle()
        await self._daemon.run(self._stopping, self._put_away if is_posted else lambda: None)

    def _letters(self, cell: Cell) -> Letters:
        settings, wall = self._settings, SystemClock().now().wall
        return letters_to_lead(settings.folder, settings.host, cell.access.tokens.values(), wall)

    def _put_away(self) -> None:
        """Note that what was in the letter box is in the cell."""
        try:
            put_away(self._settings.folder)
        except OSError as error:
            log.warning("%s cannot be renamed: %s", error.filename, error.strerror)

    async def _admit(self, letters: Letters) -> None:
        assert self._daemon is not None
        try:
            said = await self._daemon.admit(AdmitTokens(letters.tokens, letters.invitations))
        except BorgishError as error:
            log.error("tokens are not taken over, and their file stays: %s", error)
            return
        log.info("reloaded: %s", said)
        self._put_away()

    def reload(self, read_anew: ReadAnew) -> None:
        """Go by what the cell's file, the tokens and the certificates are now, and log each change. What is
        broken is reported, and then nothing changes."""
        old = self._settings

        def read() -> _Reading:
            new, settings = read_anew(old)  # which loads the files under [tls] into a context of its own
            letters = read_letters(settings.folder, settings.host, SystemClock().now().wall)
            return _Reading(new, settings, letters, self._certificates.read(settings))

        reload(log, read, self._apply)

    def _apply(self, found: "_Reading") -> list[str]:
        """Apply what was read, and return a line for each change. Raises OSError when only the files under
        [tls] could not be applied."""
        old, settings = self._settings, found.settings
        lines = [str(change) for change in changes(old, found.new, LIVE)]
        lines += self._certificates.pem.changes(found.pem)
        self._settings = settings
        if self._daemon is not None and found.letters:
            self._admitting = asyncio.create_task(self._admit(found.letters))
        if settings.limits != old.limits:
            self._limits.change(settings.limits)
        if self._store is not None:
            _set_floor(self._store, settings)
        if self._daemon is not None:
            self._daemon.change(settings)
        if self._listener is not None:
            self._listener.drop_revoked()
        # Last, since only this can fail, for files that are replaced at this moment.
        self._certificates.change(settings, found.pem)
        self._show()
        return lines

    def _show(self) -> None:
        """Show to new connections the certificate that there is now. Raises OSError."""
        if self._listener is not None and self._certificates.files is not None:
            self._listener.reload(self._certificates.files)
        if self._daemon is not None:
            self._daemon.trust_changed()

    async def end(self) -> None:
        """Let go of all there is."""
        if self._listener is not None:
            await self._listener.stop()
        self._candidate.close()
        if self._daemon is not None:
            self._daemon.close()
        elif self._store is not None:
            self._store.close()
        self._members.leave()

    async def _wait_for_secrets(self) -> None:
        """Return when the secrets of the cell are there. Who leads has the folder to itself, and makes what
        is missing; for others they come, or UnsafeConfiguration is raised."""
        folder, loop = self._settings.folder, asyncio.get_running_loop()
        end = loop.time() + FILES_SECONDS_MAX
        while not self._stopping.done():
            try:
                if self._store is not None:
                    credentials_to_lead(self._store, folder, self._take_over)
                else:
                    read_credentials(folder)
                return
            except UnsafeConfiguration:
                if self._store is not None or loop.time() > end:
                    raise
            await asyncio.wait({self._stopping}, timeout=_LOOK_SECONDS)


def unlisted(address: str, masters: Sequence[str]) -> str:
    """Return the warning when the cell's file lists the masters without this one, "" otherwise."""
    if not masters or address in masters:
        return ""
    listed = ", ".join(masters)
    return (
        f"this borgmaster is at {address}, which is not in `masters` of its file ({listed}): clients of the "
        "other masters do not find it. Add it there, or correct `advertise`"
    )


def credentials_to_lead(store: Store, folder: Path, take_over: TakeOver) -> Credentials:
    """Read the secret of the cell in this database, or make it when the cell has none yet.

    By another one machines would have to be invited anew, values of secrets could not be read, and the audit
    log could not be verified: raises UnsafeConfiguration, unless the cell is to be taken over all the same.
    """
    if store.last_audit() is None:
        return make_credentials(folder)
    if not (folder / "secret").exists():
        what = f"{folder} has no secret, and the cell in this database has one"
    elif is_of_another_secret(store, (found := read_credentials(folder)).secret):
        what = f"{folder / 'secret'} is not the one of the cell in this database"
    else:
        return found
    if take_over < TakeOver.MACHINES:
        raise UnsafeConfiguration(
            what,
            "Bring it from another master's host or a backup: `borgctl cell seal` there, `cell unseal` "
            f"here. If it is lost for good, {TAKE_OVER_FLAG} leads by this one or a new one: machines have "
            "to be invited anew, secrets set anew, and the audit log verifies from here on only",
        )
    log.warning("%s; taken over as asked for", what)
    return make_credentials(folder)


def _set_floor(store: SqlStore, settings: Settings) -> None:
    if store.disk_space is not None and store.disk_space.floor != settings.disk:
        store.disk_space.set_floor(settings.disk)


def _advertised(settings: Settings, listening: str) -> str:
    """Return where others find us: as the file says, or where we listen; who listens everywhere is found by
    the host's name."""
    if settings.advertise:
        return settings.advertise.rstrip("/")
    if settings.host not in WILDCARDS:
        return listening
    scheme, port = listening.partition(":")[0], listening.rpartition(":")[2]
    return f"{scheme}://{socket.gethostname()}:{port}"


def _stop_signals() -> "asyncio.Future[None]":
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[None] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _settle, stopping)
    return stopping


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
