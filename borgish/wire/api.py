"""What the API of the master answers, as JSON. These shapes are a promise to scripts: fields are
added, never renamed. Times are ISO 8601 in UTC with a Z; amounts are whole numbers in the unit of their name.
"""

from typing import Annotated, Any

import msgspec

from borgish.errors import Mistake
from borgish.resources import QUOTA_MAX, Resources
from borgish.spec.job import JobSpec
from borgish.spec.shares import SHARE_PATTERN
from borgish.vocabulary import (
    NAME_PATTERN,
    TAINT_KEY_PATTERN,
    TAINT_VALUE_PATTERN,
    TASKS_PER_JOB_MAX,
    Band,
    Hold,
    Outcome,
    Ownership,
    Phase,
    RolloutKind,
    State,
    TaintEffect,
)
from borgish.wire.api_certificates import CertificatesView


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, as RFC 9457 problem details (application/problem+json)."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    hint: str = ""
    mistakes: tuple[Mistake, ...] = ()


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to every mutation: it is durable at this journal position.

    The same request id and body again gives the same answer, with ``replayed`` set.
    """

    position: int
    subject: str  # the job, task, machine or checkpoint it was about
    text: str  # one sentence: what was done
    replayed: bool = False
    notes: tuple[str, ...] = ()  # what is doubtful about what was accepted


class AsOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moment that an answer is of, where it is not the present of who leads: the past, or the copy of a
    standby. What was merely seen then, phases, usage, what is up and why something waited, is not journalled
    and not told: such fields are null or empty."""

    position: int  # of the journal: all up to it had happened, and nothing after
    at: str  # when that was written; "" before the first
    timeline: int = 1
    warnings: tuple[str, ...] = ()  # such as that a checkpoint was passed over, being no good


class UsageView(msgspec.Struct, frozen=True):
    cpu_millis: int
    ram_bytes: int


class ProgramView(msgspec.Struct, frozen=True):
    """One of the programs beside a task's main one."""

    name: str
    phase: Phase
    pid: int | None
    restarts: int
    reason: str


class IncomingView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attempt that takes over from a task's present one when it is up (``update.handover``)."""

    why: str  # the task is replaced
    text: str  # what it waits for
    since: str
    attempt: int = 0  # 0: it waits for a machine
    machine: str | None = None
    phase: Phase | None = None  # None without a machine, and of the past
    ports: dict[str, int] = {}
    restarts: int = 0
    reason: str = ""  # of the phase, for people
    exit_code: int | None = None  # of its last program that ended
    signal: int | None = None
    version: int = 0  # of its job's specifications


class TaskView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task, complete."""

    name: str  # user/job/3
    job: str  # user/job
    user: str
    index: int
    state: State
    phase: Phase | None  # None unless running, and of the past
    machine: str | None  # where it runs, or last ran
    attempt: int
    pid: int | None
    ports: dict[str, int]
    started_at: str | None
    restarts: int
    reason: str  # why it is as it is, for people; "" when there is nothing to say
    exit_code: int | None  # of the last program that ended
    signal: int | None
    since: str  # of the state
    priority: int
    resources: Resources
    usage: UsageView | None
    as_of: AsOf | None = None
    alloc: str = ""  # the alloc it runs in: user/set/0
    devices: tuple[str, ...] = ()  # those it was given, like gpu:0
    programs: tuple[ProgramView, ...] = ()  # beside its main one, as its machine last told of them
    outcome: Outcome | None = None  # of a dead one
    version: int = 1  # of its job's specifications, that it runs, or ran last
    incoming: IncomingView | None = None  # while it is being replaced
    not_held: tuple[str, ...] = ()  # of what is to keep its programs from their machine, with the reasons
    address: dict[str, str] = {}  # where it is reached: host:port by the name of the port
    waiting: bool = False  # a pending one: for other jobs, and so nothing is wrong with it
    probed: bool = False  # a running one: it has a health probe, and is up when that says so


class JobView(msgspec.Struct, frozen=True):
    """One job in a list. ``up`` counts tasks that run and, where probed, are healthy; None of the past.
    Those that were lost are among the failed. ``generation`` is the position of the journal at which people
    last decided about it; it only grows, and is the ``ETag`` of one job."""

    name: str  # user/job
    user: str
    state: State
    tasks: int
    pending: int
    running: int
    up: int | None
    dead: int
    finished: int
    failed: int
    priority: int
    band: Band
    appclass: str
    service: bool
    generation: int
    submitted_at: str
    submitted_by: str
    reason: str  # the first thing in the way, for people; ""
    killed: int = 0
    outcome: Outcome | None = None  # of a dead one
    version: int = 1  # of its specification
    held: bool = False  # its tasks fail wherever they are: what failed is tried once a minute
    app: str = ""  # the application that it belongs to, as user/name
    waiting: int = 0  # of the pending tasks, those that wait for the jobs that it comes after
    cron: str = ""  # whose run it is; "": nobody's


class OwnerView(msgspec.Struct, frozen=True):
    """Who set a field of a job, by which command. Of a file of an application ``by`` is that."""

    field: str
    by: str
    how: Ownership
    at: str


class RolloutView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An update, a restart or a rollback that reaches the tasks of a job a few at a time."""

    kind: RolloutKind
    reason: str
    since: str
    left: int  # running tasks that it has yet to reach
    changed: int  # those that it reached, or that were placed since it began
    at_a_time: int  # so many may be down, or not settled, at once
    waits: str = ""  # what it waits for just now, or was held for; "" when it goes on
    hold: Hold | None = None  # it goes on when somebody says so
    ways_out: tuple[str, ...] = ()  # commands, each with what it does


