"""How often one user may ask, and be refused: buckets that fill by the clock, and are empty after too much.

What is refused costs the master as much as what is not, and its caller nothing, so there is a bucket of its
own for it. Who has no token of this cell is known by the address only.
"""

from collections import OrderedDict

import msgspec

from borgish.api.gateway import Principal
from borgish.clock import Clock
from borgish.errors import TooManyRequests

SOURCES_MAX = 4096  # without a token, that are remembered


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For each user; the last, for each address that sends no token of the cell. A rate of 0: no limit."""

    requests_per_second: float = 200.0
    requests_burst: int = 2000
    refused_per_second: float = 10.0
    refused_burst: int = 100
    unauthenticated_per_minute: float = 10.0


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


class _Buckets(msgspec.Struct):
    requests: Bucket
    refused: Bucket


class Limits:
    """Counts what users ask and are refused. Used from the event loop only."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._clock = clock
        self.change(settings)

    def change(self, settings: LimitSettings) -> None:
        """Go by other settings from now on; all begin anew."""
        self._settings = settings
        self._users: dict[Principal, _Buckets] = {}
        self._sources: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, principal: Principal) -> None:
        """Count a request. Raises TooManyRequests for one too many."""
        mono = self._clock.now().mono
        buckets = self._buckets(principal, mono)
        settings = self._settings
        if wait := buckets.refused.wait(mono):
            raise TooManyRequests(
                f"too many requests of {principal.name} were refused",
                f"Correct what is asked; {settings.refused_per_second:g} mistakes a second are answered",
                wait,
            )
        if wait := buckets.requests.wait(mono):
            raise TooManyRequests(
                f"too many requests of {principal.name}",
                f"Ask less often; {settings.requests_per_second:g} requests a second are answered",
                wait,
            )
        buckets.requests.take()

    def refused(self, principal: Principal) -> None:
        """Count a request that was admitted, and refused then."""
        mono = self._clock.now().mono
        bucket = self._buckets(principal, mono).refused
        bucket.wait(mono)
        bucket.take()

    def unauthenticated(self, source: str) -> None:
        """Count a request without a token of this cell. Raises TooManyRequests for one too many."""
        mono, rate = self._clock.now().mono, self._settings.unauthenticated_per_minute
        bucket = self._sources.pop(source, None) or Bucket(rate / 60, max(1.0, rate), mono)
        self._sources[source] = bucket
        if len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)
        if wait := bucket.wait(mono):
            raise TooManyRequests(
                f"too many requests from {source} with no token of this cell",
                "Is the token of another cell? Send it as 'Authorization: Bearer TOKEN'",
                wait,
            )
        bucket.take()

    def _buckets(self, principal: Principal, mono: float) -> _Buckets:
        known = self._users.get(principal)
        if known is None:
            settings = self._settings
            known = self._users[principal] = _Buckets(
                Bucket(settings.requests_per_second, settings.requests_burst, mono),
                Bucket(settings.refused_per_second, settings.refused_burst, mono),
            )
        return known


def wrong_with(settings: LimitSettings) -> str:
    """Return what is wrong with some settings, "" when nothing is."""
    for name, rate, burst in (
        ("requests", settings.requests_per_second, settings.requests_burst),
        ("refused", settings.refused_per_second, settings.refused_burst),
    ):
        if not 0 <= rate < 1e9:
            return f"{name}_per_second {rate:g} is not between 0 and 1e9"
        if not 1 <= burst < 1e9:
            return f"{name}_burst {burst} is not between 1 and 1e9"
    if not 0 <= settings.unauthenticated_per_minute < 1e9:
        return f"unauthenticated_per_minute {settings.unauthenticated_per_minute:g} is not between 0 and 1e9"
    return ""
