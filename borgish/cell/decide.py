"""Decides commands: turns each into events, or refuses it. Changes nothing.

Placements of the scheduler are checked here like anybody's commands, against the cell as it is now:
optimistic concurrency over shared state, as in Omega (section 3.4 of the Borg paper).

One function per command. Here are those about jobs and their tasks; those about the cell itself are in
``decide_cell``, and each folder beside this has those of its nouns in its ``decide``.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from borgish.cell import decide_cell
from borgish.cell.access import decide as decide_access
from borgish.cell.apps import decide as apps
from borgish.cell.apps.order import (
    check_order,
    decide_end_children,
    decide_fail,
    deferred,
    order_notes,
)
from borgish.cell.apps.order import decide_end as decide_end_wait
from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    ApplyApp,
    BeginEpoch,
    BeginHandovers,
    CancelMaintenance,
    CordonMachine,
    Decision,
    DrainMachines,
    EndChildren,
    EndFailedJob,
    EndHandovers,
    EndIncoming,
    EndLeases,
    EndWaits,
    EvictTasks,
    FailUpdate,
    FailWaits,
    FinishRollouts,
    FireCron,
    ForgetFailures,
    ForgetJob,
    FreezeCell,
    HandOverTasks,
    HoldJob,
    JoinMachine,
    KillApp,
    KillTasks,
    LoseMachine,
    MaintainMachines,
    Observe,
    PauseCron,
    PauseRollouts,
    PauseUpdate,
    PlaceTasks,
    PromisePlaces,
    ReleaseJob,
    ReleaseMachine,
    RemoveApp,
    RemoveBudget,
    RemoveCron,
    RemoveMachine,
    RemoveQuota,
    RestartTasks,
    ResumeCron,
    ResumeUpdate,
    RevokeMachine,
    RollBack,
    RunApp,
    RunCron,
    ScaleJob,
    SetBudget,
    SetCron,
    SetMachineDown,
    SetMachineUp,
    SetQuota,
    SubmitJob,
    TaintMachine,
    TurnWindows,
    UncordonMachine,
    UndoApp,
    UndoUpdate,
    UndrainMachines,
    UnfreezeCell,
    UntaintMachine,
)
from borgish.cell.crons import decide as decide_crons
from borgish.cell.events import (
    JobChanged,
    JobForgotten,
    JobReady,
    JobSubmitted,
    LeasesEnded,
    PlacesPromised,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
    TasksResubmitted,
)
from borgish.cell.lifecycle import TaskEvent, allows, check_row, check_transitions, movable
from borgish.cell.limits.admission import admit, check_footprint, job_warnings
from borgish.cell.limits.affected import check_affected, check_fewer, stopped_with
from borgish.cell.limits.disruption import Gate, is_exempt
from borgish.cell.lookup import find_job
from borgish.cell.machines import decide as decide_machines
from borgish.cell.machines import decide_drains
from borgish.cell.machines.drains import is_forced
from borgish.cell.model import Cell, Job, task_count
from borgish.cell.observed import Observed
from borgish.cell.tasks import max_failures
from borgish.cell.tasks.allocs import check_inside, evicted_with, has_its_alloc, may_preempt
from borgish.cell.tasks.failing import decide_forget, decide_hold, decide_release, forgotten
from borgish.cell.tasks.leases import over
from borgish.cell.updates import decide as update
from borgish.cell.updates.decide import decide_update, restart_rollout, tasks_to_run, waits_for_somebody
from borgish.cell.updates.handover import (
    decide_begin,
    decide_end,
    decide_end_incoming,
    decide_hand_over,
    with_successors,
)
from borgish.cell.updates.rollback import RollbackTarget
from borgish.cell.updates.rollback_checks import check_kept, decide_rollback
from borgish.cell.updates.rollout import decide_advance, decide_finish, decide_pause
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound
from borgish.vocabulary import TASKS_PER_JOB_MAX, Ending, Eviction, State


def decide(
    cell: Cell,
    observed: Observed,
    command: Command,
    actor: str,
    now: Now,
    target: RollbackTarget | None = None,
    gate: Gate | None = None,
) -> Decision:
    """Return what follows from a command. Raises a ``Refused`` when it may not be.

    ``target``: for ``RollBack``, the cell as it was at the command's position. ``gate``: one for several
    commands that are decided before any of them is applied.
    """
    if isinstance(command, RollBack):
        assert target is not None, "a rollback is decided against the cell that it goes back to"
        decision = decide_rollback(cell, target, command, actor, now)
    elif isinstance(command, EvictTasks):
        decision = _evict(cell, command, gate or Gate(cell, observed, now))
    else:
        decision = _DECIDE[type(command)](cell, observed, command, actor, now)
    check_footprint(cell, decision.subject, decision.events)
    if cell.handovers:
        decision = msgspec.structs.replace(decision, events=with_successors(cell, decision.events))
    check_transitions(cell, decision.events)
    return decision


# Jobs


def _submit(cell: Cell, _o: Observed, command: SubmitJob, _actor: str, now: Now) -> Decision:
    spec, key = command.spec, command.spec.key
    job = cell.jobs.get(key)
    if job is None or allows(job.state, TaskEvent.SUBMIT):
        check_inside(cell, spec)
        check_order(cell, {key: spec})
        admit(cell, spec, range(spec.tasks), now.wall)
        text = f"{key} submitted: {task_count(spec.tasks)}"
        version = 1 if job is None else job.version + (job.spec != spec)
        notes = (*order_notes(cell, spec), *job_warnings(cell, spec))
        return Decision((JobSubmitted(spec, version),), key, text, notes)
    check_kept(job)
    if msgspec.structs.replace(job.spec, tasks=job.tasks_wanted) == spec:
        return _submit_again(cell, job, now)
    return decide_update(cell, job, spec, now)


def _submit_again(cell: Cell, job: Job, now: Now) -> Decision:
    """Bring back what was killed of a live job. What finished or failed keeps its outcome."""
    text = f"{job.key} is there already, exactly like this"
    killed = tuple(index for index in tasks_to_run(job) if job.tasks[index].ending is Ending.KILL)
    tried = forgotten(cell, job, range(len(job.tasks)))
    if tried:
        text = f"{text}; what failed is tried again now"
    if not killed:
        return Decision(tried, job.key, text)
    check_inside(cell, job.spec)
    check_order(cell, {job.key: job.spec})
    admit(cell, job.spec, killed, now.wall)
    again = f"{task_count(len(killed))} that {'was' if len(killed) == 1 else 'were'} killed"
    text = f"{text}; {again} {'is' if len(killed) == 1 else 'are'} pending again"
    again_in_order = TasksResubmitted(job.key, killed, in_order=True)
    return Decision((again_in_order, *tried), job.key, text, tuple(order_notes(cell, job.spec)))


def _scale(cell: Cell, _o: Observed, command: ScaleJob, _actor: str, now: Now) -> Decision:
    job = find_job(cell, command.job)
    check_row(job.key, job.state, TaskEvent.UPDATE)
    check_kept(job)
    if not 1 <= command.tasks <= TASKS_PER_JOB_MAX:
        raise Invalid(
            f"{command.tasks} is outside 1 to {TASKS_PER_JOB_MAX} tasks",
            f"end the job with `borgctl job kill {job.key}`, or split what is larger into several jobs",
        )
    if command.tasks == job.tasks_wanted:
        return Decision((), job.key, f"{job.key} has {task_count(command.tasks)} already")
    spec = msgspec.structs.replace(
        job.spec,
        tasks=command.tasks,
        overrides={i: o for i, o in job.spec.overrides.items() if i < command.tasks},
    )
    check_fewer(cell, job, command.tasks, hurried=command.hurried, allowed=command.max_affected)
    # While a rollback goes on, some beyond those wanted are there still: ended by it, or about to.
    ended = [task.index for task in job.tasks[job.tasks_wanted : spec.tasks] if task.state is State.DEAD]
    admit(cell, spec, [*ended, *range(len(job.tasks), spec.tasks)], now.wall)
    text = f"{job.key} scaled from {job.tasks_wanted} to {task_count(command.tasks)}"
    gone = range(command.tasks, len(job.tasks))
    moved = evicted_with(cell, job, gone, f"scaled to {task_count(command.tasks)}")
    again = (TasksResubmitted(job.key, tuple(ended)),) * bool(ended)
    return Decision((JobChanged(job.key, spec), *moved, *again), job.key, text)


def _kill(cell: Cell, _o: Observed, command: KillTasks, actor: str, _now: Now) -> Decision:
    job = find_job(cell, command.job)
    chosen = movable(job, _chosen(job, command.indexes), TaskEvent.KILL)
    if not chosen:
        return Decision((), job.key, "nothing to kill: all of it is dead already")
    check_affected(cell, stopped_with(cell, job, chosen), command.max_affected)
    reason = f"killed by {actor}"
    event = TasksEnded(job.key, chosen, Ending.KILL, (reason,) * len(chosen))
    moved = evicted_with(cell, job, chosen, reason)
    return Decision((event, *moved), job.key, f"{task_count(len(chosen))} of {job.key} killed")


def _restart(cell: Cell, _o: Observed, command: RestartTasks, actor: str, now: Now) -> Decision:
    job = find_job(cell, command.job)
    check_kept(job)
    chosen = _chosen(job, command.indexes)
    if job.rollout is not None:
        to_run = set(tasks_to_run(job))
        chosen = [index for index in chosen if index in to_run]
        if not chosen:
            raise Conflict(
                f"none of these tasks should run: {job.key} was {job.rollout.reason}",
                f"give it more tasks with `borgctl job scale {job.key} N`, or undo the rollback",
            )
    running = movable(job, chosen, TaskEvent.EVICT)
    dead = movable(job, chosen, TaskEvent.SUBMIT)
    if dead:
        check_order(cell, {job.key: job.spec})
    admit(cell, job.spec, dead, now.wall)
    reason = f"restarted by {actor}"
    again = (TasksResubmitted(job.key, dead),) * bool(dead)
    # Who restarts what waits for other jobs wants it to start without them.
    ready = deferred(cell, job)
    at_once = (JobReady(job.key, ready, reason),) * bool(set(ready).intersection(chosen))
    tried = forgotten(cell, job, chosen)  # also of those that wait: their user wants them to be tried now
    begins = bool(running) and not command.hurried  # it reaches them one by one, after this
    count = len(running) + len(dead)
    done = f"restart{'s' * (count == 1)}" if begins else "restarted"
    text = f"{task_count(count)} of {job.key} {done}{', a few at a time' * (begins and len(running) > 1)}"
    if at_once:
        starts = "starts" if len(ready) == 1 else "start"
        text = f"{text}; {task_count(len(ready))} waited for other jobs and {starts} without them"
    if not begins:
        check_affected(cell, stopped_with(cell, job, running), command.max_affected)
        evicted = (TasksEvicted(job.key, running, Eviction.RESTART, reason),) * bool(running)
        moved = evicted_with(cell, job, running, reason)
        return Decision((*at_once, *evicted, *moved, *again, *tried), job.key, text)
    began = restart_rollout(cell, job, running, actor, now)
    if cell.freeze is not None:
        text = f"{text}; waits: the cell is {cell.freeze}"
    return Decision((*at_once, began, *again, *tried), job.key, text, tuple(waits_for_somebody(job)))


def _forget(cell: Cell, _o: Observed, command: ForgetJob, _actor: str, _now: Now) -> Decision:
    job = find_job(cell, command.job)
    check_row(job.key, job.state, TaskEvent.FORGET)
    return Decision((JobForgotten(job.key),), job.key, f"{job.key} forgotten")


# Placement


def _place(cell: Cell, _o: Observed, command: PlaceTasks, _actor: str, _now: Now) -> Decision:
    """Drop what went stale: a task that is not pending any more, a machine that is not there."""
    job = cell.jobs.get(command.job)
    waiting, handovers = cell.waiting.get(command.job, set()), cell.handovers.get(command.job, {})
    keep = [
        place
        for place, (index, machine) in enumerate(zip(command.indexes, command.machines, strict=True))
        if index in waiting
        and (found := cell.machines.get(machine))
        and found.up
        and found.takes_tasks
        and not cell.is_leased(command.job, index)
        and has_its_alloc(cell, command.job, machine, command.allocs[place] if command.allocs else -1)
    ]
    if job is None or not keep or (job.spec.gang and len(keep) < len(command.indexes)):
        return Decision((), command.job, "nothing left to place")
    event = TasksPlaced(
        command.job,
        tuple(command.indexes[k] for k in keep),
        tuple(command.machines[k] for k in keep),
        tuple(command.ports[k] for k in keep) if command.ports else (),
        tuple(command.devices[k] for k in keep) if command.devices else (),
        tuple(command.allocs[k] for k in keep) if command.allocs else (),
        tuple(command.indexes[k] for k in keep if command.indexes[k] in handovers),
    )
    return Decision((event,), command.job, f"{task_count(len(keep))} of {command.job} placed")


def _promise(cell: Cell, _o: Observed, command: PromisePlaces, _actor: str, _now: Now) -> Decision:
    waiting, handovers = cell.waiting.get(command.job, set()), cell.handovers.get(command.job, {})
    pairs = [
        (index, machine)
        for index, machine in zip(command.indexes, command.machines, strict=True)
        if index in waiting and index not in handovers and (not machine or machine in cell.machines)
    ]
    if not pairs:
        return Decision((), command.job, "nothing left to promise")
    event = PlacesPromised(command.job, tuple(i for i, _ in pairs), tuple(m for _, m in pairs))
    return Decision((event,), command.job, f"places for {task_count(len(pairs))} of {command.job} promised")


def _evict(cell: Cell, command: EvictTasks, gate: Gate) -> Decision:
    """Send tasks back to pending, but those that may not be taken down on purpose."""
    job = find_job(cell, command.job)
    _chosen(job, command.indexes)
    running = movable(job, dict.fromkeys(command.indexes), TaskEvent.EVICT)
    for_task, notice_seconds = command.preemptor, command.notice_seconds
    may_go = [i for i in running if not for_task or may_preempt(cell, for_task, job, i)]
    if not is_exempt(cell, command):
        forced = [i for i in may_go if command.cause is Eviction.DRAIN and is_forced(cell, job, i)]
        may_go = forced + gate.pass_through(job.key, (i for i in may_go if i not in forced))
    elif for_task:
        for index in may_go:
            gate.take(job.key, index)
    indexes = tuple(may_go)
    evicted = TasksEvicted(job.key, indexes, command.cause, command.reason, notice_seconds, for_task)
    moved = evicted_with(cell, job, indexes, command.reason or command.cause, notice_seconds)
    events = (evicted, *moved) if indexes else ()
    return Decision(events, job.key, f"{task_count(len(indexes))} of {job.key} evicted: {command.cause}")


def _end_leases(cell: Cell, _o: Observed, command: EndLeases, _actor: str, _now: Now) -> Decision:
    named = set(zip(command.indexes, command.attempts, strict=True))
    ended = [pair for index, lease in over(cell, command.job) if (pair := (index, lease.attempt)) in named]
    if not ended:
        return Decision((), command.job, "nothing left to end")
    indexes, attempts = zip(*ended, strict=True)
    event = LeasesEnded(command.job, indexes, attempts, command.reason)
    return Decision((event,), command.job, f"leases of {command.job} ended: {len(ended)}")


# What commands name


def _chosen(job: Job, indexes: Iterable[int] | None) -> list[int]:
    if indexes is None:
        return list(range(len(job.tasks)))
    chosen = sorted(set(indexes))
    wrong = [i for i in chosen if not 0 <= i < len(job.tasks)]
    if wrong:
        raise NotFound(f"{job.key} has no task {wrong[0]}", f"its tasks are 0 to {len(job.tasks) - 1}")
    return chosen


_DECIDE: dict[type[Command], Callable[[Cell, Observed, Any, str, Now], Decision]] = {
    BeginEpoch: decide_cell.begin_epoch,
    SetQuota: decide_cell.set_quota,
    RemoveQuota: decide_cell.remove_quota,
    SetBudget: decide_cell.set_budget,
    RemoveBudget: decide_cell.remove_budget,
    SetCron: decide_crons.set_cron,
    RemoveCron: decide_crons.remove_cron,
    PauseCron: decide_crons.pause_cron,
    ResumeCron: decide_crons.resume_cron,
    RunCron: decide_crons.run_cron,
    FireCron: decide_crons.fire,
    FreezeCell: decide_cell.freeze,
    UnfreezeCell: decide_cell.unfreeze,
    SubmitJob: _submit,
    ScaleJob: _scale,
    KillTasks: _kill,
    RestartTasks: _restart,
    ForgetJob: _forget,
    EndFailedJob: max_failures.decide_end,
    BeginHandovers: decide_begin,
    HandOverTasks: decide_hand_over,
    EndIncoming: decide_end_incoming,
    EndHandovers: decide_end,
    HoldJob: decide_hold,
    ReleaseJob: decide_release,
    EndWaits: decide_end_wait,
    FailWaits: decide_fail,
    EndChildren: decide_end_children,
    ForgetFailures: decide_forget,
    PlaceTasks: _place,
    PromisePlaces: _promise,
    EndLeases: _end_leases,
    JoinMachine: decide_machines.join,
    RevokeMachine: decide_machines.revoke,
    CordonMachine: decide_machines.cordon,
    UncordonMachine: decide_machines.uncordon,
    TaintMachine: decide_machines.taint,
    UntaintMachine: decide_machines.untaint,
    DrainMachines: decide_drains.drain,
    UndrainMachines: decide_drains.undrain,
    MaintainMachines: decide_drains.maintain,
    CancelMaintenance: decide_drains.cancel,
    TurnWindows: decide_drains.turn,
    RemoveMachine: decide_machines.remove,
    SetMachineDown: decide_machines.down,
    ReleaseMachine: decide_machines.release,
    LoseMachine: decide_machines.lose,
    SetMachineUp: decide_machines.up,
    Observe: decide_machines.observe,
    ApplyApp: apps.apply,
    UndoApp: apps.undo,
    RunApp: apps.run,
    KillApp: apps.kill,
    RemoveApp: apps.remove,
    UndoUpdate: update.undo,
    PauseUpdate: update.pause,
    ResumeUpdate: update.resume,
    FailUpdate: update.fail,
    AdvanceRollouts: decide_advance,
    PauseRollouts: decide_pause,
    FinishRollouts: decide_finish,
    **decide_access.DECIDE,
}
COMMANDS: tuple[type[Command], ...] = (*_DECIDE, EvictTasks, RollBack)
"""Every kind of command there is."""
