"""The part of ``apply`` that takes a cell back: the rollback itself, and what it reaches later."""

import copy
from collections.abc import Iterable

import msgspec

from borgish.cell.events import Entry, JobRestored, RollbackPaused, RollbackWentOn, RolledBack
from borgish.cell.model import Job, Task
from borgish.cell.moving import count, drop_promises, grow, leave_machine, shrink, stop_waiting, touch, turn
from borgish.cell.rollback import same_program
from borgish.cell.state import Cell
from borgish.vocabulary import Ending, State


def rolled_back(cell: Cell, event: RolledBack, entry: Entry) -> None:
    """Change what differs, and begin the new timeline."""
    cell.timeline = event.timeline
    for key in event.jobs_gone:
        forget_job(cell, key)
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
    _send_back(cell, job, one.pending, reason, at)
    for record in one.dead:
        _take_on(cell, job, record, at)
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
    _send_back(cell, job, event.pending, lagging.reason, entry.at)
    for index in event.ended:
        if record := lagging.records.get(index):
            _take_on(cell, job, record, entry.at)
        else:
            _end(cell, job, job.tasks[index], lagging.reason, entry.at)
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
        forget_job(cell, job.key)
        return
    job.spec = msgspec.structs.replace(job.spec, tasks=tasks)
    shrink(cell, job, tasks)
    touch(cell, job, ())


def forget_job(cell: Cell, key: str) -> None:
    """Let go of a job none of whose tasks runs."""
    stop_waiting(cell, cell.jobs[key], sorted(cell.waiting.get(key, ())))
    del cell.jobs[key]
    cell.demand.doubt(key)
    cell.lagging.discard(key)
    cell.touched.jobs_gone.add(key)


def _send_back(cell: Cell, job: Job, indexes: Iterable[int], reason: str, at: float) -> None:
    for index in indexes:
        task = job.tasks[index]
        if task.state is State.RUNNING:
            leave_machine(cell, job.key, task)
            task.notice_seconds = -1.0  # it was of an attempt before
        turn(job, task, State.PENDING, at, reason)
        cell.waiting.setdefault(job.key, set()).add(index)
    touch(cell, job, indexes)


def _end(cell: Cell, job: Job, task: Task, reason: str, at: float) -> None:
    if task.state is State.RUNNING:
        leave_machine(cell, job.key, task)
        task.notice_seconds = -1.0  # it was of an attempt before
    turn(job, task, State.DEAD, at, reason, Ending.KILL)
    stop_waiting(cell, job, (task.index,))
    touch(cell, job, (task.index,))


def _take_on(cell: Cell, job: Job, record: Task, at: float) -> None:
    """Replace what is known of a task that is over. A copy: the event is history and must not change."""
    task = job.tasks[record.index]
    if task.state is State.RUNNING:
        leave_machine(cell, job.key, task)
    count(job, task, -1)
    fresh = job.tasks[record.index] = copy.copy(record)
    fresh.since, fresh.lost = at, ()
    count(job, fresh, +1)
    stop_waiting(cell, job, (record.index,))
    touch(cell, job, (record.index,))
