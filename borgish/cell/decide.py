"""May it be, and what follows: turns a command into events, or refuses it. Changes nothing.

One function per command. A ``Decision`` without events is an answer too: what was asked is so already.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from borgish.cell.admission import admit
from borgish.cell.allocs import check_inside, has_its_alloc
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
    Observe,
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
from borgish.cell.decide_going_on import decide_going_on, decide_pausing
from borgish.cell.decide_lost import entries_lost
from borgish.cell.decide_quota import decide_remove_quota, decide_rules, decide_set_quota
from borgish.cell.decide_removal import decide_removal
from borgish.cell.decide_report import decide_report
from borgish.cell.decide_rollback import decide_rollback, expect_kept
from borgish.cell.decision import Decision
from borgish.cell.doubts import doubts
from borgish.cell.events import (
    AnyEvent,
    Elected,
    JobChanged,
    JobForgotten,
    JobSubmitted,
    MachineCordoned,
    MachineDown,
    MachineJoined,
    MachineLost,
    MachineTainted,
    MachineUncordoned,
    MachineUp,
    PlacesPromised,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
    TasksResubmitted,
)
from borgish.cell.evicting import evicted_as_lost, evicted_with, may_preempt
from borgish.cell.lifecycle import TaskEvent, allows, check_transitions, expect_row, movable
from borgish.cell.model import Job, Machine, Taint
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound
from borgish.spec.diff import differences
from borgish.vocabulary import TASKS_PER_JOB_MAX, Ending, Eviction, State


def decide(cell: Cell, observed: Observed, command: Command, actor: str, now: Now) -> Decision:
    """Return what follows from a command. Raises a ``Refused`` when it may not be."""
    decision = _DECIDE[type(command)](cell, observed, command, actor, now)
    check_transitions(cell, decision.events)
    return decision


def _begin_epoch(cell: Cell, _o: Observed, command: BeginEpoch, _actor: str, _now: Now) -> Decision:
    lost = (entries_lost(cell, command.seen),) if command.seen is not None else ()
    timeline = lost[0].timeline if lost else cell.timeline
    elected = Elected(command.epoch, timeline, command.holder)
    events: tuple[AnyEvent, ...] = (*lost, elected, *decide_rules(cell, command.rules))
    return Decision(events, command.holder, f"{command.holder} leads epoch {command.epoch}")


# Jobs


def _submit(cell: Cell, _o: Observed, command: SubmitJob, _actor: str, now: Now) -> Decision:
    spec = command.spec
    job = cell.jobs.get(spec.key)
    text = f"{spec.key} submitted: {_tasks(spec.tasks)}"
    if job is None or allows(job.state, TaskEvent.SUBMIT):
        check_inside(cell, spec)
        admit(cell, spec, range(spec.tasks), now.wall)
        return Decision((JobSubmitted(spec),), spec.key, text, doubts(cell, spec))
    expect_kept(job)
    wanted = msgspec.structs.replace(job.spec, tasks=job.tasks_wanted)
    if wanted == spec:
        return _submit_again(cell, job, now)
    differ = "; ".join(differences(wanted, spec, cell.rules.bands))
    raise Conflict(
        f"{spec.key} is {job.state} with another specification ({differ})",
        f"change the number of tasks with `borgctl job scale {spec.key} N`, or end it first with "
        f"`borgctl job kill {spec.key}`",
    )


def _submit_again(cell: Cell, job: Job, now: Now) -> Decision:
    """Bring back what was killed of a live job. What finished or failed keeps its outcome."""
    text = f"{job.key} is there already, exactly like this"
    killed = tuple(index for index in _to_run(job) if job.tasks[index].ending is Ending.KILL)
    if not killed:
        return Decision((), job.key, text)
    check_inside(cell, job.spec)
    admit(cell, job.spec, killed, now.wall)
    again = f"{_tasks(len(killed))} that {'was' if len(killed) == 1 else 'were'} killed"
    text = f"{text}; {again} {'is' if len(killed) == 1 else 'are'} pending again"
    return Decision((TasksResubmitted(job.key, killed),), job.key, text)


def _to_run(job: Job) -> list[int]:
    """Return the tasks of a job without those that a rollback has ended for good, or is about to end."""
    lagging = job.lagging
    ending = {index for index in lagging.attempts if lagging.ends(index)} if lagging is not None else ()
    return [index for index in range(job.tasks_wanted) if index not in ending]


def _scale(cell: Cell, _o: Observed, command: ScaleJob, _actor: str, now: Now) -> Decision:
    job = _job(cell, command.job)
    expect_row(job.key, job.state, TaskEvent.UPDATE)
    expect_kept(job)
    if not 1 <= command.tasks <= TASKS_PER_JOB_MAX:
        raise Invalid(
            f"{command.tasks} is outside 1 to {TASKS_PER_JOB_MAX} tasks",
            f"end the job with `borgctl job kill {job.key}`, or split what is larger into several jobs",
        )
    if command.tasks == job.tasks_wanted:
        return Decision((), job.key, f"{job.key} has {_tasks(command.tasks)} already")
    spec = msgspec.structs.replace(
        job.spec,
        tasks=command.tasks,
        overrides={i: o for i, o in job.spec.overrides.items() if i < command.tasks},
    )
    # While a rollback goes on, some beyond those wanted are there still: ended by it, or about to.
    ended = [task.index for task in job.tasks[job.tasks_wanted : spec.tasks] if task.state is State.DEAD]
    admit(cell, spec, [*ended, *range(len(job.tasks), spec.tasks)], now.wall)
    text = f"{job.key} scaled from {job.tasks_wanted} to {_tasks(command.tasks)}"
    gone = range(command.tasks, len(job.tasks))
    moved = evicted_with(cell, job, gone, f"scaled to {_tasks(command.tasks)}")
    again = (TasksResubmitted(job.key, tuple(ended)),) * bool(ended)
    return Decision((JobChanged(job.key, spec), *moved, *again), job.key, text)


def _kill(cell: Cell, _o: Observed, command: KillTasks, actor: str, _now: Now) -> Decision:
    job = _job(cell, command.job)
    chosen = movable(job, _chosen(job, command.indexes), TaskEvent.KILL)
    if not chosen:
        return Decision((), job.key, "nothing to kill: all of it is dead already")
    reason = f"killed by {actor}"
    event = TasksEnded(job.key, chosen, Ending.KILL, (reason,) * len(chosen))
    moved = evicted_with(cell, job, chosen, reason)
    return Decision((event, *moved), job.key, f"{_tasks(len(chosen))} of {job.key} killed")


def _restart(cell: Cell, _o: Observed, command: RestartTasks, actor: str, now: Now) -> Decision:
    job = _job(cell, command.job)
    expect_kept(job)
    chosen = _chosen(job, command.indexes)
    if job.lagging is not None:
        to_run = set(_to_run(job))
        chosen = [index for index in chosen if index in to_run]
        if not chosen:
            raise Conflict(
                f"nothing of that is to run: {job.key} was {job.lagging.reason}",
                f"give it more tasks with `borgctl job scale {job.key} N`, or undo the rollback",
            )
    running = movable(job, chosen, TaskEvent.EVICT)
    dead = movable(job, chosen, TaskEvent.SUBMIT)
    admit(cell, job.spec, dead, now.wall)
    reason = f"restarted by {actor}"
    evicted = (TasksEvicted(job.key, running, Eviction.RESTART, reason),) * bool(running)
    again = (TasksResubmitted(job.key, dead),) * bool(dead)
    text = f"{_tasks(len(running) + len(dead))} of {job.key} restarted"
    return Decision((*evicted, *evicted_with(cell, job, running, reason), *again), job.key, text)


def _forget(cell: Cell, _o: Observed, command: ForgetJob, _actor: str, _now: Now) -> Decision:
    job = _job(cell, command.job)
    expect_row(job.key, job.state, TaskEvent.FORGET)
    return Decision((JobForgotten(job.key),), job.key, f"{job.key} forgotten")


# Placement


def _place(cell: Cell, _o: Observed, command: PlaceTasks, _actor: str, _now: Now) -> Decision:
    """Drop what went stale: a task that is not pending any more, a machine that is not there."""
    job = cell.jobs.get(command.job)
    waiting = cell.waiting.get(command.job, set())
    keep = [
        place
        for place, (index, machine) in enumerate(zip(command.indexes, command.machines, strict=True))
        if index in waiting
        and (found := cell.machines.get(machine))
        and found.up
        and not found.cordoned
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
    )
    return Decision((event,), command.job, f"{_tasks(len(keep))} of {command.job} placed")


def _promise(cell: Cell, _o: Observed, command: PromisePlaces, _actor: str, _now: Now) -> Decision:
    waiting = cell.waiting.get(command.job, set())
    pairs = [
        (index, machine)
        for index, machine in zip(command.indexes, command.machines, strict=True)
        if index in waiting and (not machine or machine in cell.machines)
    ]
    if not pairs:
        return Decision((), command.job, "nothing left to promise")
    event = PlacesPromised(command.job, tuple(i for i, _ in pairs), tuple(m for _, m in pairs))
    return Decision((event,), command.job, f"places for {_tasks(len(pairs))} of {command.job} promised")


def _evict(cell: Cell, _o: Observed, command: EvictTasks, _actor: str, _now: Now) -> Decision:
    job = _job(cell, command.job)
    _chosen(job, command.indexes)
    running = movable(job, dict.fromkeys(command.indexes), TaskEvent.EVICT)
    for_task, notice_seconds = command.preemptor, command.notice_seconds
    indexes = tuple(i for i in running if not for_task or may_preempt(cell, for_task, job, i))
    evicted = TasksEvicted(job.key, indexes, command.cause, command.reason, notice_seconds, for_task)
    moved = evicted_with(cell, job, indexes, command.reason or command.cause, notice_seconds)
    events = (evicted, *moved) if indexes else ()
    return Decision(events, job.key, f"{_tasks(len(indexes))} of {job.key} evicted: {command.cause}")


# Machines


def _join(cell: Cell, observed: Observed, command: JoinMachine, _actor: str, _now: Now) -> Decision:
    machine = command.machine
    there = cell.machines.get(machine.name)
    if there is not None and not command.known and _is_held(observed, there, command):
        raise Conflict(
            f"a machine named {machine.name} is in this cell and answers",
            "give this one another name in its borglet.toml; a machine that lost its state folder may "
            "come back under its name once the old borglet is silent",
        )
    if there is not None:
        machine = msgspec.structs.replace(
            machine,
            joined_at=there.joined_at,
            boot_id=there.boot_id,  # of the last report: the next one tells what a new boot has ended
            cordoned=there.cordoned,
            reason=there.reason if there.cordoned else "",
            port_next=there.port_next,
            taints=there.taints,
        )
    events = () if machine == there else (MachineJoined(machine),)
    return Decision(events, machine.name, f"{machine.name} is in the cell")


def _is_held(observed: Observed, there: Machine, command: JoinMachine) -> bool:
    """Whether another borglet has the name. Not yet heard under this master, it may still answer; only
    who listens at its address has taken its place."""
    seen = observed.machines.get(there.name)
    if seen is None or not seen.instance:
        asks = command.machine
        return there.up and (there.host, there.port) != (asks.host, asks.port)
    return there.up and seen.instance != command.instance


def _cordon(cell: Cell, _o: Observed, command: CordonMachine, _actor: str, _now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    if machine.cordoned:
        return Decision((), machine.name, f"{machine.name} is cordoned already")
    text = f"{machine.name} takes no new tasks; what runs there goes on"
    return Decision((MachineCordoned(machine.name, command.reason),), machine.name, text)


def _uncordon(cell: Cell, _o: Observed, command: UncordonMachine, _actor: str, _now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    if not machine.cordoned:
        return Decision((), machine.name, f"{machine.name} is not cordoned")
    return Decision((MachineUncordoned(machine.name),), machine.name, f"{machine.name} takes tasks again")


def _taint(cell: Cell, _o: Observed, command: TaintMachine, _actor: str, now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    there = {taint.key: taint for taint in machine.taints}
    before = there.get(command.key)
    text = f"{machine.name} is tainted {command.key}"
    if before and (before.value, before.effect) == (command.value, command.effect):
        return Decision((), machine.name, f"{text} already")
    there[command.key] = Taint(command.key, command.value, command.effect, now.wall)
    taints = tuple(there[key] for key in sorted(there))
    return Decision((MachineTainted(machine.name, taints),), machine.name, text)


def _untaint(cell: Cell, _o: Observed, command: UntaintMachine, _actor: str, _now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    taints = tuple(taint for taint in machine.taints if taint.key != command.key)
    if taints == machine.taints:
        known = ", ".join(taint.key for taint in machine.taints) or "none"
        raise NotFound(f"{machine.name} has no taint {command.key}", f"its taints are: {known}")
    text = f"{machine.name} is no longer tainted {command.key}"
    return Decision((MachineTainted(machine.name, taints),), machine.name, text)


def _remove(cell: Cell, observed: Observed, command: RemoveMachine, _actor: str, now: Now) -> Decision:
    return decide_removal(cell, observed, command, now)


def _down(cell: Cell, _o: Observed, command: SetMachineDown, _actor: str, _now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    events = (MachineDown(machine.name, command.reason),) * machine.up
    return Decision(events, machine.name, f"{machine.name} is down: {command.reason}")


def _lose(cell: Cell, _o: Observed, command: LoseMachine, _actor: str, _now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    placed = len(cell.placed[machine.name])
    if machine.up or not placed:
        return Decision((), machine.name, f"{machine.name} holds nothing that is lost")
    evicted = evicted_as_lost(cell, machine.name, command.reason)
    text = f"{machine.name} is given up: {_tasks(placed)} evicted"
    return Decision((MachineLost(machine.name, command.at), *evicted), machine.name, text)


def _up(cell: Cell, _o: Observed, command: SetMachineUp, _actor: str, _now: Now) -> Decision:
    machine = _machine(cell, command.machine)
    events = (MachineUp(machine.name),) * (not machine.up)
    return Decision(events, machine.name, f"{machine.name} is up")


def _observe(cell: Cell, _o: Observed, command: Observe, _actor: str, now: Now) -> Decision:
    return decide_report(cell, command, now)


# The whole cell


def _roll_back(cell: Cell, _o: Observed, command: RollBack, actor: str, now: Now) -> Decision:
    return decide_rollback(cell, command, actor, now)


def _go_on(cell: Cell, _o: Observed, command: GoOnRollingBack, _actor: str, _now: Now) -> Decision:
    return decide_going_on(cell, command)


def _pause(cell: Cell, _o: Observed, command: PauseRollback, _actor: str, _now: Now) -> Decision:
    return decide_pausing(cell, command)


# What commands name


def _job(cell: Cell, key: str) -> Job:
    job = cell.jobs.get(key)
    if job is None:
        raise NotFound(f"there is no job {key}", "`borgctl job list` shows those there are")
    return job


def _machine(cell: Cell, name: str) -> Machine:
    machine = cell.machines.get(name)
    if machine is None:
        raise NotFound(f"there is no machine {name}", "`borgctl machine list` shows those there are")
    return machine


def _chosen(job: Job, indexes: Iterable[int] | None) -> list[int]:
    if indexes is None:
        return list(range(len(job.tasks)))
    chosen = sorted(set(indexes))
    wrong = [i for i in chosen if not 0 <= i < len(job.tasks)]
    if wrong:
        raise NotFound(f"{job.key} has no task {wrong[0]}", f"its tasks are 0 to {len(job.tasks) - 1}")
    return chosen


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


_DECIDE: dict[type[Command], Callable[[Cell, Observed, Any, str, Now], Decision]] = {
    BeginEpoch: _begin_epoch,
    SubmitJob: _submit,
    ScaleJob: _scale,
    KillTasks: _kill,
    RestartTasks: _restart,
    ForgetJob: _forget,
    PlaceTasks: _place,
    PromisePlaces: _promise,
    EvictTasks: _evict,
    JoinMachine: _join,
    CordonMachine: _cordon,
    UncordonMachine: _uncordon,
    TaintMachine: _taint,
    UntaintMachine: _untaint,
    RemoveMachine: _remove,
    SetMachineDown: _down,
    LoseMachine: _lose,
    SetMachineUp: _up,
    SetQuota: decide_set_quota,
    RemoveQuota: decide_remove_quota,
    Observe: _observe,
    RollBack: _roll_back,
    GoOnRollingBack: _go_on,
    PauseRollback: _pause,
}
COMMANDS = tuple(_DECIDE)
"""Every kind of command there is."""
