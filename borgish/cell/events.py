"""The journal's alphabet: everything that can happen to a cell. Events cannot be refused.

Each carries as many tasks as belong together, in parallel tuples. An attempt's id is the position
of the entry that holds its ``TasksPlaced``; one entry never places a task twice.
"""

from typing import Any

import msgspec

from borgish.cell.access.events import AccessEvent
from borgish.cell.crons.model import Cron
from borgish.cell.event import Event
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import (
    AppVersion,
    Drain,
    FailedOn,
    Machine,
    Owner,
    Rollout,
    Rules,
    Taint,
    Task,
    TaskLease,
    Version,
)
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Eviction, HandoverCause, Hold, RolloutKind, Runtime


class Elected(Event, frozen=True, tag=True):
    """A master began to lead."""

    epoch: int
    timeline: int
    holder: str


class RulesSet(Event, frozen=True, tag=True):
    """The cell's rules have changed with its configuration."""

    rules: Rules


class EntriesLost(Event, frozen=True, tag=True):
    """The journal has lost entries ``first`` to ``last``; what they did is not in the cell.

    The first event of the entry after them, on a timeline of its own. The numbers of what was lost do not
    come again.
    """

    first: int
    last: int
    timeline: int
    reason: str = ""


class JobSubmitted(Event, frozen=True, tag=True):
    """A new job, or a dead one submitted again: all its tasks are pending."""

    spec: JobSpec
    version: int = 1  # of the specification; of a job that comes again, the one it had where it is the same
    cron: str = ""  # whose run it is; "": nobody's
    due: float = 0.0  # see ``Job``


class JobChanged(Event, frozen=True, tag=True):
    """A live job has a new spec. More tasks: the new ones are pending. Fewer: the highest are gone.

    With a ``version`` it is more than another number of tasks: those in ``rollout`` are to be stopped for it,
    and what else runs is of that version from now on.
    """

    job: str
    spec: JobSpec
    version: int = 0  # 0: the one that it has
    rollout: Rollout | None = None


class JobForgotten(Event, frozen=True, tag=True):
    """A job that was dead long enough is no longer kept."""

    job: str


class AppApplied(Event, frozen=True, tag=True):
    """An application is this now. Its jobs follow from the events before this one.

    With the same ``version`` as before it is what it was, and only the jobs of these documents were to be
    made so.
    """

    app: AppSpec
    documents: tuple[Document, ...]
    version: int
    left: tuple[str, ...] = ()  # jobs that belong to it no more
    crons: tuple[CronSpec, ...] = ()


class AppRemoved(Event, frozen=True, tag=True):
    """There is no such application any more; jobs that were its own belong to none."""

    app: str


class TasksPlaced(Event, frozen=True, tag=True):
    """Pending -> Running; or where the incoming attempts of running tasks are to run."""

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]
    ports: tuple[tuple[int, ...], ...] = ()  # empty when the job has none
    devices: tuple[tuple[str, ...], ...] = ()  # empty when the job has none
    allocs: tuple[int, ...] = ()  # empty when the job is in no alloc set
    incoming: tuple[int, ...] = ()  # of the indexes, those that run and have these as incoming attempts

    @property
    def pending(self) -> tuple[int, ...]:
        """Those of the indexes that were pending."""
        return _but(self.indexes, self.incoming)


class PlacesPromised(Event, frozen=True, tag=True):
    """Places are kept for pending tasks until those that were preempted for them have left.

    An empty machine takes a promise back.
    """

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]


class TasksRestarted(Event, frozen=True, tag=True):
    """Programs ended and were, or will be, started again where they are. Running stays running."""

    job: str
    indexes: tuple[int, ...]
    restarts: tuple[int, ...]  # the count of the attempt so far
    exit_codes: tuple[int | None, ...]
    signals: tuple[int | None, ...]
    reasons: tuple[str, ...]
    failures: tuple[int, ...] = ()  # that restart.attempts counts so far; empty: nobody counts


class TasksEvicted(Event, frozen=True, tag=True):
    """Running -> Pending; where an incoming attempt takes over at once, running on."""

    job: str
    indexes: tuple[int, ...]
    cause: Eviction
    reason: str = ""
    notice_seconds: float = -1.0  # bounds the grace of their stop; below 0: does not
    preemptor: str = ""  # the task that needed their room
    results_count: bool = False  # these attempts may end by themselves yet, and that counts
    failed: tuple[FailedOn, ...] = ()  # what is remembered of each; empty: nothing of any
    exit_codes: tuple[int | None, ...] = ()  # of their last programs; empty: no news
    signals: tuple[int | None, ...] = ()
    taken_over: tuple[int, ...] = ()  # of the indexes, those whose incoming attempts are the current ones now

    @property
    def pending(self) -> tuple[int, ...]:
        """Those of the indexes that are pending now."""
        return _but(self.indexes, self.taken_over)


