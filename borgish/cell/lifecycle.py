"""Pending -> Running -> Dead (EuroSys 2015, figure 2) as a table (a state machine), and the one function that
moves tasks.

``transition`` looks the row up and does what follows from it: the state itself, the counts of the job, who is
placed, waits, or has a place promised, and what is to be written. Nobody else assigns ``Task.state``.
``decide`` asks the same table, so that a move that has no row is refused before anything is written; for
``apply`` it is a bug.

The design is h11's (``_state.py``): a table that is executed cannot differ from what the code does.
The diagram in ``borgish/README.md`` is what ``diagram`` returns, and a test compares them.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from borgish.cell.events import (
    AnyEvent,
    RolledBack,
    RolloutWentOn,
    TasksEnded,
    TasksEvicted,
    TasksHandedOver,
    TasksPlaced,
    TasksRestarted,
    TasksResubmitted,
)
from borgish.cell.model import Cell, Handover, Job, Task, Waits
from borgish.cell.moves import Move
from borgish.errors import Conflict
from borgish.spec.cron import run_key
from borgish.vocabulary import FAILURES, Ending, State, task_name


class TaskEvent(StrEnum):
    """What moves a task from state to state."""

    SUBMIT = "submit"
    SCHEDULE = "schedule"
    UPDATE = "update"
    EVICT = "evict"
    HAND_OVER = "hand over"  # its incoming attempt takes over
    FINISH = "finish"
    FAIL = "fail"
    KILL = "kill"
    LOST = "lost"
    # A rollback makes nothing running: it stops a program or leaves it alone, and no attempt comes back.
    RESTORE_TO_PENDING = "restore to pending"
    RESTORE_TO_DEAD = "restore to dead"
    REMOVE = "remove"  # its job has fewer tasks, or is gone by a rollback
    FORGET = "forget"  # its job was dead long enough

    __hash__ = str.__hash__  # Enum's own is written in Python, and each placed task is looked up by it


TABLE: dict[tuple[State | None, TaskEvent], State | None] = {
    (None, TaskEvent.SUBMIT): State.PENDING,
    (State.PENDING, TaskEvent.SCHEDULE): State.RUNNING,
    (State.PENDING, TaskEvent.UPDATE): State.PENDING,
    # Not in the paper's figure: by an attempt that was evicted with its machine and ended by itself.
    (State.PENDING, TaskEvent.FINISH): State.DEAD,
    (State.PENDING, TaskEvent.FAIL): State.DEAD,
    (State.PENDING, TaskEvent.KILL): State.DEAD,
    (State.PENDING, TaskEvent.LOST): State.DEAD,
    (State.PENDING, TaskEvent.RESTORE_TO_DEAD): State.DEAD,
    (State.PENDING, TaskEvent.REMOVE): None,
    (State.RUNNING, TaskEvent.UPDATE): State.RUNNING,
    (State.RUNNING, TaskEvent.HAND_OVER): State.RUNNING,
    (State.RUNNING, TaskEvent.EVICT): State.PENDING,
    (State.RUNNING, TaskEvent.RESTORE_TO_PENDING): State.PENDING,
    (State.RUNNING, TaskEvent.FINISH): State.DEAD,
    (State.RUNNING, TaskEvent.FAIL): State.DEAD,
    (State.RUNNING, TaskEvent.KILL): State.DEAD,
    (State.RUNNING, TaskEvent.LOST): State.DEAD,
    (State.RUNNING, TaskEvent.RESTORE_TO_DEAD): State.DEAD,
    (State.RUNNING, TaskEvent.REMOVE): None,
    # Borg's meaning, not Kubernetes': what is dead stays dead until somebody asks for it again.
    (State.DEAD, TaskEvent.SUBMIT): State.PENDING,
    (State.DEAD, TaskEvent.RESTORE_TO_PENDING): State.PENDING,
    (State.DEAD, TaskEvent.RESTORE_TO_DEAD): State.DEAD,  # it ended otherwise then
    (State.DEAD, TaskEvent.REMOVE): None,
    (State.DEAD, TaskEvent.FORGET): None,
}
"""None is a task that does not exist: not yet, or no more. A job's state (``Job.state``) follows from its
tasks, and what is asked of a whole job is asked of the table by that state."""

OF_ENDING = {
    Ending.FINISH: TaskEvent.FINISH,
    Ending.FAIL: TaskEvent.FAIL,
    Ending.KILL: TaskEvent.KILL,
    Ending.LOST: TaskEvent.LOST,
}


class _Move(NamedTuple):
    """The rows of an event: all but those of an update lead to one state, from each of the sources."""

    sources: tuple[State | None, ...]
    target: State | None


def _move(event: TaskEvent) -> _Move:
    sources = tuple(state for state, each in TABLE if each is event)
    return _Move(sources, TABLE[sources[0], event])


# A state is found in a tuple five times faster than a pair of enums in a dictionary, and both ``decide`` and
# ``apply`` ask for every task that is placed.
_MOVES = {event: _move(event) for event in TaskEvent}

_GOES_ON = (TaskEvent.SCHEDULE, TaskEvent.EVICT, TaskEvent.HAND_OVER, TaskEvent.UPDATE)
"""After these a task still avoids the machines on which it failed."""

_HINTS = {TaskEvent.UPDATE: "submit it again to bring it back"}
"""The way out where a row is missing that users may ask for."""


class IllegalTransition(AssertionError):
    """A journal entry moves a task in a way that has no row: a bug in ``decide``, never a user's doing."""


