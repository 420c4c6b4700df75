"""The only code that changes a cell: one function per event, each total and without a choice. Those about
jobs, tasks and the cell itself are here; each folder beside this has those of its nouns in its ``apply``.

Replaying the journal through ``apply_entry`` gives the cell again, so nothing here may look at a
clock, at observed state, or at anything but the cell and the event.
"""

import copy
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import msgspec

from borgish.cell.access import apply as apply_access
from borgish.cell.access.secrets import machines_of, note_given
from borgish.cell.apps import apply as apply_apps
from borgish.cell.apps.owners import owners_changed
from borgish.cell.crons import apply as apply_crons
from borgish.cell.events import (
    AnyEvent,
    Elected,
    EntriesLost,
    Entry,
    FailuresForgotten,
    HandoversBegan,
    HandoversEnded,
    IncomingEnded,
    JobChanged,
    JobForgotten,
    JobHeld,
    JobReady,
    JobReleased,
    JobRestored,
    JobSubmitted,
    PlacesPromised,
    RolledBack,
    RolloutBegan,
    RolloutFinished,
    RolloutPaused,
    RolloutResumed,
    RolloutWentOn,
    RulesSet,
    TasksEnded,
    TasksEvicted,
    TasksHandedOver,
    TasksPlaced,
    TasksRestarted,
    TasksResubmitted,
    follows,
)
from borgish.cell.generations import note_decision
from borgish.cell.lifecycle import (
    OF_ENDING,
    TaskEvent,
    drop_handovers,
    drop_promises,
    end_wait,
    forget_failures,
    forget_job,
    grow,
    let_wait,
    movable,
    require_row,
    set_handover,
    shrink,
    touch,
    transition,
)
from borgish.cell.limits import apply as apply_limits
from borgish.cell.limits.footprint import latest_versions
from borgish.cell.machines import apply as apply_machines
from borgish.cell.model import (
    EARLIER_VERSIONS_BYTES_MAX,
    LOST_ATTEMPTS_MAX,
    REQUESTS_BYTES_KEPT,
    REQUESTS_KEPT,
    VERSIONS_KEPT,
    Answer,
    Cell,
    Handover,
    Held,
    Job,
    LastRollout,
    LostAttempt,
    Machine,
    Rollout,
    Task,
    TaskLease,
    Version,
    Waits,
    request_key,
)
from borgish.cell.tasks import apply as apply_tasks
from borgish.cell.tasks.apply import end_lease, lease_attempt, lease_running
from borgish.cell.tasks.failing import TRIAL_SECONDS, with_failure
from borgish.cell.tasks.leases import lease_of
from borgish.spec.changes import same_program
from borgish.spec.job import JobSpec
from borgish.vocabulary import RESULTS, VOLUNTARY, Ending, Eviction, RolloutKind, State


def apply_entry(cell: Cell, entry: Entry) -> None:
    """Apply one journal entry to the cell. Positions follow each other without a gap."""
    is_next = entry.position == cell.position + 1
    assert is_next or follows(entry, cell.position), f"entry {entry.position} after {cell.position}"
    for event in entry.events:
        _APPLY[type(event)](cell, event, entry)
    note_decision(cell, entry)
    cell.links.settle(cell.jobs, cell.demand.changed)
    cell.swept.settle(cell.jobs, cell.demand.changed)
    cell.members.settle(cell.jobs, cell.budgets, cell.demand.changed)
    cell.footprint.settle(cell.jobs, cell.demand.changed)
    cell.demand.settle(cell.jobs, cell.rules.bands)
    cell.position = entry.position
    if entry.request_id:
        answer = Answer(entry.digest, entry.position, entry.subject, entry.text)
        key = request_key(entry.actor, entry.request_id)
        if (before := cell.requests.get(key)) is not None:
            cell.answer_bytes -= len(before.text)
        cell.requests[key] = answer
        cell.answer_bytes += len(answer.text)
        while len(cell.requests) > REQUESTS_KEPT or cell.answer_bytes > REQUESTS_BYTES_KEPT:
            cell.answer_bytes -= len(cell.requests.pop(next(iter(cell.requests))).text)


