"""What may be asked of a cell, and how it is answered: ``decide`` turns each into events or refuses it."""

import msgspec

from borgish.cell.command import Command
from borgish.cell.events import AnyEvent
from borgish.cell.limits.budgets import Budget
from borgish.cell.model import Machine, Rules
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, Ending, Eviction, HandoverCause, Hold, Phase, Runtime, TaintEffect


class Seen(msgspec.Struct, frozen=True, order=True):
    """The most that machines have seen of masters before: who led, and the highest attempt placed.

    ``reason``: why the store has not; "" for one that is older.
    """

    timeline: int = 0
    epoch: int = 0
    attempt: int = 0
    reason: str = ""


class BeginEpoch(Command, frozen=True, tag=True):
    """First of every master's life; the store gave it the epoch."""

    epoch: int
    holder: str
    rules: Rules | None = None  # as the configuration has them; None: they stay as they are
    seen: Seen | None = None  # machines have seen this, of a history that the store has lost


class SubmitJob(Command, frozen=True, tag=True):
    """``plan`` is the token of the plan that is to be carried out with it; "": the scheduler chooses."""

    spec: JobSpec
    plan: str = ""


class ScaleJob(Command, frozen=True, tag=True):
    """Give a job another number of tasks. ``hurried``: fewer also while the cell is frozen;
    ``max_affected``: see ``KillTasks``."""

    job: str
    tasks: int
    hurried: bool = False
    max_affected: int | None = None


class KillTasks(Command, frozen=True, tag=True):
    """End tasks for good; ``indexes`` None means the whole job.

    ``max_affected`` is how many running tasks it may stop; None for as many as the rules of the cell allow.
    """

    job: str
    indexes: tuple[int, ...] | None = None
    max_affected: int | None = None


class RestartTasks(Command, frozen=True, tag=True):
    """A fresh attempt for each: the running are stopped a few at a time, the dead submitted again.

    ``hurried``: all at once, whatever the budgets say; ``max_affected``, see ``KillTasks``, is for that.
    """

    job: str
    indexes: tuple[int, ...] | None = None
    hurried: bool = False
    max_affected: int | None = None


class UndoUpdate(Command, frozen=True, tag=True):
    """Give a job the specification that it had in an earlier version, with as many tasks as it has now.

    ``version`` 0: that before the present one; of an update that is under way, before the update.
    """

    job: str
    version: int = 0


class PauseUpdate(Command, frozen=True, tag=True):
    """Let an update or a restart reach no more tasks until it is resumed."""

    job: str


class ResumeUpdate(Command, frozen=True, tag=True):
    """Let what was paused go on; ``promote``: only canaries that are up, and all other tasks after them."""

    job: str
    promote: bool = False


class ApplyApp(Command, frozen=True, tag=True):
    """Make an application what these documents say (kubectl apply): all of its jobs and crons, or nothing.

    ``prune``: those of them that have no document any more end. ``take_over``: also fields that somebody else
    set, and jobs of other applications. ``max_affected``: see ``KillTasks``.
    """

    app: AppSpec
    documents: tuple[Document, ...]
    prune: bool = False
    take_over: bool = False
    max_affected: int | None = None
    crons: tuple[CronSpec, ...] = ()


class UndoApp(Command, frozen=True, tag=True):
    """Apply what an application was in an earlier version; what came since ends. ``version`` 0: that before
    the present one."""

    app: str
    version: int = 0
    take_over: bool = False
    max_affected: int | None = None


class RunApp(Command, frozen=True, tag=True):
    """Run those jobs of an application once more that run to completion, none of which may run now.

    ``stage``: only this one, and what comes after it (``JobSpec.after``); "": all.
    """

    app: str
    stage: str = ""


class KillApp(Command, frozen=True, tag=True):
    """End all jobs of an application, and its crons with their runs. ``max_affected``: see ``KillTasks``."""

    app: str
    max_affected: int | None = None


class RemoveApp(Command, frozen=True, tag=True):
    """Forget an application, all of whose jobs are over; they belong to none then."""

    app: str


class EvictTasks(Command, frozen=True, tag=True):
    """Reconcilers and scheduler: send running tasks back to pending.

    Where they are preempted for a task, those that it may not preempt are left alone.
    """

    job: str
    indexes: tuple[int, ...]
    cause: Eviction
    reason: str = ""
    notice_seconds: float = -1.0
    preemptor: str = ""


class BeginHandovers(Command, frozen=True, tag=True):
    """Reconcilers: let running tasks be replaced by incoming attempts, which take over when they are up."""

    job: str
    indexes: tuple[int, ...]
    cause: HandoverCause
    reason: str = ""


class HandOverTasks(Command, frozen=True, tag=True):
    """Reconcilers: these incoming attempts are up, and take over; ``restarts``: local ones, of each."""

    job: str
    indexes: tuple[int, ...]
    attempts: tuple[int, ...]
    restarts: tuple[int, ...] = ()


