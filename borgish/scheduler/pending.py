"""The pending queue, kept from pass to pass: all waiting jobs by the classes of their tasks.

A pass takes from it the jobs of classes that may fit, no more of them than it can try, and gives back what it
did not place. Jobs of a class that is known to fail stay where they are, however many they are: they cost a
pass nothing (Nomad's blocked evaluations, Kubernetes' unschedulable pods). So a pass costs as much as what it
tries, and as there are classes, not as there are jobs that wait.

A job is read again when something of it has changed: ``note`` has to be told. Few jobs are *special*, which
is to say that what may be placed of them follows from more than their own record, and are read in each pass.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from borgish.cell.model import Cell, Job
from borgish.scheduler.affinity import repelling, selects
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.plan import Refusal
from borgish.scheduler.queue import Classes, Waiting, rotated, waiting_of
from borgish.scheduler.task_class import NOT_FAILED, Explanation, TaskClass
from borgish.spec.job import Affinity

TRIED_AGAIN = 16
"""So many more jobs of classes that failed before are tried in a pass than may fit: one place that comes free
may do for each of a thousand classes, and is taken by the first. Twice as many in the next pass where these
were not all: what is lower waits for these, and must not do so for ever where something always changes."""


class ClassQueue(msgspec.Struct):
    """The waiting jobs with tasks of one class: their keys by priority and user, those first that have not
    had a turn for longest. (In production a class may be of several priorities: nobody there preempts
    another.)"""

    levels: dict[int, dict[str, dict[str, None]]] = {}
    tasks: int = 0
    tasks_of_job_max: int = 0


class Turns:
    """The turns of one user: one of a job of each class, in a circle."""

    def __init__(self, classes: Iterable[tuple[TaskClass, Iterable[str]]]) -> None:
        self._ring = deque((kind, iter(keys)) for kind, keys in classes)

    def next(self, may_have: Callable[[TaskClass], bool]) -> tuple[TaskClass, str] | None:
        """Return whose turn it is, of classes that may have one; None: nobody's."""
        while self._ring:
            kind, keys = self._ring.popleft()
            if may_have(kind) and (key := next(keys, None)) is not None:
                self._ring.append((kind, keys))
                return kind, key
        return None


class Limits:
    """How many more jobs one pass may take: ``jobs`` in all; ``again`` of classes that failed before, beside
    as many as there is room for in the class with most: what there is they may have to share."""

    def __init__(self, room: Callable[[TaskClass], int], jobs: int, again: int) -> None:
        self._room, self.jobs, self._again = room, jobs, again
        self._most_room = 0
        self._of_class: dict[TaskClass, int] = {}

    @property
    def is_used_up(self) -> bool:
        """Whether something may have been left for that reason."""
        return self.jobs <= 0 or self.is_used_up_again

    @property
    def is_used_up_again(self) -> bool:
        """Whether it may have been of a class that failed before."""
        return self._again + self._most_room <= 0

    def allow(self, kind: TaskClass) -> bool:
        """Return whether another job of a class may be taken: of each as many as tasks may fit, and one more,
        that it be known whether that one fits; none where there is no room."""
        failed_before = kind.failed_version != NOT_FAILED
        if self.jobs <= 0 or (failed_before and self.is_used_up_again):
            return False
        if kind not in self._of_class:
            room = self._room(kind)
            self._of_class[kind] = room + 1 if room else 0
            if failed_before:
                self._most_room = max(self._most_room, room)
        return self._of_class[kind] > 0

    def use(self, kind: TaskClass, *, is_new: bool) -> None:
        """Note that a job has its turn for a class; ``is_new``: its first."""
        self._of_class[kind] -= 1  # however many tasks it has: in a turn one of them is placed
        self.jobs -= is_new
        self._again -= kind.failed_version != NOT_FAILED


class Taken(NamedTuple):
    """Jobs taken out of the queue; of lower priorities than ``above`` none were, since it was enough."""

    jobs: list[Waiting]
    above: int | None = None