def _elected(cell: Cell, event: Elected, _entry: Entry) -> None:
    cell.epoch = event.epoch
    cell.timeline = event.timeline


def _rules_set(cell: Cell, event: RulesSet, _entry: Entry) -> None:
    cell.rules = event.rules
    for key in cell.jobs:  # the band of one that is dead may be another now
        cell.touched.jobs.add(key)
        cell.demand.changed.add(key)


def _entries_lost(cell: Cell, event: EntriesLost, entry: Entry) -> None:
    cell.timeline = event.timeline
    if event.first <= event.last:
        cell.lost = (*cell.lost, (event.first, event.last))
    # What was lost may have placed any of these somewhere else, and their machines would start them again.
    for key, job in cell.jobs.items():
        if job.spec.exclusive:
            for index in range(len(job.tasks)):
                lease_attempt(cell, key, index, TaskLease(0, "", job.spec.stop.grace_seconds))
            running = movable(job, range(len(job.tasks)), TaskEvent.EVICT)
            reason = "where it runs was lost with a part of the journal"
            transition(cell, job, running, TaskEvent.EVICT, entry.at, reason)


# Jobs


def _job_submitted(cell: Cell, event: JobSubmitted, entry: Entry) -> None:
    spec, key = event.spec, event.spec.key
    before = cell.jobs.get(key)
    if before is not None:
        require_row(key, before.state, TaskEvent.SUBMIT)
        cell.touched.tasks_gone[key] = 0
        cell.rolling.discard(key)
    job = Job(key, entry.position, spec, entry.at, entry.actor, entry.position, version=event.version)
    if before is not None:
        job.app, job.owners = before.app, owners_changed(before, spec, entry.cause, entry.actor, entry.at)
        job.earlier = before.earlier
        if event.version != before.version:
            _keep_version(cell, job, before.version, before.present)
        else:
            job.versioned_at, job.versioned_by = before.present.at, before.present.by
    cell.jobs[key] = job
    job.waits = Waits(entry.at) if spec.after else None
    apply_crons.note_run(cell, event, before)
    grow(cell, job, spec.tasks, entry.at)
    if before is not None and spec.exclusive and not before.spec.exclusive:
        for task in before.tasks:  # what was killed a moment ago may be ending yet
            if task.attempt and task.ending not in RESULTS:
                lease = TaskLease(task.attempt, task.machine, before.spec.stop.grace_seconds)
                lease_attempt(cell, key, task.index, lease)


def _keep_version(cell: Cell, job: Job, number: int, version: Version) -> None:
    """Let a version be an earlier one of a job; of these the latest are kept, and those that run; where
    its user takes up all there may be only these: a change that makes nothing larger is always accepted."""
    earlier = {**job.earlier, number: version}
    latest = latest_versions(earlier, VERSIONS_KEPT - 1, EARLIER_VERSIONS_BYTES_MAX)
    if not cell.footprint.has_room(job.spec.user, version, cell.rules.footprint_bytes_max):
        latest = {}
    kept = latest.keys() | {task.version for task in job.tasks if task.state is State.RUNNING}
    job.earlier = {each: earlier[each] for each in sorted(earlier) if each in kept}
    cell.touched.versions.add(job.key)
    forget_failures(cell, job, range(len(job.tasks)))  # of the new one nobody knows yet how it does


def _forget_lost(job: Job, spec: JobSpec) -> None:
    """Expect no late results of attempts that run another program than this."""
    for task in job.tasks:
        if task.lost and not same_program(job.spec, spec, task.index):
            task.lost = ()


