"""Which state of a thing somebody looked at (Kubernetes' resourceVersion): optimistic concurrency between
people, and between people and programs.

The *generation* of a job, a machine, a quota, a budget or a cron is the position of the entry by which
somebody last decided about it: its specification, how many tasks, what was killed or restarted, marks,
limits. So it only grows, over a rollback and over removal and coming again too, no two states have the same
one, and the journal after it says who changed what since. What is observed, and what borgish does by itself,
is no such decision.

What is not there has generation 0.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    CancelMaintenance,
    CordonMachine,
    DrainMachines,
    KillApp,
    KillTasks,
    MaintainMachines,
    PauseCron,
    PauseUpdate,
    RemoveApp,
    RemoveBudget,
    RemoveCron,
    RemoveMachine,
    RemoveQuota,
    RestartTasks,
    ResumeCron,
    ResumeUpdate,
    RunApp,
    RunCron,
    ScaleJob,
    SetBudget,
    SetCron,
    SetQuota,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndoApp,
    UndoUpdate,
    UndrainMachines,
    UntaintMachine,
)
from borgish.cell.crons.model import Cron
from borgish.cell.events import (
    AnyEvent,
    Entry,
    JobChanged,
    JobForgotten,
    JobSubmitted,
    MachineDrained,
    RolledBack,
    TasksEnded,
    TasksResubmitted,
)
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.quotas import Quota, quota_key
from borgish.cell.model import App, Cell, Job, Machine
from borgish.errors import Invalid, PreconditionFailed


class ThingKind(StrEnum):
    """What has a generation."""

    JOB = "job"
    MACHINE = "machine"
    QUOTA = "quota"
    BUDGET = "budget"
    APP = "app"
    CRON = "cron"


class Thing(NamedTuple):
    """One of them, by its key in the cell."""

    kind: ThingKind
    name: str


class Outdated(PreconditionFailed):
    """A thing is not as who asks has seen it. ``now`` is its generation; 0 when it is gone."""

    def __init__(self, thing: Thing, expected: int, now: int, since: str = "") -> None:
        """``since``: what was changed, and by whom, where that is known."""
        self.thing, self.expected, self.now = thing, expected, now
        is_named = thing.kind in (ThingKind.JOB, ThingKind.MACHINE)
        kind = "application" if thing.kind is ThingKind.APP else thing.kind
        named = thing.name if is_named else f"the {kind} {thing.name}"
        what = "is gone" if not now else "was changed" if expected else "came"
        generations = f"generation {expected}" + f", now {now}" * bool(now)
        said = f"{named} {what} since you looked ({generations})"
        super().__init__(f"{said}: {since}" if since else said, _look_again(thing, is_gone=not now))


def _look_again(thing: Thing, *, is_gone: bool) -> str:
    if is_gone and thing.kind in (ThingKind.JOB, ThingKind.MACHINE):
        return f"`borgctl history {thing.name}` says what became of it"
    name = " --band ".join(thing.name.split("/")) if thing.kind is ThingKind.QUOTA else thing.name
    return f"look again with `borgctl {thing.kind} show {name}`, and decide anew"


_OfJob = ScaleJob | KillTasks | RestartTasks | UndoUpdate | PauseUpdate | ResumeUpdate


def _job(command: _OfJob) -> str:
    return command.job


def _machine(command: CordonMachine | UncordonMachine | TaintMachine | UntaintMachine | RemoveMachine) -> str:
    return command.machine


def _quota(command: SetQuota | RemoveQuota) -> str:
    return quota_key(command.user, command.band)


def _app(command: UndoApp | RunApp | KillApp | RemoveApp) -> str:
    return command.app


def _cron(command: RemoveCron | PauseCron | ResumeCron | RunCron) -> str:
    return command.cron


_DECIDE: Mapping[type[Command], tuple[ThingKind, Callable[[Any], str]]] = {
    SubmitJob: (ThingKind.JOB, lambda command: command.spec.key),
    ScaleJob: (ThingKind.JOB, _job),
    KillTasks: (ThingKind.JOB, _job),
    RestartTasks: (ThingKind.JOB, _job),
    UndoUpdate: (ThingKind.JOB, _job),
    PauseUpdate: (ThingKind.JOB, _job),
    ResumeUpdate: (ThingKind.JOB, _job),
    CordonMachine: (ThingKind.MACHINE, _machine),
    UncordonMachine: (ThingKind.MACHINE, _machine),
    TaintMachine: (ThingKind.MACHINE, _machine),
    UntaintMachine: (ThingKind.MACHINE, _machine),
    RemoveMachine: (ThingKind.MACHINE, _machine),
    SetQuota: (ThingKind.QUOTA, _quota),
    RemoveQuota: (ThingKind.QUOTA, _quota),
    SetBudget: (ThingKind.BUDGET, lambda command: command.budget.name),
    RemoveBudget: (ThingKind.BUDGET, lambda command: command.budget),
    ApplyApp: (ThingKind.APP, lambda command: command.app.key),
    UndoApp: (ThingKind.APP, _app),
    RunApp: (ThingKind.APP, _app),
    KillApp: (ThingKind.APP, _app),
    RemoveApp: (ThingKind.APP, _app),
    SetCron: (ThingKind.CRON, lambda command: command.spec.key),
    RemoveCron: (ThingKind.CRON, _cron),
    PauseCron: (ThingKind.CRON, _cron),
    ResumeCron: (ThingKind.CRON, _cron),
    RunCron: (ThingKind.CRON, _cron),
}
"""The commands by which people decide about one thing, and which: the subject of their entry, too."""

DECIDED_BY_PEOPLE: Mapping[str, ThingKind] = {
    command.__name__: kind for command, (kind, _) in _DECIDE.items()
}
"""By the cause of an entry: what it decides about."""

_OF_SEVERAL = (DrainMachines, UndrainMachines, MaintainMachines, CancelMaintenance)
DECIDED_ABOUT_SEVERAL = frozenset(command.__name__ for command in _OF_SEVERAL)
"""The causes of entries by which people decide about machines, each of which has an event of its own."""


def thing_of(command: Command) -> Thing | None:
    """Return what a command decides about; None for those of borgish itself, and of the cell as a whole."""
    if isinstance(command, _OF_SEVERAL):
        return Thing(ThingKind.MACHINE, command.machines[0]) if len(command.machines) == 1 else None
    found = _DECIDE.get(type(command))
    return Thing(found[0], found[1](command)) if found else None


def generation_of(cell: Cell, thing: Thing) -> int:
    """Return the generation of a thing; 0 when it is not there."""
    match thing.kind:
        case ThingKind.JOB:
            there: Job | Machine | Quota | Budget | App | Cron | None = cell.jobs.get(thing.name)
        case ThingKind.MACHINE:
            there = cell.machines.get(thing.name)
        case ThingKind.QUOTA:
            there = cell.quotas.get(thing.name)
        case ThingKind.BUDGET:
            there = cell.budgets.get(thing.name)
        case ThingKind.APP:
            there = cell.apps.get(thing.name)
        case ThingKind.CRON:
            there = cell.crons.get(thing.name)
    return there.generation if there is not None else 0


def check_generation(cell: Cell, command: Command, expected: int) -> None:
    """Raise Outdated unless what a command is about is as it was by then; Invalid for one that is about
    several, where the condition would not hold."""
    thing = thing_of(command)
    if thing is None:
        raise Invalid("If-Match is of one thing, and this is about several", "Name one, or leave it out")
    if (now := generation_of(cell, thing)) != expected:
        raise Outdated(thing, expected, now)


def note_decision(cell: Cell, entry: Entry) -> None:
    """Let what people decided about by an entry have its position as generation. For ``apply`` alone; what
    comes with an event of its own, and what a rollback restores, has it from there."""
    if not entry.events:
        return
    if entry.cause in DECIDED_ABOUT_SEVERAL:
        for event in entry.events:
            if isinstance(event, MachineDrained):
                cell.machines[event.machine].generation = entry.position
    match DECIDED_BY_PEOPLE.get(entry.cause):
        case ThingKind.JOB if job := cell.jobs.get(entry.subject):
            job.generation = entry.position
            cell.touched.jobs.add(job.key)
        case ThingKind.MACHINE if machine := cell.machines.get(entry.subject):
            machine.generation = entry.position
            cell.touched.machines.add(machine.name)
        case ThingKind.APP:
            _note_app(cell, entry)
        case ThingKind.CRON if cron := cell.crons.get(entry.subject):
            cell.crons[cron.key] = msgspec.structs.replace(cron, generation=entry.position)
            cell.touched.crons.add(cron.key)


def _note_app(cell: Cell, entry: Entry) -> None:
    """What is decided about an application is decided about those of its jobs that change by it."""
    if app := cell.apps.get(entry.subject):
        app.generation = entry.position
        cell.touched.apps.add(app.key)
    for key in sorted(_jobs_of(entry)):
        if job := cell.jobs.get(key):
            job.generation = entry.position
            cell.touched.jobs.add(key)


def _jobs_of(entry: Entry) -> set[str]:
    """Return the jobs that somebody changed by an entry about their application."""
    found = set()
    for event in entry.events:
        match event:
            case JobSubmitted():
                found.add(event.spec.key)
            case JobChanged() | TasksEnded() | TasksResubmitted():
                found.add(event.job)
    return found


def decides_about(entry: Entry, thing: Thing) -> bool:
    """Return whether somebody decided about a thing by an entry of the journal."""
    if not entry.events:
        return False
    kind = DECIDED_BY_PEOPLE.get(entry.cause)
    if kind is thing.kind:
        return entry.subject == thing.name
    if kind is ThingKind.APP and thing.kind is ThingKind.JOB:
        return thing.name in _jobs_of(entry)
    if entry.cause in DECIDED_ABOUT_SEVERAL:
        drained = [event.machine for event in entry.events if isinstance(event, MachineDrained)]
        return thing.kind is ThingKind.MACHINE and thing.name in drained
    return any(_restores(event, thing) for event in entry.events)


def _restores(event: AnyEvent, thing: Thing) -> bool:
    """Return whether a rollback changes a thing; or it is a job, and no longer kept."""
    if isinstance(event, JobForgotten):
        return thing == (ThingKind.JOB, event.job)
    if not isinstance(event, RolledBack):
        return False
    match thing.kind:
        case ThingKind.JOB:
            return thing.name in event.jobs_gone or any(one.job == thing.name for one in event.jobs)
        case ThingKind.MACHINE:
            return any(one.machine == thing.name for one in event.machines)
        case ThingKind.QUOTA:
            return thing.name in event.quotas_gone or any(one.key == thing.name for one in event.quotas)
        case ThingKind.BUDGET:
            return thing.name in event.budgets_gone or any(one.name == thing.name for one in event.budgets)
        case ThingKind.APP:
            return thing.name in event.apps_gone or any(one.key == thing.name for one in event.apps)
        case ThingKind.CRON:
            return thing.name in event.crons_gone or any(one.key == thing.name for one in event.crons)
