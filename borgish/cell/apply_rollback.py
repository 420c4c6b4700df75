"""The part of ``apply`` that takes a cell back: the rollback itself, and what it reaches later."""

import copy

import msgspec

from borgish.cell.events import Entry, JobRestored, RollbackPaused, RollbackWentOn, RolledBack
from borgish.cell.lifecycle import TaskEvent, drop_promises, forget_job, grow, shrink, touch, transition
from borgish.cell.model import Job, Task
from borgish.cell.rollback import same_program
from borgish.cell.state import Cell
from borgish.vocabulary import Ending, State


def rolled_back(cell: Cell, event: RolledBack, entry: Entry) -> None:
    """Change what differs, and begin the new timeline."""
    cell.timeline = event.timeline
    for key in event.jobs_gone:
        forget_job(cell, key, TaskEvent.REMOVE)
    for one in event.jobs:
        _restore(cell, one, event.reason, entry.at)
    for mark in event.machines:
        machine = cell.machines[mark.machine]
        machine.cordoned, machine.taints = mark.cordoned, mark.taints
        if machine.up:
            machine.reason = mark.reason
        cell.touched.machines.add(machine.name)
    for quota in event.quotas:
        cell.quotas[quota.key] = quota
        cell.touched.quotas.add(quota.key)
    for key in event.quotas_gone:
        del cell.quotas[key]
        cell.touched.quotas.add(key)


def _restore(cell: Cell, one: JobRestored, reason: str, at: float) -> None:
    job = cell.jobs.get(one.job)
    if job is None:
        job = cell.jobs[one.job] = Job(one.job, one.uid, one.spec, one.submitted_at, one.submitted_by)
    if job.spec != one.spec:
        drop_promises(cell, job, range(len(job.tasks)))
        for task in job.tasks:
            if task.lost and not same_program(job.spec, one.spec, task.index):
                task.lost = ()  # they run another version
    job.uid, job.spec, job.generation = one.uid, one.spec, one.generation
    job.submitted_at, job.submitted_by = one.submitted_at, one.submitted_by
    shrink(cell, job, one.tasks)
    grow(cell, job, one.tasks, at)
    transition(cell, job, one.pending, TaskEvent.RESTORE_TO_PENDING, at, reason)
    for record in one.dead:
        _end_as(cell, job, record, at)
    job.lagging = one.lagging
    if one.lagging is not None:
        cell.lagging.add(job.key)
    else:
        cell.lagging.discard(job.key)  # it may have lagged behind an earlier rollback
    # The same attempts may count otherwise now, as by another priority.
    cell.touched.placements.update(task.machine for task in job.tasks if task.state is State.RUNNING)
    touch(cell, job, ())


def rollback_went_on(cell: Cell, event: RollbackWentOn, entry: Entry) -> None:
    """Move the tasks that were reached; with the last of them the job is as it is to be."""
    job = cell.jobs[event.job]
    lagging = job.lagging
    assert lagging is not None, f"{job.key} does not lag behind"
    # Those that found a place since are up, or were: who is pending in their stead was stopped.
    waiting = min(lagging.waiting, job.pending)
    transition(cell, job, event.pending, TaskEvent.RESTORE_TO_PENDING, entry.at, lagging.reason)
    killed = tuple(index for index in event.ended if index not in lagging.records)
    transition(cell, job, killed, TaskEvent.RESTORE_TO_DEAD, entry.at, lagging.reason, ending=Ending.KILL)
    for index in event.ended:
        if record := lagging.records.get(index):
            _end_as(cell, job, record, entry.at)
    reached = set(event.reached)
    left = {i: attempt for i, attempt in lagging.attempts.items() if i not in reached}
    if left:
        job.lagging = msgspec.structs.replace(lagging.with_attempts(left), waiting=waiting)
    else:
        _finish(cell, job, lagging.tasks)


def rollback_paused(cell: Cell, event: RollbackPaused, _entry: Entry) -> None:
    """Note why, for those who look at the job."""
    job = cell.jobs[event.job]
    assert job.lagging is not None, f"{job.key} does not lag behind"
    job.lagging = msgspec.structs.replace(job.lagging, paused=event.reason)
    touch(cell, job, ())


def scaled(cell: Cell, job: Job, tasks: int) -> None:
    """Note that a job, part of which may lag behind a rollback, is to have so many tasks instead.

    Of those that were to end for being too many, the ones below that number are to run anew.
    """
    lagging = job.lagging
    if lagging is None:
        return
    left = {index: attempt for index, attempt in lagging.attempts.items() if index < tasks}
    records = {index: record for index, record in lagging.records.items() if index < tasks}
    if left:
        job.lagging = msgspec.structs.replace(lagging.with_attempts(left), tasks=tasks, records=records)
    else:
        _finish(cell, job, tasks)


def _finish(cell: Cell, job: Job, tasks: int) -> None:
    cell.lagging.discard(job.key)
    job.lagging = None
    if tasks == 0:
        forget_job(cell, job.key, TaskEvent.REMOVE)
        return
    job.spec = msgspec.structs.replace(job.spec, tasks=tasks)
    shrink(cell, job, tasks)
    touch(cell, job, ())


def _end_as(cell: Cell, job: Job, record: Task, at: float) -> None:
    """Let a task be dead, with all that was known of it then. A copy: the event is history and must not
    change."""
    transition(cell, job, (record.index,), TaskEvent.RESTORE_TO_DEAD, at, record.reason, ending=record.ending)
    fresh = job.tasks[record.index] = copy.copy(record)
    fresh.since, fresh.lost = at, ()
