"""The records of a cell that are journalled and stored. Only ``apply`` writes to them.

``Task`` is the one there are 200,000 of, hence ``gc=False`` and plain fields.
"""

import msgspec

from borgish.bands import Bands
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, Ending, Runtime, State, TaintEffect

LOST_ATTEMPTS_MAX = 8
"""Of one task, so many attempts that were lost with their machines are remembered."""


class LostAttempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt that was evicted since its machine was down: it may still run there to its end."""

    attempt: int
    machine: str
    ports: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    alloc: int = -1
    restarts: int = 0


class Task(msgspec.Struct, gc=False, omit_defaults=True):
    """One index of a job. ``machine`` and ``ports`` are those of ``attempt``, also when it is over."""

    index: int
    state: State = State.PENDING
    attempt: int = 0  # 0: never placed
    machine: str = ""
    ports: tuple[int, ...] = ()  # in the order of the job's port names
    since: float = 0.0  # of the state; seconds since 1970
    reason: str = ""  # of the state, for people
    restarts: int = 0  # local restarts in this attempt
    ending: Ending | None = None  # when dead
    exit_code: int | None = None  # of the last program that ended, in any attempt
    signal: int | None = None
    started_at: float = 0.0  # of the last program; known when it ended
    previous_attempt: int = 0  # the stay before this one, for its logs
    previous_machine: str = ""
    devices: tuple[str, ...] = ()  # those it was given, as kind:number, like gpu:0
    alloc: int = -1  # the index of the alloc it is in, in the set of its job; -1: in none
    promised: str = ""  # while pending: the machine where its place is kept until its victims left
    notice_seconds: float = -1.0  # bounds the grace of the attempt last evicted; below 0: does not
    lost: tuple[LostAttempt, ...] = ()  # while not dead: attempts whose result counts, should it come late


def task_count(count: int) -> str:
    """Return so many tasks in words."""
    return f"{count} task{'' if count == 1 else 's'}"


def exit_text(code: int | None, signal: int | None) -> str:
    """Return how a program ended, in words; empty when it is not known."""
    if signal is not None:
        return f"signal {signal}"
    return f"exit code {code}" if code is not None else ""


class Outdated(msgspec.Struct, frozen=True):
    """Attempts that run a specification which their job had before the latest one."""

    spec: JobSpec
    attempts: dict[int, int]  # by index


class Lagging(msgspec.Struct, frozen=True):
    """Running tasks of a job that a rollback has not reached yet: they are stopped a few at a time.

    Those with a record, and those beyond ``tasks``, end; the others are sent back to pending. This
    holds for the attempts named here only.
    """

    spec: JobSpec  # what they run
    attempts: dict[int, int]  # by index
    tasks: int  # how many tasks the job has in the end; with 0 it is no longer kept
    records: dict[int, Task]  # what is known of those that are over in the restored state
    hurried: bool  # all of them at once
    reason: str
    # Of the attempts, those that run something else than ``spec``: what lagged behind another rollback, from
    # which this one took over.
    others: tuple[Outdated, ...] = ()
    position: int = 0  # of the rollback: it changed the tasks that were placed later
    to: int = 0  # the position that it goes back to
    paused: str = ""  # why it was paused after the last task it reached
    waiting: int = 0  # so many of its tasks did not run when it began and may be pending still

    def spec_of(self, index: int, attempt: int) -> JobSpec:
        """Return what one of the attempts runs."""
        for other in self.others:
            if other.attempts.get(index) == attempt:
                return other.spec
        return self.spec

    def with_attempts(self, attempts: dict[int, int]) -> "Lagging":
        """Return this of fewer attempts. A reason why it is paused was about the others."""
        others = (
            Outdated(other.spec, {i: a for i, a in other.attempts.items() if attempts.get(i) == a})
            for other in self.others
        )
        left = tuple(other for other in others if other.attempts)
        return msgspec.structs.replace(self, attempts=attempts, others=left, paused="")

    def ends(self, index: int) -> bool:
        """Return whether the task is to be over, rather than to run anew."""
        return index >= self.tasks or index in self.records


class Job(msgspec.Struct):
    """A user's job. ``tasks[i].index == i``. The counts follow from the tasks; ``apply`` keeps them."""

    key: str  # user/name
    uid: int  # journal position of its submission
    spec: JobSpec
    submitted_at: float
    submitted_by: str
    generation: int = 1  # grows with each change of the spec
    tasks: list[Task] = []
    pending: int = 0
    running: int = 0
    dead: int = 0
    finished: int = 0  # of the dead, those that ended with finish
    lagging: Lagging | None = None  # while a rollback goes on

    @property
    def state(self) -> State:
        """Running when any task runs, else pending when any is, else dead."""
        if self.running:
            return State.RUNNING
        return State.PENDING if self.pending else State.DEAD

    def spec_of(self, task: Task) -> JobSpec:
        """Return what a task of this job runs, which a rollback may have not reached yet."""
        return self.spec_of_last(task) if task.state is State.RUNNING else self.spec

    def spec_of_last(self, task: Task) -> JobSpec:
        """Return what the last attempt of a task runs, or ran."""
        lagging = self.lagging
        if lagging is not None and lagging.attempts.get(task.index) == task.attempt:
            return lagging.spec_of(task.index, task.attempt)
        return self.spec

    @property
    def tasks_wanted(self) -> int:
        """How many tasks it is to have. While a rollback goes on, there may be more that are to end."""
        return self.spec.tasks if self.lagging is None else self.lagging.tasks