def _begin(cell: Cell, job: Job, rollout: Rollout | None) -> None:
    """Let a job have this rollout instead of the one that it has. What none is to reach runs the present
    version."""
    job.rollout = rollout
    if rollout is not None:
        cell.rolling.add(job.key)
    else:
        cell.rolling.discard(job.key)
    behind = rollout.attempts if rollout is not None else {}
    kept = [task for task in job.tasks if task.state is State.RUNNING and task.index not in behind]
    for task in kept:
        task.version = job.version
    # The same attempts may count otherwise now, as by another priority.
    for machine in {task.machine for task in job.tasks if task.state is State.RUNNING}:
        cell.moves[machine].forget()
        cell.touched.placements.add(machine)
    touch(cell, job, (task.index for task in kept))


def _rollout_began(cell: Cell, event: RolloutBegan, _entry: Entry) -> None:
    _begin(cell, cell.jobs[event.job], event.rollout)


def _job_changed(cell: Cell, event: JobChanged, entry: Entry) -> None:
    job = cell.jobs[event.job]
    if event.version:
        _keep_version(cell, job, job.version, job.present)
        job.version, job.versioned_at, job.versioned_by = event.version, entry.at, entry.actor
        drop_promises(cell, job, range(len(job.tasks)))
        drop_handovers(cell, job, range(len(job.tasks)))
        _forget_lost(job, event.spec)
    job.owners = owners_changed(job, event.spec, entry.cause, entry.actor, entry.at)
    job.spec = event.spec
    job.generation = entry.position
    shrink(cell, job, event.spec.tasks)
    grow(cell, job, event.spec.tasks, entry.at)
    if job.waits is not None and not event.spec.after:
        end_wait(cell, job)
    lease_running(cell, job)
    if event.spec.secrets:
        note_given(cell, event.spec, machines_of(cell, job))
    if event.version:
        _begin(cell, job, event.rollout)
        return
    if (rollout := job.rollout) is None:
        return
    # Of the tasks that were to end for being too many, those below the new number run anew.
    tasks = event.spec.tasks
    left = {index: attempt for index, attempt in rollout.attempts.items() if index < tasks}
    records = {index: record for index, record in rollout.records.items() if index < tasks}
    _go_on(
        cell, job, msgspec.structs.replace(rollout, attempts=left, tasks=tasks, records=records, paused="")
    )


def _job_forgotten(cell: Cell, event: JobForgotten, _entry: Entry) -> None:
    forget_job(cell, event.job, TaskEvent.FORGET)


# Tasks


def _tasks_placed(cell: Cell, event: TasksPlaced, entry: Entry) -> None:
    job = cell.jobs[event.job]
    ports: Iterable[tuple[int, ...]] = event.ports or repeat(())
    devices: Iterable[tuple[str, ...]] = event.devices or repeat(())
    allocs: Iterable[int] = event.allocs or repeat(-1)
    places = zip(event.indexes, event.machines, ports, devices, allocs, strict=False)
    for index, machine, given, task_devices, alloc in places:
        if given:
            _advance_ports(cell, cell.machines[machine], given)
        if index in event.incoming:
            handover = cell.handovers[job.key][index]
            placed = msgspec.structs.replace(
                handover,
                attempt=entry.position,
                machine=machine,
                ports=given,
                devices=task_devices,
                version=job.version,
                placed_at=entry.at,
            )
            set_handover(cell, job, index, placed)
            continue
        task = job.tasks[index]
        task.previous_attempt, task.previous_machine = task.attempt, task.machine
        task.attempt, task.machine, task.ports, task.restarts = entry.position, machine, given, 0
        task.devices, task.alloc, task.version = task_devices, alloc, job.version
        if job.spec.exclusive:
            lease_attempt(cell, job.key, index, lease_of(job.spec, cell.machines[machine], entry.position))
        if job.held is not None and task.failed:
            trial_at = entry.at + TRIAL_SECONDS
            job.held = msgspec.structs.replace(
                job.held, trial_at=trial_at, index=index, attempt=entry.position
            )
    transition(cell, job, event.pending, TaskEvent.SCHEDULE, entry.at)
    note_given(cell, job.spec, event.machines)