class HandoversBegan(Event, frozen=True, tag=True):
    """Running tasks are to be replaced: each gets an incoming attempt, and is stopped when that is up."""

    job: str
    indexes: tuple[int, ...]
    cause: HandoverCause
    reason: str = ""


class TasksHandedOver(Event, frozen=True, tag=True):
    """Running -> Running: the incoming attempts are the current ones now. Those before them are to stop."""

    job: str
    indexes: tuple[int, ...]
    restarts: tuple[int, ...] = ()  # local ones so far, of each; empty: none


class IncomingEnded(Event, frozen=True, tag=True):
    """Incoming attempts are over before they took over, and others are looked for."""

    job: str
    indexes: tuple[int, ...]
    reason: str = ""
    failed: tuple[FailedOn, ...] = ()  # what is remembered of each; empty: nothing of any


class HandoversEnded(Event, frozen=True, tag=True):
    """Tasks are not to be replaced any more: what they run goes on, and incoming attempts are to stop."""

    job: str
    indexes: tuple[int, ...]
    reason: str = ""


class FailuresForgotten(Event, frozen=True, tag=True):
    """Tasks that had failed run well, or are to be tried anew: they avoid no machine any more."""

    job: str
    indexes: tuple[int, ...]


class JobHeld(Event, frozen=True, tag=True):
    """Tasks of a job fail wherever they are: what failed is tried once a minute, first at ``trial_at``."""

    job: str
    reason: str
    trial_at: float  # seconds since 1970


class JobReleased(Event, frozen=True, tag=True):
    """A job is held no longer: what failed of it is placed as any, and avoids no machine for now."""

    job: str


class JobReady(Event, frozen=True, tag=True):
    """Tasks of a job wait for no other job any more: they may be placed."""

    job: str
    indexes: tuple[int, ...]
    reason: str = ""


class TasksEnded(Event, frozen=True, tag=True):
    """Pending or Running -> Dead."""

    job: str
    indexes: tuple[int, ...]
    ending: Ending
    reasons: tuple[str, ...]
    exit_codes: tuple[int | None, ...] = ()  # empty when none is known
    signals: tuple[int | None, ...] = ()
    started_at: tuple[float, ...] = ()
    attempts: tuple[int, ...] = ()  # lost ones that ended by themselves; empty: the current ones


class TasksResubmitted(Event, frozen=True, tag=True):
    """Dead -> Pending."""

    job: str
    indexes: tuple[int, ...]
    in_order: bool = False  # they wait for the jobs that theirs comes after


class LeasesFound(Event, frozen=True, tag=True):
    """Attempts of exclusive tasks may run, though nothing here had them running."""

    job: str
    indexes: tuple[int, ...]
    leases: tuple[TaskLease, ...]


class LeasesEnded(Event, frozen=True, tag=True):
    """Attempts of exclusive tasks do not run any more: that was reported, or their leases have lapsed."""

    job: str
    indexes: tuple[int, ...]
    attempts: tuple[int, ...]
    reason: str = ""


class MachineJoined(Event, frozen=True, tag=True):
    """A machine came, or came again with other facts or another address. It is up. ``admitted``: by an
    invitation, so that what it proved itself with before is of no use any more."""

    machine: Machine
    admitted: bool = False


class MachineFacts(Event, frozen=True, tag=True):
    """A machine's capacity, attributes or runtimes are other than they were."""

    machine: str
    capacity: Resources
    attributes: dict[str, str]
    runtimes: tuple[Runtime, ...]
    boot_id: str


class MachineDown(Event, frozen=True, tag=True):
    """A machine did not answer for too long. Its tasks are evicted later, with a ``MachineLost``.

    ``at``: as of ``MachineLost``; 0 where it does not count as flapping.
    """

    machine: str
    reason: str
    at: float = 0.0


class MachineQuarantined(Event, frozen=True, tag=True):
    """A machine went down again and again: nothing new is placed on it until then.

    ``until`` is by the clock of ``MachineLost.at``; ``times``: how often in a row.
    """

    machine: str
    until: float
    times: int


class MachineReleased(Event, frozen=True, tag=True):
    """A machine's quarantine is over."""

    machine: str


class MachineLost(Event, frozen=True, tag=True):
    """A machine that is down is given up: what it holds is evicted, by the events after this one.

    ``at`` is in seconds on a clock that nobody steps while a master leads
    (``ReconcileSettings.steady_wall``): the rate of such evictions is measured by it.
    """

    machine: str
    at: float


