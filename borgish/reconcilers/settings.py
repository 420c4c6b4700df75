"""The times and numbers by which reconcilers judge, and what they judge alike."""

import math

import msgspec

from borgish.cell.model import Cell
from borgish.cell.observed import Observed, SeenMachine
from borgish.clock import Now

EVICTIONS_MAX = 100
"""How many tasks a reconciler sends away at one resync, that is each second, where it is not urgent."""


LOST_SECONDS = 10.0
"""The time in which the machines that are given up are counted."""

MASS_FAILURE_SHARE = 0.5
MASS_FAILURE_MACHINES_MIN = 3
OVERDUE_SHARE = 0.7
"""Of the silence after which a machine is down: one that missed a poll and was silent for so long counts
towards a mass failure. Where polls are held long, most machines that fail together have missed but one of
them when the first of them is down. Where holds are short, it has missed two by then."""


class ReconcileSettings(msgspec.Struct, frozen=True):
    """Times are in seconds. ``led_since`` is when this master began, on its monotonic clock, and
    ``led_since_wall`` the same on its wall clock."""

    led_since: float = 0.0
    led_since_wall: float = 0.0
    down_after_seconds: float = 10.0  # of silence until a machine counts as down
    down_after_refused_seconds: float = 60.0  # without an answer, while its host refuses connections
    election_grace_seconds: float = 60.0  # nobody is evicted earlier, or until half have answered
    recently_back_seconds: float = 10.0  # after coming back, a machine still counts towards a mass failure
    lost_share_max: float = 0.02  # of the machines, given up in LOST_SECONDS; one may be in any case
    dead_jobs_seconds: float = 24 * 3600.0  # dead jobs are kept so long
    dead_tasks_max: int = 100_000  # in the dead jobs of one user that are kept
    rollout_stops_max: int = 50  # tasks that rollouts stop in a second

    def is_gone(self, seen: SeenMachine, now: Now) -> bool:
        """Return whether a machine has given this master no answer for so long that it counts as down."""
        # A host that is known to be alive is never given less time than one of which nothing is known.
        refused_seconds_max = max(self.down_after_refused_seconds, self.down_after_seconds)
        silent_seconds = now.mono - max(seen.answered, seen.refused)
        return silent_seconds > self.down_after_seconds or now.mono - seen.answered > refused_seconds_max

    def judged(self, now: Now) -> Now:
        """Return now to judge ages by: a wall clock that leaps ahead makes nothing miss its deadline."""
        if not self.led_since_wall:
            return now
        return Now(now.wall_unless_set_on(Now(self.led_since_wall, self.led_since)), now.mono)

    def steady_wall(self, now: Now) -> float:
        """Return the wall clock as it would be, had nobody set it since this master began to lead."""
        return self.led_since_wall + now.mono - self.led_since


def is_mass_failure(cell: Cell, observed: Observed, settings: ReconcileSettings, now: Now) -> bool:
    """Return whether so many machines do not answer, or did not a moment ago, that no task is moved."""
    failed = sum(
        not machine.up or _is_unreachable(observed, name, settings, now)
        for name, machine in cell.machines.items()
    )
    return failed == len(cell.machines) or (
        failed >= MASS_FAILURE_MACHINES_MIN and failed >= MASS_FAILURE_SHARE * len(cell.machines)
    )


def _is_unreachable(observed: Observed, name: str, settings: ReconcileSettings, now: Now) -> bool:
    """Return whether a machine missed its last polls, or one and was silent for long, or was down and is back
    only since a moment ago."""
    seen = observed.machines.get(name)
    if seen is None:
        return False
    is_overdue = seen.misses and now.mono - seen.answered > OVERDUE_SHARE * settings.down_after_seconds
    is_back = (seen.returned or -math.inf) > now.mono - settings.recently_back_seconds
    return not seen.is_answering or bool(is_overdue) or is_back
