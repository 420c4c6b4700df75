"""What came to each machine lately, and what went: whoever keeps something of a machine's tasks brings it up
to date at the cost of what changed, and not of all that runs there.

A second form of what ``Cell.placed`` and ``Cell.arriving`` say, and no truth of its own: who does not know
where it stood, or stood too long ago, looks at all tasks of the machine.
"""

from collections.abc import Sequence

import msgspec

from borgish.spec.job import JobSpec
from borgish.vocabulary import JobKind

LATEST_MIN = 16
LATEST_SHARE = 8
"""Of a machine with n tasks at least n / 8 moves are kept. So who missed more looks at all n for every n / 8
moves at most, which is 8 tasks for each; and the moves of a cell take no more room than its tasks."""


class Move(msgspec.Struct, frozen=True, gc=False):
    """An attempt that a machine is to run from now on, or is to run no more."""

    job: str
    index: int
    attempt: int
    tasks: int  # so many more are placed there: 1 or -1; 0 where it is an incoming attempt
    spec: JobSpec  # what it runs, or ran
    ports: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    alloc: int = -1  # in which it is; -1: in none

    @property
    def concerns_allocs(self) -> bool:
        """Whether it is an alloc, or in one."""
        return self.alloc >= 0 or self.spec.kind is JobKind.ALLOC_SET


class Moves:
    """The latest moves of one machine."""

    __slots__ = ("count", "latest")

    def __init__(self) -> None:
        self.count = 0  # of all there ever were
        self.latest: list[Move] = []

    def add(self, move: Move, tasks: int) -> None:
        """Note a move; ``tasks`` is how many are placed on the machine."""
        self.count += 1
        self.latest.append(move)
        kept = LATEST_MIN + tasks // LATEST_SHARE
        if len(self.latest) > 2 * kept:
            del self.latest[:-kept]

    def forget(self) -> None:
        """Let everybody look at all tasks: what is known of them may be otherwise, though none moved."""
        self.count += 1
        self.latest.clear()


class Cursor:
    """How far somebody has followed the moves of a machine."""

    __slots__ = ("_count", "_moves")

    def __init__(self) -> None:
        self._moves: Moves | None = None
        self._count = 0

    def news(self, moves: Moves | None) -> Sequence[Move] | None:
        """Return what moved since the last call, oldest first; None where that is not known, so that all
        tasks of the machine are to be looked at. ``moves`` are the machine's; a machine that is not in the
        cell has none.
        """
        known, since = self._moves, self._count
        self._moves = moves
        if moves is None:
            return None
        self._count = moves.count
        missed = moves.count - since
        if known is not moves or missed > len(moves.latest):  # other than before: the machine joined anew
            return None
        return moves.latest[-missed:] if missed else ()