class MachineUp(Event, frozen=True, tag=True):
    """A machine that was down answers again."""

    machine: str


class MachineCordoned(Event, frozen=True, tag=True):
    """Nothing new is placed on it; what runs there goes on."""

    machine: str
    reason: str = ""


class MachineUncordoned(Event, frozen=True, tag=True):
    """It takes new tasks again."""

    machine: str


class MachineTainted(Event, frozen=True, tag=True):
    """These are a machine's taints now, in order of their keys."""

    machine: str
    taints: tuple[Taint, ...]


class MachineDrained(Event, frozen=True, tag=True):
    """These are the reasons now for which a machine is drained, or will be; none: it takes tasks again."""

    machine: str
    drains: tuple[Drain, ...]


class QuotaSet(Event, frozen=True, tag=True):
    """A user's quota in a band is this."""

    quota: Quota


class QuotaRemoved(Event, frozen=True, tag=True):
    """A user has no quota of their own in a band any more."""

    key: str


class BudgetSet(Event, frozen=True, tag=True):
    """A budget across jobs is this."""

    budget: Budget


class BudgetRemoved(Event, frozen=True, tag=True):
    """There is no budget of that name any more."""

    name: str


class CronSet(Event, frozen=True, tag=True):
    """A cron is this; what was dealt with of one that was there before is in it."""

    cron: Cron


class CronRemoved(Event, frozen=True, tag=True):
    """There is no such cron any more. Its runs are jobs like any other."""

    cron: str


class CronPaused(Event, frozen=True, tag=True):
    """A cron begins no runs."""

    cron: str


class CronResumed(Event, frozen=True, tag=True):
    """A cron begins runs again, of what is due from now on. ``next``: when; 0: never."""

    cron: str
    next: float = 0.0


class CronFired(Event, frozen=True, tag=True):
    """All that was due of a cron up to ``last`` is dealt with: the runs that begin for it are submitted by
    the events after this one. See ``Cron`` for the fields."""

    cron: str
    last: float
    next: float = 0.0
    note: str = ""
    late_seconds: float = 0.0
    among: int = 0


class CellFrozen(Event, frozen=True, tag=True):
    """From now on nothing is taken down on purpose."""

    reason: str = ""


class CellUnfrozen(Event, frozen=True, tag=True):
    """Tasks may be taken down on purpose again."""


class MachineRemoved(Event, frozen=True, tag=True):
    """A machine is no longer in the cell; nothing is placed on it."""

    machine: str


