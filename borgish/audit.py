"""The audit log: who asked for what, each entry chained to the one before by an HMAC, so that whoever can
write to the database alone can change or remove none unseen.

The journal says what happened to the cell; this says what people did: each mutation, each machine that an
invitation let in, each command in a task, each look into another's output by an admin, and how often somebody
was refused. An entry is durable before whoever asked is answered.
"""

import hmac
from collections.abc import Iterable

import msgspec

DIGEST_OF_NOTHING = "0" * 64

_encode = msgspec.json.Encoder().encode


class AuditNote(msgspec.Struct, frozen=True):
    """What somebody did. ``at`` in seconds since 1970; ``source`` is the address that the request came from,
    ``token`` the id of the token it came with."""

    at: float
    user: str
    role: str
    token: str
    source: str
    action: str  # the name of a command, or a word: logs, exec, refused ...
    object: str  # what it was about
    outcome: str = ""  # what was answered
    count: int = 1  # of requests that were refused: so many alike in one minute


class AuditEntry(msgspec.Struct, frozen=True):
    """A note in its place. ``position``: of the journal entry that it led to, 0 for none."""

    number: int
    note: AuditNote
    position: int
    digest: str  # HMAC-SHA-256 over this and the digest before, in hex


class AuditChain:
    """Adds to the log. ``last`` is the latest entry there is."""

    def __init__(self, secret: str, last: AuditEntry | None) -> None:
        self._key = key_of(secret)
        self._last = last

    def add(self, notes: Iterable[tuple[AuditNote, int]]) -> list[AuditEntry]:
        """Return the entries of notes, with the positions of their journal entries."""
        added = []
        for note, position in notes:
            number = self._last.number + 1 if self._last else 1
            before = self._last.digest if self._last else DIGEST_OF_NOTHING
            self._last = AuditEntry(
                number, note, position, _digest(self._key, before, number, note, position)
            )
            added.append(self._last)
        return added


def key_of(secret: str) -> bytes:
    """Return the key of the chain, made of the cell's secret: all its masters have the same."""
    return hmac.digest(secret.encode(), b"borgish audit", "sha256")


def first_wrong(secret: str, entries: Iterable[AuditEntry], before: AuditEntry | None) -> str:
    """Return what is wrong with entries that follow ``before``, in order; "" for a chain that holds.

    ``before`` None: the first of them is taken as it is, for those before it are no longer kept.
    """
    key = key_of(secret)
    for entry in entries:
        if before is None and entry.number == 1:
            before = AuditEntry(0, entry.note, 0, DIGEST_OF_NOTHING)
        if before is not None:
            if entry.number != before.number + 1:
                return f"entries {before.number + 1} to {entry.number - 1} are missing"
            right = _digest(key, before.digest, entry.number, entry.note, entry.position)
            if not hmac.compare_digest(right, entry.digest):
                return f"entry {entry.number} was changed, or one before it was removed"
        before = entry
    return ""


def _digest(key: bytes, before: str, number: int, note: AuditNote, position: int) -> str:
    return hmac.digest(key, _encode((before, number, note, position)), "sha256").hex()