def _places_promised(cell: Cell, event: PlacesPromised, _entry: Entry) -> None:
    job = cell.jobs[event.job]
    drop_promises(cell, job, event.indexes)
    for index, machine in zip(event.indexes, event.machines, strict=True):
        if machine:
            job.tasks[index].promised = machine
            cell.promised.setdefault(machine, set()).add((job.key, index))
    cell.touched.placements.update(filter(None, event.machines))
    touch(cell, job, event.indexes)


def _advance_ports(cell: Cell, machine: Machine, given: tuple[int, ...]) -> None:
    """Let the search go on after these; ports whose numbers users chose are outside of it."""
    found = [port for port in given if machine.ports_low <= port <= machine.ports_high]
    if found:
        machine.port_next = found[-1] + 1 if found[-1] < machine.ports_high else machine.ports_low
        cell.touched.machines.add(machine.name)


def _tasks_restarted(cell: Cell, event: TasksRestarted, entry: Entry) -> None:
    job = cell.jobs[event.job]
    rows = zip(event.indexes, event.restarts, event.exit_codes, event.signals, strict=True)
    for index, restarts, code, signal in rows:
        task = job.tasks[index]
        task.restarts, task.exit_code, task.signal = restarts, code, signal
    for index, failures in zip(event.indexes, event.failures, strict=False):
        job.tasks[index].failures = failures
    transition(cell, job, event.indexes, TaskEvent.UPDATE, entry.at)


def _left_on_purpose(allocs: str, event: TasksEvicted, entry: Entry) -> bool:
    """Return whether what was in allocs left because these were taken down on purpose, by the same entry."""
    return event.cause is Eviction.ALLOC_MOVED and any(
        (isinstance(other, TasksEvicted) and other.job == allocs and other.cause in VOLUNTARY)
        or (isinstance(other, RolloutWentOn) and other.job == allocs and other.disruptions > 0)
        for other in entry.events
    )


def _tasks_evicted(cell: Cell, event: TasksEvicted, entry: Entry) -> None:
    job = cell.jobs[event.job]
    reason, notice_seconds = event.reason or event.cause, event.notice_seconds
    transition(cell, job, event.pending, TaskEvent.EVICT, entry.at, reason, notice_seconds=notice_seconds)
    transition(cell, job, event.taken_over, TaskEvent.HAND_OVER, entry.at, notice_seconds=notice_seconds)
    # Asked first: with many allocs thousands of jobs may leave in one entry, which is gone through for each.
    has_rate = job.spec.disruption.max_rate is not None
    if has_rate and (event.cause in VOLUNTARY or _left_on_purpose(job.spec.inside, event, entry)):
        note_disrupted(job, len(event.indexes), entry.at)
    for index in event.indexes:
        task = job.tasks[index]
        if event.results_count:
            attempt, machine, ports, devices = task.attempt, task.machine, task.ports, task.devices
            lost = LostAttempt(attempt, machine, ports, devices, task.alloc, task.restarts)
            task.lost = (*task.lost, lost)[-LOST_ATTEMPTS_MAX:]
        elif event.cause is Eviction.RESTART:
            task.lost = ()  # its user wants it to run anew
    if event.cause is Eviction.RESTART:
        forget_failures(cell, job, event.indexes)
        for index in event.indexes:
            job.tasks[index].failures = 0
    for index, failed in zip(event.indexes, event.failed, strict=False):
        job.tasks[index].failed = with_failure(job.tasks[index].failed, failed)
        cell.failing.setdefault(job.key, set()).add(index)
    for index, code, signal in zip(event.indexes, event.exit_codes, event.signals, strict=False):
        job.tasks[index].exit_code, job.tasks[index].signal = code, signal


def _handovers_began(cell: Cell, event: HandoversBegan, entry: Entry) -> None:
    job = cell.jobs[event.job]
    for index in event.indexes:
        set_handover(cell, job, index, Handover(event.cause, event.reason, entry.at))


