"""Addresses of borgmasters: ``http(s)://HOST:PORT``, several with commas between."""

from urllib.parse import SplitResult, urlsplit

from borgish.errors import Invalid


def address_of(url: str) -> SplitResult:
    """Return the parts of a master's address. Raises Invalid for all but scheme, host and port."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        is_address = False
    if not is_address or not url.isprintable() or " " in url or "@" in url or parts.path or parts.query:
        raise Invalid(f"'{url}' is no address of a borgmaster", "Write it like http://127.0.0.1:7400")
    return parts


def several(text: str) -> tuple[str, ...]:
    """Return the addresses in a list with commas, each once, in order; they are not checked here."""
    return tuple(dict.fromkeys(url.strip().rstrip("/") for url in text.split(",") if url.strip()))


def may_follow(url: str, other: str) -> bool:
    """Return whether one who asked at ``url`` may take its token to ``other``, as it was told to there."""
    try:
        return address_of(url).scheme in ("http", address_of(other).scheme)
    except Invalid:
        return False
