"""How a rollback goes on to the tasks that lag behind it."""

from collections.abc import Iterable, Iterator

import msgspec

from borgish.cell.commands import GoOnRollingBack, PauseRollback
from borgish.cell.decision import Decision
from borgish.cell.events import RollbackPaused, RollbackWentOn, TasksEvicted
from borgish.cell.evicting import evicted_with
from borgish.cell.model import Job, Task
from borgish.cell.state import Cell
from borgish.vocabulary import Ending, State


class Due(msgspec.Struct):
    """Tasks of a job that lag behind, by what is to be done about each."""

    running: list[int] = []  # to be stopped, some of them at a time
    again: list[int] = []  # ended by themselves, and are to run anew
    over: list[int] = []  # pending, and are not to run
    reached: list[int] = []  # as they are to be already

    @property
    def at_once(self) -> bool:
        """Whether there is something to do that stops nothing."""
        return bool(self.again or self.over or self.reached)


def due(job: Job) -> Due:
    """Return what a rollback has yet to do about a job."""
    found = Due()
    if (lagging := job.lagging) is not None:
        for index, attempt in lagging.attempts.items():
            _list_of(found, job.tasks[index], attempt, ends=lagging.ends(index)).append(index)
    return found


def _list_of(found: Due, task: Task, attempt: int, *, ends: bool) -> list[int]:
    match task.state:
        case State.RUNNING if ends or task.attempt == attempt:
            return found.running
        case State.PENDING if ends:
            return found.over
        case State.DEAD if not ends and task.attempt == attempt and task.ending is not Ending.KILL:
            return found.again
    return found.reached


def decide_going_on(cell: Cell, command: GoOnRollingBack) -> Decision:
    """Return what follows for each job named: tasks named are stopped, if they still lag behind.

    With an alloc leaves what runs in it.
    """
    stopped = {}
    for key, named in command.stop.items():
        if key in cell.lagging:
            stopped[key] = [index for index in due(cell.jobs[key]).running if index in set(named)]
    went_on = tuple(
        event for key, indexes in stopped.items() if (event := _went_on(cell.jobs[key], indexes)).reached
    )
    evicted = tuple(
        event for key, indexes in stopped.items() for event in _inside(cell, cell.jobs[key], indexes, stopped)
    )
    return Decision((*went_on, *evicted), "", "a rollback went on")


def decide_pausing(cell: Cell, command: PauseRollback) -> Decision:
    """Return what follows: it is noted once, and again only after the rollback went on."""
    paused = tuple(
        RollbackPaused(key, reason)
        for key, reason in command.reasons.items()
        if key in cell.lagging and not _is_paused(cell.jobs[key])
    )
    return Decision(paused, "", "a rollback is paused")


def _is_paused(job: Job) -> bool:
    return job.lagging is not None and bool(job.lagging.paused)


def _went_on(job: Job, stopped: Iterable[int]) -> RollbackWentOn:
    assert job.lagging is not None
    ends, found = job.lagging.ends, due(job)
    pending = [*found.again, *(index for index in stopped if not ends(index))]
    ended = [*found.over, *(index for index in stopped if ends(index))]
    reached = sorted([*pending, *ended, *found.reached])
    return RollbackWentOn(job.key, tuple(reached), tuple(sorted(pending)), tuple(sorted(ended)))


def _inside(
    cell: Cell, job: Job, indexes: Iterable[int], stopped: dict[str, list[int]]
) -> Iterator[TasksEvicted]:
    """Yield the evictions of what runs in allocs that are stopped, and is not stopped itself."""
    for event in evicted_with(cell, job, indexes, job.lagging.reason if job.lagging else ""):
        left = tuple(index for index in event.indexes if index not in stopped.get(event.job, ()))
        if left:
            yield msgspec.structs.replace(event, indexes=left)
