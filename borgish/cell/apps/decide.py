"""Applications: several jobs that are applied, undone, run and ended as one.

All or nothing: what one ``apply`` asks for is decided against the cell as it is, job by job, then together
where they share something (quotas, alloc sets, how many tasks may be stopped), and becomes one entry of the
journal. A job that is refused refuses all of them, and every refusal is named.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from borgish.cell.apps.members import crons_of, members
from borgish.cell.apps.order import check_order, order_notes, order_refusals
from borgish.cell.apps.owners import OwnedByOther, merged, without_conflicts
from borgish.cell.commands import (
    ApplyApp,
    Decision,
    KillApp,
    RemoveApp,
    RunApp,
    SetCron,
    UndoApp,
)
from borgish.cell.crons.decide import decide_set
from borgish.cell.crons.runs import runs
from borgish.cell.events import (
    AnyEvent,
    AppApplied,
    AppRemoved,
    CronRemoved,
    CronSet,
    JobChanged,
    JobSubmitted,
    TasksEnded,
    TasksEvicted,
    TasksResubmitted,
)
from borgish.cell.lifecycle import TaskEvent, allows, movable
from borgish.cell.limits.admission import admit_together, job_warnings
from borgish.cell.limits.affected import check_affected, stopped_with
from borgish.cell.lookup import find_app
from borgish.cell.model import App, Cell, Job, task_count
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import check_inside, evicted_with, is_alloc_set
from borgish.cell.tasks.failing import forgotten
from borgish.cell.updates.decide import decide_update, tasks_to_run
from borgish.cell.updates.rollback import same_version
from borgish.cell.updates.rollback_checks import check_kept
from borgish.clock import Now
from borgish.errors import Conflict, NotFound, Refused, TooLarge
from borgish.spec.app import AppSpec, Document, to_completion
from borgish.spec.changes import TaskChange, task_change
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, JobKind, State

TASKS_MAX = 50_000
"""Of all jobs of an application: what is decided as one is a turn in which nobody else is served."""

_NAMED_MAX = 5
_REFUSALS_NAMED_MAX = 20
"""Refusals that are named one by one; of more it is said how many there are."""


class JobChange(msgspec.Struct, frozen=True):
    """What an ``apply`` means for one job: the specification it gets, and the events by which it does.

    ``asking``: indexes of its tasks that ask for nothing yet, and would.
    """

    job: str
    what: str  # created, updated, started again, unchanged, ended: for people
    spec: JobSpec
    events: tuple[AnyEvent, ...] = ()
    asking: Sequence[int] = ()
    notes: tuple[str, ...] = ()
    stopped: int = 0  # running tasks that end with it


class CronChange(msgspec.Struct, frozen=True):
    """What an ``apply`` means for one cron, in the words of a ``JobChange``."""

    cron: str
    what: str
    events: tuple[AnyEvent, ...] = ()
    notes: tuple[str, ...] = ()


class AppPlan(msgspec.Struct, frozen=True):
    """What an ``apply`` would do. ``orphans``: jobs and crons of the application that have no document and
    stay; ``followers``: jobs of it that wait for what it changes."""

    app: AppSpec
    version: int
    changes: tuple[JobChange, ...]
    crons: tuple[CronChange, ...]
    events: tuple[AnyEvent, ...]
    orphans: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()


# Apply and undo


def apply(cell: Cell, _o: Observed, command: ApplyApp, actor: str, now: Now) -> Decision:
    """Make an application what its documents say. Raises a ``Refused``, with nothing changed."""
    return _decision(plan_apply(cell, command, actor, now))


def _decision(plan: AppPlan) -> Decision:
    return Decision(plan.events, plan.app.key, plan_words(plan), tuple(_notes(plan)))


def undo(cell: Cell, _o: Observed, command: UndoApp, actor: str, now: Now) -> Decision:
    """Apply what an application was before; what came to it since ends. Raises NotFound where that is not
    known, and as ``apply``."""
    app = find_app(cell, command.app)
    number = command.version or max(app.earlier, default=0)
    kept = ", ".join(map(str, app.earlier)) or "none"
    if number == app.version:
        raise Conflict(f"version {number} is what {app.key} is already", f"earlier versions: {kept}")
    if number not in app.earlier:
        missing = (
            f"version {number} of {app.key} is not known" if number else f"{app.key} has no version before"
        )
        hint = f"earlier versions that are kept: {kept}; `borgctl app history {app.key}`"
        raise NotFound(missing, hint)
    before = app.earlier[number]
    again = ApplyApp(
        before.spec, before.documents, True, command.take_over, command.max_affected, before.crons
    )
    since = [*(version for at, version in app.earlier.items() if at > number), app.present]
    came = {document.key for version in since for document in version.documents}
    came.update(spec.key for version in since for spec in version.crons)
    decision = _decision(plan_apply(cell, again, actor, now, prunable=came))
    if not decision.events:
        return decision
    text = f"{app.key} is version {number} again, as version {app.version + 1}"
    return msgspec.structs.replace(decision, text=f"{text}: {decision.text.partition(': ')[2]}")


def plan_apply(
    cell: Cell, command: ApplyApp, actor: str, now: Now, prunable: Collection[str] | None = None
) -> AppPlan:
    """Return what an ``apply`` does. Raises the ``Refused`` that it would be refused with.

    ``prunable``: of an undo; of the jobs and crons without a document only these end. None: all.
    """
    key, documents = command.app.key, command.documents
    if (tasks := sum(document.spec.tasks for document in documents)) > TASKS_MAX:
        raise TooLarge(
            f"{key} would have {tasks} tasks; at most {TASKS_MAX} are applied together",
            "divide it into several applications",
        )
    app, own = cell.apps.get(key), {document.key for document in documents}
    beside = {document.key: document.spec for document in documents}
    changes: list[JobChange] = []
    crons: list[CronChange] = []
    refusals: list[Refused] = []
    for document in documents:
        try:
            change = _change(cell, document, command, actor, now, beside, is_undo=prunable is not None)
            changes.append(_taken(cell, key, document, change, actor))
        except Refused as refused:
            refusals.append(refused)
    for spec in command.crons:
        try:
            crons.append(_cron_change(cell, spec, command, actor, now))
        except Refused as refused:
            refusals.append(refused)
    changes = _over_with_parents(cell, changes)
    refusals += order_refusals(cell, {change.job: change.spec for change in changes if change.events})
    if refusals:
        raise _all(refusals, len(documents), len(command.crons))
    named = {spec.key for spec in command.crons}
    without_crons = [cron.key for cron in crons_of(cell, key) if cron.key not in named]
    without = [job for job in members(cell, key) if job.key not in own]
    if prunable is not None:
        without_crons = [each for each in without_crons if each in prunable]
        without = [job for job in without if job.key in prunable]
    if command.prune:
        _check_unused(cell, command, without, changes)
        # What is in an alloc is evicted with it, and ends after that.
        changes += (
            _ended(cell, job, actor) for job in sorted(without, key=lambda job: not is_alloc_set(job))
        )
        crons += (CronChange(each, "removed", (CronRemoved(each),)) for each in without_crons)
    _check_quotas(cell, changes, now)
    check_affected(cell, sum(change.stopped for change in changes), command.max_affected)
    content = (command.app, documents, command.crons)
    is_same = app is not None and app.present.content == content
    version = 1 if app is None else app.version + (not is_same)
    left = tuple(job.key for job in without) if command.prune else ()
    events = _of_those_left(event for change in changes for event in change.events)
    events += (event for cron in crons for event in cron.events)
    joins = any((job := cell.jobs.get(each)) is not None and job.app != key for each in own)
    if events or left or joins or not is_same:
        events.append(AppApplied(command.app, documents, version, left, crons=command.crons))
    orphans = () if command.prune else (*(job.key for job in without), *without_crons)
    followers = tuple(_followers(cell, key, changes))
    return AppPlan(command.app, version, tuple(changes), tuple(crons), tuple(events), orphans, followers)


def _of_those_left(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Return the events without the evictions, with their allocs, of tasks that an earlier event takes away:
    each change is decided for itself, on the cell as it is."""
    found: list[AnyEvent] = []
    tasks: dict[str, int] = {}
    for event in events:
        if isinstance(event, JobChanged):
            tasks[event.job] = event.spec.tasks
        if isinstance(event, TasksEvicted) and event.job in tasks:
            left = tuple(index for index in event.indexes if index < tasks[event.job])
            event = msgspec.structs.replace(event, indexes=left)  # noqa: PLW2901 - the same, cut down
            if not left:
                continue
        found.append(event)
    return found


