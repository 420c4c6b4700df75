"""The names in a cell's certificates: who holds one is said by its role, and by nothing else.

A master is ``master.<cell>.borgish`` and a machine ``<machine>.borglet.<cell>.borgish``, whatever their
addresses are (Nomad names servers and clients like that). A name of one role is none of another: cells and
machines have no dot in theirs.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from borgish.vocabulary import NAME_PATTERN

DOMAIN = "borgish"
ORGANIZATION = "borgish"
"""Of every subject in a cell's certificates; the common name of an authority is the cell's."""

_MASTER = re.compile(rf"master\.(?P<cell>{NAME_PATTERN})\.{DOMAIN}")
_MACHINE = re.compile(rf"(?P<machine>{NAME_PATTERN})\.borglet\.(?P<cell>{NAME_PATTERN})\.{DOMAIN}")

PEER = "borgish.peer"
"""The key in the state of a request's scope: the ``Peer``; it is not there for nobody."""


def master_name(cell: str) -> str:
    """Return the name of the masters of a cell."""
    return f"master.{cell}.{DOMAIN}"


def machine_name(machine: str, cell: str) -> str:
    """Return the name of a machine's borglet."""
    return f"{machine}.borglet.{cell}.{DOMAIN}"


class Peer(msgspec.Struct, frozen=True):
    """Who is at the other end of a connection, by a certificate that was verified.

    ``machine`` is "" for a master. ``serial`` is the certificate's, in upper-case hex as OpenSSL writes it.
    """

    cell: str
    machine: str
    serial: str

    @property
    def is_master(self) -> bool:
        """Whether it is a master of its cell."""
        return not self.machine


def peer_of(certificate: Mapping[str, Any] | None) -> Peer | None:
    """Return who a verified certificate names, as ``ssl`` shows one (``getpeercert``); None for nobody.

    Only what the authority of the cell itself signed counts: where an operator's authority is trusted, it
    gives nobody a role by such a name. A certificate with the names of two roles has none.
    """
    if not certificate:
        return None
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
    found = [peer for name in names if (peer := _peer(name, str(certificate.get("serialNumber", ""))))]
    if len(found) == 1 and found[0].cell == cell_of(certificate.get("issuer", ())):
        return found[0]
    return None


def _peer(name: str, serial: str) -> Peer | None:
    if match := _MASTER.fullmatch(name):
        return Peer(match["cell"], "", serial)
    if match := _MACHINE.fullmatch(name):
        return Peer(match["cell"], match["machine"], serial)
    return None


def cell_of(name: Any) -> str:
    """Return the cell whose authority a distinguished name is, as ``ssl`` shows one; "" for any other."""
    parts = {key: value for part in name for key, value in part}
    return str(parts.get("commonName", "")) if parts.get("organizationName") == ORGANIZATION else ""