class EndIncoming(Command, frozen=True, tag=True):
    """Reconcilers: look for other incoming attempts than these. ``has_failed``: elsewhere."""

    job: str
    indexes: tuple[int, ...]
    attempts: tuple[int, ...]
    reason: str
    has_failed: bool = False


class EndHandovers(Command, frozen=True, tag=True):
    """Reconcilers: nothing wants these running tasks replaced any more."""

    job: str
    indexes: tuple[int, ...]
    reason: str = ""


class HoldJob(Command, frozen=True, tag=True):
    """Reconcilers: try what failed of a job once a minute only, since it fails everywhere."""

    job: str
    reason: str


class EndWaits(Command, frozen=True, tag=True):
    """Reconcilers: these jobs may start, since what they waited for is there; by job, in words."""

    reasons: dict[str, str]


class FailWaits(Command, frozen=True, tag=True):
    """Reconcilers: what waits of these jobs has waited too long; by job, for what."""

    reasons: dict[str, str]


class EndChildren(Command, frozen=True, tag=True):
    """Reconcilers: jobs end with their parents, which are over; by job, the parent."""

    parents: dict[str, str]


class ReleaseJob(Command, frozen=True, tag=True):
    """Reconcilers: hold a job no longer."""

    job: str


class ForgetFailures(Command, frozen=True, tag=True):
    """Reconcilers: these tasks run well, and avoid no machine any more."""

    job: str
    indexes: tuple[int, ...]


class EndFailedJob(Command, frozen=True, tag=True):
    """Reconcilers: end what is left of a job of which more tasks failed than its ``max_failures``."""

    job: str


class ForgetJob(Command, frozen=True, tag=True):
    job: str


class PlaceTasks(Command, frozen=True, tag=True):
    """Scheduler: put pending tasks on machines. Checked again here: a stale placement is dropped."""

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]
    ports: tuple[tuple[int, ...], ...] = ()
    devices: tuple[tuple[str, ...], ...] = ()
    allocs: tuple[int, ...] = ()


class PromisePlaces(Command, frozen=True, tag=True):
    """Scheduler: keep places for pending tasks while those preempted for them leave. "" takes one back.

    Kubernetes calls such a machine the nominated node.
    """

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]


class EndLeases(Command, frozen=True, tag=True):
    """Reconcilers: the leases of these attempts of an exclusive job have lapsed."""

    job: str
    indexes: tuple[int, ...]
    attempts: tuple[int, ...]
    reason: str = ""


class RollBack(Command, frozen=True, tag=True):
    """Make the cell what it was to be at a position of its journal.

    ``decide`` is given the cell of that position beside the command. ``only`` names the jobs that are meant,
    none for the whole cell. ``max_affected``: see ``KillTasks``.
    """

    to: int
    at: float  # when that was; seconds since 1970
    only: frozenset[str] = frozenset()
    hurried: bool = False  # stop all at once
    max_affected: int | None = None


class AdvanceRollouts(Command, frozen=True, tag=True):
    """Reconcilers: stop these of the tasks that rollouts have yet to reach, and note what needs no stop."""

    stop: dict[str, tuple[int, ...]]  # by job
    down: tuple[tuple[str, int], ...] = ()  # of these, those that are down already: job and index


class PauseRollouts(Command, frozen=True, tag=True):
    """Reconcilers: note why rollouts do not go on, by job; with ``hold``, until somebody says so."""

    reasons: dict[str, str]
    hold: Hold | None = None


class FailUpdate(Command, frozen=True, tag=True):
    """Reconcilers: what an update changed does not come up. It is paused or undone, as the job says."""

    job: str
    reason: str


class FinishRollouts(Command, frozen=True, tag=True):
    """Reconcilers: all that these rollouts were to change is up, or they may disrupt no more tasks."""

    outcomes: dict[str, str]  # by job, for people


class JoinMachine(Command, frozen=True, tag=True):
    """``known`` is true when the borglet proved that it is the machine that joined before; ``invitation`` is
    the digest of what lets it in otherwise, "" where whoever asks vouches for it."""

    machine: Machine
    instance: str
    known: bool
    invitation: str = ""


class RevokeMachine(Command, frozen=True, tag=True):
    """Have a machine out at once: it counts as lost, and comes back by an invitation for its name alone."""

    machine: str


class CordonMachine(Command, frozen=True, tag=True):
    """Make a machine unschedulable: what runs there stays, nothing new comes."""

    machine: str
    reason: str = ""


class UncordonMachine(Command, frozen=True, tag=True):
    machine: str


class TaintMachine(Command, frozen=True, tag=True):
    """Mark a machine, or change the mark that is there under the key."""

    machine: str
    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.REFUSE
    max_affected: int | None = None  # see ``KillTasks``


class UntaintMachine(Command, frozen=True, tag=True):
    machine: str
    key: str