def _followers(cell: Cell, app: str, changes: Iterable[JobChange]) -> Iterator[str]:
    """Yield the jobs of an application that do not change and wait for one that does, or for such a job."""
    changed = {change.job for change in changes if change.events and change.what != "ended"}
    queue = sorted(changed)
    for key in queue:  # it grows
        for until in cell.links.followers.get(key, {}).values():
            for job in sorted(until - changed):
                changed.add(job)
                queue.append(job)
                if cell.jobs[job].app == app:
                    yield job


def _cron_change(cell: Cell, spec: CronSpec, command: ApplyApp, actor: str, now: Now) -> CronChange:
    before, app = cell.crons.get(spec.key), cell.apps.get(command.app.key)
    if before is not None and not command.take_over:
        if before.app not in ("", command.app.key):
            raise Conflict(
                f"the cron {spec.key} belongs to the application {before.app}",
                "remove it from one of the two, or take it over with --take-over",
            )
        versions = (*app.earlier.values(), app.present) if app is not None else ()
        applied = {each.key: each for version in versions for each in version.crons}  # the last that names it
        is_own = before.by == actor if not before.app else applied.get(spec.key) == before.spec
        if not is_own and before.spec != spec:
            raise Conflict(
                f"the cron {spec.key} is not as it was applied: {before.by} changed it since",
                f"`borgctl cron show {spec.key}` shows it; --take-over makes it what the file says",
            )
    own = command.documents if spec.app_key == command.app.key else None
    decision = decide_set(cell, SetCron(spec), actor, now, own)
    crons = [event.cron for event in decision.events if isinstance(event, CronSet)]
    if before is not None and not crons:
        if before.app == command.app.key:
            return CronChange(spec.key, "unchanged")
        crons = [before]
    events = tuple(CronSet(msgspec.structs.replace(cron, app=command.app.key)) for cron in crons)
    times = (decision.text.partition("; ")[2],) if decision.events else ()
    return CronChange(spec.key, "updated" if before else "created", events, (*decision.notes, *times))