class LastRolloutView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the last update or restart of a job came out."""

    kind: RolloutKind
    version: int
    outcome: str
    at: str
    skipped: str = ""  # indexes of the tasks that it left as they are: 0-4,7
    reason: str = ""  # who restarted it, or why it was undone


class JobDetail(msgspec.Struct, frozen=True):
    """One job, complete."""

    job: JobView
    spec: JobSpec
    refusals: tuple["RefusalView", ...]
    as_of: AsOf | None = None
    not_up: dict[Phase, int] = {}  # how many of its running tasks are not up, by phase; {} of the past
    rollout: RolloutView | None = None  # that is under way
    last_rollout: LastRolloutView | None = None
    versions: dict[int, int] = {}  # how many running tasks are of which version
    owners: tuple[OwnerView, ...] = ()  # of the fields of a job that an application has applied
    not_held: dict[str, tuple[str, ...]] = {}  # as of a task, by machine


class VersionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the specifications that a job had, or has: accepted ``at``, ``by`` somebody."""

    version: int
    at: str
    by: str
    running: int  # so many of its tasks run it now
    present: bool = False
    changes: tuple[
        str, ...
    ] = ()  # against the version before, where that is kept; values of env are not shown


class VersionDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a job, complete."""

    job: str
    version: VersionView
    spec: JobSpec
    as_of: AsOf | None = None


class VersionList(msgspec.Struct, frozen=True):
    """The versions of a job that are kept, in order; the present one is the last."""

    items: tuple[VersionView, ...]
    as_of: AsOf | None = None


class RefusalView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why some tasks of a job are not placed: per reason, how many machines; and the way out."""

    job: str
    tasks: int
    indexes: str  # 0-4,7
    text: str  # one line: "0 of 3 machines fit: 2 have too little ram free, 1 is down"
    reasons: dict[str, int]
    hint: str = ""
    since: str = ""
    # It can never fit on the machines of the cell, not even on empty ones. ``in_order``: not by itself.
    impossible: bool = False
    in_order: bool = False  # they wait for the jobs that theirs comes after, not for a place
    waits_for: str = ""  # what would let it fit if it came about: "room on m1, m2 and 3 more"


class WhyView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a task or a job is as it is."""

    name: str
    state: State
    text: str  # one paragraph for people
    refusals: tuple[RefusalView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    events: tuple["EventView", ...] = ()
    as_of: AsOf | None = None
    outcome: Outcome | None = None  # of what is dead


class TaintView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mark that keeps tasks off a machine, or away, unless they tolerate it."""

    key: str
    effect: TaintEffect
    since: str
    value: str = ""