def _tasks_handed_over(cell: Cell, event: TasksHandedOver, entry: Entry) -> None:
    job = cell.jobs[event.job]
    transition(cell, job, event.indexes, TaskEvent.HAND_OVER, entry.at)
    for index, restarts in zip(event.indexes, event.restarts, strict=False):
        job.tasks[index].restarts = restarts


def _incoming_ended(cell: Cell, event: IncomingEnded, entry: Entry) -> None:
    job = cell.jobs[event.job]
    for place, index in enumerate(event.indexes):
        before = cell.handovers[job.key][index]
        failed = with_failure(before.failed, event.failed[place]) if event.failed else before.failed
        set_handover(cell, job, index, Handover(before.cause, before.reason, entry.at, failed=failed))


def _handovers_ended(cell: Cell, event: HandoversEnded, _entry: Entry) -> None:
    drop_handovers(cell, cell.jobs[event.job], event.indexes)


def _failures_forgotten(cell: Cell, event: FailuresForgotten, _entry: Entry) -> None:
    forget_failures(cell, cell.jobs[event.job], event.indexes)


def _job_held(cell: Cell, event: JobHeld, entry: Entry) -> None:
    job = cell.jobs[event.job]
    job.held = Held(event.reason, entry.at, event.trial_at)
    touch(cell, job, ())


def _job_released(cell: Cell, event: JobReleased, _entry: Entry) -> None:
    """How often its tasks failed is remembered until they run well: one that fails again holds it at once."""
    job = cell.jobs[event.job]
    job.held = None
    failing = cell.failing.get(job.key, set())
    for index in failing:
        task = job.tasks[index]
        task.failed = tuple(msgspec.structs.replace(each, until=0.0) for each in task.failed)
    touch(cell, job, failing)


def _job_ready(cell: Cell, event: JobReady, _entry: Entry) -> None:
    end_wait(cell, cell.jobs[event.job])


def note_disrupted(job: Job, tasks: int, at: float) -> None:
    """Note that so many tasks were taken down on purpose, for ``disruption.max_rate``."""
    rate = job.spec.disruption.max_rate
    if rate is not None:
        job.disrupted = (*job.disrupted, *[at] * tasks)[-rate.count :]


def _tasks_ended(cell: Cell, event: TasksEnded, entry: Entry) -> None:
    job = cell.jobs[event.job]
    lost = [job.tasks[index].lost for index in event.indexes]
    transition(cell, job, event.indexes, OF_ENDING[event.ending], entry.at, ending=event.ending)
    for place, index in enumerate(event.indexes):
        task = job.tasks[index]
        task.reason = event.reasons[place]
        if event.ending in RESULTS:
            end_lease(cell, job.key, index, event.attempts[place] if event.attempts else task.attempt)
        if event.attempts:
            _return_to(task, next(each for each in lost[place] if each.attempt == event.attempts[place]))
        if event.exit_codes:
            task.exit_code, task.signal = event.exit_codes[place], event.signals[place]
        if event.started_at:
            task.started_at = event.started_at[place]


def _return_to(task: Task, lost: LostAttempt) -> None:
    """Let a task's record be about an attempt that was lost. The one since then is the one before it now."""
    if lost.attempt != task.attempt:
        task.previous_attempt, task.previous_machine = task.attempt, task.machine
    task.attempt, task.machine, task.ports = lost.attempt, lost.machine, lost.ports
    task.devices, task.alloc, task.restarts = lost.devices, lost.alloc, lost.restarts


def _tasks_resubmitted(cell: Cell, event: TasksResubmitted, entry: Entry) -> None:
    job = cell.jobs[event.job]
    transition(cell, job, event.indexes, TaskEvent.SUBMIT, entry.at)
    if event.in_order:
        # Where nothing else is left of the job, those that it gets later wait with them, as in a new one.
        only = event.indexes if len(event.indexes) < len(job.tasks) else ()
        let_wait(cell, job, Waits(entry.at, only))


