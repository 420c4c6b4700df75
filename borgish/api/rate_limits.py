"""How often one user may ask, and be refused: token buckets that fill by the clock, and are empty after too
much. And how many long bodies each may have in memory at a time.

What is refused costs the master as much as what is not, and its caller nothing, so there is a bucket of its
own for it: a user who is at work gets refused a few times, a broken loop a thousand. Who has no token of this
cell is known by the address only. All machines join with the same token, so what is refused of them is
counted for each address: a misconfigured one keeps no other out.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import TypeVar

import msgspec

from borgish.cell.access.model import Principal, Role
from borgish.clock import Clock
from borgish.configuration import Amount, Count
from borgish.errors import TooManyRequests
from borgish.wire.bounded_http import UNAUTHENTICATED_OF_ADDRESS, UnauthenticatedConnections

SOURCES_MAX = 4096  # addresses that are remembered, and as many of those that machines join from
LONG_BODIES_OF_USER_MAX = 16


K = TypeVar("K", bound=Hashable)


AUTHORITY_PER_SECOND, AUTHORITY_BURST = 20.0, 1000.0
"""How often one address is shown the cell's authority. It is public, and a hundred machines behind one
address may join at once: each asks for it, and proves then that it was invited."""


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For each user; the last two, for each address that sends no token of the cell. Rate 0: no limit."""

    requests_per_second: Amount = 200.0
    requests_burst: Count = 2000
    refused_per_second: Amount = 10.0
    refused_burst: Count = 100
    unauthenticated_per_minute: Amount = 10.0
    unauthenticated_connections: Count = UNAUTHENTICATED_OF_ADDRESS


class Bucket:
    """Holds up to ``burst`` permits, and gets ``rate`` a second; it may be overdrawn."""

    def __init__(self, rate: float, burst: float, mono: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, mono

    def wait(self, mono: float) -> float:
        """Return the seconds until there is a permit, 0 when there is one."""
        if not self._rate:
            return 0.0
        self._left = min(self._burst, self._left + (mono - self._at) * self._rate)
        self._at = mono
        return max(0.0, (1 - self._left) / self._rate)

    def take(self) -> None:
        """Take a permit. Call ``wait`` before."""
        self._left -= 1


class Limits:
    """Counts what users ask and are refused. Used from the event loop only."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._clock, self.connections = clock, UnauthenticatedConnections()
        self.change(settings)

    def change(self, settings: LimitSettings) -> None:
        """Go by other settings from now on; all begin anew."""
        self._settings = settings
        self.connections.of_address = settings.unauthenticated_connections
        # By name and role: another token is no way to more.
        self._users: dict[tuple[str, str], Bucket] = {}
        self._refused: dict[tuple[str, str], Bucket] = {}
        self._refused_joins: OrderedDict[str, Bucket] = OrderedDict()
        self._sources: OrderedDict[str, Bucket] = OrderedDict()
        self._strangers: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, principal: Principal, source: str) -> None:
        """Count a request from an address. Raises TooManyRequests for one too many."""
        mono = self._clock.now().mono
        settings = self._settings
        if wait := self._refused_of(principal, source, mono).wait(mono):
            raise TooManyRequests(
                f"too many requests of {principal.name} were refused",
                f"Correct the requests; {settings.refused_per_second:g} refused ones a second are allowed",
                wait,
            )
        fresh = Bucket(settings.requests_per_second, settings.requests_burst, mono)
        requests = self._users.setdefault((principal.name, principal.role), fresh)
        if wait := requests.wait(mono):
            raise TooManyRequests(
                f"too many requests of {principal.name}",
                f"Send fewer; {settings.requests_per_second:g} requests a second are allowed",
                wait,
            )
        requests.take()

    def refused(self, principal: Principal, source: str) -> None:
        """Count a request that was admitted, and refused then."""
        mono = self._clock.now().mono
        bucket = self._refused_of(principal, source, mono)
        bucket.wait(mono)
        bucket.take()

    def stranger(self, source: str) -> None:
        """Count a request that needs no token. Raises TooManyRequests for one too many."""
        mono = self._clock.now().mono
        bucket = _latest(self._strangers, source, Bucket(AUTHORITY_PER_SECOND, AUTHORITY_BURST, mono))
        if wait := bucket.wait(mono):
            raise TooManyRequests(f"too many requests from {source}", "Ask again in a moment", wait)
        bucket.take()

    def unauthenticated(self, source: str) -> None:
        """Count a request without a token of this cell. Raises TooManyRequests for one too many."""
        mono, rate = self._clock.now().mono, self._settings.unauthenticated_per_minute
        bucket = _latest(self._sources, source, Bucket(rate / 60, max(1.0, rate), mono))
        if wait := bucket.wait(mono):
            raise TooManyRequests(
                f"too many requests from {source} without a valid token",
                "Is the token of another cell? Send it as 'Authorization: Bearer TOKEN'",
                wait,
            )
        bucket.take()

    def _refused_of(self, principal: Principal, source: str, mono: float) -> Bucket:
        fresh = Bucket(self._settings.refused_per_second, self._settings.refused_burst, mono)
        if principal.role == Role.JOIN:
            return _latest(self._refused_joins, source, fresh)
        return self._refused.setdefault((principal.name, principal.role), fresh)


class LongBodies:
    """Counts the bodies of each user that are being received or worked on, and take memory.

    One that comes slowly may take a minute, and hundreds of them would be as many MiB, which the allocator
    gives back in part only. Of machines they are counted for each address, as what is refused of them.
    """

    def __init__(self) -> None:
        self._open: Counter[tuple[str, str]] = Counter()

    def begin(self, principal: Principal, source: str) -> None:
        """Count one. Raises TooManyRequests for one too many."""
        who = _who(principal, source)
        if self._open[who] >= LONG_BODIES_OF_USER_MAX:
            raise TooManyRequests(
                f"{LONG_BODIES_OF_USER_MAX} long requests of {principal.name} are under way",
                "Send a few at a time",
                1.0,
            )
        self._open[who] += 1

    def end(self, principal: Principal, source: str) -> None:
        """Count one less."""
        who = _who(principal, source)
        self._open[who] -= 1
        if not self._open[who]:
            del self._open[who]


def _who(principal: Principal, source: str) -> tuple[str, str]:
    return (source if principal.role == Role.JOIN else principal.name), principal.role


def _latest(buckets: "OrderedDict[K, Bucket]", key: K, fresh: Bucket) -> Bucket:
    """Return the bucket of a key, or else the fresh one, and forget the one that was unused for longest when
    there are too many."""
    bucket = buckets[key] = buckets.pop(key, fresh)
    if len(buckets) > SOURCES_MAX:
        buckets.popitem(last=False)
    return bucket
