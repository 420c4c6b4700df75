"""The token of an invitation: ``BG1<hash of the cell's authority>::<secret>``.

The hash is the SHA-256 of the authority's certificate (DER), in hex: who joins or logs in compares it with
what the master shows before anything secret leaves (the forms of k3s and kubeadm). It is empty where a cell
has no authority, which is on loopback only.
"""

import hashlib
import re

import msgspec

from borgish.errors import Invalid

MARK = "BG1"
SECRET_CHARACTERS = 43  # 256 bits, as ``secrets.token_urlsafe`` writes them
TOKEN_CHARACTERS_MAX = 256
HINT = "Copy the whole line that the invitation printed; a new one is made by `borgctl machine invite`"

_HASH = re.compile(r"([0-9a-f]{64})?")
_SECRET = re.compile(rf"[A-Za-z0-9_-]{{{SECRET_CHARACTERS},128}}")


class JoinToken(msgspec.Struct, frozen=True):
    """One invitation, as it is handed over. ``authority`` is a SHA-256 in hex, or "" without TLS."""

    authority: str
    secret: str

    def __str__(self) -> str:
        """Return it as it is written, secret and all."""
        return f"{MARK}{self.authority}::{self.secret}"

    def __repr__(self) -> str:
        return f"JoinToken({self.authority}, ***)"


def parse(text: str) -> JoinToken:
    """Read a token. Raises Invalid, which never repeats the secret."""
    text = text.strip()
    if len(text) > TOKEN_CHARACTERS_MAX or not text.startswith(MARK):
        raise Invalid(f"this is not a join token: one begins with {MARK}", HINT)
    authority, mark, secret = text.removeprefix(MARK).partition("::")
    if not mark:
        raise Invalid("the join token was cut off: there is no '::' in it", HINT)
    if not _HASH.fullmatch(authority):
        raise Invalid(
            f"the join token is damaged: between {MARK} and '::' are not 64 digits in hex, or nothing", HINT
        )
    if not _SECRET.fullmatch(secret):
        raise Invalid(f"the join token was cut off: its secret has {SECRET_CHARACTERS} characters", HINT)
    return JoinToken(authority, secret)


def digest_of(secret: str) -> str:
    """Return what is kept of a token or an invitation: its SHA-256, in hex.

    A plain digest is enough: they are 256 random bits, which no dictionary has.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