def _change(
    cell: Cell,
    document: Document,
    command: ApplyApp,
    actor: str,
    now: Now,
    beside: Mapping[str, JobSpec],
    *,
    is_undo: bool,
) -> JobChange:
    key, app = document.key, command.app.key
    job = cell.jobs.get(key)
    if job is None:
        check_inside(cell, document.spec, beside)
        return _submitted(cell, document.spec, 1, "created", beside)
    if job.app not in ("", app) and not command.take_over:
        raise Conflict(
            f"{key} belongs to the application {job.app}",
            "remove it from one of the two, or take it over with --take-over",
        )
    found = merged(document, job, app, actor)
    if found.conflicts and not command.take_over:
        raise _owned_by_others(key, found.conflicts, is_undo=is_undo)
    spec = found.spec
    if allows(job.state, TaskEvent.SUBMIT):
        if not _runs_again(job, spec, is_member=job.app == app):
            way = f"`borgctl app run {app} --from {job.spec.name}`"
            notes = (f"it is over, and what is new of it counts when it runs again: {way}",)
            return JobChange(key, "unchanged", job.spec, notes=notes if spec != job.spec else ())
        check_inside(cell, spec, beside)
        return _submitted(cell, spec, job.version + (job.spec != spec), "started again", beside)
    check_kept(job)
    if msgspec.structs.replace(job.spec, tasks=job.tasks_wanted) == spec:
        return _brought_back(cell, job, beside)
    grown = range(len(job.tasks), spec.tasks)
    decision = decide_update(cell, job, spec, now, beside=beside, admitted=True)
    again = [each.indexes for each in decision.events if isinstance(each, TasksResubmitted)]
    what = "scaled" if same_version(job.spec, spec) else "updated"
    live = [task.index for task in job.tasks[: spec.tasks] if task.state is not State.DEAD]
    asking = sorted({*live, *grown}.union(*again))
    stopped = stopped_with(cell, job, range(spec.tasks, len(job.tasks)))
    return JobChange(key, what, spec, decision.events, asking, decision.notes, stopped)


def _taken(cell: Cell, app: str, document: Document, change: JobChange, actor: str) -> JobChange:
    """Return what becomes of a job, with a note where it comes to this application from another, or from
    none and runs."""
    job = cell.jobs.get(change.job)
    if job is None or job.app == app or (not job.app and job.state is State.DEAD):
        return change
    note = f"it belongs to the application {job.app}, and is taken from it"
    if not job.app:
        note = f"it was part of no application, and becomes part of {app}"
        if resets := merged(document, job, app, actor).resets:
            words = [f"{each.difference}, which {actor} set by {each.owner.how}" for each in resets]
            note = f"{note}; the file changes {_joined(words)}"
    return msgspec.structs.replace(change, notes=(*change.notes, note))


