"""Jobs that run on time, as the cell has them, and which of them are due: an index, so that nobody asks those
that are not."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from borgish.spec.cron import CronSpec, run_key
from borgish.spec.schedule import NEVER, schedule_of
from borgish.text import instant

SPREAD_SECONDS = 1.0
"""What begins later than this after it was due is told to be late."""
OUTPUT_SECONDS_MAX = 365 * 86400.0
"""The output of a run is asked to stay for no longer."""


class Cron(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's cron. Times are in seconds since 1970.

    All that was due up to ``last`` was dealt with, once and for good: a rollback of the cell does not take it
    back.
    """

    spec: CronSpec
    at: float  # when somebody last decided about it
    by: str
    last: float = 0.0  # the latest instant at which it was due and that was dealt with; 0: none yet
    next: float = 0.0  # when it is due next; 0: it is paused, or never
    paused: str = ""  # by whom; "": it is not
    note: str = ""  # why no run began for ``last``, or less than were due; "" where one did
    late_seconds: float = 0.0  # so long after ``last`` it was dealt with
    among: int = 0  # so many were due then, more than begin in a second; 0: as many as do
    generation: int = 0  # see ``cell.generations``
    app: str = ""  # the key of the application that it belongs to; "": none

    @property
    def key(self) -> str:
        """Its name in its cell: ``user/name``."""
        return self.spec.key

    @property
    def state(self) -> str:
        """Whether it is paused, in words."""
        return f"paused by {self.paused}" if self.paused else "active"

    @property
    def words(self) -> str:
        """What it is, in words: its schedule, and when it is due next."""
        due = f", next {instant(self.next)}" if self.next else ""
        return f"{self.spec.schedule} ({self.spec.time_zone}), {self.state}{due}"


Runs = dict[str, dict[str, set[str]]]
"""By cron and run the jobs of it: one, or of an application one for each stage."""


def runs_of(jobs: Iterable[tuple[str, str]]) -> Runs:
    """Return the runs of each cron. ``jobs``: the keys of jobs and of their crons, "" for none."""
    runs: Runs = {}
    for job, cron in jobs:
        if cron:
            runs.setdefault(cron, {}).setdefault(run_key(cron, job), set()).add(job)
    return runs


def output_seconds(spec: CronSpec, due: float) -> float:
    """Return for how many seconds the output of a run is wanted that was ``due`` then (seconds since 1970).

    That is until by its schedule as many runs as are kept have begun after it, and one interval more, since
    they take time to end; at most ``OUTPUT_SECONDS_MAX``, which is also where the schedule ends before.
    """
    return _output_seconds(spec.schedule, spec.time_zone, spec.keep + 1, due)


# An instant of a schedule takes 60 us to find, up to 101 are, and all tasks of a run ask for the same.
@lru_cache(maxsize=1000)
def _output_seconds(schedule: str, time_zone: str, runs: int, due: float) -> float:
    times, at = schedule_of(schedule, time_zone), due
    for _ in range(runs):
        at = times.after(at)
        if at == NEVER or at - due > OUTPUT_SECONDS_MAX:
            return OUTPUT_SECONDS_MAX
    return at - due


class Due:
    """Crons by when they are due next. It follows from them; ``apply`` names what it wrote to."""

    def __init__(self, crons: dict[str, Cron]) -> None:
        self._sorted = sorted((cron.next, key) for key, cron in crons.items() if cron.next)

    def change(self, before: Cron | None, after: Cron | None) -> None:
        """Take in a cron that is new, other than it was, or gone."""
        if before is not None and before.next:
            del self._sorted[bisect_left(self._sorted, (before.next, before.key))]
        if after is not None and after.next:
            insort(self._sorted, (after.next, after.key))

    def until(self, at: float) -> list[tuple[float, str]]:
        """Return those that are due by then, and since when, the first due first."""
        if not self._sorted or self._sorted[0][0] > at:
            return []
        return self._sorted[: bisect_left(self._sorted, (at, "\U0010ffff"))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Due) and self._sorted == other._sorted

    __hash__ = None  # type: ignore[assignment]  # it changes
