"""The times and numbers by which reconcilers judge."""

import msgspec

EVICTIONS_MAX = 100
"""How many tasks a reconciler sends away at one resync, that is each second, where it is not urgent."""


class ReconcileSettings(msgspec.Struct, frozen=True):
    """All in seconds. ``led_since`` is when this master began, on its monotonic clock, and ``led_since_wall``
    the same on its wall clock."""

    led_since: float = 0.0
    led_since_wall: float = 0.0
    down_after_seconds: float = 10.0  # of silence until a machine counts as down
    election_grace_seconds: float = 60.0  # nobody is evicted earlier, or until half have answered
    thaw_seconds: float = 10.0  # after coming back, a machine still counts towards a mass failure
    dead_jobs_seconds: float = 24 * 3600.0  # dead jobs are kept so long