class DrainMachines(Command, frozen=True, tag=True):
    """Let machines be empty: those named, or those whose attributes meet ``where``, whichever is given.

    What runs to completion has ``deadline_seconds`` to do so. With ``force`` budgets are not asked, and
    ``max_affected`` has to say how many running tasks this may stop.
    """

    machines: tuple[str, ...] = ()
    where: str = ""
    reason: str = ""
    deadline_seconds: float = 3600.0
    force: bool = False
    max_affected: int | None = None


class UndrainMachines(Command, frozen=True, tag=True):
    """Take back what people asked for. Maintenance windows stay."""

    machines: tuple[str, ...] = ()
    where: str = ""


class MaintainMachines(Command, frozen=True, tag=True):
    """Plan a maintenance window, in seconds since 1970. Machines are drained ``lead_seconds`` before it."""

    machines: tuple[str, ...] = ()
    where: str = ""
    begins: float = 0.0
    ends: float = 0.0
    lead_seconds: float = 3600.0
    reason: str = ""


class CancelMaintenance(Command, frozen=True, tag=True):
    """Let machines have no maintenance windows any more."""

    machines: tuple[str, ...] = ()
    where: str = ""


class TurnWindows(Command, frozen=True, tag=True):
    """Reconcilers: on these machines a maintenance window is to begin, or is over."""

    machines: tuple[str, ...]


class SetQuota(Command, frozen=True, tag=True):
    """``beyond_cell``: also where production quotas would be more than the cell has. ``until``: see
    ``Quota``."""

    user: str
    band: Band
    limits: Resources
    until: float = 0.0
    beyond_cell: bool = False


class RemoveQuota(Command, frozen=True, tag=True):
    user: str
    band: Band


class SetBudget(Command, frozen=True, tag=True):
    budget: Budget


class RemoveBudget(Command, frozen=True, tag=True):
    budget: str


class FreezeCell(Command, frozen=True, tag=True):
    """Take nothing down on purpose until further notice."""

    reason: str = ""


class UnfreezeCell(Command, frozen=True, tag=True):
    pass


class SetCron(Command, frozen=True, tag=True):
    spec: CronSpec


class RemoveCron(Command, frozen=True, tag=True):
    """Its runs stay, and are jobs like any other."""

    cron: str


class PauseCron(Command, frozen=True, tag=True):
    """Begin no runs until it is resumed. What is due meanwhile does not count as missed."""

    cron: str


class ResumeCron(Command, frozen=True, tag=True):
    cron: str


class RunCron(Command, frozen=True, tag=True):
    """Begin a run now, whatever the schedule says."""

    cron: str


class FireCron(Command, frozen=True, tag=True):
    """Reconcilers: deal with all that was due of a cron up to a moment, in seconds since 1970.

    ``among``: so many crons were due, more than begin in a second; 0: as many as do.
    """

    cron: str
    until: float
    among: int = 0


class RemoveMachine(Command, frozen=True, tag=True):
    """Let go of a machine that is down, or that holds nothing."""

    machine: str
    max_affected: int | None = None  # see ``KillTasks``


class SetMachineDown(Command, frozen=True, tag=True):
    """``at``: see ``MachineDown``."""

    machine: str
    reason: str
    at: float = 0.0


class ReleaseMachine(Command, frozen=True, tag=True):
    """Reconcilers: end a quarantine whose time is over."""

    machine: str


class LoseMachine(Command, frozen=True, tag=True):
    """Reconcilers: evict what a machine holds that is down. ``at``: see ``MachineLost``."""

    machine: str
    reason: str
    at: float


class SetMachineUp(Command, frozen=True, tag=True):
    machine: str


class SeenProgram(msgspec.Struct, frozen=True, gc=False):
    """One of the programs beside an attempt's main one, as last reported."""

    name: str
    phase: Phase
    pid: int = 0
    restarts: int = 0
    reason: str = ""


class SeenAttempt(msgspec.Struct, frozen=True, gc=False):
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
    gave_up: bool = False
    failures: int = 0
    since: float = 0.0  # seen in this phase after so many restarts; of the master's monotonic clock


class Observe(Command, frozen=True, tag=True):
    """The link: what differs on one machine from its last report. It no longer has those in ``gone``."""

    machine: str
    boot_id: str
    instance: str
    changed: tuple[SeenAttempt, ...]
    gone: tuple[tuple[str, int], ...] = ()  # (task name, attempt)
    whole: bool = False  # ``changed`` is all there is
    conditions: tuple[str, ...] = ()
    unhealthy_runtimes: tuple[Runtime, ...] = ()
    capacity: Resources | None = None  # facts, where they differ from the machine's record
    attributes: dict[str, str] | None = None
    runtimes: tuple[Runtime, ...] | None = None
    generation: int = 0  # of the assignment it works on
    images: dict[str, str] | None = None  # where they differ from its last report
    confinement: dict[str, str] | None = None  # likewise


class Decision(msgspec.Struct, frozen=True):
    """What ``decide`` returns: events, the name it is about, one sentence for the caller, and warnings.

    Without events it is an answer too: what was asked for is so already.
    """

    events: tuple[AnyEvent, ...]
    subject: str
    text: str
    notes: tuple[str, ...] = ()
