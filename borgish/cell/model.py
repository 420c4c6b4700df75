"""A cell in memory: the records that are journalled and stored, and the indexes that follow from them.

Only ``apply`` writes; everybody else reads. ``Task`` is the record there are 200,000 of, hence ``gc=False``
and plain fields. So it is with all that there is of each task elsewhere (``SeenAttempt``, ``AttemptSpec``
and what is in them): a pause of Python's garbage collection grows with what it has to look through, and took
0.4 s with 50,000 tasks. None of them can be part of a circle.
"""

import msgspec

from borgish.bands import Bands
from borgish.cell.access.model import Access
from borgish.cell.apps.links import Links
from borgish.cell.crons.model import Cron, Due, Runs, runs_of
from borgish.cell.limits.budgets import Budget, Freeze, Members
from borgish.cell.limits.footprint import FOOTPRINT_BYTES_MAX, Footprint
from borgish.cell.limits.quotas import Demand, Quota
from borgish.cell.moves import Moves
from borgish.cell.swept import Swept
from borgish.cell.touched import Touched
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from borgish.vocabulary import (
    FAILURES,
    Ending,
    HandoverCause,
    Hold,
    Ownership,
    RolloutKind,
    Runtime,
    State,
    TaintEffect,
    split_task_name,
)

REQUESTS_KEPT = 10_000
REQUESTS_BYTES_KEPT = 16 * 1024**2
"""Of the texts that they were answered: one to a large application has many lines."""
LOSSES_KEPT_SECONDS = 60.0
"""Longer than any time in which the machines given up are counted."""


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


