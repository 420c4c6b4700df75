"""Allocs and what runs in them (section 2.4 of the Borg paper). Pure look-ups and rules.

An alloc is a task of a job of kind ``alloc_set``: placed like any, and running nothing. The tasks of a job
that is *inside* such a set each run in one of its allocs, on that alloc's machine, in its room.
"""

from collections.abc import Iterable, Iterator, Mapping

from borgish.cell.events import TasksEvicted
from borgish.cell.model import Cell, Job, Task
from borgish.errors import Conflict, Forbidden, NotFound, Refused
from borgish.spec.job import JobSpec
from borgish.vocabulary import Eviction, JobKind, State, split_task_name, task_name


def is_alloc_set(job: Job) -> bool:
    """Return whether the tasks of a job are allocs."""
    return job.spec.kind is JobKind.ALLOC_SET


def alloc_name(allocs: Job, index: int) -> str:
    """Return the name of an alloc's stay on its machine: ``user/room/3@1200``."""
    return f"{task_name(allocs.key, index)}@{allocs.tasks[index].attempt}"


def is_reserved(cell: Cell, machine: str, name: str) -> bool:
    """Return whether the alloc's stay of this name is on a machine now."""
    task, _, attempt = name.rpartition("@")
    return cell.is_current(machine, task, int(attempt))


def inside(cell: Cell, allocs: Job, index: int) -> Iterator[tuple[Job, Task]]:
    """Yield what runs in one alloc, in no order."""
    alloc = allocs.tasks[index]
    if alloc.state is not State.RUNNING:
        return
    for key, number in cell.placed[alloc.machine]:
        job = cell.jobs[key]
        task = job.tasks[number]
        if task.alloc == index and job.spec_of(task).inside == allocs.key:
            yield job, task


def priority_of(cell: Cell, job: Job, index: int) -> int:
    """Return the priority that says who may preempt a task: an alloc counts as the highest that is in it."""
    # Otherwise an alloc in the free band would let the production in it be preempted.
    own = job.spec.priority
    if not is_alloc_set(job):
        return own
    return max([own, *(inner.spec.priority for inner, _ in inside(cell, job, index))])


def may_preempt(cell: Cell, preemptor: str, job: Job, index: int) -> bool:
    """Return whether a task may take the place of another (section 2.5).

    Prod is never preempted, nor is what has an equal or a higher priority, or what holds such in it.
    """
    # Borg disallows preemption within the production band, since it would cascade (section 2.5). Here prod is
    # production and monitoring. Batch and free give way, and within these bands also to each other.
    for_job = cell.jobs.get(split_task_name(preemptor)[0])
    if for_job is None:
        return False
    return priority_of(cell, job, index) < min(for_job.spec.priority, cell.rules.bands.production)


def evicted_with(
    cell: Cell, job: Job, indexes: Iterable[int], why: str, notice_seconds: float = -1.0
) -> Iterator[TasksEvicted]:
    """Yield the evictions that follow when these tasks leave: of all that runs in them, if they are allocs.

    They follow the event by which the allocs leave. Section 2.4: what is in an alloc moves with it.
    """
    if not is_alloc_set(job):
        return
    leaving: dict[str, list[int]] = {}
    for alloc in indexes:
        for inner, task in inside(cell, job, alloc):
            leaving.setdefault(inner.key, []).append(task.index)
    for key, inner_indexes in sorted(leaving.items()):
        reason = f"its alloc of {job.key} left: {why}"
        yield TasksEvicted(key, tuple(sorted(inner_indexes)), Eviction.ALLOC_MOVED, reason, notice_seconds)


def has_its_alloc(cell: Cell, key: str, machine: str, alloc: int) -> bool:
    """Return whether a task may be placed so: in an alloc on that machine, or in none where it needs none."""
    name = cell.jobs[key].spec.inside
    if not name or alloc < 0:
        return not name and alloc < 0
    allocs = cell.jobs.get(name)
    if allocs is None or not is_alloc_set(allocs) or alloc >= len(allocs.tasks):
        return False
    task = allocs.tasks[alloc]
    return task.state is State.RUNNING and task.machine == machine


def check_inside(cell: Cell, spec: JobSpec, beside: Mapping[str, JobSpec] | None = None) -> None:
    """Raise a ``Refused`` when a job may not be submitted into the alloc set that it names. ``beside``: jobs
    that are submitted with it."""
    if not spec.inside:
        return
    allocs = cell.jobs.get(spec.inside)
    if beside and spec.inside in beside:
        known, dead = beside[spec.inside], False
    elif allocs is not None:
        known, dead = allocs.spec, allocs.state is State.DEAD
    else:
        known, dead = None, True
    if (refused := refused_inside(spec, known, dead=dead)) is not None:
        raise refused


def refused_inside(spec: JobSpec, allocs: JobSpec | None, *, dead: bool) -> Refused | None:
    """Return why a job may not be in the alloc set that it names, which is this and perhaps dead."""
    if allocs is None:
        hint = "submit it first, with kind: alloc_set; `borgctl job list` shows the jobs there are"
        return NotFound(f"{spec.key} needs the alloc set {spec.inside}, which does not exist", hint)
    if allocs.kind is not JobKind.ALLOC_SET:
        hint = "name a job of kind: alloc_set, or remove `in`"
        return Conflict(f"{spec.key} needs the alloc set {spec.inside}, which is a job", hint)
    if dead:
        return Conflict(
            f"{spec.key} needs the alloc set {spec.inside}, which is dead", "submit the alloc set again"
        )
    if allocs.user != spec.user:
        # Another's alloc would be room without quota: a job in an alloc set asks for nothing (``Demand``).
        hint = f"reserve with an alloc set of your own, or submit the job as {allocs.user}'s"
        return Forbidden(f"{spec.inside} is {allocs.user}'s, and {spec.key} is not", hint)
    return None
