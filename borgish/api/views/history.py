"""The journal as people ask for it: who, when, what, why, of a job, a task, a machine or the whole cell.

Pure. Walking the journal is the master's (``master/past/history.py``); the words for what happened are in
``events.py``. An event about many tasks is cut down to those asked about before it is put in words.
"""

from collections.abc import Iterator

import msgspec

from borgish.api.views.events import event_views, restored_machine_text
from borgish.cell.commands import RollBack
from borgish.cell.events import (
    AnyEvent,
    CronSet,
    Entry,
    HandoversBegan,
    JobRestored,
    JobSubmitted,
    MachineJoined,
    MachineRestored,
    RolledBack,
    RolloutWentOn,
    TasksEvicted,
    TasksPlaced,
)
from borgish.cell.model import Cell
from borgish.cell.updates.rollback import JobPlan, Plan, RollbackTarget
from borgish.cell.updates.rollback_checks import check_allowed, plan_rollback
from borgish.clock import Now
from borgish.errors import Refused
from borgish.resources import show_amounts
from borgish.text import instant
from borgish.vocabulary import Eviction, HandoverCause, RolloutKind
from borgish.wire.api import AsOf
from borgish.wire.api_past import IS_REMOVED, HistoryView, JobRollback, RollbackPlan

# By the name of the command's class, which is what the journal keeps. Other causes are words already.
COMMAND_WORDS = {
    "BeginEpoch": "lead",
    "SubmitJob": "submit",
    "ScaleJob": "scale",
    "KillTasks": "kill",
    "RestartTasks": "restart",
    "EvictTasks": "evict",
    "ForgetJob": "forget",
    "EndFailedJob": "end",
    "EndLeases": "end leases",
    "HoldJob": "hold",
    "ReleaseJob": "release",
    "EndWaits": "start",
    "FailWaits": "give up waiting",
    "EndChildren": "end with parent",
    "ForgetFailures": "forgive",
    "BeginHandovers": "replace",
    "HandOverTasks": "hand over",
    "EndIncoming": "replace anew",
    "EndHandovers": "keep",
    "PlaceTasks": "place",
    "JoinMachine": "join",
    "RevokeMachine": "revoke",
    "AddUser": "add user",
    "RemoveUser": "remove user",
    "AddGroup": "add group",
    "RemoveGroup": "remove group",
    "ChangeMembers": "change members",
    "ChangeGrants": "change grants",
    "CreateToken": "create token",
    "RevokeToken": "revoke token",
    "AdmitTokens": "take over tokens",
    "NoteTokenUse": "note use",
    "NoteCertificate": "warn",
    "InviteMachine": "invite",
    "RevokeInvitation": "revoke invitation",
    "SetSecret": "set secret",
    "RemoveSecret": "remove secret",
    "CordonMachine": "cordon",
    "UncordonMachine": "uncordon",
    "RemoveMachine": "remove",
    "SetMachineDown": "set down",
    "ReleaseMachine": "take back",
    "LoseMachine": "give up",
    "SetMachineUp": "set up",
    "Observe": "report",
    "PromisePlaces": "promise",
    "TaintMachine": "taint",
    "UntaintMachine": "untaint",
    "DrainMachines": "drain",
    "UndrainMachines": "undrain",
    "MaintainMachines": "maintain",
    "CancelMaintenance": "cancel maintenance",
    "TurnWindows": "turn windows",
    "SetQuota": "set quota",
    "RemoveQuota": "remove quota",
    "SetBudget": "set budget",
    "RemoveBudget": "delete budget",
    "SetCron": "set cron",
    "RemoveCron": "remove cron",
    "PauseCron": "pause cron",
    "ResumeCron": "resume cron",
    "RunCron": "run cron",
    "FireCron": "fire",
    "FreezeCell": "freeze",
    "UnfreezeCell": "unfreeze",
    "RollBack": "rollback",
    "AdvanceRollouts": "go on",
    "PauseRollouts": "wait",
    "FinishRollouts": "finish",
    "FailUpdate": "fail",
    "ApplyApp": "apply",
    "UndoApp": "undo application",
    "RunApp": "run application",
    "KillApp": "kill application",
    "RemoveApp": "remove application",
    "UndoUpdate": "undo",
    "PauseUpdate": "pause",
    "ResumeUpdate": "resume",
}