# Asking the table


def allows(state: State | None, event: TaskEvent) -> bool:
    """Return whether the table has such a row."""
    return state in _MOVES[event].sources


def movable(job: Job, indexes: Iterable[int], event: TaskEvent) -> tuple[int, ...]:
    """Return those of a job's tasks that this may happen to."""
    sources = _MOVES[event].sources
    return tuple(index for index in indexes if job.tasks[index].state in sources)


def check_row(name: str, state: State | None, event: TaskEvent) -> None:
    """Raise Conflict, for a task or a job of this name, unless the table has such a row."""
    if state not in _MOVES[event].sources:
        raise Conflict(f"{name} is {state or 'gone'}", _HINTS.get(event, ""))


Moved = dict[str, dict[int, State | None]]
"""The states of tasks after events that are decided and not applied yet, by job and index; None: removed."""


def check_transitions(cell: Cell, events: Iterable[AnyEvent], moved: Moved | None = None) -> None:
    """Raise Conflict unless the table has a row for each move of a task by these events, in their order.

    This is the last thing that ``decide`` does: an entry that breaks off half-way would leave a cell in
    memory that nobody can trust, and end the process. Changes nothing of the cell. ``moved`` is what events
    that are to be applied before these, in the same entry, lead to; these are added to it.
    """
    moved = {} if moved is None else moved
    for event in events:
        for key, indexes, task_event in _moved_by(event):
            tasks = cell.jobs[key].tasks if key in cell.jobs else []
            there = moved.setdefault(key, {})
            sources, target = _MOVES[task_event]
            for index in indexes:
                if index in there:
                    state = there[index]
                else:  # what a rollback adds to a job begins as pending
                    state = tasks[index].state if index < len(tasks) else State.PENDING
                if state not in sources:
                    check_row(task_name(key, index), state, task_event)
                there[index] = target if task_event is not TaskEvent.UPDATE else state