class PendingQueue:
    """The jobs that wait for machines, or for the allocs of one set."""

    def __init__(self, jobs: Iterable[str] = ()) -> None:
        self.jobs: dict[str, Waiting] = {}
        self.classes: dict[TaskClass, ClassQueue] = {}
        self.special: dict[str, Waiting | None] = {}  # None: nothing of it may be placed now
        self._unread = set(jobs)
        self._again = TRIED_AGAIN
        self._terms: tuple[Affinity, ...] = ()  # of which the classes know

    def note(self, jobs: Iterable[str]) -> None:
        """Read these jobs again before the next pass: they, or their tasks, changed or are no more."""
        self._unread.update(jobs)

    def read(self, cell: Cell, classes: Classes, fleet: Fleet, at: float) -> None:
        """Read what changed. ``at``: now, in seconds since 1970."""
        if self._terms != fleet.topology.terms:
            changed = set(self._terms) ^ set(fleet.topology.terms)
            self._terms = fleet.topology.terms
            self._unread.update(
                key for key, known in self.jobs.items() if any(selects(term, known.spec) for term in changed)
            )
        for key in sorted(self._unread | self.special.keys()):
            self.special.pop(key, None)
            self.drop(key)
            if not cell.waiting.get(key) or cell.jobs[key].spec.inside != fleet.alloc_set:
                continue
            waiting = waiting_of(cell, classes, fleet, key, at)
            if is_special(cell, cell.jobs[key]):
                self.special[key] = waiting
            elif waiting is not None:
                self.give_back(waiting)
        self._unread.clear()

    def take(
        self, kinds: Iterable[TaskClass], room: Callable[[TaskClass], int], jobs_max: int, position: int
    ) -> Taken:
        """Take jobs of these classes out of the queue: those whose turn it is, high priorities first. Each is
        to be given back, or dropped.

        ``room`` says how many tasks of a class may fit. Whose turn it is also follows from the journal's
        ``position``.
        """
        by_priority: dict[int, list[TaskClass]] = {}
        for kind in kinds:
            for priority in self._levels(kind):
                by_priority.setdefault(priority, []).append(kind)
        limits, above = Limits(room, jobs_max, self._again), None
        taken: list[Waiting] = []
        for priority, those in sorted(by_priority.items(), reverse=True):
            if limits.is_used_up:
                above = priority + 1
                break
            for key in self._chosen(priority, those, limits, position):
                taken.append(self.jobs[key])
                self._unqueue(self.jobs[key])
        self._again = 2 * self._again if limits.is_used_up_again else TRIED_AGAIN
        return Taken(taken, above)

    def _chosen(
        self, priority: int, kinds: list[TaskClass], limits: Limits, position: int
    ) -> Collection[str]:
        """Return jobs of classes of one priority: users take turns, and classes within a user."""
        by_user: dict[str, list[tuple[TaskClass, Iterable[str]]]] = {}
        fresh = 0  # jobs, where all classes are
        for kind in kinds:
            for user, keys in self._levels(kind).get(priority, {}).items():
                by_user.setdefault(user, []).append((kind, keys))
                fresh += len(keys) if kind.failed_version == NOT_FAILED else limits.jobs
        chosen: dict[str, None] = {}  # a job is in several classes where tasks have needs of their own
        # All of them: a pass over a queue that is new costs a third more where turns are taken.
        if fresh < limits.jobs:
            for _, waiting in chain.from_iterable(by_user.values()):
                chosen.update(dict.fromkeys(waiting))
            limits.jobs -= len(chosen)
            return chosen
        users = rotated(sorted(by_user), position, " ")
        ring = deque((user, Turns(rotated(by_user[user], position, f" {user}"))) for user in users)
        while ring:
            user, turns = ring.popleft()
            found = turns.next(limits.allow)
            if found is not None:
                kind, key = found
                limits.use(kind, is_new=key not in chosen)
                chosen[key] = None
                ring.append((user, turns))
        return chosen

    def _levels(self, kind: TaskClass) -> dict[int, dict[str, dict[str, None]]]:
        """Return the levels of a class; none where no job of it is in the queue, or not any more."""
        return self.classes[kind].levels if kind in self.classes else {}

    def give_back(self, waiting: Waiting) -> None:
        """Put a job into the queue, with all of its tasks."""
        waiting.done, waiting.is_taken = 0, False
        key, spec = waiting.job.key, waiting.spec
        self.jobs[key] = waiting
        for kind, tasks in waiting.counts().items():
            queue = self.classes.get(kind)
            if queue is None:
                queue = self.classes[kind] = ClassQueue()
            queue.tasks += tasks
            queue.tasks_of_job_max = max(queue.tasks_of_job_max, tasks)
            queue.levels.setdefault(spec.priority, {}).setdefault(spec.user, {})[key] = None

    def drop(self, key: str) -> None:
        """Take a job out of the queue, if it is there."""
        waiting = self.jobs.pop(key, None)
        if waiting is not None and not waiting.is_taken:
            self._unqueue(waiting)

    def _unqueue(self, waiting: Waiting) -> None:
        waiting.is_taken = True
        key, spec = waiting.job.key, waiting.spec
        for kind, tasks in waiting.counts().items():
            queue = self.classes[kind]
            queue.tasks -= tasks
            users = queue.levels[spec.priority]
            keys = users[spec.user]
            del keys[key]
            if not keys:
                del users[spec.user]
            if not users:
                del queue.levels[spec.priority]
            if not queue.levels:
                del self.classes[kind]


