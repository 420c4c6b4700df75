"""Whether jobs started after those that they were to start after, and ended with their parents, judged by
what truly ran: the journal says who was to wait and when they were let go, the machines what ran then. What
the master keeps of it, and how it judges, is not asked.
"""

from collections.abc import Iterable, Iterator, Mapping

from borgish.cell.apply import apply_entry
from borgish.cell.events import (
    AnyEvent,
    Elected,
    Entry,
    JobChanged,
    JobReady,
    JobSubmitted,
    RolledBack,
    TasksPlaced,
    TasksResubmitted,
)
from borgish.cell.model import Cell, Job, Snapshot, Task
from borgish.sim.machines import Machine
from borgish.spec.job import After, JobSpec
from borgish.vocabulary import Ending, JobKind, OnExit, State, Until, task_name
from borgish.wire.link import attempt_key

UP_SECONDS = 2.5
"""Before anything starts after a job that nothing probes, its programs have run for so long."""
HEARD_SECONDS = 15.0
"""A program that ended longer ago is not up: of a machine that gave no answer for so long nobody knows."""
SOON_SECONDS = 15.0
"""So long after what it waited for is there a job waits no more, and so long after its parent it is over."""
WELL_SECONDS = 50.0
"""A program that has run for so long is up, whatever became of it before."""

Machines = Mapping[str, Machine]
Waiting = dict[str, set[int] | None]
"""By job, the tasks that are to wait; None: all."""


def order_problems(
    entries: Iterable[Entry], decided_at: Mapping[int, float], machines: Machines, ended_at: float
) -> list[str]:
    """Return what started too early, and what at the end waits or lives for no reason. Times are
    monotonic."""
    cell, waiting, problems = Cell(Snapshot("judged")), Waiting(), []
    last = dict[str, float]()  # by job, when its records were last written to
    orphans = Orphans()
    for entry in entries:
        at = decided_at[entry.position]
        for event in entry.events:
            problems += [f"entry {entry.position}: {text}" for text in _too_early(waiting, event)]
            if isinstance(event, JobReady) and entry.actor == "order":
                problems += [
                    f"entry {entry.position}: {event.job} is let go, and {why}"
                    for each in cell.jobs[event.job].spec.after
                    if (why := _why_not_there(cell, each, machines, at))
                ]
        apply_entry(cell, entry)
        problems += orphans.after(cell, entry, at)
        for event in entry.events:
            _take(cell, waiting, event)
        waiting = {key: covered for key, covered in waiting.items() if _is_pending(cell, key, covered)}
        touched = cell.take_touched()
        last |= dict.fromkeys([*touched.tasks, *touched.jobs_gone], at)
        if any(isinstance(event, RolledBack) for event in entry.events):
            waiting = {key: set(indexes) for key, indexes in cell.deferred.items()}
    for key, job in cell.jobs.items():
        named = (key, job.spec.parent, *(each.job for each in job.spec.after))
        if ended_at - max(last.get(name, 0.0) for name in named) >= SOON_SECONDS:
            problems += _for_no_reason(cell, job, machines, ended_at)
    return problems