def _moved_by(event: AnyEvent) -> Iterable[tuple[str, Sequence[int], TaskEvent]]:
    """Return which tasks of which job an event moves, and how."""
    match event:
        case TasksPlaced():
            return (
                (event.job, event.pending, TaskEvent.SCHEDULE),
                (event.job, event.incoming, TaskEvent.UPDATE),
            )
        case TasksRestarted():
            return ((event.job, event.indexes, TaskEvent.UPDATE),)
        case TasksEvicted():
            return (
                (event.job, event.pending, TaskEvent.EVICT),
                (event.job, event.taken_over, TaskEvent.HAND_OVER),
            )
        case TasksHandedOver():
            return ((event.job, event.indexes, TaskEvent.HAND_OVER),)
        case TasksEnded():
            return ((event.job, event.indexes, OF_ENDING[event.ending]),)
        case TasksResubmitted():
            return ((event.job, event.indexes, TaskEvent.SUBMIT),)
        case RolloutWentOn():
            return (
                (event.job, event.pending, TaskEvent.RESTORE_TO_PENDING),
                (event.job, event.ended, TaskEvent.RESTORE_TO_DEAD),
            )
        case RolledBack():
            pending = ((job.job, job.pending, TaskEvent.RESTORE_TO_PENDING) for job in event.jobs)
            dead = (
                (job.job, [record.index for record in job.dead], TaskEvent.RESTORE_TO_DEAD)
                for job in event.jobs
            )
            return (*pending, *dead)
    return ()


# Moving tasks; for ``apply`` only


def require_row(name: str, state: State | None, event: TaskEvent) -> None:
    """Raise IllegalTransition, for a task or a job of this name, unless the table has such a row."""
    if state not in _MOVES[event].sources:
        raise IllegalTransition(f"{event} does not go with {name}, which is {state}")


def transition(
    cell: Cell,
    job: Job,
    indexes: Sequence[int],
    event: TaskEvent,
    at: float,
    reason: str = "",
    *,
    ending: Ending | None = None,
    notice_seconds: float = -1.0,
) -> None:
    """Move tasks of a job by their rows. Raises IllegalTransition at the first that has none.

    ``at`` is in seconds since 1970. ``ending``: with which they are dead. ``notice_seconds`` bounds the grace
    of the attempts that end with this, if any do; below 0: does not. Whoever schedules tasks gives them their
    attempt and machine first.
    """
    sources, target = _MOVES[event]
    key = job.key
    handovers = cell.handovers.get(key)
    queue = cell.waiting if job.waits is None else None  # of most jobs no task waits for others
    for index in indexes:
        task = job.tasks[index]
        state = task.state
        if state not in sources:
            require_row(task_name(key, index), state, event)
        if event is TaskEvent.UPDATE:
            continue  # it stays what it is, since when it is
        if state is State.PENDING:
            job.pending -= 1
            if task.promised:
                drop_promises(cell, job, (index,))
            (cell.queue(job, index) if queue is None else queue)[key].discard(index)
        elif state is State.RUNNING:
            job.running -= 1
            note_move(cell, job, task, -1)
            if handovers and index in handovers:
                incoming = end_handover(cell, job, index)
                if event is TaskEvent.HAND_OVER:
                    _take_over(task, incoming)
            task.notice_seconds = notice_seconds
        else:
            job.dead -= 1
            job.finished -= task.ending is Ending.FINISH
            job.failed -= task.ending in FAILURES
        if target is None:
            continue
        task.state, task.since, task.reason, task.ending = target, at, reason, ending
        if target is State.PENDING:
            job.pending += 1
            (cell.queue(job, index) if queue is None else queue).setdefault(key, set()).add(index)
        elif target is State.RUNNING:
            job.running += 1
            note_move(cell, job, task, 1)
        else:
            job.dead += 1
            job.finished += ending is Ending.FINISH
            job.failed += ending in FAILURES
            task.lost = ()  # what is over has its result
    _settle(cell, job, indexes, event)


def note_move(cell: Cell, job: Job, task: Task, tasks: int) -> None:
    """Note that a task is placed on its machine from now on (1), or no longer (-1)."""
    placed, place = cell.placed[task.machine], (job.key, task.index)
    (placed.add if tasks > 0 else placed.discard)(place)
    move = Move(
        job.key,
        task.index,
        task.attempt,
        tasks,
        job.spec_of_last(task),
        task.ports,
        task.devices,
        task.alloc,
    )
    cell.moves[task.machine].add(move, len(placed))
    cell.touched.placements.add(task.machine)


