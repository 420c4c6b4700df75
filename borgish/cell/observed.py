"""What was observed of machines: when one last answered, what runs on it, what that uses.

Not journalled, lost with the process, and rebuilt from one whole report of each machine. Written
only by the master's step.
"""

import msgspec

from borgish.resources import Resources
from borgish.vocabulary import Ending, Phase, Runtime


class SeenProgram(msgspec.Struct, frozen=True):
    """One of the programs beside an attempt's main one, as last reported."""

    name: str
    phase: Phase
    pid: int = 0
    restarts: int = 0
    reason: str = ""


class SeenAttempt(msgspec.Struct, frozen=True):
    """One attempt as its machine last reported it; see ``wire.link.AttemptReport`` for the fields."""

    task: str
    attempt: int
    phase: Phase
    needs: Resources = Resources()
    ports: tuple[int, ...] = ()
    pid: int = 0
    started_at: float = 0.0
    restarts: int = 0
    ended: Ending | None = None
    exit_code: int | None = None
    signal: int | None = None
    exit_reason: str = ""
    reason: str = ""
    port_in_use: int = 0
    devices: tuple[str, ...] = ()  # those it has, like gpu:0
    alloc: str = ""  # the attempt of the alloc that it is in, like user/room/3@1200
    programs: tuple[SeenProgram, ...] = ()
    early_ends: int = 0
    since: float = 0.0  # seen in this phase after so many restarts; of the master's monotonic clock


MISSES_MAX = 2
"""So many polls missed in a row, and a machine is not answering: it gets no new tasks. One may be lost."""


class Miss(msgspec.Struct, frozen=True):
    """Polls in a row that got no valid answer."""

    trouble: str  # of the last of them
    refused: float = 0.0  # when a connection was last refused, on the monotonic clock; 0: by none of them
    polls: int = 1

    def then(self, later: "Miss") -> "Miss":
        """Return this and what followed as one."""
        return Miss(later.trouble, max(self.refused, later.refused), self.polls + later.polls)


class SeenMachine(msgspec.Struct):
    """One machine as last heard. Times are of the master's monotonic clock."""

    first_heard: float = 0.0  # under this master; 0: not yet
    heard: float = 0.0
    watched_since: float = 0.0  # since when this master has tried to reach it
    trouble: str = ""  # why the last poll got no valid answer; "" when it did
    misses: int = 0  # polls in a row without a valid answer
    refused: float = 0.0  # when its host last refused a connection, and so was alive
    returned: float = 0.0  # when it last came up after being down; 0: not under this master
    boot_id: str = ""
    instance: str = ""
    generation: int = 0
    attempts: dict[tuple[str, int], SeenAttempt] = {}  # by (task name, attempt)
    orphans: dict[tuple[str, int], float] = {}  # first seen when
    conditions: tuple[str, ...] = ()
    unhealthy_runtimes: tuple[Runtime, ...] = ()
    usage: dict[tuple[str, int], tuple[int, int]] = {}  # (cpu_millis, ram_bytes)
    images: dict[str, str] = {}  # container images that are there: by name:tag the architecture
    ports_blocked: dict[int, float] = {}  # a port that a foreign program holds, until when

    @property
    def is_answering(self) -> bool:
        """Whether fewer polls in a row were missed than may be lost on the way."""
        return self.misses < MISSES_MAX

    @property
    def answered(self) -> float:
        """Since when it has not given a valid answer, though it was asked."""
        return max(self.heard, self.watched_since)


class Observed:
    """All machines as last heard; a machine is here from its joining on.

    Not ``known`` at a moment of the past, of which nothing observed is kept.
    """

    def __init__(self, *, known: bool = True) -> None:
        self.known = known
        self.machines: dict[str, SeenMachine] = {}
        self.refused: dict[str, str] = {}  # by job in a rollback: what the last pass found in its way

    def attempt(self, machine: str, task: str, attempt: int) -> SeenAttempt | None:
        """Return what was last seen of an attempt on a machine."""
        seen = self.machines.get(machine)
        return seen.attempts.get((task, attempt)) if seen else None
