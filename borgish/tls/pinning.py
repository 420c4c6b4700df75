"""Getting a cell's authority from a master of whom nothing is known but the hash in a join token.

It is asked for over a connection that proves nothing, and nothing secret is said there. Only the authority
that signs is taken, if it has the hash, and nothing that was sent beside it; what follows goes over a new
connection, by it.
"""

import base64
import http.client
import ssl

from borgish.addresses import address_of
from borgish.errors import Invalid, TooManyRequests, Unreachable
from borgish.tls.bundle import BUNDLE_BYTES_MAX, authorities_in, authority_hash
from borgish.tls.contexts import stranger

AUTHORITY_PATH = "/v1/authority"
ENDORSEMENT_HEADER = "borgish-endorsement"
"""Has the signature of the authority before over the one that signs, in base64."""
SECONDS_MAX = 10.0

_ANOTHER_HASH = (
    "The master's host has what names the authority now: `borgctl machine invite` for a machine, and for "
    "`borgctl login` what `borgctl token create` prints"
)


def fetch_authority(url: str, sha256: str, seconds: float = SECONDS_MAX) -> bytes:
    """Return the authority with a hash from the master at an https address, in PEM.

    Raises Unreachable; TooManyRequests; Invalid for an address that is none.
    """
    bundle, status, _ = _ask(url, seconds)
    return _pinned(url, sha256, bundle, status)


def fetch_next(url: str, known: bytes, seconds: float = SECONDS_MAX) -> bytes:
    """Return the authority that signs by now at an https address, in PEM, if one that is known has signed
    that it follows; b"" if none has. Who stands between can show none without the key of one that is known.

    Raises as ``fetch_authority``.
    """
    from borgish.tls.authority import endorses  # 0.1 s, and seldom needed

    bundle, status, endorsement = _ask(url, seconds)
    try:
        following = authorities_in(bundle)[0] if status == 200 else b""
        signature, before = base64.b64decode(endorsement, validate=True), authorities_in(known)
    except (ValueError, Invalid):
        return b""
    is_endorsed = following and any(endorses(pem, following, signature) for pem in before)
    return following if is_endorsed else b""


def _ask(url: str, seconds: float) -> tuple[bytes, int, str]:
    """Return what a master shows to strangers: authorities, status, endorsement. Raises as above."""
    parts = address_of(url)
    if parts.scheme != "https":
        raise Invalid(
            f"{url} is not https, and the token names an authority", "Write it like https://HOST:7400"
        )
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=seconds, context=stranger()
    )
    try:
        connection.request("GET", AUTHORITY_PATH)
        response = connection.getresponse()
        bundle, status = response.read(BUNDLE_BYTES_MAX + 1), response.status
        again_after = response.headers.get("retry-after", "60")
        endorsement = response.headers.get(ENDORSEMENT_HEADER, "")
    except ssl.SSLError as error:
        reason = str(error.reason or error).lower().replace("_", " ")
        hint = "Is it the address of a borgmaster?"
        raise Unreachable(f"{url}: no TLS 1.3 there: {reason}", hint) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or "the connection broke"
        hint = "Check the address, and that the borgmaster runs and can be reached from here"
        raise Unreachable(f"{url} cannot be reached: {str(why).lower()}", hint) from None
    finally:
        connection.close()
    if status == TooManyRequests.status:
        wait = again_after[:9] if again_after.isascii() and again_after.isdigit() else "60"
        hint = f"Try again in {wait} seconds"
        raise TooManyRequests(f"{url} was asked too often from here", hint)
    return bundle, status, endorsement


def _pinned(url: str, sha256: str, bundle: bytes, status: int) -> bytes:
    try:
        shown = authorities_in(bundle) if status == 200 else []
    except Invalid:
        shown = []
    if not shown:
        raise Unreachable(
            f"what answers at {url} shows no authority (HTTP status {status})",
            "Check the address. A borgmaster of a cell made by `borgctl cell init` shows one",
        )
    if authority_hash(shown[0]) == sha256:
        return shown[0]
    if any(authority_hash(pem) == sha256 for pem in shown):
        raise Unreachable(
            f"the authority of the cell at {url} is being replaced, and the old one was named",
            _ANOTHER_HASH,
        )
    raise Unreachable(
        f"{url} shows another authority ({authority_hash(shown[0])[:16]}...) than was named "
        f"({sha256[:16]}...), so the token was not sent",
        "Either that is another cell, or its authority was replaced since, or somebody stands between here "
        f"and the borgmaster. Check the address. {_ANOTHER_HASH}",
    )
