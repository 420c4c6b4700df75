"""The authorities that a cell trusts, as PEM one after the other: one, or two while it is rotated.

The first one signs. What is told of a bundle is its hash, so that who holds another one gets it, and has its
certificate signed anew; of an authority it is the hash that join tokens carry.
"""

import re
import ssl
from hashlib import sha256

from borgish.errors import Invalid

BUNDLE_BYTES_MAX = 16 * 1024
AUTHORITIES_MAX = 4
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


def authorities_in(bundle: bytes) -> list[bytes]:
    """Return each certificate of a bundle, in PEM. Raises Invalid for what is no bundle."""
    if len(bundle) > BUNDLE_BYTES_MAX:
        raise Invalid(f"the cell's authorities take more than {BUNDLE_BYTES_MAX} bytes")
    try:
        found = [match[0].encode() + b"\n" for match in _CERTIFICATE.finditer(bundle.decode("ascii"))]
        for pem in found:
            authority_hash(pem)
    except ValueError:  # not ASCII, or not base64
        found = []
    if not 0 < len(found) <= AUTHORITIES_MAX:
        raise Invalid(f"these are not the authorities of a cell: 1 to {AUTHORITIES_MAX} certificates in PEM")
    return found


def authority_hash(pem: bytes) -> str:
    """Return the SHA-256 of a certificate's DER in hex, as join tokens carry it."""
    return sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).hexdigest()


def bundle_hash(bundle: bytes) -> str:
    """Return what distinguishes a bundle from another, their order included. Raises Invalid."""
    return sha256("".join(authority_hash(pem) for pem in authorities_in(bundle)).encode()).hexdigest()
