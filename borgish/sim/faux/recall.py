"""What was asked, from what happened: the journal keeps the events of a command, and they tell it whole.

Of a command that was accepted nothing decides but what its events have, together with the cell before
it, so it is not kept a second time. Where that does not hold, it is said why (``Untold``).
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from borgish.cell.commands import (
    BeginEpoch,
    Command,
    CordonMachine,
    EvictTasks,
    ForgetJob,
    GoOnRollingBack,
    JoinMachine,
    KillTasks,
    LoseMachine,
    PauseRollback,
    PlaceTasks,
    PromisePlaces,
    RemoveMachine,
    RemoveQuota,
    RestartTasks,
    RollBack,
    ScaleJob,
    SetMachineDown,
    SetMachineUp,
    SetQuota,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UntaintMachine,
)
from borgish.cell.events import (
    Elected,
    EntriesLost,
    Entry,
    JobChanged,
    JobForgotten,
    JobSubmitted,
    MachineCordoned,
    MachineDown,
    MachineJoined,
    MachineLost,
    MachineRemoved,
    MachineTainted,
    MachineUncordoned,
    MachineUp,
    PlacesPromised,
    QuotaRemoved,
    QuotaSet,
    RollbackPaused,
    RollbackWentOn,
    RolledBack,
    RulesSet,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
    TasksResubmitted,
)
from borgish.cell.model import split_quota_key
from borgish.cell.rollback_progress import remaining
from borgish.cell.state import Cell
from borgish.vocabulary import Band, Eviction

REPORT = "reports of machines: what they said is not decided on, only what follows"
NOTHING = "requests from which nothing followed"
LOST = "entries that say what was lost"
UNKNOWN = "entries of another kind"

Commands = tuple[Command, ...]
YES_STOP_MAX = 10**9


class Untold(Exception):
    """An entry that is not decided anew. ``args[0]`` says why, the same for all of a kind."""


def recall(cell: Cell, entry: Entry) -> list[Commands]:
    """Return what may have been asked of the cell before an entry: a single way of it, or few.

    One way is the commands of one decision; of a scheduler's pass there are several. Raises Untold.
    """
    if not entry.events:
        raise Untold(NOTHING)
    if any(isinstance(event, EntriesLost) for event in entry.events):
        raise Untold(LOST)
    if entry.cause == "Observe":
        raise Untold(REPORT)
    if entry.cause in _PASSES:
        return [tuple(_PASSES[entry.cause](entry))]
    if entry.cause not in _COMMANDS:
        raise Untold(UNKNOWN)
    return [(command,) for command in _COMMANDS[entry.cause](cell, entry)]


def _first(entry: Entry, kind: type[Any]) -> Any:
    """Return the first event of a kind. Raises Untold."""
    for event in entry.events:
        if isinstance(event, kind):
            return event
    raise Untold(UNKNOWN)


# The scheduler's: one command for each event, but for those that follow from another.


def _evictions(entry: Entry) -> Iterator[Command]:
    for event in entry.events:
        if isinstance(event, TasksEvicted) and event.cause is not Eviction.ALLOC_MOVED:
            yield _evict(event)


def _evict(event: TasksEvicted) -> EvictTasks:
    return EvictTasks(
        event.job, event.indexes, event.cause, event.reason, event.notice_seconds, event.preemptor
    )


def _places(entry: Entry) -> Iterator[Command]:
    for event in entry.events:
        if isinstance(event, TasksPlaced):
            yield PlaceTasks(
                event.job, event.indexes, event.machines, event.ports, event.devices, event.allocs
            )


def _promises(entry: Entry) -> Iterator[Command]:
    for event in entry.events:
        if isinstance(event, PlacesPromised):
            yield PromisePlaces(event.job, event.indexes, event.machines)


_PASSES: dict[str, Callable[[Entry], Iterator[Command]]] = {
    "preempt": _evictions,
    "promise": _promises,
    "place": _places,
}


# Commands of people and of the loops


def _began(_cell: Cell, entry: Entry) -> Iterator[Command]:
    elected = _first(entry, Elected)
    rules = next((event.rules for event in entry.events if isinstance(event, RulesSet)), None)
    yield BeginEpoch(elected.epoch, elected.holder, rules)


def _restarted(_cell: Cell, entry: Entry) -> Iterator[Command]:
    indexes: set[int] = set()
    for event in entry.events:
        if isinstance(event, TasksEvicted | TasksResubmitted) and event.job == entry.subject:
            indexes.update(event.indexes)
    yield RestartTasks(entry.subject, tuple(sorted(indexes)))


def _submitted(cell: Cell, entry: Entry) -> Iterator[Command]:
    if any(isinstance(event, TasksResubmitted) for event in entry.events):
        job = cell.jobs[entry.subject]
        yield SubmitJob(msgspec.structs.replace(job.spec, tasks=job.tasks_wanted))
    else:
        yield SubmitJob(_first(entry, JobSubmitted).spec)


def _lost(_cell: Cell, entry: Entry) -> Iterator[Command]:
    event = _first(entry, MachineLost)
    _, _, reason = _first(entry, TasksEvicted).reason.partition(": ")
    yield LoseMachine(event.machine, reason, event.at)


def _tainted(cell: Cell, entry: Entry) -> Iterator[Command]:
    event = _first(entry, MachineTainted)
    before = cell.machines[event.machine].taints if event.machine in cell.machines else ()
    for taint in event.taints:
        if taint not in before:
            yield TaintMachine(event.machine, taint.key, taint.value, taint.effect)


def _untainted(cell: Cell, entry: Entry) -> Iterator[Command]:
    event = _first(entry, MachineTainted)
    there = {taint.key for taint in event.taints}
    before = cell.machines[event.machine].taints if event.machine in cell.machines else ()
    for taint in before:
        if taint.key not in there:
            yield UntaintMachine(event.machine, taint.key)


def _quota(_cell: Cell, entry: Entry) -> Iterator[Command]:
    quota = _first(entry, QuotaSet).quota
    for beyond_cell in (False, True):  # whether it was allowed to be, is not told
        yield SetQuota(quota.user, quota.band, quota.limits, quota.until, beyond_cell)


def _no_quota(_cell: Cell, entry: Entry) -> Iterator[Command]:
    user, band = split_quota_key(_first(entry, QuotaRemoved).key)
    yield RemoveQuota(user, Band(band))


def _rolled_back(_cell: Cell, entry: Entry) -> Iterator[Command]:
    event = _first(entry, RolledBack)
    scope, is_told, _ = entry.text.partition(" is rolled back to position ")
    if not is_told:
        raise Untold(UNKNOWN)
    only = frozenset() if scope.startswith("cell ") else frozenset(scope.split(", "))
    hurried = any(job.lagging is not None and job.lagging.hurried for job in event.jobs)
    yield RollBack(event.to, event.at, only, hurried, YES_STOP_MAX)


def _went_on(cell: Cell, entry: Entry) -> Iterator[Command]:
    stop = {}
    for event in entry.events:
        if isinstance(event, RollbackWentOn) and event.job in cell.jobs:
            running = set(remaining(cell.jobs[event.job]).to_stop)
            stop[event.job] = tuple(index for index in event.reached if index in running)
    yield GoOnRollingBack(stop)


def _paused(_cell: Cell, entry: Entry) -> Iterator[Command]:
    yield PauseRollback({e.job: e.reason for e in entry.events if isinstance(e, RollbackPaused)})


def _of(kind: type[Any], make: Callable[[Any], Command]) -> Callable[[Cell, Entry], Iterator[Command]]:
    """Return how to recall a command that its one event tells."""

    def recalled(_cell: Cell, entry: Entry) -> Iterator[Command]:
        yield make(_first(entry, kind))

    return recalled


_COMMANDS: dict[str, Callable[[Cell, Entry], Iterator[Command]]] = {
    "BeginEpoch": _began,
    "SubmitJob": _submitted,
    "ScaleJob": _of(JobChanged, lambda event: ScaleJob(event.job, event.spec.tasks)),
    "KillTasks": _of(TasksEnded, lambda event: KillTasks(event.job, event.indexes)),
    "RestartTasks": _restarted,
    "EvictTasks": _of(TasksEvicted, _evict),
    "ForgetJob": _of(JobForgotten, lambda event: ForgetJob(event.job)),
    "JoinMachine": _of(MachineJoined, lambda event: JoinMachine(event.machine, "", known=True)),
    "CordonMachine": _of(MachineCordoned, lambda event: CordonMachine(event.machine, event.reason)),
    "UncordonMachine": _of(MachineUncordoned, lambda event: UncordonMachine(event.machine)),
    "TaintMachine": _tainted,
    "UntaintMachine": _untainted,
    "SetQuota": _quota,
    "RemoveQuota": _no_quota,
    "RemoveMachine": _of(MachineRemoved, lambda event: RemoveMachine(event.machine)),
    "SetMachineDown": _of(MachineDown, lambda event: SetMachineDown(event.machine, event.reason)),
    "LoseMachine": _lost,
    "SetMachineUp": _of(MachineUp, lambda event: SetMachineUp(event.machine)),
    "RollBack": _rolled_back,
    "GoOnRollingBack": _went_on,
    "PauseRollback": _paused,
}
TOLD = frozenset(_COMMANDS) | frozenset(_PASSES)
"""The causes that can be decided anew."""
