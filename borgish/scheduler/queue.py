"""In which order waiting tasks have their turn.

High priorities before low ones. Inside a priority users take turns, and the jobs of a user, one
task a turn, so that a job of 10,000 tasks does not hold up another user's single task; a job's
tasks go by index. Who begins moves on with the journal's position, so that nobody is always first
when places come free one by one.
"""

from collections import deque
from collections.abc import Collection, Iterator
from itertools import zip_longest
from typing import TypeVar
from zlib import crc32

import msgspec

from borgish.cell.model import Job
from borgish.cell.state import Cell
from borgish.scheduler.equivalence import Classes, has_own_needs
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.task_class import TaskClass

_Item = TypeVar("_Item")


class Waiting(msgspec.Struct, eq=False):
    """The waiting tasks of one job: ``indexes[done:]``, ascending. Most are of one class."""

    job: Job
    indexes: list[int]
    usual: TaskClass
    unusual: dict[int, TaskClass]  # tasks whose needs are their own
    done: int = 0

    def take(self) -> tuple[TaskClass, int]:
        """Return the next task and its class."""
        index = self.indexes[self.done]
        self.done += 1
        return self.class_of(index), index

    def take_rest(self) -> list[int]:
        """Return the indexes of all that are left."""
        rest = self.indexes[self.done :]
        self.done = len(self.indexes)
        return rest

    def by_class(self) -> dict[TaskClass, list[int]]:
        """Return the indexes of all that are left, by class."""
        if not self.unusual:
            return {self.usual: self.indexes[self.done :]}
        found: dict[TaskClass, list[int]] = {}
        for index in self.indexes[self.done :]:
            found.setdefault(self.class_of(index), []).append(index)
        return found

    def class_of(self, index: int) -> TaskClass:
        """Return the class of one task."""
        return self.unusual.get(index, self.usual) if self.unusual else self.usual


class Window:
    """Tasks whose order hardly matters, by class and job."""

    def __init__(self, cpu: float, ram: float) -> None:
        self.cpu_left = cpu  # of what the window may need
        self.ram_left = ram
        self.tasks = 0
        self.runs: dict[TaskClass, dict[str, tuple[Job, list[int]]]] = {}

    def takes(self, kind: TaskClass, job: Job) -> bool:
        """Return whether a task still belongs in it: there is room, or nobody else's task is in it."""
        if kind.cpu <= self.cpu_left and kind.ram <= self.ram_left:
            return True
        return not self.runs or (len(self.runs) == 1 and self.runs.get(kind, {}).keys() == {job.key})

    def add(self, kind: TaskClass, job: Job, indexes: list[int]) -> None:
        """Add tasks of one class and job."""
        self.tasks += len(indexes)
        self.cpu_left -= kind.cpu * len(indexes)
        self.ram_left -= kind.ram * len(indexes)
        self.runs.setdefault(kind, {}).setdefault(job.key, (job, []))[1].extend(indexes)

    @property
    def holds(self) -> bool:
        """Whether what was added is no more than it may need."""
        return self.cpu_left >= 0 and self.ram_left >= 0


Level = list[list[Waiting]]
"""All of one priority: for each user, the waiting jobs."""


def waiting_by_alloc_set(cell: Cell) -> dict[str, list[str]]:
    """Return the jobs with waiting tasks by the alloc set that they are to run in; "" are the machines."""
    found: dict[str, list[str]] = {"": []}
    for key, indexes in cell.waiting.items():
        if indexes:
            found.setdefault(cell.jobs[key].spec.inside, []).append(key)
    return found


def levels(
    cell: Cell, classes: Classes, fleet: Fleet, jobs: Collection[str] | None = None
) -> Iterator[Level]:
    """Yield these waiting jobs, by priority, high to low; unless given, those that are to run on machines."""
    fleet.topology.expect(cell.jobs[key].spec for key, indexes in cell.waiting.items() if indexes)
    by_priority: dict[int, dict[str, list[Waiting]]] = {}
    for key in sorted(waiting_by_alloc_set(cell)[""] if jobs is None else jobs):
        job = cell.jobs[key]
        tasks, spec, indexes = job.tasks, job.spec, sorted(cell.waiting[key])
        if cell.promised:  # those for whom a place is kept do not queue
            indexes = [index for index in indexes if not tasks[index].promised]
        if not indexes:
            continue
        own = sorted(spec.overrides.keys() & cell.waiting[key]) if spec.overrides else ()
        unusual = {
            index: classes.of(cell, spec, index, fleet)
            for index in (own if classes.shared else indexes)
            if not classes.shared or has_own_needs(spec, index)
        }
        waiting = Waiting(job, indexes, classes.of(cell, spec, -1, fleet), unusual)
        by_priority.setdefault(spec.priority, {}).setdefault(spec.user, []).append(waiting)
    for priority in sorted(by_priority, reverse=True):
        users = by_priority[priority]
        yield _rotated([_rotated(users[user], cell.position) for user in sorted(users)], cell.position)


def first_turns(level: Level) -> Iterator[Waiting]:
    """Yield each job once, in the order in which ``turns`` first comes to them."""
    for one_of_each_user in zip_longest(*level):
        yield from filter(None, one_of_each_user)


def turns(level: Level) -> Iterator[Waiting]:
    """Yield the job whose turn it is. The caller takes at least one task each time."""
    ring = deque(deque(jobs) for jobs in level)
    while ring:
        jobs = ring.popleft()
        job = jobs.popleft()
        yield job
        if job.done < len(job.indexes):
            jobs.append(job)
        if jobs:
            ring.append(jobs)


def _rotated(items: list[_Item], position: int) -> list[_Item]:
    start = crc32(str(position).encode()) % len(items) if position else 0
    return items[start:] + items[:start]