def _note_incoming(cell: Cell, job: Job, index: int, incoming: Handover) -> None:
    """Note that an incoming attempt is to run on its machine from now on, or no longer."""
    move = Move(job.key, index, incoming.attempt, 0, job.spec)
    cell.moves[incoming.machine].add(move, len(cell.placed[incoming.machine]))
    cell.touched.placements.add(incoming.machine)


def _settle(cell: Cell, job: Job, indexes: Sequence[int], event: TaskEvent) -> None:
    """Let what is known of a job and its tasks follow from a move."""
    if not cell.waiting.get(job.key, True):
        del cell.waiting[job.key]
    if job.waits is not None and not cell.deferred.get(job.key):
        cell.deferred.pop(job.key, None)
        job.waits = None  # nobody waits any more
    if event not in _GOES_ON:
        _drop_failures(cell, job, indexes)
        if _MOVES[event].target is State.PENDING:
            for index in indexes:
                job.tasks[index].failures = 0
    if _MOVES[event].target is not None:
        touch(cell, job, indexes)


def _take_over(task: Task, incoming: Handover) -> None:
    """Let a task be about its incoming attempt."""
    task.previous_attempt, task.previous_machine = task.attempt, task.machine
    task.attempt, task.machine, task.ports = incoming.attempt, incoming.machine, incoming.ports
    task.devices, task.version, task.restarts = incoming.devices, incoming.version, 0


def set_handover(cell: Cell, job: Job, index: int, handover: Handover) -> None:
    """Let this be what is to take over from a task's current attempt."""
    if index in cell.handovers.get(job.key, ()):
        end_handover(cell, job, index)
    cell.handovers.setdefault(job.key, {})[index] = handover
    if handover.attempt:
        cell.arriving.setdefault(handover.machine, set()).add((job.key, index))
        _note_incoming(cell, job, index, handover)
    else:
        cell.waiting.setdefault(job.key, set()).add(index)
    _touch_handover(cell, job, index)


def drop_handovers(cell: Cell, job: Job, indexes: Iterable[int]) -> None:
    """Let nothing take over from these of a job's tasks."""
    for index in cell.handovers.get(job.key, {}).keys() & set(indexes):
        end_handover(cell, job, index)


def end_handover(cell: Cell, job: Job, index: int) -> Handover:
    """Let nothing take over from a task's current attempt; return what was to."""
    there, task = cell.handovers[job.key], job.tasks[index]
    ended = there.pop(index)
    if not there:
        del cell.handovers[job.key]
    if ended.attempt:
        # Who asks why it did not take over finds its logs as those of the attempt before.
        task.previous_attempt, task.previous_machine = ended.attempt, ended.machine
        task.notice_seconds = -1.0
        arriving = cell.arriving[ended.machine]
        arriving.discard((job.key, index))
        if not arriving:
            del cell.arriving[ended.machine]
        _note_incoming(cell, job, index, ended)
    else:
        waiting = cell.waiting[job.key]
        waiting.discard(index)
        if not waiting:
            del cell.waiting[job.key]
    _touch_handover(cell, job, index)
    return ended


def _touch_handover(cell: Cell, job: Job, index: int) -> None:
    cell.touched.handovers.setdefault(job.key, set()).add(index)
    touch(cell, job, (index,))


def grow(cell: Cell, job: Job, tasks: int, at: float) -> None:
    """Give a job more tasks, up to so many; the new ones are submitted ``at`` that time, seconds since
    1970."""
    require_row(job.key, None, TaskEvent.SUBMIT)
    fresh = range(len(job.tasks), tasks)
    job.tasks.extend(Task(index, since=at) for index in fresh)
    job.pending += len(fresh)
    if fresh and job.waits is None:
        cell.waiting.setdefault(job.key, set()).update(fresh)
    for index in fresh if job.waits is not None else ():
        cell.queue(job, index).setdefault(job.key, set()).add(index)
    touch(cell, job, fresh)