def is_special(cell: Cell, job: Job) -> bool:
    """Return whether what may be placed of a waiting job follows from more than its record: from leases and
    incoming attempts, from the time when it failed, or from places that are kept for it."""
    key = job.key
    if key in cell.leases or key in cell.handovers or key in cell.failing:
        return True
    return bool(cell.promised) and any(job.tasks[index].promised for index in cell.waiting[key])


class QueueRefusals(Mapping[str, tuple[Refusal, ...]]):
    """Why the jobs of a queue wait, put together when it is asked for: a job says what its classes do. They
    are in the order in which they came, whoever had his turn."""

    def __init__(self, queue: PendingQueue) -> None:
        self._jobs = queue.jobs

    def __getitem__(self, job: str) -> tuple[Refusal, ...]:
        if not (found := refusals(job, self._jobs[job].by_class())):
            raise KeyError(job)
        return found

    def __contains__(self, job: object) -> bool:
        waiting = self._jobs.get(job) if isinstance(job, str) else None
        return waiting is not None and _is_explained(waiting)

    def __iter__(self) -> Iterator[str]:
        return (job for job, waiting in self._jobs.items() if _is_explained(waiting))

    def __len__(self) -> int:
        return sum(map(_is_explained, self._jobs.values()))


def _is_explained(waiting: Waiting) -> bool:
    return any(kind.explanation is not None for kind in waiting.counts())


def refusals(job: str, by_class: Mapping[TaskClass, list[int]]) -> tuple[Refusal, ...]:
    """Return why tasks of a job wait, by class."""
    return tuple(
        [
            _refusal(job, indexes, kind.explanation)
            for kind, indexes in by_class.items()
            if kind.explanation is not None
        ]
    )


def _refusal(job: str, indexes: list[int], why: Explanation) -> Refusal:
    return Refusal(
        job,
        tuple(sorted(indexes)),
        why.machines,
        why.reasons,
        why.text,
        why.hint,
        why.impossible,
        why.waits_for,
    )


class Pending:
    """All that waits: for machines, and by alloc set."""

    def __init__(self) -> None:
        self.machines = PendingQueue()
        self.alloc_sets: dict[str, set[str]] = {}  # jobs by the alloc set that they are to run in
        self._inside: dict[str, str] = {}  # the same, by job
        self._apart: dict[str, tuple[Affinity, ...]] = {}  # by job: the terms by which it keeps others off

    @property
    def terms(self) -> frozenset[Affinity]:
        """The hard terms of ``apart`` of all that waits."""
        return frozenset(term for terms in self._apart.values() for term in terms)

    def note(self, cell: Cell, jobs: Collection[str]) -> None:
        """Take in jobs that changed, or whose tasks did, or that are no more."""
        self.machines.note(jobs)
        for key in jobs:
            alloc_set = self._inside.pop(key, "")
            if alloc_set:
                self.alloc_sets[alloc_set].discard(key)
                if not self.alloc_sets[alloc_set]:
                    del self.alloc_sets[alloc_set]
            self._apart.pop(key, None)
            if not cell.waiting.get(key):
                continue
            spec = cell.jobs[key].spec
            if spec.apart and (terms := tuple(repelling(spec))):
                self._apart[key] = terms
            if spec.inside:
                self._inside[key] = spec.inside
                self.alloc_sets.setdefault(spec.inside, set()).add(key)

    def compare(self, cell: Cell) -> None:
        """Note the jobs of which something else waits than is known, should nobody have said so."""
        known = self.machines.jobs
        others = self.machines.special.keys() | self._inside.keys()  # which are read in each pass
        changed = [
            key
            for key, indexes in cell.waiting.items()
            if key not in others and (key not in known or len(known[key].indexes) != len(indexes))
        ]
        self.note(cell, changed + [key for key in (*known, *self._inside) if key not in cell.waiting])