class HistoryFilter(msgspec.Struct, frozen=True):
    """What is asked about; all that is named must hold. Times are seconds since 1970, both included."""

    job: str = ""
    index: int | None = None  # of one task of the job
    machine: str = ""
    since: float | None = None
    until: float | None = None

    def in_time(self, at: float) -> bool:
        """Return whether a moment, in seconds since 1970, is among those asked for."""
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


def history_view(entry: Entry, wanted: HistoryFilter) -> HistoryView | None:
    """Return the entry with those of its events that are asked about; None when it has none.

    An entry without any event, a request that changed nothing, belongs to what its answer was about.
    """
    if not wanted.in_time(entry.at):
        return None
    events = tuple(part for event in entry.events if (part := _part(event, entry, wanted)) is not None)
    if not events and (entry.events or not _is_subject(entry, wanted)):
        return None
    return HistoryView(
        entry.position,
        instant(entry.at),
        entry.timeline,
        entry.epoch,
        entry.actor,
        COMMAND_WORDS.get(entry.cause, entry.cause),
        entry.subject,
        entry.text.replace("\n", "; "),
        tuple(event_views(msgspec.structs.replace(entry, events=events))),
    )


def _is_subject(entry: Entry, wanted: HistoryFilter) -> bool:
    named = {name for name in (wanted.job, wanted.machine) if name}
    return wanted.index is None and named <= {entry.subject}


def _part(event: AnyEvent, entry: Entry, wanted: HistoryFilter) -> AnyEvent | None:
    """Return what of an event is asked about."""
    found: AnyEvent | None = event
    if wanted.job:
        found = _of_job(event, wanted.job, wanted.index)
    if wanted.machine and found is not None:
        found = _of_machine(found, entry, wanted.machine)
    return found


def _of_job(event: AnyEvent, job: str, index: int | None) -> AnyEvent | None:
    """Return the part about a job, or about one of its tasks; what is about all of a job is about each."""
    match event:
        case RolledBack():
            jobs = tuple(one for one in event.jobs if one.job == job)
            return _part_of_rollback(event, jobs, tuple(gone for gone in event.jobs_gone if gone == job), ())
        case RolloutWentOn() if index is not None:
            pending, ended = ({index} & set(indexes) for indexes in (event.pending, event.ended))
            cut = msgspec.structs.replace(event, pending=tuple(pending), ended=tuple(ended))
            return cut if event.job == job and (pending or ended) else None
    about = {event.spec.key, event.cron} if isinstance(event, JobSubmitted) else {_about(event)}
    if job not in about:
        return None
    indexes: tuple[int, ...] | None = getattr(event, "indexes", None)
    if index is None or indexes is None:
        return event
    return _only(event, [row for row, one in enumerate(indexes) if one == index])


def _about(event: AnyEvent) -> str:
    """Return the job or the cron that an event is about."""
    if isinstance(event, CronSet):
        return event.cron.key
    return getattr(event, "job", "") or getattr(event, "cron", "")


def _of_machine(event: AnyEvent, entry: Entry, machine: str) -> AnyEvent | None:
    """Return the part about a machine: what is about it, what it reported, and what was placed on it."""
    if isinstance(event, TasksPlaced):
        return _only(event, [row for row, name in enumerate(event.machines) if name == machine])
    if isinstance(event, RolledBack):
        return _part_of_rollback(event, (), (), tuple(m for m in event.machines if m.machine == machine))
    if isinstance(event, MachineJoined):
        return event if event.machine.name == machine else None
    is_about = getattr(event, "machine", "") == machine or entry.subject == machine
    return event if is_about or _was_evicted_from(event, machine) else None


def _part_of_rollback(
    event: RolledBack,
    jobs: tuple[JobRestored, ...],
    gone: tuple[str, ...],
    machines: tuple[MachineRestored, ...],
) -> RolledBack | None:
    if not (jobs or gone or machines):
        return None
    return msgspec.structs.replace(
        event,
        jobs=jobs,
        jobs_gone=gone,
        machines=machines,
        quotas=(),
        quotas_gone=(),
        budgets=(),
        budgets_gone=(),
        apps=(),
        apps_gone=(),
        crons=(),
        crons_gone=(),
    )


def _was_evicted_from(event: AnyEvent, machine: str) -> bool:
    """Return whether tasks left, or are to leave, since their machine was down or drained; the reason alone
    names it."""
    if isinstance(event, HandoversBegan):
        return event.cause is HandoverCause.DRAIN and event.reason.startswith(f"{machine} is to be empty")
    if not isinstance(event, TasksEvicted):
        return False
    of_drain = event.cause is Eviction.DRAIN and event.reason.startswith(f"{machine} is to be empty")
    return of_drain or (
        event.cause is Eviction.MACHINE_LOST and event.reason.startswith(f"{machine} is down")
    )


