"""What was observed of machines: when one last answered, what runs on it, what that uses.

The observed state: not journalled, lost with the process, and rebuilt from one whole report of each machine.
Written only by the master's step.
"""

from collections.abc import Collection, Iterable, Mapping, Set

import msgspec

from borgish.cell.commands import (
    Observe,
    SeenAttempt,
)
from borgish.cell.model import Cell, Job, Rollout
from borgish.cell.moves import Cursor
from borgish.clock import Now
from borgish.spec.job import JobSpec
from borgish.vocabulary import Phase, Runtime, task_name

PORT_REST_SECONDS = 600.0
"""A port that a foreign program holds is not given out again for so long."""

ORPHAN_SECONDS = 600.0
"""An attempt that the store does not know is stopped only when it was seen for so long."""

SeenKey = tuple[str, int]
"""Task name, attempt."""

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
    attempts: dict[SeenKey, SeenAttempt] = {}  # written to by ``put`` and ``drop`` only
    orphans: dict[SeenKey, float] = {}  # first seen when
    conditions: tuple[str, ...] = ()
    unhealthy_runtimes: tuple[Runtime, ...] = ()
    usage: dict[SeenKey, tuple[int, int]] = {}  # (cpu_millis, ram_bytes)
    images: dict[str, str] = {}  # container images that are there: by name:tag the architecture
    confinement: dict[str, str] = {}  # by measure that keeps tasks in: held, or how it is, or why it is not
    unkillable: set[SeenKey] = set()  # of the attempts; a machine with one takes nothing new
    ports_blocked: dict[int, float] = {}  # a port that a foreign program holds, until when
    # Kept by ``leaving_attempts``: what it said, except for those ``unjudged``, and how far it has followed
    # what moves to the machine and from it.
    leaving: dict[SeenKey, SeenAttempt] = {}
    unjudged: dict[SeenKey, None] = {}
    cursor: Cursor = msgspec.field(default_factory=Cursor)

    @property
    def is_answering(self) -> bool:
        """Whether fewer polls in a row were missed than may be lost on the way."""
        return self.misses < MISSES_MAX

    @property
    def answered(self) -> float:
        """Since when it has not given a valid answer, though it was asked."""
        return max(self.heard, self.watched_since)

    @property
    def has_unkillable(self) -> bool:
        """Whether an attempt could not be killed."""
        return bool(self.unkillable)

    def put(self, attempt: SeenAttempt) -> None:
        """Let this be what is seen of an attempt."""
        key = attempt.task, attempt.attempt
        self.attempts[key] = attempt
        self.unjudged[key] = None
        is_unkillable = attempt.phase is Phase.UNKILLABLE and attempt.ended is None
        (self.unkillable.add if is_unkillable else self.unkillable.discard)(key)

    def drop(self, key: SeenKey) -> None:
        """See nothing of an attempt any more."""
        self.attempts.pop(key, None)
        self.unjudged[key] = None
        self.unkillable.discard(key)

    def drop_all(self) -> None:
        """See no attempts any more."""
        for seen in (self.attempts, self.unkillable, self.leaving, self.unjudged):
            seen.clear()
        self.cursor = Cursor()


class KnownJob(msgspec.Struct, eq=False):
    """Which tasks of a job are down, as long as the job's own record is what it was."""

    job: Job
    spec: JobSpec
    tasks_wanted: int
    down: set[int]
    changed: set[int] = set()  # to be looked at again before the next answer


class KnownBudget(msgspec.Struct, eq=False):
    """How many tasks of the jobs of a budget live and are down, as long as it is about the ``members``."""

    members: Set[str]
    jobs: dict[str, tuple[int, int]] = {}  # by job: what of it is in the sums
    live: int = 0
    down: int = 0
    changed: set[str] = set()  # jobs to be counted again before the next answer