class Orphans:
    """Jobs that live though their parents are over, and since when, while one master leads and acts."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._acted: set[str] = set()  # of these, those after which the master has done something else

    def after(self, cell: Cell, entry: Entry, at: float) -> Iterator[str]:
        """Yield what an entry shows to live too long."""
        if any(isinstance(event, Elected | RolledBack) for event in entry.events):
            self._since.clear()
        found = {
            child
            for parent, children in cell.links.children.items()
            if parent not in cell.jobs or cell.jobs[parent].state is State.DEAD
            for child in children
            if cell.jobs[child].state is not State.DEAD
        }
        self._since = {child: self._since.get(child, at) for child in found}
        self._acted &= found
        for child, since in self._since.items():
            if since + 1.0 < at < since + SOON_SECONDS - 1.0:
                self._acted.add(child)
            elif at >= since + SOON_SECONDS and child in self._acted:
                yield f"entry {entry.position}: {child} lives on, and its parent is over"


def _too_early(waiting: Waiting, event: AnyEvent) -> Iterator[str]:
    if not isinstance(event, TasksPlaced) or event.job not in waiting:
        return
    covered = waiting[event.job]
    for index in event.pending:
        if covered is None or index in covered:
            yield f"{task_name(event.job, index)} is placed, and its job is to wait for others"


def _is_pending(cell: Cell, key: str, covered: set[int] | None) -> bool:
    """Return whether there is a task left that is to wait."""
    job = cell.jobs.get(key)
    return job is not None and any(
        task.state is State.PENDING and (covered is None or task.index in covered) for task in job.tasks
    )


def _take(cell: Cell, waiting: Waiting, event: AnyEvent) -> None:
    match event:
        case JobSubmitted(spec):
            waiting.pop(spec.key, None)
            if spec.after:
                waiting[spec.key] = None
        case TasksResubmitted(job, indexes, in_order) if in_order and cell.jobs[job].spec.after:
            before = waiting.get(job, set())
            waiting[job] = None if before is None else before | set(indexes)
        case JobReady(job):
            waiting.pop(job, None)
        case JobChanged(job, spec) if not spec.after:
            waiting.pop(job, None)
        case JobChanged(job, spec) if (covered := waiting.get(job)) is not None:
            waiting[job] = {index for index in covered if index < spec.tasks}  # one that comes anew does not


def _why_not_there(cell: Cell, after: After, machines: Machines, at: float) -> str:
    """Return what of a job was truly not as it was to be; "" where all of it was."""
    job = cell.jobs.get(after.job)
    if job is None:
        return f"there is no job {after.job}"
    lasts = job.spec.is_service or job.spec.kind is JobKind.ALLOC_SET
    until = after.until or (Until.HEALTHY if lasts else Until.FINISHED)
    for task in job.tasks[: job.tasks_wanted]:
        name = task_name(job.key, task.index)
        if task.state is State.DEAD and task.ending is Ending.FINISH:
            programs = machines[task.machine].programs if task.machine in machines else None
            result = programs.results.get((name, task.attempt)) if programs is not None else None
            if result is not None and (result[0] > at or not _is_success(job.spec, result[1])):
                return f"{name} had not ended well"
        elif until is Until.FINISHED or task.state is not State.RUNNING:
            return f"{name} was {task.ending or task.state}"
        elif job.spec.kind is not JobKind.ALLOC_SET and not _was_up(job, task, machines, at):
            return f"{name} was not up"
    return ""


def _is_success(spec: JobSpec, code: int | None) -> bool:
    """Return whether a program that ended so has finished, by its job's rules, where any is about that."""
    for rule in spec.on_exit:
        if code is not None and any(codes.low <= code <= codes.high for codes in rule.codes):
            return rule.do is OnExit.FINISH
    return code == 0


def _was_up(job: Job, task: Task, machines: Machines, at: float) -> bool:
    key = attempt_key(task_name(job.key, task.index), task.attempt)
    programs, seconds = machines[task.machine].programs, 0.0 if job.spec.health is not None else UP_SECONDS
    lives = [life for life in programs.lives.get(key, ()) if life.began <= at - seconds]
    return any(life.is_alive or life.ended >= at - HEARD_SECONDS for life in lives)


def _for_no_reason(cell: Cell, job: Job, machines: Machines, at: float) -> Iterator[str]:
    """Say of a job that waits though all is there, or lives though its parent is over."""
    parent = cell.jobs.get(job.spec.parent)
    is_over = bool(job.spec.parent) and (parent is None or parent.state is State.DEAD)
    if is_over and job.state is not State.DEAD:
        yield f"{job.key} lives on, and its parent {job.spec.parent} is over"
    if job.waits is not None and all(_is_well(cell, each, machines, at) for each in job.spec.after):
        yield f"{job.key} waits on, and all that it waits for is there"


def _is_well(cell: Cell, after: After, machines: Machines, at: float) -> bool:
    """Return whether a job is there without any doubt."""
    if _why_not_there(cell, after, machines, at):
        return False
    job = cell.jobs[after.job]
    for task in job.tasks[: job.tasks_wanted]:
        if task.state is not State.RUNNING or job.spec.kind is JobKind.ALLOC_SET:
            continue
        there = machines[task.machine].programs.by_key.get(
            attempt_key(task_name(job.key, task.index), task.attempt)
        )
        if there is None or not there.is_alive or there.began > at - WELL_SECONDS:
            return False
    return True