class DrainView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a machine is to be empty: somebody wants it, or there is a maintenance window."""

    text: str  # all of it, in words
    by: str
    at: str  # when it was asked for
    deadline: str  # until then what runs to completion may finish
    begun: bool  # of a window that has not: the machine takes tasks until it does
    reason: str = ""
    force: bool = False  # budgets are not asked
    begins: str = ""  # of the window; "": a person's
    ends: str = ""


class MachineView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One machine, complete. ``committed`` is the sum of the limits of the tasks placed there."""

    name: str
    state: str  # up, down, draining, drained, cordoned, quarantined
    address: str
    capacity: Resources
    committed: Resources
    usage: UsageView | None  # None of the past
    tasks: int
    attributes: dict[str, str]
    runtimes: tuple[str, ...]
    conditions: tuple[str, ...]
    heard_seconds_ago: float | None
    joined_at: str
    reason: str
    orphans: tuple[str, ...]
    as_of: AsOf | None = None
    taints: tuple[TaintView, ...] = ()  # in order of their keys
    answering: bool = True  # false: it missed its last polls, and gets no new tasks
    generation: int = 0  # when people last decided about it; see ``JobView``
    drains: tuple[DrainView, ...] = ()  # also maintenance windows to come
    staying: tuple[str, ...] = ()  # of one that is drained: what does not leave yet, and why
    ending: int = 0  # of one that is drained: programs that were told to end, and have not
    incoming: int = 0  # attempts that are to take over from tasks; they are committed, and no tasks yet
    confinement: dict[str, str] = {}  # by measure that keeps tasks in: held, or how it is, or why it is not


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened, for people. ``indexes`` are those of the tasks it is about."""

    position: int
    at: str
    kind: str  # submitted, placed, restarted, evicted, ended, killed, machine ...
    text: str
    job: str = ""
    indexes: tuple[int, ...] = ()
    machine: str = ""
    bad: bool = False  # something went wrong


class BandUse(msgspec.Struct, frozen=True):
    """What the running tasks of one band may use in all."""

    band: Band
    cpu_millis: int
    ram_bytes: int
    tasks: int


class QuotaView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one user may ask for, and asks for, in one band.

    ``limits`` and ``free`` are None where the user is not limited; ``limits`` are nothing when the quota
    has ended, and where there is none in a cell that requires one.
    """

    user: str
    band: Band
    limits: Resources | None
    used: Resources  # the limits of all their tasks there that are not dead
    free: Resources | None
    until: str | None  # when it ends, or has ended
    set: bool  # there is a quota; else it is as for everybody without one
    as_of: AsOf | None = None
    generation: int = 0  # when it was last set; see ``JobView``. 0: there is none