class Remaining(msgspec.Struct):
    """Tasks of a job that lag behind, by what is to be done about each."""

    to_stop: list[int] = []  # running; some of them at a time
    to_rerun: list[int] = []  # ended by themselves
    to_end: list[int] = []  # pending, and are not to run
    done: list[int] = []  # as they are to be already

    @property
    def stops_nothing(self) -> bool:
        """Whether there is something to do that stops nothing."""
        return bool(self.to_rerun or self.to_end or self.done)


class KnownRollout(msgspec.Struct, eq=False):
    """Which tasks a rollout has yet to reach, as long as it is this one and nothing of its job changes.

    ``unsettled`` are those that it waits for. What has settled stays so unless something else is ``seen`` of
    it. None: nobody has asked.
    """

    job: Job
    rollout: Rollout
    remaining: Remaining | None = None
    unsettled: list[int] | None = None
    seen: set[int] = set()  # to be looked at again, too


class Known(msgspec.Struct, eq=False):
    """What ``cell.availability`` and ``cell.rollout`` keep of the jobs and budgets that they were asked
    about, and who tells of changes.

    ``machines_down`` are those that were not up, as far as they were told of. ``calm`` are jobs whose
    rollouts have nothing to do until the next resync, unless something of the job changes. ``changed`` are
    jobs of which something has since ``reconcilers.order`` looked at them.
    """

    jobs: dict[str, KnownJob] = {}
    budgets: dict[str, KnownBudget] = {}
    rollouts: dict[str, KnownRollout] = {}
    calm: set[str] = set()
    machines_down: set[str] = set()
    changed: set[str] = set()  # jobs, for those that wait for them or end with them
    settling: set[str] = set()  # jobs of which only time may make what others wait for
    orphaned: set[str] = set()  # jobs that are about to end with their parents, and these


class Observed:
    """All machines as last heard; a machine is here from its joining on.

    Not ``known`` at a moment of the past, of which nothing observed is kept.

    ``availability`` is kept by who tells of all that changes, as the master's step does; None: it is found
    out anew each time. ``spared`` is read back from the journal: tasks that were not to be disrupted.
    """

    def __init__(self, *, known: bool = True) -> None:
        self.known = known
        self.machines: dict[str, SeenMachine] = {}
        self.refused: dict[str, str] = {}  # by job in a rollback: what the last pass found in its way
        self.availability: Known | None = None
        self.spared: frozenset[str] = frozenset()
        # By exclusive job: (index, attempt) of what should not run any more, and since when no message names
        # it (``leases.record_over``).
        self.leases: dict[str, dict[tuple[int, int], Now]] = {}

    def attempt(self, machine: str, task: str, attempt: int) -> SeenAttempt | None:
        """Return what was last seen of an attempt on a machine."""
        seen = self.machines.get(machine)
        return seen.attempts.get((task, attempt)) if seen else None


def leaving_attempts(cell: Cell, machine: str, seen: SeenMachine) -> Collection[SeenAttempt]:
    """Return the attempts seen on a machine that have not ended and should not run there (``is_wanted``).

    It is asked at every report and at every placement, so what it said is kept, and judged again is what was
    seen or moved since.
    """
    moved = seen.cursor.news(cell.moves.get(machine))
    if moved is None:
        seen.leaving.clear()
        judged = dict.fromkeys(seen.attempts)
    else:
        moves = ((task_name(move.job, move.index), move.attempt) for move in moved)
        judged = dict.fromkeys(moves) | seen.unjudged
    for key in judged:
        attempt = seen.attempts.get(key)
        if attempt is None or attempt.ended is not None or cell.is_wanted(machine, *key):
            seen.leaving.pop(key, None)
        else:
            seen.leaving[key] = attempt
    seen.unjudged.clear()
    return seen.leaving.values()


# Recording what machines report: called by the master's step only, after ``decide``


def watch(observed: Observed, machines: Iterable[str], now: Now) -> None:
    """Judge the silence of machines from now on; what was not asked before cannot have kept silent."""
    for name in machines:
        observed.machines.setdefault(name, SeenMachine()).watched_since = now.mono


def mark_returned(observed: Observed, machines: Iterable[str], now: Now) -> None:
    """Note that machines that were down are up again, and watch them from now on."""
    for name in machines:
        watch(observed, (name,), now)
        observed.machines[name].returned = now.mono