_SOME_INDEXES = frozenset({"incoming", "taken_over"})
"""Of the tuples of events, those that are not parallel: they name some of the ``indexes``."""


def _only(event: AnyEvent, rows: list[int]) -> AnyEvent | None:
    """Return an event with some of its tasks: the same rows of all its parallel tuples."""
    if not rows:
        return None
    columns = msgspec.structs.asdict(event).items()
    cut = {
        name: tuple(column[row] for row in rows)
        for name, column in columns
        if isinstance(column, tuple) and column and name not in _SOME_INDEXES
    }
    for name in _SOME_INDEXES & {name for name, _ in columns}:
        cut[name] = tuple(index for index in getattr(event, name) if index in cut["indexes"])
    return msgspec.structs.replace(event, **cut)


def rollback_plan(cell: Cell, target: RollbackTarget, command: RollBack, to: AsOf, now: Now) -> RollbackPlan:
    """Return what the command would do to the cell; ``target``: see ``decide``.

    Raises the ``Refused`` of one that plans nothing.
    """
    then, found = target.cell, plan_rollback(cell, target, command, now)
    refusal = hint = ""
    try:
        check_allowed(cell, then, found, command, now)
    except Refused as refused:
        refusal, hint = refused.message, refused.hint
    return RollbackPlan(
        to=to,
        stopped=found.stopped,
        started=found.started,
        kept=found.running - found.stopped,
        results_kept=sum(job.results_kept for job in found.jobs),
        jobs=tuple(_job(cell, job) for job in found.jobs),
        machines=tuple(f"{mark.machine} {restored_machine_text(mark)} again" for mark in found.machines),
        quotas=(
            *(f"{quota.key} is {show_amounts(quota.limits)} again" for quota in found.quotas),
            *(f"{key}{IS_REMOVED}" for key in found.quotas_gone),
        ),
        budgets=(
            *(f"{b.name} is at most {b.max_unavailable} of {b.selector} again" for b in found.budgets),
            *(f"{name}{IS_REMOVED}" for name in found.budgets_gone),
        ),
        apps=(
            *(f"{app.key} is version {_restored_from(cell, then, app.key)} again" for app in found.apps),
            *(f"{key}{IS_REMOVED}" for key in found.apps_gone),
        ),
        crons=(*_crons(found), *(f"{key}{IS_REMOVED}" for key in found.crons_gone)),
        runs=_runs(cell, then) if not command.only else "",
        freeze=f"the cell stays {cell.freeze}" if cell.freeze and not command.only else "",
        machines_missing=() if command.only else found.machines_missing,
        refusal=refusal,
        hint=hint,
    )


def _restored_from(cell: Cell, then: Cell, key: str) -> str:
    """Return which version of an application comes back, and as which."""
    before, there = then.apps[key].version, cell.apps.get(key)
    return f"{before}" if there is None else f"{before}, as version {there.version + 1},"


def _waits(job: JobPlan) -> Iterator[str]:
    if job.restored is not None and job.restored.waits:
        awaited = ", ".join(map(str, job.restored.spec.after))
        yield f"what is pending of it waits for {awaited} again; what runs goes on"


def _crons(found: Plan) -> Iterator[str]:
    for cron in found.crons:
        dealt = f"; what was due up to {instant(cron.last)} is dealt with and stays so" if cron.last else ""
        yield f"{cron.key} is {cron.words} again{dealt}"


def _runs(cell: Cell, then: Cell) -> str:
    """Say of runs of crons that they are left alone, where there are any."""
    if cell.runs or then.runs:
        return "runs of crons stay as they are: none that was due begins again, and those that go on do"
    return ""


def _job(cell: Cell, job: JobPlan) -> JobRollback:
    lines = (*_versions(cell, job), *_waits(job), *job.differences)
    return JobRollback(job.job, job.change, lines, job.stopped, job.started, job.kept, job.results_kept)


def _versions(cell: Cell, job: JobPlan) -> Iterator[str]:
    """Say what becomes of a job's version, and of an update that is under way."""
    there, restored = cell.jobs.get(job.job), job.restored
    if there is None or restored is None:
        return
    if restored.version != there.version:
        yield f"version: {there.version} -> {restored.version}"
    if there.rollout is not None and there.rollout.kind is not RolloutKind.ROLLBACK:
        yield f"the {there.rollout.kind} under way is over"
