"""The cell's authority: an ECDSA key on P-256 that signs the certificates of its masters and machines.

Who joins sends a request of which only the public key counts: names are decided by the master. Keys never
travel. Nothing here reads a clock; ``now`` is the wall clock, in seconds since 1970.

``cryptography`` is imported with this module, which takes 0.1 s: import it where certificates are made.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from borgish.errors import Invalid, UnsafeConfiguration
from borgish.tls.names import ORGANIZATION, machine_name, master_name
from borgish.tls.validity import LEAF_DAYS, Validity

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

AUTHORITY_DAYS = 3650
BACKDATED_SECONDS = 600
"""Before the moment of signing: a machine whose clock is that much behind takes its certificate at once."""
REQUESTS_KEPT = 64
"""Each is asked about twice, to sign and to let its machine join; to verify it costs as much as to sign."""
REQUEST_BYTES_MAX = 4096
"""Of a request to sign in PEM; one for a key on P-256 has 500."""
KEY_ID_DIGITS = 16
"""In hex, of what certificates name a key by: files are named by it, and the subject of an authority."""

_BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""What every leaf is for: each role calls, and is called."""


class Authority:
    """A certificate that signs others, with its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key
        self.pem = certificate.public_bytes(Encoding.PEM)
        self.sha256 = sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
        self.key_id = _key_id(key.public_key())
        # What is the same in all leaves is made once: a thousand machines may join together.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        self._of_leaves = (*_OF_LEAVES, _extension(signer))

    @classmethod
    def make(cls, cell: str, key_pem: bytes, now: float) -> "Authority":
        """Make the authority of a cell, which signs leaves only, with a key of ``new_key``."""
        key = _private(key_pem)
        public = key.public_key()
        itself = x509.SubjectKeyIdentifier.from_public_key(public)
        # Two authorities of a cell differ by name, so that chains are built without trying both.
        mark = x509.NameAttribute(NameOID.SERIAL_NUMBER, _key_id(public))
        name = x509.Name([*_subject(cell), mark])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        usage = _usage(signs_certificates=True)
        extensions = [_extension(basic, critical=True), _extension(usage, critical=True), _extension(itself)]
        builder = _builder(name, name, public, _validity(now, AUTHORITY_DAYS), extensions)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate_pem: bytes, key_pem: bytes) -> "Authority":
        """Read both. Raises UnsafeConfiguration for a key that is another's, and for what is neither."""
        try:
            certificate, key = x509.load_pem_x509_certificate(certificate_pem), _private(key_pem)
            matches = certificate.public_key() == key.public_key()
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UnsafeConfiguration(f"the cell's authority cannot be read: {error}") from None
        if not matches:
            raise UnsafeConfiguration("the key of the cell's authority is that of another certificate")
        return cls(certificate, key)

    def endorse(self, next_pem: bytes) -> bytes:
        """Return our signature over the authority that follows on this one (see ``endorses``)."""
        return self._key.sign(_succession(next_pem), ec.ECDSA(hashes.SHA256()))

    def sign_master(self, cell: str, key_pem: bytes, hosts: Iterable[str], now: float) -> bytes:
        """Return the certificate of a master in PEM, for its key. ``hosts`` are what it is reached by, too:
        names and IP addresses."""
        names = [x509.DNSName(master_name(cell)), *(_general(host) for host in hosts)]
        return self._sign(_private(key_pem).public_key(), ("master", cell), names, now)

    def sign_machine(self, cell: str, machine: str, request_pem: bytes, now: float) -> bytes:
        """Return the certificate of a machine in PEM, for the key of its request. Raises Invalid."""
        names = [x509.DNSName(machine_name(machine, cell))]
        return self._sign(public_key_of(request_pem), ("borglet", machine), names, now)

    def _sign(
        self,
        public: ec.EllipticCurvePublicKey,
        subject: tuple[str, str],
        names: Sequence[x509.GeneralName],
        now: float,
    ) -> bytes:
        role, name = subject
        unit = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role)
        issuer, validity = self._certificate.subject, _validity(now, LEAF_DAYS)
        itself = x509.SubjectKeyIdentifier.from_public_key(public)
        extensions = [*self._of_leaves, _extension(x509.SubjectAlternativeName(names)), _extension(itself)]
        builder = _builder(x509.Name([*_subject(name), unit]), issuer, public, validity, extensions)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def new_key() -> bytes:
    """Return a new key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_id(key_pem: bytes) -> str:
    """Return what a key is known by. Raises UnsafeConfiguration."""
    try:
        return _key_id(_private(key_pem).public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnsafeConfiguration(f"this is no key of a cell's authority: {error}") from None


def key_id_of(authority_pem: bytes) -> str:
    """Return what the key of an authority is known by. Raises UnsafeConfiguration."""
    try:
        public = x509.load_pem_x509_certificate(authority_pem).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnsafeConfiguration(f"this is no certificate of a cell's authority: {error}") from None
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise UnsafeConfiguration("this is no certificate of a cell's authority: its key is of another kind")
    return _key_id(public)


def validity_of(pem: bytes) -> Validity:
    """Return how long a certificate is good, the first in PEM; anybody's. Raises UnsafeConfiguration."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise UnsafeConfiguration(f"this is no certificate: {error}") from None
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Validity(begins.timestamp(), ends.timestamp())


