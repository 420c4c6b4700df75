"""What lists of jobs, tasks and machines are of: which records a query is about, and by what they are sorted.
See ``lists``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from borgish.api.lists import NAME, Rank, has_text
from borgish.api.parameters import JOB_SORTS, MACHINE_SORTS, TASK_SORTS
from borgish.api.request import find_job, find_machine
from borgish.api.services import Reading
from borgish.api.views.jobs import is_recent, job_reason
from borgish.api.views.machines import machine_rank, machine_texts, shown_state
from borgish.api.views.tasks import task_reason, task_trouble, task_usage
from borgish.cell.model import Job, Machine, Task
from borgish.spec.job import Constraint
from borgish.spec.selectors import selects
from borgish.vocabulary import (
    TASKS_PER_JOB_MAX,
    MachineState,
    State,
    task_name,
)
from borgish.wire.api import RefusalView

TaskPlace = tuple[str, int]
_CALM = 4  # as what is over: see ``task_trouble``


class JobQuery(msgspec.Struct, frozen=True):
    """Which jobs a list is about. ``text`` is in lower case."""

    user: str = ""
    state: State | None = None
    label: tuple[Constraint, ...] = ()
    text: str = ""
    machine: str = ""  # jobs with tasks there
    recent_at: float | None = None  # only recent jobs, at this moment in seconds since 1970


class JobRecords:
    """Jobs, by name. Those that are left out only since they are not recent are added to ``older``."""

    def __init__(self, reading: Reading, query: JobQuery, key: str, older: set[str]) -> None:
        self._reading, self._query, self._older = reading, query, older
        self._rank = _JOB_RANKS[key]
        reading.tally.fill(reading.cell, reading.observed)
        self._there: set[str] | None = None
        if query.machine:
            machine = find_machine(reading.cell, query.machine).name
            self._there = {key for key, _ in reading.cell.placed.get(machine, ())}

    def after(self, place: str | None) -> Iterator[str]:
        """Yield the jobs whose names follow this one."""
        if self._there is None:
            return self._reading.tally.jobs_after(place or "")
        return iter(sorted(key for key in self._there if key > (place or "")))

    def rank(self, place: str) -> Rank | None:
        """Return by what a job is sorted; None for one that is not shown."""
        job, query = self._reading.cell.jobs.get(place), self._query
        if (
            job is None
            or (query.user and job.spec.user != query.user)
            or (query.state is not None and job.state is not query.state)
            or not selects(query.label, job.spec.labels)
            or (self._there is not None and place not in self._there)
            or (query.text and not self._has_text(job, query.text))
        ):
            return None
        if query.recent_at is not None and not is_recent(job, query.recent_at):
            self._older.add(place)
            return None
        return self._rank(self._reading, job)

    def _has_text(self, job: Job, text: str) -> bool:
        if has_text(text, job.key):
            return True
        cell, observed, tally = self._reading.cell, self._reading.observed, self._reading.tally
        up = tally.up(job.key) if observed.known else None
        return has_text(text, job_reason(cell, observed, job, self._reading.refusals.get(job.key, ()), up))


def _up(reading: Reading, job: Job) -> int:
    return reading.tally.up(job.key) if reading.observed.known else job.running


def _job_trouble(reading: Reading, job: Job) -> Rank:
    return not reading.tally.needs_look(reading.cell, reading.observed, job), -job.uid


_JOB_RANKS: Mapping[str, Callable[[Reading, Job], Rank]] = {
    NAME: lambda *_: (),
    "trouble": _job_trouble,
    "since": lambda _, job: (-job.submitted_at,),
    "tasks": lambda _, job: (-len(job.tasks),),
    "up": lambda reading, job: (-_up(reading, job),),
    "pending": lambda _, job: (-job.pending,),
    "failed": lambda _, job: (-job.failed,),
    "priority": lambda _, job: (-job.spec.priority,),
}


class TaskQuery(msgspec.Struct, frozen=True):
    """Which tasks a list is about. ``text`` is in lower case."""

    job: str = ""
    machine: str = ""
    user: str = ""
    state: State | None = None
    label: tuple[Constraint, ...] = ()
    text: str = ""


class TaskRecords:
    """Tasks, by job and index."""

    def __init__(self, reading: Reading, query: TaskQuery, key: str) -> None:
        self._reading, self._query = reading, query
        self._rank = _TASK_RANKS[key]
        cell = reading.cell
        self._job = find_job(cell, query.job).key if query.job else ""
        self._machine = find_machine(cell, query.machine).name if query.machine else ""
        if key == "trouble" or not (self._job or self._machine):
            reading.tally.fill(cell, reading.observed)
        self._known: tuple[Job, bool, bool] | None = None  # of the job looked at last
        self._refusals: tuple[str, Sequence[RefusalView]] = "", ()  # likewise

    def after(self, place: TaskPlace | None) -> Iterator[TaskPlace]:
        """Yield the tasks above a place. A job that the query is not about is passed over as a whole, by
        an index that no task has."""
        start, jobs = place or ("", -1), self._reading.cell.jobs
        if self._machine:
            yield from sorted(
                each for each in self._reading.cell.placed.get(self._machine, ()) if each > start
            )
            return
        for key in self._jobs(start[0]):
            job, first = jobs[key], start[1] + 1 if key == start[0] else 0
            if first < len(job.tasks) and not self._has_some(job):
                yield key, TASKS_PER_JOB_MAX
            else:
                yield from ((key, index) for index in range(first, len(job.tasks)))

    def rank(self, place: TaskPlace) -> Rank | None:
        """Return by what a task is sorted; None for one that is not shown."""
        key, index = place
        job, query = self._reading.cell.jobs.get(key), self._query
        if job is None or not 0 <= index < len(job.tasks):
            return None
        is_of, has_text_itself = self._of_job(job)
        task = job.tasks[index]
        if (
            not is_of
            or (query.state is not None and task.state is not query.state)
            or (self._machine and (task.state is not State.RUNNING or task.machine != self._machine))
        ):
            return None
        if query.text and not has_text_itself and not self._has_text(job, index):
            return None
        return self._rank(self._reading, job, task)

    def _jobs(self, first: str) -> Iterator[str]:
        """Yield the jobs from one on."""
        if self._job:
            return iter((self._job,) if self._job >= first else ())
        there = (first,) if first in self._reading.cell.jobs else ()
        return chain(there, self._reading.tally.jobs_after(first))

    def _has_some(self, job: Job) -> bool:
        counts = {State.PENDING: job.pending, State.RUNNING: job.running, State.DEAD: job.dead}
        return (self._query.state is None or counts[self._query.state] > 0) and self._of_job(job)[0]

    def _of_job(self, job: Job) -> tuple[bool, bool]:
        """Return whether the query is about a job, and whether its very name has the text."""
        if self._known is None or self._known[0] is not job:
            query = self._query
            is_of = (
                (not self._job or job.key == self._job)
                and (not query.user or job.spec.user == query.user)
                and selects(query.label, job.spec.labels)
            )
            self._known = job, is_of, has_text(query.text, job.key + "/")
        return self._known[1:]

    def _has_text(self, job: Job, index: int) -> bool:
        text, cell, observed = self._query.text, self._reading.cell, self._reading.observed
        if text[-1].isdigit() and has_text(text, task_name(job.key, index)):
            return True
        refusals: Sequence[RefusalView] = ()
        if job.tasks[index].state is State.PENDING:
            if self._refusals[0] != job.key:
                self._refusals = job.key, self._reading.refusals.get(job.key, ())
            refusals = self._refusals[1]
        return has_text(text, task_reason(cell, observed, job, index, refusals))


def _task_trouble(reading: Reading, job: Job, task: Task) -> Rank:
    key, index = job.key, task.index
    if task.state is State.RUNNING:
        # Of most of them no more is asked: what was seen of each is far apart in memory.
        calm = not reading.observed.known or reading.tally.is_up(key, index)
    else:
        calm = task.state is State.PENDING and index in reading.cell.deferred.get(key, ())
    return _CALM if calm else task_trouble(reading.observed, job, task), -task.since


def _restarts(reading: Reading, job: Job, task: Task) -> int:
    if task.state is not State.RUNNING:
        return task.restarts
    seen = reading.observed.attempt(task.machine, task_name(job.key, task.index), task.attempt)
    return max(task.restarts, seen.restarts) if seen else task.restarts


def _used(place: int) -> Callable[[Reading, Job, Task], Rank]:
    """Return by how much tasks are sorted that use the most of one thing; what is not known is nothing."""

    def rank(reading: Reading, job: Job, task: Task) -> Rank:
        used = task_usage(reading.observed, task_name(job.key, task.index), task)
        return (-used[place] if used else 0,)

    return rank


_TASK_RANKS: Mapping[str, Callable[[Reading, Job, Task], Rank]] = {
    NAME: lambda *_: (),
    "trouble": _task_trouble,
    "since": lambda _reading, _job, task: (-task.since,),
    "restarts": lambda *place: (-_restarts(*place),),
    "cpu": _used(0),
    "ram": _used(1),
}


class MachineQuery(msgspec.Struct, frozen=True):
    """Which machines a list is about. ``text`` is in lower case."""

    state: MachineState | None = None
    label: tuple[Constraint, ...] = ()
    text: str = ""


class MachineRecords:
    """Machines, by name."""

    def __init__(self, reading: Reading, query: MachineQuery, key: str) -> None:
        self._reading, self._query = reading, query
        self._rank = _MACHINE_RANKS[key]
        if key != NAME:
            reading.tally.fill(reading.cell, reading.observed)

    def after(self, place: str | None) -> Iterator[str]:
        """Yield the machines whose names follow this one."""
        return iter(sorted(name for name in self._reading.cell.machines if name > (place or "")))

    def rank(self, place: str) -> Rank | None:
        """Return by what a machine is sorted; None for one that is not shown."""
        cell, observed, query = self._reading.cell, self._reading.observed, self._query
        machine = cell.machines.get(place)
        if (
            machine is None
            or not selects(query.label, machine.attributes)
            or (query.state is not None and shown_state(cell, observed, machine) is not query.state)
            or (
                query.text
                and not has_text(query.text, *machine_texts(cell, observed, machine, self._reading.now))
            )
        ):
            return None
        return self._rank(self._reading, machine)


def _share(of: Callable[..., int]) -> Callable[[Reading, Machine], Rank]:
    """Return by how much machines are sorted of which the largest share is committed to tasks."""

    def rank(reading: Reading, machine: Machine) -> Rank:
        committed = reading.tally.committed(reading.cell, machine.name)
        return (-of(committed) / (of(machine.capacity) or 1),)

    return rank


_MACHINE_RANKS: Mapping[str, Callable[[Reading, Machine], Rank]] = {
    NAME: lambda *_: (),
    "trouble": lambda reading, machine: machine_rank(reading.observed, reading.tally, machine),
    "tasks": lambda reading, machine: (-len(reading.cell.placed.get(machine.name, ())),),
    "cpu": _share(lambda amounts: amounts.cpu_millis),
    "ram": _share(lambda amounts: amounts.ram_bytes),
}

assert (tuple(_JOB_RANKS), tuple(_TASK_RANKS)) == (JOB_SORTS, TASK_SORTS)
assert set(_MACHINE_RANKS) == set(MACHINE_SORTS)
