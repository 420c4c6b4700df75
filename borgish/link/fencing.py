"""Which machines refuse this master, because they obey another one. Pure.

A machine alone cannot depose a master: it may be the one that errs. When half of those that answer refuse,
the cell is led by somebody else, on another store, whatever this master's own store says. Then no command is
accepted, since nobody would run it, and after ``REFUSED_SECONDS_MAX`` this master ends as well.
"""

import msgspec

from borgish.errors import Fenced

REFUSED_SECONDS_MAX = 5.0
"""A machine that obeys another master does so until that one is superseded in turn, so waiting heals nothing;
but somebody who looks should find the reason. Less than the ten seconds of silence after which a machine
counts as down: nothing is evicted from machines that another master leads."""


class FencedByMachines(msgspec.Struct, frozen=True):
    """``refusing`` of the ``answering`` machines obey another master; ``example`` is what one says."""

    refusing: int
    answering: int
    example: str

    @property
    def text(self) -> str:
        return (
            f"no command is accepted, since {self.refusing} of {self.answering} machines that answer obey "
            f"another borgmaster: {self.example}"
        )

    def error(self) -> Fenced:
        return Fenced(
            self.text,
            "Ask the other borgmaster. If it is on a copy of this database, stop it and start this one again:"
            " while it lives this one can only lead when started with --take-over, on a new timeline",
        )


class FencingMonitor:
    """What each polled machine answered last. Those that do not answer do not count."""

    def __init__(self) -> None:
        self._refusals: dict[str, str] = {}  # by machine; "" for one that obeys, or was not asked yet
        self._refusing: set[str] = set()
        self._since: float | None = None

    def note(self, machine: str, refusal: str = "") -> None:
        """Take in that a machine answered, and why it refuses; "" for one that obeys."""
        self._refusals[machine] = refusal
        (self._refusing.add if refusal else self._refusing.discard)(machine)

    def drop(self, machine: str) -> None:
        """Take in that a machine does not answer, or is polled no more."""
        self._refusals.pop(machine, None)
        self._refusing.discard(machine)

    def fenced(self) -> FencedByMachines | None:
        """Return who refuses, where that is at least half of those that answer."""
        if not self._refusing or 2 * len(self._refusing) < len(self._refusals):
            return None
        return FencedByMachines(len(self._refusing), len(self._refusals), self._refusals[min(self._refusing)])

    def check(self) -> None:
        """Return if commands may be accepted: most machines do as this master says. Raises Fenced."""
        if refused := self.fenced():
            raise refused.error()

    def seconds(self, mono: float) -> float:
        """Return for how long that has been so, as far as was looked; to be asked now and then."""
        if self.fenced() is None:
            self._since = None
            return 0.0
        if self._since is None:
            self._since = mono
        return mono - self._since
