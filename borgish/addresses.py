"""Addresses of borgmasters: ``http(s)://HOST:PORT``, several with commas between."""

import ipaddress
from urllib.parse import SplitResult, urlsplit

from borgish.errors import Invalid

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
"""Who listens there listens on every address of the host."""


def address_of(url: str) -> SplitResult:
    """Return the parts of a master's address. Raises Invalid for all but scheme, host and port."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        is_address = False
    if not is_address or not url.isprintable() or " " in url or "@" in url or parts.path or parts.query:
        raise Invalid(f"'{url}' is not the address of a borgmaster", "Write it like http://127.0.0.1:7400")
    return parts


def is_loopback(host: str) -> bool:
    """Return whether only the machine itself can be reached at a host."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def several(text: str) -> tuple[str, ...]:
    """Return the addresses in a list with commas, each once, in order; they are not checked here."""
    return tuple(dict.fromkeys(url.strip().rstrip("/") for url in text.split(",") if url.strip()))


def may_follow(url: str, other: str) -> bool:
    """Return whether one who asked at ``url`` may take its token to ``other``, as it was told to there: by
    TLS, or in clear to the same host, or to its own, where it was in clear before."""
    try:
        here, there = address_of(url), address_of(other)
    except Invalid:
        return False
    if there.scheme == "https":
        return True
    return here.scheme == "http" and there.hostname in (here.hostname, "localhost", "127.0.0.1", "::1")