def _over_with_parents(cell: Cell, changes: Sequence[JobChange]) -> list[JobChange]:
    """Leave over what ended with its parent, where that is over and is not started again: a service beside
    a job that ran to completion has nothing to do any more."""
    found = {change.job: change for change in changes}
    is_over = True
    while is_over:
        is_over = False
        for key, change in found.items():
            parent = cell.jobs.get(change.spec.parent)
            over = parent is not None and parent.state is State.DEAD
            if over and change.what == "started again" and not _starts(found.get(change.spec.parent)):
                found[key] = JobChange(key, "unchanged", cell.jobs[key].spec)
                is_over = True
    return list(found.values())


def _starts(change: JobChange | None) -> bool:
    return change is not None and bool(change.events)


def _submitted(
    cell: Cell, spec: JobSpec, version: int, what: str, beside: Mapping[str, JobSpec]
) -> JobChange:
    event = JobSubmitted(spec, version)
    notes = (*order_notes(cell, spec, beside), *job_warnings(cell, spec))
    return JobChange(spec.key, what, spec, (event,), range(spec.tasks), notes)


def _runs_again(job: Job, spec: JobSpec, *, is_member: bool) -> bool:
    """Return whether a job that is over is submitted again: a service is to run. What runs to completion does
    so once for each program: applied again without a change it would do its work twice. One that was pruned,
    or killed before it came to the application, has not done it."""
    if spec.is_service or spec.kind is JobKind.ALLOC_SET:
        return True
    if not is_member and any(task.ending is Ending.KILL for task in job.tasks):
        return True
    return any(task_change(job.spec, spec, index) >= TaskChange.RESTART for index in range(spec.tasks))


def _brought_back(cell: Cell, job: Job, beside: Mapping[str, JobSpec]) -> JobChange:
    """A service that is as it should be gets back what was killed of it."""
    killed: tuple[int, ...] = ()
    if job.spec.is_service:
        killed = tuple(i for i in tasks_to_run(job) if job.tasks[i].ending is Ending.KILL)
    notes = tuple(_yet_to_end(job))
    if not killed:
        return JobChange(job.key, "unchanged", job.spec, notes=notes)
    check_inside(cell, job.spec, beside)
    tried = forgotten(cell, job, range(len(job.tasks)))
    live = [task.index for task in job.tasks if task.state is not State.DEAD]
    events: tuple[AnyEvent, ...] = (TasksResubmitted(job.key, killed, in_order=True), *tried)
    return JobChange(job.key, "started again", job.spec, events, sorted({*live, *killed}), notes)


def _yet_to_end(job: Job) -> Iterator[str]:
    """Say that a rollback which is under way ends tasks that this would bring back."""
    if job.rollout is not None and job.spec.is_service and job.rollout.records:
        count = task_count(len(job.rollout.records))
        yield f"{count} still to end, as it was {job.rollout.reason}: apply again when that is over"


def _ended(cell: Cell, job: Job, actor: str) -> JobChange:
    chosen = movable(job, range(len(job.tasks)), TaskEvent.KILL)
    if not chosen:
        return JobChange(job.key, "ended", job.spec)
    reason = f"killed by {actor}, as {job.app} has it no more"
    event = TasksEnded(job.key, chosen, Ending.KILL, (reason,) * len(chosen))
    moved = evicted_with(cell, job, chosen, reason)
    stopped = stopped_with(cell, job, chosen)
    return JobChange(job.key, "ended", job.spec, (event, *moved), stopped=stopped)


def _check_quotas(cell: Cell, changes: Iterable[JobChange], now: Now) -> None:
    changed = (change for change in changes if change.events)
    admit_together(
        cell, ((cell.jobs.get(change.job), change.spec, change.asking) for change in changed), now.wall
    )