def let_wait(cell: Cell, job: Job, waits: Waits) -> None:
    """Let pending tasks of a job wait for other jobs, if it names any; what waited waits on."""
    if not job.spec.after:
        return
    before, pending = job.waits, cell.waiting.pop(job.key, set())
    if before is not None:
        only = tuple(sorted({*before.only, *waits.only})) if before.only and waits.only else ()
        waits = Waits(before.since, only)
    job.waits = waits
    for index in pending:
        is_pending = job.tasks[index].state is State.PENDING  # else it looks for where it is replaced
        if is_pending and waits.covers(index):
            drop_promises(cell, job, (index,))
        queue = cell.queue(job, index) if is_pending else cell.waiting
        queue.setdefault(job.key, set()).add(index)
    if not cell.deferred.get(job.key):
        job.waits = None
    touch(cell, job, ())


def end_wait(cell: Cell, job: Job) -> None:
    """Let what waited for other jobs look for machines."""
    job.waits = None
    if ready := cell.deferred.pop(job.key, None):
        cell.waiting.setdefault(job.key, set()).update(ready)
    touch(cell, job, ())


def shrink(cell: Cell, job: Job, tasks: int) -> None:
    """Take from a job all tasks from this index on, whatever they do."""
    gone = range(tasks, len(job.tasks))
    if gone:
        transition(cell, job, gone, TaskEvent.REMOVE, 0.0)
        del job.tasks[tasks:]
        cell.touched.tasks_gone[job.key] = min(tasks, cell.touched.tasks_gone.get(job.key, tasks))


def forget_job(cell: Cell, key: str, event: TaskEvent) -> None:
    """Let go of a job, all of whose tasks go by this event."""
    job = cell.jobs[key]
    transition(cell, job, range(len(job.tasks)), event, 0.0)
    del cell.jobs[key]
    cell.demand.changed.add(key)
    cell.rolling.discard(key)
    cell.touched.jobs_gone.add(key)
    if job.cron:
        forget_run(cell, job)


def forget_run(cell: Cell, job: Job) -> None:
    """Let a job be of no run of its cron any more."""
    runs, key = cell.runs[job.cron], run_key(job.cron, job.key)
    runs[key].discard(job.key)
    if not runs[key]:
        del runs[key]
    if not runs:
        del cell.runs[job.cron]
    if not cell.is_crowded(job.cron):
        cell.crowded.discard(job.cron)


def drop_promises(cell: Cell, job: Job, indexes: Iterable[int]) -> None:
    """Take back the places that were promised to tasks."""
    for index in indexes:
        task = job.tasks[index]
        if task.promised:
            there = cell.promised[task.promised]
            there.discard((job.key, index))
            if not there:
                del cell.promised[task.promised]
            cell.touched.placements.add(task.promised)
            task.promised = ""


def forget_failures(cell: Cell, job: Job, indexes: Iterable[int]) -> None:
    """Let tasks avoid no machine; a job of which none failed is held no longer."""
    touch(cell, job, _drop_failures(cell, job, indexes))


def _drop_failures(cell: Cell, job: Job, indexes: Iterable[int]) -> Iterable[int]:
    if (failing := cell.failing.get(job.key)) is None:
        return ()
    gone = failing.intersection(indexes)
    for index in gone:
        job.tasks[index].failed = ()
    failing -= gone
    if not failing:
        del cell.failing[job.key]
        job.held = None
    return gone


def touch(cell: Cell, job: Job, indexes: Iterable[int]) -> None:
    """Note that a job, and these of its tasks, are to be written."""
    cell.demand.changed.add(job.key)
    cell.touched.jobs.add(job.key)
    cell.touched.tasks.setdefault(job.key, set()).update(indexes)


def diagram() -> str:
    """Return the table as Mermaid text, for the tour of the code."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), target in TABLE.items():
        arrows.setdefault((str(state or "[*]"), str(target or "[*]")), []).append(event)
    rows = (f"    {a} --> {b}: {', '.join(words)}" for (a, b), words in arrows.items())
    return "\n".join(["stateDiagram-v2", *rows])