class JobRestored(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rollback changes about one job, which may be no longer there. What is not named stays.

    The job gets ``tasks`` tasks: more are cut off, missing ones are added and pending.
    """

    job: str
    uid: int
    spec: JobSpec
    generation: int  # of then; the job's own goes on growing
    submitted_at: float
    submitted_by: str
    tasks: int
    pending: tuple[int, ...] = ()  # these of its tasks are pending again
    dead: tuple[Task, ...] = ()  # these are dead, and this is what is known of them
    rollout: Rollout | None = msgspec.field(default=None, name="lagging")
    version: int = 1  # of the specification
    earlier: dict[int, Version] = {}  # of a job that is no longer there: its versions before
    app: str = ""
    owners: dict[str, Owner] = {}
    waits: bool = False  # what of it is pending waits for the jobs that it comes after


class MachineRestored(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rollback restores of a machine: whether it takes new tasks, and if not, why; its taints; and
    its drains and maintenance windows."""

    machine: str
    cordoned: bool = False
    reason: str = ""
    taints: tuple[Taint, ...] = ()
    drains: tuple[Drain, ...] = ()


class AppRestored(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rollback makes of an application, which may be no longer there."""

    key: str
    uid: int
    present: AppVersion  # as it was then
    version: int  # its number now
    earlier: dict[int, AppVersion] = {}  # of one that is no longer there: its versions before


class RolledBack(Event, frozen=True, tag=True):
    """What the cell should be is as it was at an earlier position, on a new timeline.

    Only what differs is named. What was only observed, that machines joined and how programs ended, is no
    matter of a rollback and stays.
    """

    timeline: int
    to: int  # the position
    at: float  # when that was; seconds since 1970
    reason: str
    jobs: tuple[JobRestored, ...] = ()
    jobs_gone: tuple[str, ...] = ()  # none of their tasks runs
    machines: tuple[MachineRestored, ...] = ()
    quotas: tuple[Quota, ...] = ()
    quotas_gone: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()
    budgets_gone: tuple[str, ...] = ()
    apps: tuple[AppRestored, ...] = ()
    apps_gone: tuple[str, ...] = ()
    crons: tuple[Cron, ...] = ()  # as they are from now on
    crons_gone: tuple[str, ...] = ()


class RolloutBegan(Event, frozen=True, tag=True):
    """Running tasks of a job are to be stopped, a few at a time, and to run anew."""

    job: str
    rollout: Rollout


class RolloutWentOn(Event, frozen=True, tag=True):
    """A rollout reached tasks of a job. A rollback has ended with the last of them."""

    job: str
    reached: tuple[int, ...]
    pending: tuple[int, ...] = ()  # of those reached: were running or over, and are to run anew
    ended: tuple[int, ...] = ()  # of those reached: were running or pending, and are dead
    disruptions: int = 0  # so many of those reached were well
    kind: RolloutKind = RolloutKind.ROLLBACK


class RolloutPaused(Event, frozen=True, tag=True):
    """A rollout goes on to no more tasks of a job until those that it changed are up; with ``hold``, until
    somebody says so."""

    job: str
    reason: str
    hold: Hold | None = None
    kind: RolloutKind = RolloutKind.ROLLBACK


class RolloutResumed(Event, frozen=True, tag=True):
    """Somebody wants a rollout to go on; ``promoted``: its canaries are liked."""

    job: str
    promoted: bool = False
    kind: RolloutKind = RolloutKind.ROLLBACK


class RolloutFinished(Event, frozen=True, tag=True):
    """A rollout is over; the tasks that it has not reached stay as they are."""

    job: str
    outcome: str  # for people
    kind: RolloutKind = RolloutKind.ROLLBACK


AnyEvent = (
    Elected
    | RulesSet
    | EntriesLost
    | JobSubmitted
    | JobChanged
    | JobForgotten
    | AppApplied
    | AppRemoved
    | TasksPlaced
    | PlacesPromised
    | TasksRestarted
    | TasksEvicted
    | HandoversBegan
    | TasksHandedOver
    | IncomingEnded
    | HandoversEnded
    | FailuresForgotten
    | JobHeld
    | JobReleased
    | JobReady
    | TasksEnded
    | TasksResubmitted
    | LeasesFound
    | LeasesEnded
    | MachineJoined
    | MachineFacts
    | MachineDown
    | MachineQuarantined
    | MachineReleased
    | MachineLost
    | MachineUp
    | MachineCordoned
    | MachineUncordoned
    | MachineTainted
    | MachineDrained
    | QuotaSet
    | QuotaRemoved
    | BudgetSet
    | BudgetRemoved
    | CronSet
    | CronRemoved
    | CronPaused
    | CronResumed
    | CronFired
    | CellFrozen
    | CellUnfrozen
    | MachineRemoved
    | RolledBack
    | RolloutBegan
    | RolloutWentOn
    | RolloutPaused
    | RolloutResumed
    | RolloutFinished
    | AccessEvent
)


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was observed of a machine when a command about it was decided, as far as it was decided by.

    Of a report: the attempts of it by which something happened, of each what the events lack
    (``cell.reported``), and those of them that the machine no longer has. Of evictions: the tasks that were
    named and left alone, since budgets held them.
    """

    instance: str = ""  # of the borglet that was heard last; "" for none under this master
    silent_seconds: float = 0.0  # since it last answered, or this master began to ask
    attempts: tuple[dict[str, Any], ...] = ()
    gone: tuple[tuple[str, int], ...] = ()  # (task name, attempt)
    spared: tuple[str, ...] = ()  # task names


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of the commands of an entry beside its events; ``cell.recorded`` reads and writes it."""

    fields: tuple[dict[str, Any], ...] = ()  # by command, what its events lack; empty: nothing of any
    observed: Facts | None = None


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of the journal: an accepted command or a decision, and what happened by it."""

    position: int
    at: float  # seconds since 1970
    timeline: int
    epoch: int
    actor: str  # a user, or the part of borgish that decided: scheduler, machines, report m3
    cause: str  # what was asked, in a word: submit, kill, place, report ...
    events: tuple[AnyEvent, ...]
    request_id: str = ""
    digest: str = ""  # of the request's body, where there is a request id
    subject: str = ""
    text: str = ""  # the answer given, and each note with it on a line of its own
    command: Recorded | None = None  # None: not recorded, as in journals of older versions


def follows(entry: Entry, position: int) -> bool:
    """Return whether an entry is the next one after a position, or names what is lost between."""
    if entry.position == position + 1:
        return True
    first = entry.events[0] if entry.events else None
    return isinstance(first, EntriesLost) and (first.first, first.last) == (position + 1, entry.position - 1)


def _but(indexes: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(index for index in indexes if index not in others) if others else indexes
