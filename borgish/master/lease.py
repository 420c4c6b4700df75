"""How long a master may believe that it leads: sums of clock readings, and nothing else.

On Postgres the lease stands in the database, on the database's clock, and another master may lead when it
is over. This is the master's own side of it, on its monotonic clock, and ends sooner: so it has stopped
before another begins, as long as its clock is not slower by half.
"""

import msgspec


class LeaseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In seconds: how long a lease lasts, how often it is renewed, and after how long without that a master
    stops itself. The same in all masters of a cell."""

    ttl_seconds: float = 6.0
    renew_seconds: float = 1.5
    deadline_seconds: float = 4.0


class Lease:
    """The lease of one who leads. Readings are of one monotonic clock."""

    def __init__(self, settings: LeaseSettings, asked: float) -> None:
        self._settings = settings
        self._asked = asked

    def renewed(self, asked: float) -> None:
        """Note that it was renewed. ``asked``: when the question left, as it may have been answered then."""
        self._asked = max(self._asked, asked)

    def left(self, now: float) -> float:
        """Return the seconds until it has to be given up; 0 or less when it has to be now."""
        return self._asked + self._settings.deadline_seconds - now

    def due_in(self, now: float) -> float:
        """Return the seconds until it is to be renewed, 0 when it is late."""
        return max(0.0, self._asked + self._settings.renew_seconds - now)


def wrong_with(settings: LeaseSettings) -> str:
    """Return what is wrong with some settings, "" when nothing is."""
    if not 0 < settings.renew_seconds < settings.deadline_seconds < settings.ttl_seconds < 3600:
        return (
            f"renew_seconds {settings.renew_seconds:g}, deadline_seconds {settings.deadline_seconds:g} and "
            f"ttl_seconds {settings.ttl_seconds:g} do not grow in this order, from above 0 to below 3600"
        )
    return ""