def _check_unused(cell: Cell, command: ApplyApp, gone: Iterable[Job], kept: Iterable[JobChange]) -> None:
    """Raise Conflict where what is to end is used by what stays: a job or a cron of this application, as its
    documents have it, or of somebody else."""
    ending = {job.key for job in gone if job.state is not State.DEAD}
    if not ending:
        return
    app = command.app.key
    own = {change.job: change.spec for change in kept}
    own |= {f"the cron {cron.key}": cron.job for cron in command.crons}
    for user, spec in own.items():
        for used in sorted(ending.intersection(uses(spec))):
            raise Conflict(
                f"{used} has no document any more and would end, and {user} uses it",
                f"leave {used} in the files, or let {user} go without it",
            )
    jobs = cell.jobs.values()
    others = {job.key: job.spec for job in jobs if job.app != app and job.state is not State.DEAD}
    others |= {f"the cron {cron.key}": cron.spec.job for cron in cell.crons.values() if cron.app != app}
    for user in sorted(others.keys() - own.keys()):
        for used in sorted(ending.intersection(uses(others[user]))):
            raise Conflict(
                f"{used} is used by {user}, which is not of {app}",
                f"end {user} first, or let it go without {used}",
            )


def uses(spec: JobSpec) -> Iterator[str]:
    """Yield the keys of the jobs that a job cannot do without."""
    if spec.inside:
        yield spec.inside
    if spec.parent:
        yield spec.parent
    yield from (each.job for each in spec.after)


def _owned_by_others(key: str, conflicts: Sequence[OwnedByOther], *, is_undo: bool) -> Conflict:
    words = [f"{each.difference}, but {each.owner.by} set that by {each.owner.how}" for each in conflicts]
    fields = ", ".join(each.field for each in conflicts[:_NAMED_MAX])
    hint = f"remove {fields} from the file to leave that as it is, or take it over with --take-over"
    if is_undo:  # it has no file to remove something from
        hint = f"--take-over changes that back, too; to leave it as it is, apply a file without {fields}"
    return Conflict(f"{key}: {_joined(words)}", hint)


def _all(refusals: Sequence[Refused], jobs: int, crons: int) -> Refused:
    """Return one refusal for several. The first says which kind of error it is."""
    first = refusals[0]
    if len(refusals) == 1:
        return first
    words = [refused.message for refused in refusals]
    hint = "; ".join(dict.fromkeys(refused.hint for refused in refusals[:_NAMED_MAX] if refused.hint))
    what = "jobs and crons" if crons else "jobs"
    text = f"{len(refusals)} of {jobs + crons} {what} are refused: {_joined(words, _REFUSALS_NAMED_MAX)}"
    return type(first)(text, hint)


def _joined(words: Sequence[str], most: int = _NAMED_MAX) -> str:
    more = len(words) - most
    return "; ".join([*words[:most], *([f"and {more} more"] if more > 0 else [])])


def plan_words(plan: AppPlan) -> str:
    """Return what an ``apply`` does, in one sentence."""
    if not plan.events:
        return f"{plan.app.key} is there already, exactly like this"
    found = Counter([*(change.what for change in plan.changes), *(cron.what for cron in plan.crons)])
    counts = ", ".join(f"{count} {what}" for what, count in found.items()) or "no jobs"
    return f"{plan.app.key} applied, version {plan.version}: {counts}"


def _notes(plan: AppPlan) -> Iterator[str]:
    for change in plan.changes:
        yield from (f"{change.job}: {note}" for note in change.notes)
    for cron in plan.crons:
        yield from (f"{cron.cron}: {note}" for note in cron.notes)
    if plan.orphans:
        names = _joined(plan.orphans)
        yield f"not in the files, and left as it is: {names}; --prune ends it"


# Run, kill, remove