def forget_machine(observed: Observed, machine: str) -> None:
    """Let go of what was seen of a machine that is no longer in the cell."""
    observed.machines.pop(machine, None)


def record_answers(observed: Observed, heard: Mapping[str, float]) -> set[str]:
    """Note when machines last gave a valid answer (master's monotonic clock); return those that had not
    been answering."""
    back = set()
    for name, mono in heard.items():
        seen = observed.machines.get(name)
        if seen is not None:
            if not seen.is_answering:
                back.add(name)
            seen.first_heard = seen.first_heard or mono
            seen.heard = max(seen.heard, mono)
            seen.trouble, seen.misses = "", 0
    return back


def record_misses(observed: Observed, missed: Mapping[str, Miss]) -> set[str]:
    """Note that polls of machines got no valid answer; return those that are not answering from now on."""
    silent = set()
    for name, found in missed.items():
        seen = observed.machines.get(name)
        if seen is not None:
            was_answering = seen.is_answering
            seen.trouble = found.trouble
            seen.misses += found.polls
            seen.refused = max(seen.refused, found.refused)
            if was_answering and not seen.is_answering:
                silent.add(name)
    return silent


def record_usage(observed: Observed, machine: str, usage: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """Take in the latest samples of one machine."""
    seen = observed.machines.get(machine)
    if seen is not None:
        seen.usage = dict(usage)


def record_report(cell: Cell, observed: Observed, report: Observe, now: Now) -> bool:
    """Record what differs on one machine from what it reported before.

    Return whether anything does that the scheduler counts. Most reports are of what is up where it was
    placed, which has its room there already.
    """
    seen = observed.machines.setdefault(report.machine, SeenMachine(watched_since=now.mono))
    counted, has_booted = _counted(seen), seen.boot_id != report.boot_id
    seen.boot_id, seen.instance, seen.generation = report.boot_id, report.instance, report.generation
    seen.conditions, seen.unhealthy_runtimes = report.conditions, report.unhealthy_runtimes
    before = dict(seen.attempts) if report.whole else seen.attempts
    if report.whole:
        seen.drop_all()
    if report.images is not None:
        seen.images = report.images
    if report.confinement is not None:
        seen.confinement = report.confinement
    seen.ports_blocked = {port: until for port, until in seen.ports_blocked.items() if until > now.mono}
    for key in report.gone:
        seen.drop(key)
        seen.orphans.pop(key, None)
    # An attempt that this cell does not know was placed by a history that its store has not. It stays an
    # orphan when the journal grows past that id: what this store wrote there is something else.
    known = 0 if cell.lost else cell.position  # up to here all attempts are
    for attempt in report.changed:
        key = attempt.task, attempt.attempt
        then = before.get(key)
        # A restart that nobody saw is a break of its phase, too; where the machine booted, its borglet may
        # have lost the count of them.
        phase = attempt.phase, attempt.restarts
        is_same = then is not None and (then.phase, then.restarts) == phase and not has_booted
        since = then.since if then is not None and is_same else now.mono
        seen.put(msgspec.structs.replace(attempt, since=since))
        if attempt.port_in_use:
            seen.ports_blocked[attempt.port_in_use] = now.mono + PORT_REST_SECONDS
        if attempt.attempt > known and key not in seen.orphans and cell.is_unknown(attempt.attempt):
            seen.orphans[key] = now.mono
    if report.whole:
        seen.orphans = {key: since for key, since in seen.orphans.items() if key in seen.attempts}
    return (
        report.whole
        or bool(report.gone)
        or _counted(seen) != counted
        or not all(cell.is_wanted(report.machine, each.task, each.attempt) for each in report.changed)
    )


def _counted(seen: SeenMachine) -> tuple[object, ...]:
    """Return what the scheduler reads of a machine besides its attempts that have yet to end."""
    return seen.unhealthy_runtimes, seen.images, seen.ports_blocked, seen.has_unkillable
