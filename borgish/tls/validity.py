"""How long a certificate is good, when it is renewed, and when its end is a reason to say so. Pure."""

import msgspec

RENEWED_AT = 2 / 3
"""Of its life: a leaf of 30 days is renewed on day 20, and ten days are left to mend what prevents it."""
ALARM_SECONDS = (3 * 86400.0, 7 * 86400.0)
"""Before the end, the more urgent first. A leaf in good health is never older than 20 days, so that at seven
days before its end renewing has failed for three: 14 days would be an alarm without a reason."""


class Validity(msgspec.Struct, frozen=True):
    """From when until when, on the wall clock (seconds since 1970)."""

    begins: float
    ends: float

    def renewal_at(self, spread: float = 0.0) -> float:
        """Return when to renew: at two thirds of its life, or up to a tenth of it earlier by ``spread``, from
        0 to 1, so that machines which joined together do not all renew together."""
        life = self.ends - self.begins
        return self.begins + life * (RENEWED_AT - 0.1 * spread)

    def alarm(self, now: float) -> float:
        """Return the alarm that is due, as seconds before the end; 0 when there is none."""
        return next((seconds for seconds in ALARM_SECONDS if now > self.ends - seconds), 0.0)
