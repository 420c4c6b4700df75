"""What a master shows and whom it trusts: by the cell's own authority if there is one in its state folder, or
by the operator's files under ``[tls]``; none of both on loopback. Where there are both, the cell is being
carried over: who does not know its authority yet is met by the operator's files.

A certificate that the cell's authority signs lives 30 days and is signed anew after 20, by whichever master
has the folder: nobody has to do anything, and no connection that is open notices.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from borgish.api.serve import Tls
from borgish.cell.access.model import Asker
from borgish.clock import Clock
from borgish.errors import Conflict, UnsafeConfiguration
from borgish.link.transport import HttpTransport
from borgish.master.expiry import Held
from borgish.master.host.settings import Settings
from borgish.master.leader import Leader
from borgish.reload import Pem, read_pem
from borgish.tls.bundle import authorities_in, authority_hash, bundle_hash
from borgish.tls.contexts import caller, expect_believed, operators_caller
from borgish.tls.files import AUTHORITY_FILE, MASTER_FILE
from borgish.tls.names import master_name
from borgish.tls.validity import Validity
from borgish.wire.api_certificates import RotationView
from borgish.wire.link import JoinReply, JoinRequest

if TYPE_CHECKING:
    from borgish.tls.authority import Authority


class SignedJoining:
    """Registers machines, and signs the certificates of those that ask for one."""

    def __init__(self, leader: Leader, certificates: "Certificates") -> None:
        self._leader, self._certificates = leader, certificates

    async def join(self, request: JoinRequest, invited: Asker | None = None) -> JoinReply:
        """Let a machine join. Raises Invalid for what cannot be signed, before anything is changed."""
        certificates = self._certificates
        if not request.to_sign or not certificates.bundle:
            return await self._leader.join(request, invited)
        certificate = certificates.sign(request.machine, request.to_sign)
        reply = await self._leader.join(request, invited, self._key_of(request.to_sign))
        authorities = certificates.bundle.decode("ascii")
        return msgspec.structs.replace(reply, certificate=certificate, authorities=authorities)

    @staticmethod
    def _key_of(to_sign: str) -> str:
        from borgish.tls.authority import key_digest_of

        return key_digest_of(to_sign.encode())


LOOK_SECONDS = 60.0
"""Between two looks at the clock: it may leap, and a host may have slept."""

log = logging.getLogger("borgmaster")


class Certificates:
    """Of one master, all its life. ``files`` are its listener's, and ``pem`` is what of them is loaded."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises UnsafeConfiguration for files that cannot be used, and a certificate that cannot be made."""
        self._settings, self._clock = settings, clock
        self._alarm = 0.0  # the last one that was raised
        self._validity = Validity(0.0, 0.0)  # of our own certificate
        self._is_own = settings.has_authority
        if self._is_own:
            self._begin()
        self.files = self._files(settings)
        self.pem = self.read(settings)
        self.bundle = b""  # the authorities that the cell trusts, in PEM; b"" when it has none of its own
        self._signing: tuple[object, Authority] | None = None  # the one that signs, and of which files it is
        self._context: ssl.SSLContext | None = None  # how borglets are known, and what they are shown
        self._transport: HttpTransport | None = None
        self._held: tuple[Held, ...] = ()
        self._load()

    def held(self) -> tuple[Held, ...]:
        """Return how long the authority and our own certificate are good; nothing without TLS."""
        return self._held

    @property
    def ca_for_clients(self) -> str:
        """The file by which clients on this host know the master; "" for none."""
        return AUTHORITY_FILE if self._is_own else self.files.ca if self.files else ""

    def transport(self, secret: str) -> HttpTransport:
        """Return the way to the cell's borglets. It goes by the files of each moment, and there is one."""
        cell = self._settings.name if self._is_own else ""
        self._transport = HttpTransport(secret, self._context, cell, self._before())
        return self._transport

    @property
    def bundle_hash(self) -> str:
        """The hash of the authorities that the cell trusts; "" when it has none of its own."""
        return bundle_hash(self.bundle) if self.bundle else ""

    def sign(self, machine: str, to_sign: str) -> str:
        """Return the certificate of a machine in PEM. Raises Invalid for what it sent, and
        UnsafeConfiguration where the key of the authority is not there."""
        authority, now = self._authority(), self._clock.now().wall
        return authority.sign_machine(self._settings.name, machine, to_sign.encode(), now).decode()

    def _authority(self) -> "Authority":
        """Return the authority that signs; it is read again where one of its files is another by now."""
        from borgish.tls.folder import read_authority, signing_state

        folder, signing = self._settings.folder, self._signing
        if signing is None or signing[0] != signing_state(folder, signing[1].key_id):
            # Read twice, for by which files it signs: what changes behind the state is seen the next time.
            state = signing_state(folder, read_authority(folder).key_id)
            signing = self._signing = state, read_authority(folder)
        return signing[1]

    def rotation_held_up(self, behind: Callable[[str], list[str]]) -> RotationView | None:
        """Return at which stage the replacing of the cell's authority waits for machines; None where it can
        go on. ``behind`` gives the machines that do not trust a bundle yet, by its hash.

        Raises Conflict where there is no authority.
        """
        from borgish.tls.folder import Stage, stage_of

        if not self._is_own:
            raise Conflict("this cell has no authority of its own", "`borgctl cell init` makes one that has")
        stage, late = stage_of(self.bundle), behind(self.bundle_hash)
        return RotationView(stage, self._signer, tuple(late)) if stage is not Stage.NONE and late else None

    def rotate(self, behind: Callable[[str], list[str]], show: Callable[[], None]) -> RotationView:
        """Go one step on with replacing the cell's authority, when every machine has followed the last one.

        ``behind``: see ``rotation_held_up``. ``show`` is called after the step. Raises Conflict where there
        is no authority, and UnsafeConfiguration.
        """
        from borgish.tls.folder import rotate

        if (waiting := self.rotation_held_up(behind)) is not None:
            return waiting
        stage = rotate(self._settings.folder, self._settings.name, self._clock.now().wall)
        log.info("the rotation of the cell's authority: %s", stage)
        self._look(show)
        return RotationView(stage, self._signer, tuple(behind(self.bundle_hash)), moved=True)

    @property
    def _signer(self) -> str:
        return authority_hash(authorities_in(self.bundle)[0])

    def read(self, settings: Settings) -> Pem:
        """Return what is in the files that other settings name. Raises UnsafeConfiguration, also for a
        certificate of the cell's own that nobody would believe: shown, it would cut the cell off."""
        files = self._files(settings)
        if files is None:
            return Pem()
        if files.is_own:
            self._expect_believed(files)
        return msgspec.structs.replace(read_pem(files.certificate, files.ca), is_own=files.is_own)

    def _expect_believed(self, files: Tls) -> None:
        from borgish.tls.authority import validity_of

        expect_believed(files.certificate, files.ca, files.name)
        validity = validity_of(Path(files.certificate).read_bytes())
        if not validity.begins <= self._clock.now().wall < validity.ends:
            raise UnsafeConfiguration(
                f"{files.certificate} is not good now",
                "It is signed anew within a minute, where the authority's key is",
            )

    def change(self, settings: Settings, pem: Pem) -> None:
        """Go by other settings, whose files were read. Raises OSError for files that changed since."""
        self._settings, self.files = settings, self._files(settings)
        self._load()
        self.pem = self.pem.merged(pem)

    async def keep_good(self, show: Callable[[], None]) -> None:
        """Have the certificate signed anew when it is due; never returns. ``show`` is called after that."""
        while self._is_own:
            await asyncio.sleep(LOOK_SECONDS)
            self._look(show)

    def _look(self, show: Callable[[], None]) -> None:
        try:
            self._renew()
            now = self.read(self._settings)
            if lines := self.pem.changes(now):
                self._load()
                self.pem, self._alarm = now, 0.0
                show()
            for line in lines:
                log.info("%s", line)
        except (UnsafeConfiguration, OSError) as error:
            alarm = self._validity.alarm(self._clock.now().wall)
            if alarm != self._alarm:
                days = (self._validity.ends - self._clock.now().wall) / 86400
                log.error("the certificate of this borgmaster ends in %.1f days: %s", days, error)
            self._alarm = alarm

    def _begin(self) -> None:
        """Have a certificate. One that cannot be renewed is good enough until it ends."""
        from borgish.tls.folder import master_validity

        held = master_validity(self._settings.folder)
        try:
            self._renew()
        except UnsafeConfiguration as error:
            if held is None or self._clock.now().wall >= held.ends:
                raise
            self._validity = held
            log.error("the certificate of this borgmaster is due, and cannot be renewed: %s", error)

    def _renew(self) -> None:
        from borgish.tls.folder import hosts_of_master, renew_master  # 0.1 s, for who has an authority only

        settings = self._settings
        hosts = hosts_of_master(settings.host, settings.advertise)
        now = self._clock.now().wall
        self._validity = renew_master(settings.folder, settings.name, hosts, now)

    def _files(self, settings: Settings) -> Tls | None:
        files = settings.tls
        given = Tls(files.certificate, files.key, files.ca) if files else None
        if not self._is_own:
            return given
        own, ca = str(settings.folder / MASTER_FILE), str(settings.folder / AUTHORITY_FILE)
        return Tls(own, "", ca, is_own=True, name=master_name(settings.name), before=given)

    def _load(self) -> None:
        """Have new connections go by what is in the files. Raises OSError and UnsafeConfiguration."""
        files = self.files
        if files is None:
            return
        self._held = (
            *_held("authority", files.ca, renews=False),
            *_held("master", files.certificate, renews=files.is_own),
        )
        if files.is_own:
            self._context, self.bundle = caller(files.ca, files.certificate), Path(files.ca).read_bytes()
        else:
            # The same context, as an operator's authorities have always been added to it.
            if self._context is None:
                self._context = operators_caller(files.ca, files.certificate, files.key)
            else:
                self._context.load_cert_chain(files.certificate, files.key)
                self._context.load_verify_locations(files.ca)
        if self._transport is not None:
            self._transport.replace(self._context, self._before())

    def _before(self) -> ssl.SSLContext | None:
        """Return how machines are known that are yet to be carried over. Raises OSError."""
        given = self.files.before if self.files else None
        return operators_caller(given.ca, given.certificate, given.key) if given else None


def _held(role: str, file: str, *, renews: bool) -> tuple[Held, ...]:
    """Return how long the first certificate in a file is good; nothing where only OpenSSL can read it."""
    from borgish.tls.authority import validity_of  # 0.1 s, for who has TLS only

    try:
        return (Held(role, validity_of(Path(file).read_bytes()), renews),)
    except UnsafeConfiguration:
        return ()