class Taint(msgspec.Struct, frozen=True, order=True):
    """A mark that keeps tasks off a machine unless they tolerate it (the term is Kubernetes')."""

    key: str
    value: str
    effect: TaintEffect
    since: float  # seconds since 1970

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Machine(msgspec.Struct):
    """A host with a borglet, as the cell has decided to see it. How it is now is in ``observed``."""

    name: str
    host: str
    port: int
    tls: bool
    capacity: Resources
    attributes: dict[str, str]
    runtimes: tuple[Runtime, ...]
    ports_low: int
    ports_high: int
    boot_id: str
    joined_at: float
    up: bool = True
    cordoned: bool = False
    reason: str = ""  # why it is down or cordoned
    port_next: int = 0  # where the search for a free port goes on, so that ports rest before reuse
    taints: tuple[Taint, ...] = ()  # in order of their keys; a key is there once


class Quota(msgspec.Struct, frozen=True):
    """How much one user's jobs in one band may ask for at a time (section 2.5)."""

    user: str
    band: Band
    limits: Resources
    until: float = 0.0  # seconds since 1970, from then on it is nothing; 0: without end

    @property
    def key(self) -> str:
        return quota_key(self.user, self.band)


def quota_key(user: str, band: Band) -> str:
    """Return the name of a user's quota in a band: ``user/band``."""
    return f"{user}/{band}"


def split_quota_key(key: str) -> tuple[str, str]:
    """Return the user and the band in a quota's name."""
    user, _, band = key.partition("/")
    return user, band


class Rules(msgspec.Struct, frozen=True):
    """What decisions depend on of the cell's configuration.

    It is recorded, so that what was decided stays right when the configuration changes.
    """

    bands: Bands = Bands()
    quota_required: bool = False  # who has no quota in a band may have nothing there, rather than anything


class Answer(msgspec.Struct, frozen=True):
    """What a request id was answered, so that a retry gets the same."""

    digest: str  # of the request's body
    position: int
    subject: str
    text: str


class Snapshot(msgspec.Struct):
    """A whole cell at one journal position: the body of a checkpoint."""

    name: str
    position: int = 0
    timeline: int = 1
    epoch: int = 0
    jobs: dict[str, Job] = {}
    machines: dict[str, Machine] = {}
    quotas: dict[str, Quota] = {}  # by key
    requests: dict[str, Answer] = {}  # the latest, oldest first; bounded
    rules: Rules = Rules()
    lost: tuple[tuple[int, int], ...] = ()  # positions, first and last, of entries that were lost
    losses: tuple[float, ...] = ()  # when machines were given up, of the last minute (``MachineLost.at``)