def cell_of_authority(pem: bytes) -> str:
    """Return the name of the cell whose authority it is. Raises UnsafeConfiguration."""
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
        return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    except (ValueError, IndexError) as error:
        raise UnsafeConfiguration(f"this is no certificate of a cell's authority: {error}") from None


def endorses(authority_pem: bytes, next_pem: bytes, signature: bytes) -> bool:
    """Return whether an authority has signed that another one follows on it: who knows the first may know the
    second by that."""
    try:
        public = x509.load_pem_x509_certificate(authority_pem).public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey):
            return False
        public.verify(signature, _succession(next_pem), ec.ECDSA(hashes.SHA256()))
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return True


def request_to_sign(key_pem: bytes, machine: str) -> bytes:
    """Return what a machine sends to have its key signed, in PEM. The name in it is for people only."""
    subject = x509.Name(_subject(machine))
    request = x509.CertificateSigningRequestBuilder(subject).sign(_private(key_pem), hashes.SHA256())
    return request.public_bytes(Encoding.PEM)


def key_digest_of(request_pem: bytes) -> str:
    """Return the digest of the key in a request to sign, in hex. Raises Invalid."""
    return x509.SubjectKeyIdentifier.from_public_key(public_key_of(request_pem)).digest.hex()


@lru_cache(maxsize=REQUESTS_KEPT)
def public_key_of(request_pem: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key in a request to sign, whose holder has signed it. Raises Invalid."""
    hint = "A borglet makes one itself: are borglet and borgmaster of the same version?"
    if len(request_pem) > REQUEST_BYTES_MAX:
        raise Invalid(f"the request to sign has more than {REQUEST_BYTES_MAX} bytes", hint)
    try:
        request = x509.load_pem_x509_csr(request_pem)
        public, is_signed = request.public_key(), request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        raise Invalid("the request to sign cannot be read", hint) from None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise Invalid("the request to sign is for a key that is not on P-256", hint)
    if not is_signed:
        raise Invalid("the request to sign is not signed with its own key", hint)
    return public


class Described(msgspec.Struct, frozen=True):
    """What of a certificate decides when, and whether, it is replaced."""

    validity: Validity
    names: frozenset[str]  # and addresses, as text
    signer: str  # the id of the key that signed it


def describe(certificate_pem: bytes) -> Described:
    """Read a certificate. Raises UnsafeConfiguration."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        signer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise UnsafeConfiguration(f"this is no certificate of a cell: {error}") from None
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    names = frozenset(str(name.value) for name in alternative)
    signed_by = (signer.key_identifier or b"").hex()[:KEY_ID_DIGITS]
    return Described(Validity(begins.timestamp(), ends.timestamp()), names, signed_by)


# -- The parts of a certificate -----------------------------------------------------------------------------


def _private(key_pem: bytes) -> ec.EllipticCurvePrivateKey:
    key: PrivateKeyTypes = load_pem_private_key(key_pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the key is not on P-256")
    return key


def _key_id(public: ec.EllipticCurvePublicKey) -> str:
    return x509.SubjectKeyIdentifier.from_public_key(public).digest.hex()[:KEY_ID_DIGITS]


def _subject(name: str) -> list[x509.NameAttribute[str]]:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)
    return [organization, x509.NameAttribute(NameOID.COMMON_NAME, name)]


def _succession(next_pem: bytes) -> bytes:
    """Return what is signed: it can be taken for no certificate, as these are DER."""
    der = x509.load_pem_x509_certificate(next_pem).public_bytes(Encoding.DER)
    return b"borgish: the authority that follows\0" + sha256(der).digest()


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _validity(now: float, days: int) -> tuple[datetime, datetime]:
    begins = datetime.fromtimestamp(int(now), UTC)
    return begins - timedelta(seconds=BACKDATED_SECONDS), begins + timedelta(days=days)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    validity: tuple[datetime, datetime],
    extensions: list[x509.Extension[x509.ExtensionType]],
) -> x509.CertificateBuilder:
    serial = x509.random_serial_number()  # 159 bits of the system's randomness
    return x509.CertificateBuilder(issuer, subject, public, serial, *validity, extensions)


def _extension(value: x509.ExtensionType, *, critical: bool = False) -> x509.Extension[x509.ExtensionType]:
    return x509.Extension(value.oid, critical, value)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


_OF_LEAVES = (
    _extension(x509.BasicConstraints(ca=False, path_length=None), critical=True),
    _extension(_usage(signs_certificates=False), critical=True),
    _extension(x509.ExtendedKeyUsage(_BOTH_ENDS)),
)
