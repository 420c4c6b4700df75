"""When the certificates of a cell end: what status and metrics show of it, and what the journal is told.

What masters and machines are signed is renewed by itself, so its end matters only where that has failed; the
authority, and an operator's own files, somebody has to replace. The journal is told once at each threshold,
whatever master leads: by the request id of what it is told.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from borgish.cell.access.commands import NoteCertificate
from borgish.clock import Clock
from borgish.errors import BorgishError
from borgish.text import instant
from borgish.tls.validity import Validity, leaf_until
from borgish.wire.api_certificates import CertificatesView

MACHINE = "machine"
NOTED_MAX = 20  # a look, so that a thousand machines that joined together do not fill a turn
ACTOR = "certificates"
LATEST_SECONDS = 1.0

Note = Callable[[NoteCertificate, str, str], Awaitable[Any]]
"""Hands in a command, with its actor and request id."""


class Held(msgspec.Struct, frozen=True):
    """How long a certificate is good. ``machine`` is "" but for a machine's."""

    role: str
    validity: Validity
    renews: bool  # by itself
    machine: str = ""

    def alarm(self, wall: float) -> float:
        """Return the threshold that was passed, in seconds before the end; 0 for none."""
        return self.validity.alarm(wall, renews=self.renews)


class _Latest(NamedTuple):
    at: float  # monotonic
    views: tuple[CertificatesView, ...]
    uncertified: tuple[str, ...]


class Expiry:
    """Of one who leads. ``own`` gives what the master has itself, and ``machines`` when the certificates of
    those end that have said it, in seconds since 1970."""

    def __init__(
        self,
        own: Callable[[], tuple[Held, ...]],
        machines: Callable[[], Mapping[str, float]],
        clock: Clock,
        everyone: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """``everyone``: the machines that are to have certificates of the cell's own authority."""
        self._everyone = everyone
        self._own, self._machines, self._clock = own, machines, clock
        self._latest: _Latest | None = None
        self._noted: dict[tuple[str, str], tuple[float, float]] = {}  # end and threshold, by role and machine

    def latest(self) -> tuple[tuple[CertificatesView, ...], tuple[str, ...]]:
        """Return ``views`` and ``uncertified`` as they were a second ago at the most: each asks all machines,
        and every reading shows them."""
        now = self._clock.now().mono
        if self._latest is None or now - self._latest.at >= LATEST_SECONDS:
            self._latest = _Latest(now, self.views(), self.uncertified())
        return self._latest.views, self._latest.uncertified

    def views(self) -> tuple[CertificatesView, ...]:
        """Return when the first certificate of each role ends."""
        by_role: dict[str, list[Held]] = {}
        for held in self._all():
            by_role.setdefault(held.role, []).append(held)
        wall = self._clock.now().wall
        return tuple(_view(all_of_it, wall) for all_of_it in by_role.values())

    def uncertified(self) -> tuple[str, ...]:
        """Return the machines that have not said that they have a certificate of the cell's authority."""
        said = self._machines()
        return tuple(sorted(name for name in self._everyone() if name not in said))

    async def look(self, note: Note) -> None:
        """Have the journal told of what has come near its end since the last look."""
        wall, said = self._clock.now().wall, 0
        there: dict[tuple[str, str], tuple[float, float]] = {}
        for held in self._all():
            key, passed = (held.role, held.machine), (held.validity.ends, held.alarm(wall))
            if not passed[1]:
                continue
            if self._noted.get(key) != passed:
                if said == NOTED_MAX or not await self._note(note, held, passed[1]):
                    continue
                said += 1
            there[key] = passed
        self._noted = there

    async def _note(self, note: Note, held: Held, threshold: float) -> bool:
        ends = held.validity.ends
        request_id = f"certificate-{held.role}-{held.machine}-{ends:.0f}-{threshold:.0f}"
        try:
            await note(NoteCertificate(held.role, ends, held.machine), ACTOR, request_id)
        except BorgishError:  # the disk is full, or machines obey another master: at the next look
            return False
        return True

    def _all(self) -> Iterator[Held]:
        yield from self._own()
        for machine, ends in self._machines().items():
            yield Held(MACHINE, leaf_until(ends), renews=True, machine=machine)


def _view(those: list[Held], wall: float) -> CertificatesView:
    first = min(those, key=lambda held: (held.validity.ends, held.machine))
    ends, near = first.validity.ends, sum(bool(held.alarm(wall)) for held in those)
    return CertificatesView(first.role, instant(ends), ends - wall, len(those), near, first.machine)
