"""The authority in a state folder: its files, each made whole or not at all, whenever a death cuts it off.

``authority.pem`` has the authorities that are trusted, the one that signs first; the key of each is in
``authority.<id>.key``, and is there before its certificate is. ``master.pem`` has the certificate of the
master that has the folder, the authority that signed it, and the key, so that all change at once. All are
0600. A key may be kept elsewhere while nothing is to be signed.
"""

import ipaddress
import socket
from base64 import b64encode
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from borgish.addresses import WILDCARDS
from borgish.credentials import read_private, write_private
from borgish.errors import Invalid, UnsafeConfiguration
from borgish.tls.authority import (
    BACKDATED_SECONDS,
    Authority,
    describe,
    key_id,
    key_id_of,
    new_key,
    validity_of,
)
from borgish.tls.bundle import authorities_in
from borgish.tls.files import AUTHORITY_FILE, AUTHORITY_KEYS, ENDORSEMENT_FILE, MASTER_FILE
from borgish.tls.validity import Validity


def make_authority(folder: Path, cell: str, now: float) -> Authority:
    """Return the authority that signs, made if there is none. Raises UnsafeConfiguration."""
    path = folder / AUTHORITY_FILE
    if path.exists():
        return read_authority(folder)
    key = _key_without_certificate(folder)
    if not key:
        key = new_key()
        write_private(_key_path(folder, key_id(key)), key.decode())
    authority = Authority.make(cell, key, now)
    write_private(path, authority.pem.decode())
    return authority


def read_authority(folder: Path) -> Authority:
    """Return the authority that signs. Raises UnsafeConfiguration where it, or its key, is not there."""
    certificate = read_bundle(folder)[0]
    path = _key_path(folder, key_id_of(certificate))
    if not path.exists():
        raise UnsafeConfiguration(
            f"{path} is not there, and without the key of the cell's authority nothing can be signed",
            "Put it back from where it is kept; without it the cell needs a new authority, and each machine "
            "joins again",
        )
    return Authority.read(certificate, read_private(path).encode())


def signing_state(folder: Path, identity: str) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what is another where the authority that signs is, by the id of its key: where one of both files
    was replaced or removed, or others may read it now."""
    return tuple(_file_state(path) for path in (folder / AUTHORITY_FILE, _key_path(folder, identity)))


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    return there.st_ctime_ns, there.st_ino, there.st_size


def read_bundle(folder: Path) -> list[bytes]:
    """Return the authorities that are trusted, the one that signs first. Raises UnsafeConfiguration."""
    path = folder / AUTHORITY_FILE
    try:
        return authorities_in(path.read_bytes())
    except (OSError, Invalid) as error:
        raise UnsafeConfiguration(
            f"{path} cannot be used: {error}", "Restore it, from a backup or from another master of the cell"
        ) from None


def renew_master(folder: Path, cell: str, hosts: frozenset[str], now: float) -> Validity:
    """Have the master's certificate be good: signed anew when it is due, when another authority signs, and
    for names that it lacks. Return how long it is good.

    Raises UnsafeConfiguration when it cannot be signed.
    """
    path = folder / MASTER_FILE
    if path.exists():
        held = describe(read_private(path).encode())
        is_signed = held.signer == key_id_of(read_bundle(folder)[0])
        if is_signed and hosts <= held.names and held.validity.begins <= now < held.validity.renewal_at():
            return held.validity
    key, authority = new_key(), read_authority(folder)
    certificate = authority.sign_master(cell, key, sorted(hosts), now)
    # With the authority: the chain of a certificate alone is built, and verified, anew at each handshake.
    write_private(path, (certificate + authority.pem + key).decode())
    return describe(certificate).validity


def master_validity(folder: Path) -> Validity | None:
    """Return how long the master's certificate is good, None without one. Raises UnsafeConfiguration."""
    path = folder / MASTER_FILE
    return describe(read_private(path).encode()).validity if path.exists() else None


class Stage(StrEnum):
    """How far a rotation of the authority has come."""

    NONE = "none"  # one authority
    BEGUN = "begun"  # the new one is trusted as well
    SWITCHED = "switched"  # the new one signs, the old one is trusted as well


def stage_of(bundle: bytes) -> Stage:
    """Return how far the rotation of a bundle's authorities has come. Raises UnsafeConfiguration."""
    begins = [validity_of(pem).begins for pem in authorities_in(bundle)]
    if len(begins) == 1:
        return Stage.NONE
    return Stage.SWITCHED if begins[0] > begins[1] else Stage.BEGUN


def rotate(folder: Path, cell: str, now: float) -> Stage:
    """Go one step on: make a new authority, have it sign, trust the old one no more. Return the stage that is
    reached. Each step is one write of the bundle, so that a death leaves a whole one.

    Raises UnsafeConfiguration.
    """
    path, bundle = folder / AUTHORITY_FILE, read_bundle(folder)
    stage = stage_of(b"".join(bundle))
    if stage is Stage.NONE:
        _drop_other_keys(folder, bundle)
        key = new_key()
        write_private(_key_path(folder, key_id(key)), key.decode())
        # It is newer than the old one by its dates as well, which is how the stages are told apart.
        begins = max(now, validity_of(bundle[0]).begins + BACKDATED_SECONDS + 1)
        bundle = [bundle[0], Authority.make(cell, key, begins).pem]
    elif stage is Stage.BEGUN:
        bundle = [bundle[1], bundle[0]]
        Authority.read(bundle[0], read_private(_key_path(folder, key_id_of(bundle[0]))).encode())
        _endorse(folder, *bundle)
    else:
        bundle = bundle[:1]
    write_private(path, b"".join(bundle).decode())
    if len(bundle) == 1:
        _drop_other_keys(folder, bundle)
    return stage_of(b"".join(bundle))


def _endorse(folder: Path, following: bytes, before: bytes) -> None:
    """Have the authority before sign the one that follows, if its key is there."""
    key = _key_path(folder, key_id_of(before))
    if key.exists():
        signature = Authority.read(before, read_private(key).encode()).endorse(following)
        write_private(folder / ENDORSEMENT_FILE, b64encode(signature).decode() + "\n")


def _drop_other_keys(folder: Path, bundle: list[bytes]) -> None:
    """Remove the keys of authorities that are trusted no more."""
    kept = {_key_path(folder, key_id_of(pem)) for pem in bundle}
    for path in folder.glob(AUTHORITY_KEYS):
        if path not in kept:
            path.unlink()


def hosts_of_master(listen: str, advertise: str = "") -> frozenset[str]:
    """Return what a master on this host may be reached by, beside the name of its role: by other programs
    than ours, which go by the name of a host. ``listen`` is a host, ``advertise`` an URL or ""."""
    hosts = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    if listen not in WILDCARDS:
        hosts.add(listen)
    if advertise and (advertised := urlsplit(advertise).hostname):
        hosts.add(advertised)
    return frozenset(_usual(host) for host in hosts if host and host.isascii())


def _usual(host: str) -> str:
    """Return the usual way to write an IP address; a name as it is."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _key_path(folder: Path, identity: str) -> Path:
    return folder / f"authority.{identity}.key"


def _key_without_certificate(folder: Path) -> bytes:
    """Return the key of an authority that a death cut off, b"" when there is none."""
    found = sorted(folder.glob(AUTHORITY_KEYS))
    if len(found) > 1:
        raise UnsafeConfiguration(
            f"{folder} has the keys {' and '.join(path.name for path in found)}, and no {AUTHORITY_FILE}",
            f"Restore {AUTHORITY_FILE}; or for a new authority remove both, and have each machine join again",
        )
    return read_private(found[0]).encode() if found else b""
