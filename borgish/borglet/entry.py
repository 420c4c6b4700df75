"""What a borglet remembers over its own restart: one entry an attempt, and one head for the machine.

Times are seconds since 1970. Of those that ages are told by, the monotonic clock is kept as well;
``moment`` and ``past_moment`` turn them back into moments of the next process.
"""

import msgspec

from borgish.borglet.transitions import Purpose, Stage
from borgish.clock import Now
from borgish.vocabulary import Ending
from borgish.wire.link import UNKNOWN, AttemptSpec, Exit, Leader, attempt_key


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt, or one program beside its main one, as the ledger keeps it. ``spec`` is None when only
    its run was found."""

    task: str
    attempt: int
    spec: AttemptSpec | None
    stage: Stage
    run: int = 0
    started_at: float = 0.0
    started_mono: float = 0.0
    first_started_at: float = 0.0
    first_started_mono: float = 0.0
    due_at: float = 0.0
    end_by_at: float = 0.0
    purpose: Purpose = Purpose.NONE
    why: str = ""
    backoff_ends: int = 0
    failures: tuple[float, ...] = ()
    hopeless: int = 0
    port_in_use: int = 0
    answered: bool = False  # its probe, in this run
    last_exit: Exit | None = None
    ended: Ending | None = None
    reason: str = ""
    program: str = ""

    @property
    def key(self) -> str:
        return attempt_key(self.task, self.attempt, self.program)


class Head(msgspec.Struct, frozen=True):
    """Whose ledger it is, and the newest master and assignment it has obeyed."""

    machine: str
    timeline: int = 0
    epoch: int = 0
    generation: int = 0
    leader: Leader = UNKNOWN

    @property
    def term(self) -> tuple[int, int]:
        """What masters are told apart by; the higher one leads."""
        return self.timeline, self.epoch


def moment(at: float, now: Now) -> Now:
    """Return the moment that was ``at`` seconds since 1970; a time not known (0) is now."""
    return now.later(at - now.wall) if at else now


def past_moment(at: float, mono: float, now: Now) -> Now | None:
    """Return a moment of the past by what was kept of both its clocks; None when it is not known (0).

    The monotonic clock of a Linux host goes on from process to process, so while the host runs the age is
    true whatever the wall clock did. After a boot it says less than the truth at most, or lies ahead.
    """
    if not at:
        return None
    return Now(at, mono) if 0 < mono <= now.mono else moment(at, now)
