"""The one place that reads a clock. Deciding code gets its time as an argument instead."""

import time
from typing import Protocol

import msgspec


class Now(msgspec.Struct, frozen=True):
    """One moment, on three clocks.

    ``wall`` is seconds since 1970 in UTC, to be shown and stored; it may jump. ``mono`` is seconds
    on a clock that never jumps, to be subtracted; it means nothing on another host or after a boot.
    Whether a machine is alive is decided on ``mono`` alone. ``boot`` is like ``mono``, but goes on while the
    host is suspended (Linux' CLOCK_BOOTTIME): leases are judged by it.
    """

    wall: float
    mono: float
    boot: float = 0.0

    def wall_unless_set_on(self, since: "Now") -> float:
        """Return the wall clock as it would be, had nobody set it on since an earlier moment.

        To judge ages by: a clock that leaps ten years ahead makes nothing ten years older.
        """
        return min(self.wall, since.wall + self.mono - since.mono)

    def later(self, seconds: float) -> "Now":
        """Return the moment ``seconds`` after this one."""
        return Now(self.wall + seconds, self.mono + seconds, self.boot + seconds)


class Clock(Protocol):
    """Tells the time: the real one here, a virtual one in the simulator."""

    def now(self) -> Now:
        """Return this moment."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Now:
        return Now(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
