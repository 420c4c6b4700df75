"""Assignments and reports as differences: what both ends of the link have to agree on.

What is compared is always the whole, by a digest that costs as much as the change: the sum of the digests of
its attempts, whatever their order. It guards against what went wrong unnoticed; who may speak is guarded by
tokens and certificates.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from borgish.wire.link import Assignment, AssignmentChange, AttemptReport, AttemptSpec

_BITS = 53  # so that JSON readers that know floats alone read it right
_encode = msgspec.json.Encoder().encode


_Key = TypeVar("_Key")


def _digest_of(attempt: AttemptSpec | AttemptReport) -> int:
    """Return the digest of one attempt. Of releases that know other fields it differs, as it should."""
    return int.from_bytes(blake2b(_encode(attempt), digest_size=8).digest()) >> (64 - _BITS)


class Digests(Generic[_Key]):
    """The digests of all attempts of an assignment or a report, and ``whole``, that of them all."""

    def __init__(self) -> None:
        self._of: dict[_Key, int] = {}
        self.whole = 0

    def follow(
        self,
        fresh: Mapping[_Key, AttemptSpec | AttemptReport],
        gone: Collection[_Key] = (),
        expected: int | None = None,
    ) -> bool:
        """Follow a change, at its cost: ``fresh`` came or changed, and ``gone`` are no more, if they were
        known. Where it leads to another digest than ``expected`` nothing is followed; return whether it was.
        """
        digests = {key: _digest_of(attempt) for key, attempt in fresh.items()}
        former = sum(self._of[key] for key in {*gone, *fresh} if key in self._of)
        whole = (self.whole + sum(digests.values()) - former) % (1 << _BITS)
        if expected is not None and whole != expected:
            return False
        for key in gone:
            self._of.pop(key, None)
        self._of |= digests
        self.whole = whole
        return True


class Changed(Generic[_Key]):
    """What changed since the generation that the other end has, each with the last one that changed it."""

    def __init__(self) -> None:
        self._at: dict[_Key, int] = {}
        self._complete_since = 0

    def note(self, keys: Iterable[_Key], generation: int) -> None:
        """Record what the newest generation changed."""
        self._at |= dict.fromkeys(keys, generation)

    def since(self, base: int) -> list[_Key] | None:
        """Return all that changed after a generation; None where that is not known any more."""
        if base < self._complete_since:
            return None
        return [key for key, generation in self._at.items() if generation > base]

    def confirm(self, generation: int) -> None:
        """Keep nothing of what changed up to a generation: the other end has it."""
        if generation > self._complete_since:
            self._complete_since = generation
            self._at = {key: at for key, at in self._at.items() if at > generation}

    def forget(self, generation: int) -> None:
        """Keep nothing of what changed up to the newest generation: nobody asks for less than the whole."""
        self._complete_since, self._at = generation, {}


class HeldAssignment:
    """The assignment that a borglet works on, kept so that changes of it cost what changed."""

    def __init__(self, assignment: Assignment) -> None:
        self.generation = assignment.generation
        self._stop, self._secrets = assignment.stop, assignment.secrets
        self._run = {spec.key: spec for spec in assignment.run}
        self._digests = Digests[str]()
        self._digests.follow(self._run)
        self.digest: int | None = self._digests.whole

    def __contains__(self, key: str) -> bool:
        """Return whether its ``run`` names the attempt."""
        return key in self._run

    @property
    def whole(self) -> Assignment:
        return Assignment(self.generation, tuple(self._run.values()), self._stop, self._secrets)

    def take(self, change: AssignmentChange) -> bool:
        """Become what a change leads to; return whether it did. Where the digests show that it does not lead
        there, ``digest`` is None from then on: nothing but a whole assignment will do."""
        if self.digest is None or not change.base <= self.generation < change.generation:
            return False
        fresh = {spec.key: spec for spec in change.run}
        if not self._digests.follow(fresh, change.gone, change.digest):
            self.digest = None
            return False
        for key in change.gone:
            self._run.pop(key, None)
        self._run |= fresh
        self.generation, self.digest = change.generation, change.digest
        self._stop, self._secrets = change.stop, change.secrets
        return True