class TaskLease(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt of an exclusive task that may run: before it is known to have ended no other is placed.

    ``lapses``: its machine ends it by itself when it is not renewed. Else only word of its end counts.
    """

    attempt: int
    machine: str
    grace_seconds: float = 0.0  # that its program gets when it lapses
    lapses: bool = True


Leases = dict[str, dict[int, tuple[TaskLease, ...]]]
"""By job and index; also of jobs and tasks that are no more."""


class FailedOn(msgspec.Struct, frozen=True, gc=False):
    """A machine on which a task failed ``times`` times, and which it avoids until then (seconds since
    1970)."""

    machine: str
    until: float
    times: int


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
    version: int = 1  # of its job's specifications, that ``attempt`` runs, or ran
    failed: tuple[FailedOn, ...] = ()  # while not dead: until it runs well; the latest last
    failures: int = 0  # since it was submitted, where ``restart.attempts`` counts them for life


def task_count(count: int) -> str:
    """Return so many tasks in words."""
    return f"{count} task{'' if count == 1 else 's'}"


def exit_text(code: int | None, signal: int | None) -> str:
    """Return how a program ended, in words; empty when it is not known."""
    if signal is not None:
        return f"signal {signal}"
    return f"exit code {code}" if code is not None else ""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """The *incoming* attempt of a running task, which takes over when it is up (a surge of one, in
    Kubernetes' words): where it is to run, or that it looks for a place. See ``cell.handover``.

    It charges its machine, and counts nowhere else.
    """

    cause: HandoverCause
    reason: str  # why the current attempt is to go, for people
    since: float  # when it began to look for a machine, the last time; seconds since 1970
    attempt: int = 0  # 0: it waits for a machine
    machine: str = ""
    ports: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    version: int = 0  # of its job's specifications
    placed_at: float = 0.0  # seconds since 1970
    failed: tuple[FailedOn, ...] = ()  # where incoming attempts failed, which the next one avoids

    def task(self, index: int) -> Task:
        """Return the task as it is when this takes over."""
        return Task(
            index,
            State.RUNNING,
            self.attempt,
            self.machine,
            self.ports,
            self.placed_at,
            devices=self.devices,
            version=self.version,
            failed=self.failed,
        )


Handovers = dict[str, dict[int, Handover]]
"""By job and index."""


class Rollout(msgspec.Struct, frozen=True):
    """Running tasks of a job that are to be changed and are not yet, by an update, a restart or a rollback of
    the cell (Kubernetes' rollout): they are reached a few at a time.

    Those with a record, and those beyond ``tasks``, end; the others are sent back to pending, and run the
    job's present version when they are placed. This holds for the attempts named here only, so no ordinary
    event needs to know of it: an attempt's id never comes back.
    """

    attempts: dict[int, int]  # by index: those not reached yet
    tasks: int  # how many tasks the job has in the end; with 0 it is no longer kept
    records: dict[int, Task]  # what is known of those that are over in the restored state
    hurried: bool  # all of them at once
    reason: str
    position: int = 0  # of the entry that began it: it changed the tasks that were placed later
    to: int = 0  # of a rollback: the position that it goes back to
    paused: str = ""  # what it waits for, or was held for, after the last task it reached
    kind: RolloutKind = RolloutKind.ROLLBACK
    undo_to: int = 0  # of an update: the version before it
    hold: Hold | None = None  # it goes on when somebody says so
    promoted: bool = False  # somebody looked at the canaries and liked them
    disruptions: int = 0  # so many running tasks that were well it has stopped
    has_begun: bool = False  # it has reached a task
    at: float = 0.0  # when it began; seconds since 1970
    resumed: float = 0.0  # when somebody last let it go on
    replaces: int = 0  # position of the first of those, one after the other, that this took the place of

    @property
    def changed_since(self) -> int:
        """The position after which its tasks were changed, by it or by those that it took the place of."""
        return self.replaces or self.position

    def ends(self, index: int) -> bool:
        """Return whether the task is to be over, rather than to run anew."""
        return index >= self.tasks or index in self.records


class LastRollout(msgspec.Struct, frozen=True):
    """How the last update or restart of a job came out."""

    kind: RolloutKind
    version: int
    outcome: str  # for people
    at: float  # seconds since 1970
    skipped: tuple[int, ...] = ()  # tasks that it left as they are, for their version
    reason: str = ""  # of the rollout: who restarted it, or why it was undone


class Version(msgspec.Struct, frozen=True):
    """A specification that a job had (Kubernetes' ControllerRevision): accepted ``at``, in seconds since
    1970."""

    spec: JobSpec
    at: float
    by: str


VERSIONS_KEPT = 20
"""Of each job, its present version among them; those that tasks still run are kept beside."""
EARLIER_VERSIONS_BYTES_MAX = 256 * 1024
"""Of a job or an application, as encoded: a specification may have 1 MiB of environment, and is changed as
often as its user likes. The version before the present one is kept whatever its size."""


class Owner(msgspec.Struct, frozen=True):
    """Who last set a field of a job: a person by a command, or an application by its files (Kubernetes' field
    manager). ``at`` is in seconds since 1970."""

    by: str  # the person; of an application its key
    how: Ownership
    at: float


class AppVersion(msgspec.Struct, frozen=True):
    """What an application was by one ``apply``, in seconds since 1970: all of its documents."""

    spec: AppSpec
    documents: tuple[Document, ...]
    at: float
    by: str
    crons: tuple[CronSpec, ...] = ()

    @property
    def content(self) -> tuple[object, ...]:
        """What its files say."""
        return self.spec, self.documents, self.crons


APP_VERSIONS_KEPT = 10
"""Of each application, its present version among them."""


class App(msgspec.Struct):
    """An application: jobs that are applied together. Which jobs those are is in ``Job.app``."""

    key: str  # user/name
    uid: int  # journal position at which it was first applied
    present: AppVersion
    version: int = 1  # only grows
    generation: int = 0  # see ``cell.generations``
    earlier: dict[int, AppVersion] = {}  # those before ``version``, by number, in order

    @property
    def spec(self) -> AppSpec:
        """The application as its files have it."""
        return self.present.spec


class Held(msgspec.Struct, frozen=True):
    """A job whose tasks fail wherever they are; see ``cell.failing``. Times are in seconds since 1970."""

    reason: str
    since: float
    trial_at: float  # the next one may begin then
    index: int = -1  # of the task that was tried last
    attempt: int = 0  # of that trial


class Waits(msgspec.Struct, frozen=True, omit_defaults=True):
    """That tasks of a job wait for other jobs before they start; see ``cell.order``."""

    since: float  # seconds since 1970
    only: tuple[int, ...] = ()  # of a job that runs: those that were submitted again; empty: all

    def covers(self, index: int) -> bool:
        """Return whether a task waits, if it is pending."""
        return not self.only or index in self.only


class Job(msgspec.Struct):
    """A user's job. ``tasks[i].index == i``. The counts follow from the tasks; ``apply`` keeps them."""

    key: str  # user/name
    uid: int  # journal position of its submission
    spec: JobSpec
    submitted_at: float
    submitted_by: str
    generation: int = 1  # see ``cell.generations``
    tasks: list[Task] = []
    pending: int = 0
    running: int = 0
    dead: int = 0
    finished: int = 0  # of the dead, those that ended with finish
    failed: int = 0  # of the dead, those that failed or were lost
    rollout: Rollout | None = msgspec.field(default=None, name="lagging")  # while it goes on
    version: int = 1  # of its specification; only grows
    versioned_at: float = 0.0  # seconds since 1970; 0: when it was submitted
    versioned_by: str = ""  # "": who submitted it
    earlier: dict[int, Version] = {}  # those before ``version``, by number, in order
    held: Held | None = None  # while its tasks fail wherever they are
    last_rollout: LastRollout | None = None
    # When its tasks were last taken down on purpose, in seconds since 1970: as many as ``max_rate`` asks for.
    disrupted: tuple[float, ...] = ()
    app: str = ""  # the key of the application that it belongs to; "": none
    owners: dict[str, Owner] = {}  # by field, as job files call it; the others are of who submitted it
    waits: Waits | None = None  # while tasks of it are ``Cell.deferred``
    cron: str = ""  # whose run it is, by the key; "": nobody's
    due: float = 0.0  # when it was, in seconds since 1970; of a run by hand, when somebody asked for it

    @property
    def state(self) -> State:
        """Running when any task runs, else pending when any is, else dead."""
        if self.running:
            return State.RUNNING
        return State.PENDING if self.pending else State.DEAD

    @property
    def dead_since(self) -> float | None:
        """When the last of its tasks was dead, in seconds since 1970; None while it is not."""
        if self.running or self.pending:
            return None
        return max((task.since for task in self.tasks), default=self.submitted_at)

    @property
    def has_too_many_failures(self) -> bool:
        """Whether more tasks of it failed for good than it allows."""
        limit = self.spec.max_failures
        return limit is not None and self.failed > limit.of(self.spec.tasks)

    @property
    def present(self) -> Version:
        """Its present specification, as those in ``earlier`` are kept."""
        return Version(
            self.spec, self.versioned_at or self.submitted_at, self.versioned_by or self.submitted_by
        )

    @property
    def is_mixed(self) -> bool:
        """Whether its running tasks may be of several versions."""
        return self.rollout is not None or bool(self.last_rollout and self.last_rollout.skipped)

    def spec_of(self, task: Task) -> JobSpec:
        """Return what a task of this job runs: an update or a rollback may not have reached it yet."""
        return self.spec_of_last(task) if task.state is State.RUNNING else self.spec

    def spec_of_last(self, task: Task) -> JobSpec:
        """Return what the last attempt of a task runs, or ran, as far as that is known."""
        if task.version == self.version or (version := self.earlier.get(task.version)) is None:
            return self.spec
        return version.spec

    @property
    def tasks_wanted(self) -> int:
        """How many tasks it is to have. While a rollback goes on, there may be more that are to end."""
        return self.spec.tasks if self.rollout is None else self.rollout.tasks


class Taint(msgspec.Struct, frozen=True, order=True):
    """A mark that keeps tasks off a machine unless they tolerate it (the term is Kubernetes')."""

    key: str
    value: str
    effect: TaintEffect
    since: float  # seconds since 1970

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Flaps(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often a machine went down of late; see ``cell.flapping``."""

    downs: tuple[float, ...] = ()  # when, oldest first
    quarantines: int = 0  # in a row
    until: float = 0.0  # of the last quarantine, also when it is over


class Window(msgspec.Struct, frozen=True, order=True):
    """A time of maintenance, in seconds since 1970: the machine is drained so early that it is empty then."""

    begins: float
    ends: float
    drains_from: float


class Drain(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a machine is to be empty (Nomad's node drain): a person wants it, until somebody takes it back, or
    there is a maintenance window. Times are in seconds since 1970."""

    by: str
    at: float  # when it was asked for
    deadline: float  # until then what runs to completion may finish
    reason: str = ""
    force: bool = False  # what runs there is stopped without asking budgets
    window: Window | None = None  # None: a person's
    begun: bool = True  # of a window: the machine is drained for it now


class Machine(msgspec.Struct):
    """A host with a borglet, as the cell has decided to see it. How it is now is in ``observed``."""

    name: str
    host: str
    port: int
    tls: bool
    capacity: Resources  # what tasks may use of it (Kubernetes' allocatable)
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
    quarantined_until: float = 0.0  # seconds since 1970; 0: it is not
    flaps: Flaps = Flaps()
    generation: int = 0  # see ``cell.generations``
    drains: tuple[Drain, ...] = ()  # a person's first, then the windows in order; each is there once
    admission: int = 0  # position of the entry by which an invitation let it in; its credentials are of that
    revoked_at: float = 0.0  # seconds since 1970; 0: it is not

    @property
    def is_draining(self) -> bool:
        """Whether what runs there is to leave, and nothing new is to come."""
        return any(drain.begun for drain in self.drains)

    @property
    def takes_tasks(self) -> bool:
        """Whether it is to have new tasks, if it is up."""
        return not (self.cordoned or self.quarantined_until or self.is_draining)


class Rules(msgspec.Struct, frozen=True):
    """What decisions depend on of the cell's configuration.

    It is recorded, so that what was decided stays right when the configuration changes.
    """

    bands: Bands = Bands()
    quota_required: bool = False  # who has no quota in a band may have nothing there, rather than anything
    affected_share_max: float = 0.2  # of the running tasks, that one command stops unasked
    footprint_bytes_max: int = FOOTPRINT_BYTES_MAX  # of one user's records (``limits.footprint``)


class Answer(msgspec.Struct, frozen=True):
    """What a request id was answered, so that a retry gets the same."""

    digest: str  # of the request's body
    position: int
    subject: str
    text: str


def request_key(actor: str, request_id: str) -> str:
    """Return by what an answer is found: request ids are each actor's own, and have no space in them."""
    return f"{actor} {request_id}"


class Snapshot(msgspec.Struct):
    """A whole cell at one journal position: the body of a checkpoint."""

    name: str
    position: int = 0
    timeline: int = 1
    epoch: int = 0
    jobs: dict[str, Job] = {}
    machines: dict[str, Machine] = {}
    quotas: dict[str, Quota] = {}  # by key
    requests: dict[str, Answer] = {}  # by ``request_key``: the latest, oldest first; bounded
    rules: Rules = Rules()
    lost: tuple[tuple[int, int], ...] = ()  # positions, first and last, of entries that were lost
    losses: tuple[float, ...] = ()  # when machines were given up, of the last minute (``MachineLost.at``)
    leases: Leases = {}  # of exclusive tasks
    budgets: dict[str, Budget] = {}  # by name
    freeze: Freeze | None = None
    handovers: Handovers = {}
    apps: dict[str, App] = {}  # by key
    crons: dict[str, Cron] = {}  # by key
    access: Access = msgspec.field(default_factory=Access)


class Cell:
    """All of one cell. The indexes are derived: ``reindex`` makes them from the records."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.name = snapshot.name
        self.position = snapshot.position
        self.timeline = snapshot.timeline
        self.epoch = snapshot.epoch
        self.jobs: dict[str, Job] = snapshot.jobs
        self.machines: dict[str, Machine] = snapshot.machines
        self.quotas: dict[str, Quota] = snapshot.quotas
        self.requests: dict[str, Answer] = snapshot.requests
        self.rules: Rules = snapshot.rules
        self.lost = snapshot.lost
        self.losses = snapshot.losses
        self.leases: Leases = snapshot.leases
        self.budgets: dict[str, Budget] = snapshot.budgets
        self.freeze: Freeze | None = snapshot.freeze
        self.handovers: Handovers = snapshot.handovers
        self.apps: dict[str, App] = snapshot.apps
        self.crons: dict[str, Cron] = snapshot.crons
        self.access: Access = snapshot.access
        self.placed: dict[str, set[tuple[str, int]]] = {}  # by machine: (job, index) of running tasks
        # By job: indexes of tasks that look for a machine, pending ones and those whose incoming attempts do.
        self.waiting: dict[str, set[int]] = {}
        self.deferred: dict[str, set[int]] = {}  # by job: indexes of pending tasks that wait for other jobs
        self.arriving: dict[str, set[tuple[str, int]]] = {}  # by machine: (job, index) of incoming attempts
        self.moves: dict[str, Moves] = {}  # by machine: what came lately of these two, and what went
        self.promised: dict[str, set[tuple[str, int]]] = {}  # by machine: (job, index) of promised places
        self.failing: dict[str, set[int]] = {}  # by job: indexes of tasks that failed and do not run well yet
        self.rolling: set[str] = set()  # jobs with tasks that a rollback has not reached yet
        self.demand: Demand  # what users ask for
        self.footprint: Footprint  # what their records take up
        self.members: Members  # of budgets
        self.links: Links  # between jobs
        self.swept: Swept  # jobs that reconcilers look at each second
        self.due: Due  # crons by when they are due next
        self.runs: Runs = {}  # of crons
        # Crons that have more runs than they keep, those that go on among them.
        self.crowded: set[str] = set()
        self.answer_bytes = 0  # of the texts in ``requests``
        self.touched = Touched()
        self.reindex()

    def snapshot(self) -> Snapshot:
        """Return the stored records; they are shared, not copied: encode before the next step."""
        return Snapshot(
            self.name,
            self.position,
            self.timeline,
            self.epoch,
            self.jobs,
            self.machines,
            self.quotas,
            self.requests,
            self.rules,
            self.lost,
            self.losses,
            self.leases,
            self.budgets,
            self.freeze,
            self.handovers,
            self.apps,
            self.crons,
            self.access,
        )

    def reindex(self) -> None:
        """Make the indexes from the records."""
        self.placed = {name: set() for name in self.machines}
        self.waiting, self.deferred = {}, {}
        self.promised = {}
        self.failing = {}
        self.links = Links(self.jobs)
        self.demand = Demand(self.jobs, self.rules.bands)
        self.footprint = Footprint(self.jobs, self.apps, self.crons)
        self.members = Members(self.jobs, self.budgets.values())
        self.answer_bytes = sum(len(answer.text) for answer in self.requests.values())
        self.due = Due(self.crons)
        self.runs = runs_of((key, job.cron) for key, job in self.jobs.items())
        self.crowded = {key for key in self.runs if self.is_crowded(key)}
        self.rolling = {key for key, job in self.jobs.items() if job.rollout is not None}
        for job in self.jobs.values():
            job.failed = job.dead and sum(task.ending in FAILURES for task in job.tasks)
            for task in job.tasks:
                if task.failed:
                    self.failing.setdefault(job.key, set()).add(task.index)
                if task.state is State.RUNNING:
                    self.placed.setdefault(task.machine, set()).add((job.key, task.index))
                elif task.state is State.PENDING:
                    self.queue(job, task.index).setdefault(job.key, set()).add(task.index)
                    if task.promised:
                        self.promised.setdefault(task.promised, set()).add((job.key, task.index))
        self.arriving = {}
        for key, handovers in self.handovers.items():
            for index, handover in handovers.items():
                if handover.attempt:
                    self.arriving.setdefault(handover.machine, set()).add((key, index))
                else:
                    self.waiting.setdefault(key, set()).add(index)
        self.moves = {name: Moves() for name in self.placed.keys() | self.arriving.keys()}
        self.swept = Swept(self.jobs)

    def queue(self, job: Job, index: int) -> dict[str, set[int]]:
        """Return the index in which a pending task of a job is: ``deferred`` or ``waiting``."""
        waits = job.waits
        return self.deferred if waits is not None and waits.covers(index) else self.waiting

    def is_crowded(self, cron: str) -> bool:
        """Return whether a cron has more runs than it keeps of those that are over."""
        there = self.crons.get(cron)
        return there is not None and len(self.runs.get(cron, ())) > there.spec.keep

    def answer_to(self, actor: str, request_id: str) -> Answer | None:
        """Return what an actor's request was answered; None where it is new, or has no id."""
        if not request_id:
            return None
        # A checkpoint of an earlier version has it by its id alone.
        return self.requests.get(request_key(actor, request_id)) or self.requests.get(request_id)

    def task(self, name: str) -> Task | None:
        """Return a task by its name, or None."""
        key, index = split_task_name(name)
        job = self.jobs.get(key)
        return job.tasks[index] if job and 0 <= index < len(job.tasks) else None

    def is_current(self, machine: str, task: str, attempt: int) -> bool:
        """Return whether this attempt is the one that should be running, and there."""
        found = self.task(task)
        return (
            found is not None
            and found.state is State.RUNNING
            and found.attempt == attempt
            and found.machine == machine
        )

    def handover(self, job: str, index: int) -> Handover | None:
        """Return what is to take over from a task's current attempt, or None."""
        there = self.handovers.get(job)
        return there.get(index) if there is not None else None

    def is_incoming(self, machine: str, task: str, attempt: int) -> bool:
        """Return whether this attempt is to take over from the current one when it is up."""
        found = self.handover(*split_task_name(task)) if self.handovers else None
        return found is not None and (found.attempt, found.machine) == (attempt, machine)

    def is_wanted(self, machine: str, task: str, attempt: int) -> bool:
        """Return whether this attempt should be running there: it is the task's current or incoming one."""
        return self.is_current(machine, task, attempt) or self.is_incoming(machine, task, attempt)

    def may_end_late(self, machine: str, task: str, attempt: int) -> bool:
        """Return whether an attempt was lost with its machine, and its result counts should it come."""
        found = self.task(task)
        return found is not None and any(
            lost.attempt == attempt and lost.machine == machine for lost in found.lost
        )

    def is_leased(self, job: str, index: int) -> bool:
        """Return whether some attempt of a task may run, so that a pending one cannot be placed."""
        there = self.leases.get(job)
        return there is not None and index in there

    def is_unknown(self, attempt: int) -> bool:
        """Return whether an attempt was placed by a history that this cell has not, or has lost."""
        return attempt > self.position or any(first <= attempt <= last for first, last in self.lost)

    def take_touched(self) -> Touched:
        """Return what was touched since the last call, and start anew."""
        touched, self.touched = self.touched, Touched()
        return touched