class BudgetView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A disruption budget across jobs. ``jobs`` and ``users`` are the first of them."""

    name: str
    where: tuple[str, ...]
    max_unavailable: str  # 1 or 10%
    allowed: int  # so many tasks may be down at once
    tasks: int  # that should run, of all its jobs
    down: int | None  # of these; null where it is not known
    job_count: int
    generation: int = 0  # when it was last set; see ``JobView``
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()  # who uses it: "ann/web/3 (pending)"
    as_of: AsOf | None = None


class CheckpointView(msgspec.Struct, frozen=True):
    position: int
    at: str
    reason: str
    bytes: int
    sha256: str  # of the body as stored
    name: str = ""  # "" for one that goes when there are enough newer ones
    problem: str = ""  # in a list: why it is no good; reading it back may find more


class StatusView(msgspec.Struct, frozen=True):
    """The cell at one glance."""

    cell: str
    version: str
    position: int
    timeline: int
    epoch: int
    started_at: str
    now: str
    machines: int
    machines_up: int
    jobs: int
    tasks: int
    pending: int
    running: int
    up: int | None
    dead: int
    capacity: Resources  # of the machines that are up
    bands: tuple[BandUse, ...]
    store: str  # sqlite or postgresql
    last_checkpoint: CheckpointView | None
    as_of: AsOf | None = None
    to_change: int = 0  # running tasks that updates, restarts and rollbacks have yet to reach
    refusing: tuple[str, ...] = ()  # which commands the master refuses now, a sentence for each reason
    store_free_bytes: int | None = None  # on the database's disk; null where the master cannot tell
    machines_silent: int = 0  # of those that are up; they missed their last polls and get no new tasks
    finished: int = 0  # of the dead; those that were lost are among the failed
    failed: int = 0
    killed: int = 0
    rollbacks_paused: tuple[str, ...] = ()  # why, each with the name of the job; the first few
    frozen: str = ""  # by whom, since when and why nothing is taken down on purpose; "" where it may be
    waiting: int = 0  # of the pending tasks, those that wait for the jobs that theirs come after
    machines_draining: int = 0  # also those that are empty by now
    draining: tuple[str, ...] = ()  # why, and what is left, each with the name of the machine; the first few
    certificates: tuple[CertificatesView, ...] = ()  # by role; of who answers, and none of the past
    uncertified: tuple[str, ...] = ()  # machines without one of the cell's own authority; the first few
    machines_uncertified: int = 0  # all of them; 0 where the cell has no authority
    busy: tuple[str, ...] = ()  # of whom no more is taken in, or lately was not, and why, a sentence for each


class WhoamiView(msgspec.Struct, frozen=True):
    """Whom a token stands for."""

    name: str
    role: str  # admin, user or reader


class HealthView(msgspec.Struct, frozen=True):
    """One borgmaster, which may be a standby: then the position is that of its copy of the cell."""

    cell: str
    version: str
    role: str  # leader or standby
    address: str  # its own, as it is advertised
    leader: str  # the leader's; "" when none is known
    holder: str  # host and process of the leader; "" when none is known
    timeline: int
    epoch: int
    position: int
    warm: bool  # it has a copy of the cell, or leads
    behind_seconds: float | None  # since its copy was last known to be whole; null before it ever was
    trouble: str  # why a standby cannot follow, or what a leader refuses; "" for nothing
    started_at: str


class AppSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """An application in the summary. ``up`` are the tasks of its jobs that are up, or have finished."""

    name: str  # user/app
    version: int
    jobs: int
    tasks: int
    up: int
    pending: int = 0
    failed: int = 0
    crons: int = 0


class SummaryView(msgspec.Struct, frozen=True):
    """What the dashboard shows, cut to what fits a screen whatever the size of the cell."""

    status: StatusView
    machines: tuple[MachineView, ...]  # those with trouble first, then the fullest; at most 100
    jobs: tuple[JobView, ...]  # those with trouble first, then the latest; at most 100
    pending: tuple[RefusalView, ...]  # at most 50
    events: tuple[EventView, ...]  # the latest last; at most 50
    apps: tuple[AppSummary, ...] = ()  # by name: those that ``jobs`` belong to, and of crons alone 20
    as_of: AsOf | None = None


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a list goes on: pass ``next`` as ``after`` to get the rest. Empty at the end; it never expires.

    What a page shows is of ``position`` of the journal, and while the cell changes the next page is of a
    later one. By name, what matches all the while is on exactly one page, and nothing is on two. For pages
    of one position pass that as ``at``, from the first page on.
    """

    next: str = ""
    position: int = 0  # 0 of the journal itself and of the audit log, which only grow


class TaskList(msgspec.Struct, frozen=True):
    items: tuple[TaskView, ...]
    page: Page = Page()
    as_of: AsOf | None = None


class JobList(msgspec.Struct, frozen=True):
    items: tuple[JobView, ...]
    page: Page = Page()
    as_of: AsOf | None = None
    left_out: int = 0  # by ``recent``, of all jobs that match otherwise, not only those of this page


class MachineList(msgspec.Struct, frozen=True):
    items: tuple[MachineView, ...]
    page: Page = Page()
    as_of: AsOf | None = None


class QuotaList(msgspec.Struct, frozen=True):
    items: tuple[QuotaView, ...]
    page: Page = Page()
    as_of: AsOf | None = None


class BudgetList(msgspec.Struct, frozen=True):
    items: tuple[BudgetView, ...]
    page: Page = Page()
    as_of: AsOf | None = None


class EventList(msgspec.Struct, frozen=True):
    items: tuple[EventView, ...]
    page: Page = Page()
    as_of: AsOf | None = None


def documented(**schema: Any) -> msgspec.Meta:
    """Return bounds for the description of the API. They are held where a request is decided on, in words
    that say what to do."""
    return msgspec.Meta(extra_json_schema=schema)


Reason = Annotated[str, documented(maxLength=500, pattern=r"^[^\x00]*$")]


MaxAffected = Annotated[int, documented(minimum=0)]


class ScaleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many tasks a job is to have. Fewer stop at once: ``now``: also while the cell is frozen;
    ``max_affected`` is how many running ones may be stopped, none: a small share of the cell's."""

    tasks: Annotated[int, documented(minimum=1, maximum=TASKS_PER_JOB_MAX)]
    now: bool = False
    max_affected: MaxAffected | None = None


