"""How long a certificate is good, when it is renewed, and when its end is a reason to say so. Pure."""

import msgspec

LEAF_DAYS = 30
"""What masters and machines are signed for."""
RENEWED_AT = 2 / 3
"""Of its life: a leaf of 30 days is renewed on day 20, and ten days are left to mend what prevents it."""
ALARM_SECONDS = (3 * 86400.0, 14 * 86400.0)
"""Before the end, the more urgent first."""
OVERDUE_SECONDS = 86400.0
"""What is renewed by itself is no reason for an alarm until that has failed for so long: a leaf in good
health has 14 days left once a month, and less than nine never."""


class Validity(msgspec.Struct, frozen=True):
    """From when until when, on the wall clock (seconds since 1970)."""

    begins: float
    ends: float

    def renewal_at(self, spread: float = 0.0) -> float:
        """Return when to renew: at two thirds of its life, or up to a tenth of it earlier by ``spread``, from
        0 to 1, so that machines which joined together do not all renew together."""
        life = self.ends - self.begins
        return self.begins + life * (RENEWED_AT - 0.1 * spread)

    def alarm(self, now: float, *, renews: bool = True) -> float:
        """Return the alarm that is due, as seconds before the end; 0 when there is none. ``renews``: it is
        renewed by itself, so that its end matters only when that is overdue."""
        if renews and now <= self.renewal_at() + OVERDUE_SECONDS:
            return 0.0
        return next((seconds for seconds in ALARM_SECONDS if now > self.ends - seconds), 0.0)


def leaf_until(ends: float) -> Validity:
    """Return how long a leaf is good of which only the end is known."""
    return Validity(ends - LEAF_DAYS * 86400.0, ends)
