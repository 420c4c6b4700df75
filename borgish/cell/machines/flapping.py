"""Machines that go down again and again: nothing new is placed on them for a growing time. Pure.

What is placed on a flapping machine is moved again a moment later, each time. So one that went down three
times in ten minutes is *quarantined*: what runs there goes on, and nothing new comes for ten minutes, then
twenty, up to two hours. It ends by itself; a quiet time of two hours makes the next one short again. With a
machine that goes down meanwhile its time begins anew. That it comes back resets nothing.

Where half of the cell is unreachable the fault is more likely ours: going down then counts for nothing
(``reconcilers.machines``). Times are in seconds on a clock that nobody steps while a master leads
(``ReconcileSettings.steady_wall``).
"""

from borgish.cell.events import MachineQuarantined
from borgish.cell.model import Flaps, Machine

DOWNS = 3
WITHIN_SECONDS = 600.0
QUARANTINE_SECONDS = 600.0
QUARANTINE_SECONDS_MAX = 7200.0
FORGOTTEN_SECONDS = 7200.0


def downs_with(flaps: Flaps, at: float) -> tuple[float, ...]:
    """Return when a machine went down of late, this time included. Times of a clock that was set since are
    dropped."""
    return (*(down for down in flaps.downs if abs(at - down) < WITHIN_SECONDS), at)[-DOWNS:]


def quarantine(machine: Machine, at: float) -> MachineQuarantined | None:
    """Return the quarantine that begins, or begins anew, as a machine goes down now; None for none."""
    flaps = machine.flaps
    if machine.quarantined_until:
        times = flaps.quarantines
    elif len(downs_with(flaps, at)) < DOWNS:
        return None
    else:
        times = flaps.quarantines + 1 if abs(at - flaps.until) < FORGOTTEN_SECONDS else 1
    seconds = min(QUARANTINE_SECONDS * 2.0 ** (times - 1), QUARANTINE_SECONDS_MAX)
    return MachineQuarantined(machine.name, at + seconds, times)


def is_over(machine: Machine, at: float) -> bool:
    """Return whether a machine's quarantine is over; also where the clock was set back so far that it would
    last for longer than any may."""
    until = machine.quarantined_until
    return bool(until) and not at < until <= at + QUARANTINE_SECONDS_MAX