Until = Annotated[str, documented(pattern=r"^([1-9][0-9]{0,3}[hd])?$")]  # more is understood
Amount = Annotated[int, documented(minimum=0, maximum=QUOTA_MAX)]
Amounts = Annotated[
    dict[str, Amount], documented(maxProperties=64, propertyNames={"pattern": f"^{NAME_PATTERN}$"})
]


class QuotaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quota: the whole of it; what is not named is nothing. Amounts are in the unit of their name,
    devices in thousandths of one."""

    cpu_millis: Amount
    ram_bytes: Amount
    disk_bytes: Amount = 0
    devices: Amounts = {}
    named: Amounts = {}
    until: Until = ""  # ISO 8601, in UTC unless it names a zone; from then on it is nothing
    beyond_cell: bool = False  # also where production and monitoring would get more than the cell has


_LABEL = r"(?!(not|in|present) )[A-Za-z_][A-Za-z0-9_./-]{0,62}"
Selector = Annotated[str, documented(pattern=f"^{_LABEL} (==|!=) [A-Za-z0-9_./-]{{1,99}}$")]  # as are others


class BudgetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A disruption budget across jobs: the whole of it. All conditions on labels have to hold."""

    where: Annotated[tuple[Selector, ...], documented(minItems=1, maxItems=16)]
    max_unavailable: Annotated[str, documented(pattern=SHARE_PATTERN)]


class FreezeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Reason = ""


TaskIndex = Annotated[int, documented(minimum=0, maximum=TASKS_PER_JOB_MAX - 1)]


class IndexesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks of a job: by index, or all of them when absent."""

    indexes: Annotated[tuple[TaskIndex, ...], documented(maxItems=TASKS_PER_JOB_MAX)] | None = None


class KillRequest(IndexesRequest, frozen=True, forbid_unknown_fields=True):
    """Which tasks of a job, and how many running ones may be stopped; none: a small share of the cell's."""

    max_affected: MaxAffected | None = None


class RemoveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many tasks that it holds may be given up; none: a small share of the cell's."""

    max_affected: MaxAffected | None = None


class RestartRequest(IndexesRequest, frozen=True, forbid_unknown_fields=True):
    """Which tasks of a job: by index, or all of them when absent. ``now``: all at once, whatever the budgets
    say; then ``max_affected`` is how many running ones may be stopped, none: a small share of the cell's."""

    now: bool = False
    max_affected: MaxAffected | None = None


class UndoRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which version is to come back; 0: the one before, or before the update that is under way."""

    version: Annotated[int, msgspec.Meta(ge=0)] = 0


class CordonRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Reason = ""


MachineNames = Annotated[
    tuple[Annotated[str, documented(pattern=f"^{NAME_PATTERN}$")], ...], documented(maxItems=10_000)
]
Condition = Annotated[str, documented(maxLength=1024)]


class UndrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machines by name, or those whose attributes meet a condition like ``rack == r2``: one of the two."""

    machines: MachineNames = ()
    where: Condition = ""


class DrainRequest(UndrainRequest, frozen=True, forbid_unknown_fields=True):
    reason: Reason = ""
    deadline_seconds: Annotated[float, documented(minimum=0, maximum=366 * 86400)] = 3600.0
    force: bool = False
    max_affected: MaxAffected | None = None  # with force: so many tasks may stop


class MaintainRequest(UndrainRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``begins`` and ``ends`` are times in ISO 8601, or 2h for in two hours."""

    begins: Annotated[str, documented(minLength=1, maxLength=64)]
    ends: Annotated[str, documented(minLength=1, maxLength=64)]
    lead_seconds: Annotated[float, documented(minimum=0, maximum=30 * 86400)] = 3600.0
    reason: Reason = ""


TaintKey = Annotated[str, documented(pattern=f"^{TAINT_KEY_PATTERN}$")]


class TaintRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new mark of a machine, or another value and effect for the one that has the key."""

    key: TaintKey
    value: Annotated[str, documented(pattern=f"^({TAINT_VALUE_PATTERN})?$")] = ""
    effect: TaintEffect = TaintEffect.REFUSE
    max_affected: MaxAffected | None = None  # so many running tasks may be stopped; none: a small share


class UntaintRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: TaintKey
