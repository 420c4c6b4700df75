"""A machine's certificate, and the authorities by which it knows the master: in its state folder.

The key is made here and never leaves; what is signed is asked for when the machine joins. Each file is whole
or not there: the authorities are written first, then certificate and key in one file. A key whose certificate
has not come yet is kept, so that what is asked for again is the same.
"""

import ssl
import zlib
from hashlib import sha256
from pathlib import Path

from borgish.credentials import read_private, write_private
from borgish.errors import Invalid, Unauthenticated
from borgish.tls.bundle import authorities_in, bundle_hash
from borgish.tls.contexts import Replaceable, borglet_listener, caller, expect_believed
from borgish.tls.files import AUTHORITY_FILE, MACHINE_FILE
from borgish.tls.names import machine_name
from borgish.tls.validity import Validity

NEXT_KEY_FILE = "machine.next.key"


class Identity:
    """Of one machine. ``cryptography`` is imported when a certificate is read or asked for (0.1 s)."""

    def __init__(self, folder: Path, machine: str) -> None:
        self._folder, self._machine = folder, machine
        self._spread = zlib.crc32(machine.encode()) / 2**32
        self.certificate, self.authorities = folder / MACHINE_FILE, folder / AUTHORITY_FILE
        self._listening: Replaceable | None = None
        self.ends = 0.0  # when the certificate does, on the wall clock; 0: there is none
        self._settled = self._look() if self.is_there else ""

    @property
    def is_there(self) -> bool:
        """Whether the machine has a certificate, good or not."""
        return self.certificate.exists()

    def listener(self) -> ssl.SSLContext:
        """Return how the master is listened for, by the files of each moment. Raises UnsafeConfiguration."""
        self._listening = Replaceable(borglet_listener(str(self.certificate), str(self.authorities)))
        return self._listening.context

    def expect_believed(self, cell: str) -> None:
        """Raise UnsafeConfiguration where the files are none by which a master of the cell would know us."""
        expect_believed(str(self.certificate), str(self.authorities), machine_name(self._machine, cell))

    def calling(self, *, shown: bool = True) -> ssl.SSLContext:
        """Return how to call a master, by the files that there are now. ``shown``: by our certificate.

        Raises UnsafeConfiguration.
        """
        return caller(str(self.authorities), str(self.certificate) if shown else "")

    def expect_good(self, now: float) -> None:
        """Raise Unauthenticated for a certificate that is over: the machine was off for too long."""
        if now >= self._validity().ends:
            raise Unauthenticated(
                f"the certificate of machine {self._machine} is over",
                f"Make an invitation by `borgctl machine invite {self._machine}`, and run the `borglet join` "
                "that it prints with the --dir of this machine",
            )

    def is_due(self, now: float, told: str = "") -> bool:
        """Whether the certificate is to be signed anew: two thirds of its life are over, another authority
        signs, or the cell trusts others than we know. ``told``: their hash, "" where nothing is known."""
        settled = self._look()
        is_old = now >= self._validity().renewal_at(self._spread)
        return is_old or not settled or bool(told and told != settled)

    def settled(self) -> str:
        """Return the hash of the authorities that are trusted, "" while the one that signs has not signed our
        certificate."""
        return self._settled

    def trust(self, authorities: bytes) -> None:
        """Know the master by these from now on. Raises OSError."""
        write_private(self.authorities, authorities.decode("ascii"))

    def to_sign(self) -> str:
        """Return a request to sign in PEM, for a key that is kept until it is answered."""
        from borgish.tls.authority import request_to_sign

        return request_to_sign(self._next_key(), self._machine).decode()

    @property
    def asking(self) -> str:
        """What distinguishes one asking for a certificate from another, over all its retries."""
        return sha256(self._next_key()).hexdigest()[:16]

    def keep(self, cell: str, certificate: str, authorities: str) -> None:
        """Take what was signed, and go by it from the next handshake on. Raises Invalid and
        UnsafeConfiguration for what is not ours, and OSError."""
        from borgish.tls.authority import describe

        key = self._folder / NEXT_KEY_FILE
        if machine_name(self._machine, cell) not in describe(certificate.encode()).names:
            raise Invalid("the certificate that the borgmaster answered is another machine's")
        authorities_in(authorities.encode())
        self.trust(authorities.encode())
        write_private(self.certificate, certificate + read_private(key))
        key.unlink()
        self._settled = self._look()
        if self._listening is not None:
            self._listening.replace(borglet_listener(str(self.certificate), str(self.authorities)))

    def _next_key(self) -> bytes:
        from borgish.tls.authority import new_key

        path = self._folder / NEXT_KEY_FILE
        if not path.exists():
            write_private(path, new_key().decode())
        return read_private(path).encode()

    def _look(self) -> str:
        """Return what ``settled`` does, by the files, and note when the certificate ends."""
        from borgish.tls.authority import describe, key_id_of

        bundle, held = self.authorities.read_bytes(), describe(self.certificate.read_bytes())
        self.ends = held.validity.ends
        return bundle_hash(bundle) if held.signer == key_id_of(authorities_in(bundle)[0]) else ""

    def _validity(self) -> Validity:
        from borgish.tls.authority import describe

        return describe(self.certificate.read_bytes()).validity


def identity_in(folder: Path, machine: str) -> Identity | None:
    """Return the identity that a machine's state folder has; None when it has none."""
    identity = Identity(folder, machine)
    return identity if identity.is_there else None