def run(cell: Cell, _o: Observed, command: RunApp, actor: str, now: Now) -> Decision:
    """Submit the stages of an application again, with what others have set of them since. Raises Conflict
    where one of them runs; what waits for another one waits on, and so for what is submitted now."""
    app = find_app(cell, command.app)
    asked = _stages(app, command.stage)
    stages = {key: each for key, each in asked.items() if not _is_waiting(cell, key)}
    if not stages:
        raise Conflict(
            f"all stages of {app.key} that this is about wait for other jobs",
            f"`borgctl app status {app.key}` says for which; name a stage before them with --from",
        )
    for key in stages:
        if (job := cell.jobs.get(key)) is not None and job.app not in ("", app.key):
            raise Conflict(
                f"{key} belongs to the application {job.app}", f"apply {app.key} again with --take-over"
            )
    live = [key for key in stages if (job := cell.jobs.get(key)) and not allows(job.state, TaskEvent.SUBMIT)]
    if live:
        raise Conflict(
            f"{_joined(live)} of {app.key} {'runs' if len(live) == 1 else 'run'} already",
            f"`borgctl app wait {app.key} --for finished` waits for it, `borgctl app kill {app.key}` ends it",
        )
    changes, documents = [], []
    beside = {key: document.spec for key, document in stages.items()}
    for key, stage in stages.items():
        job = cell.jobs.get(key)
        document = without_conflicts(stage, job, app.key, actor)
        documents.append(document)
        spec = merged(document, job, app.key, actor).spec
        check_inside(cell, spec)
        version = 1 if job is None else job.version + (job.spec != spec)
        changes.append(_submitted(cell, spec, version, "started", beside))
    check_order(cell, {change.job: change.spec for change in changes})
    _check_quotas(cell, changes, now)
    events = [event for change in changes for event in change.events]
    applied = AppApplied(app.spec, tuple(documents), app.version)
    text = f"{app.key} runs: {', '.join(key.partition('/')[2] for key in stages)}"
    if waiting := [key.partition("/")[2] for key in asked if key not in stages]:
        text += f"; {', '.join(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for that already"
    return Decision((*events, applied), app.key, text)


def _is_waiting(cell: Cell, key: str) -> bool:
    job = cell.jobs.get(key)
    return job is not None and job.waits is not None and not job.running


def _stages(app: App, first: str) -> dict[str, Document]:
    """Return the documents of the jobs that run to completion, by key: all, or one and what comes after."""
    found = {document.key: document for document in to_completion(app.present.documents)}
    if not found:
        raise Conflict(
            f"{app.key} has no job that runs to completion",
            "its services run until they are killed; `borgctl app status` shows them",
        )
    if not first:
        return found
    start = first if "/" in first else f"{app.spec.user}/{first}"
    if start not in found:
        names = ", ".join(key.partition("/")[2] for key in found)
        raise NotFound(f"{app.key} has no stage {first}", f"its stages are {names}")
    chosen, before = {start}, 0
    while len(chosen) > before:
        before = len(chosen)
        chosen |= {
            key for key, document in found.items() if any(each.job in chosen for each in document.spec.after)
        }
    return {key: document for key, document in found.items() if key in chosen}


def kill(cell: Cell, _o: Observed, command: KillApp, actor: str, _now: Now) -> Decision:
    """End all jobs of an application, and its crons with their runs."""
    app = find_app(cell, command.app)
    crons = [cron.key for cron in crons_of(cell, app.key)]
    events: list[AnyEvent] = [CronRemoved(key) for key in crons]
    tasks = stopped = 0
    of_crons = (job for cron in crons for run in runs(cell, cron) for job in run.jobs)
    ending = {job.key: job for job in (*members(cell, app.key), *of_crons)}  # a run may be a member, too
    for job in sorted(ending.values(), key=lambda job: not is_alloc_set(job)):
        chosen = movable(job, range(len(job.tasks)), TaskEvent.KILL)
        if chosen:
            reason = f"killed by {actor} with {app.key}"
            events.append(TasksEnded(job.key, chosen, Ending.KILL, (reason,) * len(chosen)))
            events += evicted_with(cell, job, chosen, reason)
            tasks, stopped = tasks + len(chosen), stopped + stopped_with(cell, job, chosen)
    if not events:
        return Decision((), app.key, "nothing to kill: all of it is dead already")
    check_affected(cell, stopped, command.max_affected)
    removed = f", and its crons removed: {_joined(crons)}" if crons else ""
    return Decision(tuple(events), app.key, f"{task_count(tasks)} of {app.key} killed{removed}")


def remove(cell: Cell, _o: Observed, command: RemoveApp, _actor: str, _now: Now) -> Decision:
    """Forget an application. Raises Conflict while a job of it is alive."""
    app = find_app(cell, command.app)
    live = [job.key for job in members(cell, app.key) if job.state is not State.DEAD]
    if live:
        raise Conflict(
            f"{_joined(live)} of {app.key} {'is' if len(live) == 1 else 'are'} not over",
            f"end it first with `borgctl app kill {app.key}`",
        )
    crons = (CronRemoved(cron.key) for cron in crons_of(cell, app.key))
    return Decision((*crons, AppRemoved(app.key)), app.key, f"{app.key} removed")