# Rollbacks


def _rolled_back(cell: Cell, event: RolledBack, entry: Entry) -> None:
    """Change what differs, and begin the new timeline."""
    cell.timeline = event.timeline
    for key in event.jobs_gone:
        forget_job(cell, key, TaskEvent.REMOVE)
    for one in event.jobs:
        _restore(cell, one, event.reason, entry.at, entry.actor)
        cell.jobs[one.job].generation = entry.position
    for restored in event.machines:
        machine = cell.machines[restored.machine]
        machine.cordoned, machine.taints = restored.cordoned, restored.taints
        machine.generation = entry.position
        machine.drains = restored.drains
        if machine.up:
            machine.reason = restored.reason
        cell.touched.machines.add(machine.name)
    for quota in event.quotas:
        apply_limits.set_quota(cell, quota, entry)
    for key in event.quotas_gone:
        apply_limits.remove_quota(cell, key)
    for budget in event.budgets:
        apply_limits.set_budget(cell, budget, entry)
    for name in event.budgets_gone:
        apply_limits.remove_budget(cell, name)
    for app in event.apps:
        apply_apps.restore_app(cell, app, entry.position)
    for name in event.apps_gone:
        apply_apps.remove_app(cell, name)
    apply_crons.restore(cell, event, entry)


def _restore(cell: Cell, one: JobRestored, reason: str, at: float, by: str) -> None:
    job = cell.jobs.get(one.job)
    if job is None:
        job = cell.jobs[one.job] = Job(one.job, one.uid, one.spec, one.submitted_at, one.submitted_by)
        job.version, job.earlier = one.version, dict(one.earlier)
        cell.touched.versions.add(job.key)
    drop_handovers(cell, job, range(len(job.tasks)))
    if job.spec != one.spec:
        drop_promises(cell, job, range(len(job.tasks)))
        _forget_lost(job, one.spec)
    if one.version != job.version:
        _keep_version(cell, job, job.version, job.present)
        job.version, job.versioned_at, job.versioned_by = one.version, at, by
    job.uid, job.spec, job.app, job.owners = one.uid, one.spec, one.app, one.owners
    job.submitted_at, job.submitted_by = one.submitted_at, one.submitted_by
    shrink(cell, job, one.tasks)
    grow(cell, job, one.tasks, at)
    lease_running(cell, job)
    transition(cell, job, one.pending, TaskEvent.RESTORE_TO_PENDING, at, reason)
    for record in one.dead:
        _end_as(cell, job, record, at)
    if one.spec.secrets:
        note_given(cell, one.spec, machines_of(cell, job))
    _begin(cell, job, one.rollout)
    if job.waits is not None:
        end_wait(cell, job)
    if one.waits:  # as then; but what runs goes on
        pending = tuple(task.index for task in job.tasks if task.state is State.PENDING)
        let_wait(cell, job, Waits(at, () if len(pending) == len(job.tasks) else pending))


def _rollout_went_on(cell: Cell, event: RolloutWentOn, entry: Entry) -> None:
    """Move the tasks that were reached; with the last of them the job is as it is to be."""
    job = cell.jobs[event.job]
    rollout = job.rollout
    assert rollout is not None, f"{job.key} does not lag behind"
    transition(cell, job, event.pending, TaskEvent.RESTORE_TO_PENDING, entry.at, rollout.reason)
    if event.kind is RolloutKind.RESTART:
        for index in event.pending:
            job.tasks[index].lost = ()  # its user wants it to run anew
    killed = tuple(index for index in event.ended if index not in rollout.records)
    transition(cell, job, killed, TaskEvent.RESTORE_TO_DEAD, entry.at, rollout.reason, ending=Ending.KILL)
    for index in event.ended:
        if record := rollout.records.get(index):
            _end_as(cell, job, record, entry.at)
    reached = set(event.reached)
    left = {i: attempt for i, attempt in rollout.attempts.items() if i not in reached}
    disruptions = rollout.disruptions + event.disruptions
    _go_on(
        cell,
        job,
        msgspec.structs.replace(rollout, attempts=left, paused="", disruptions=disruptions, has_begun=True),
    )


def _rollout_paused(cell: Cell, event: RolloutPaused, _entry: Entry) -> None:
    """Note why, for those who look at the job."""
    job = cell.jobs[event.job]
    assert job.rollout is not None, f"nothing of {job.key} is rolled out"
    hold = event.hold or job.rollout.hold
    job.rollout = msgspec.structs.replace(job.rollout, paused=event.reason, hold=hold)
    touch(cell, job, ())


def _rollout_resumed(cell: Cell, event: RolloutResumed, entry: Entry) -> None:
    job = cell.jobs[event.job]
    assert job.rollout is not None, f"nothing of {job.key} is rolled out"
    promoted = job.rollout.promoted or event.promoted
    job.rollout = msgspec.structs.replace(
        job.rollout, paused="", hold=None, promoted=promoted, resumed=entry.at
    )
    for index, handover in list(cell.handovers.get(job.key, {}).items()):
        set_handover(cell, job, index, msgspec.structs.replace(handover, failed=()))  # it is tried anew
    touch(cell, job, ())


def _rollout_finished(cell: Cell, event: RolloutFinished, entry: Entry) -> None:
    """What was not reached is left as it is, for its version."""
    job = cell.jobs[event.job]
    rollout = job.rollout
    assert rollout is not None, f"nothing of {job.key} is rolled out"
    skipped = tuple(sorted(rollout.attempts))
    job.last_rollout = LastRollout(
        rollout.kind, job.version, event.outcome, entry.at, skipped, rollout.reason
    )
    _end_rollout(cell, job, rollout.tasks)


def _go_on(cell: Cell, job: Job, rollout: Rollout) -> None:
    """Let a rollout be this. One that has nobody to wait for is over when its last task was reached."""
    job.rollout = rollout
    touch(cell, job, ())
    if not rollout.attempts and (rollout.kind is RolloutKind.ROLLBACK or rollout.hurried):
        _end_rollout(cell, job, rollout.tasks)


def _end_rollout(cell: Cell, job: Job, tasks: int) -> None:
    """The job has so many tasks now, or is gone."""
    cell.rolling.discard(job.key)
    job.rollout = None
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
    fresh.since, fresh.lost, fresh.failed, fresh.promised = at, (), (), ""


_APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {
    Elected: _elected,
    RulesSet: _rules_set,
    EntriesLost: _entries_lost,
    JobSubmitted: _job_submitted,
    JobChanged: _job_changed,
    JobForgotten: _job_forgotten,
    TasksPlaced: _tasks_placed,
    PlacesPromised: _places_promised,
    TasksRestarted: _tasks_restarted,
    TasksEvicted: _tasks_evicted,
    HandoversBegan: _handovers_began,
    TasksHandedOver: _tasks_handed_over,
    IncomingEnded: _incoming_ended,
    HandoversEnded: _handovers_ended,
    FailuresForgotten: _failures_forgotten,
    JobHeld: _job_held,
    JobReleased: _job_released,
    JobReady: _job_ready,
    TasksEnded: _tasks_ended,
    TasksResubmitted: _tasks_resubmitted,
    **apply_apps.APPLY,
    **apply_tasks.APPLY,
    **apply_machines.APPLY,
    **apply_limits.APPLY,
    **apply_access.APPLY,
    **apply_crons.APPLY,
    RolledBack: _rolled_back,
    RolloutBegan: _rollout_began,
    RolloutWentOn: _rollout_went_on,
    RolloutPaused: _rollout_paused,
    RolloutResumed: _rollout_resumed,
    RolloutFinished: _rollout_finished,
}
