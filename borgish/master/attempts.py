"""The journal as rows for an archive: each event by itself, and each stay of a task on a machine. Pure."""

from collections.abc import Iterator

import msgspec

from borgish.api.views.history import COMMAND_WORDS
from borgish.cell.events import (
    AnyEvent,
    Entry,
    JobChanged,
    JobSubmitted,
    MachineJoined,
    RollbackWentOn,
    RolledBack,
    TasksEnded,
    TasksEvicted,
    TasksRestarted,
)
from borgish.cell.model import Job, Task
from borgish.cell.state import Cell
from borgish.resources import Resources
from borgish.store.replay import replay_one
from borgish.vocabulary import State, task_name
from borgish.wire.archive import AttemptRow, EventRow

_json = msgspec.json.Encoder().encode


def event_rows(entry: Entry) -> Iterator[EventRow]:
    """Yield a row for each event of an entry, or one that has none."""
    for number, event in enumerate(entry.events or (None,)):
        yield EventRow(
            entry.position,
            number,
            entry.at,
            entry.timeline,
            entry.epoch,
            entry.actor,
            COMMAND_WORDS.get(entry.cause, entry.cause),
            entry.request_id,
            entry.subject,
            entry.text,
            *_told(event),
        )


def _told(event: AnyEvent | None) -> tuple[str | None, str | None, str | None, int, str | None]:
    if event is None:
        return None, None, None, 0, None
    job = event.spec.key if isinstance(event, JobSubmitted) else getattr(event, "job", None)
    machine = event.machine.name if isinstance(event, MachineJoined) else getattr(event, "machine", None)
    return type(event).__name__, job, machine, len(getattr(event, "indexes", ())), _json(event).decode()


class _Stay(msgspec.Struct, gc=False):
    """One that goes on. There are 200,000 of them in a large cell."""

    attempt: int
    machine: str
    placed_at: float
    kind: str
    band: str
    priority: int
    limits: Resources
    restarts: int


class _Way(msgspec.Struct, frozen=True):
    """How a stay ended."""

    ending: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None


class Attempts:
    """Follows the stays of tasks through the journal. ``cell`` is its own, as it was where that begins.

    A stay is found by comparing each touched task with what was noted, not by reading events, so that no kind
    of event can be forgotten.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._open: dict[str, dict[int, _Stay]] = {}  # by job and index
        for job in cell.jobs.values():
            for task in job.tasks:
                self._look(job, task)

    def take(self, entry: Entry) -> Iterator[AttemptRow]:
        """Take the next entry into the cell; yield the stays that ended by it. Raises StoreDamaged."""
        touched = replay_one(self._cell, entry)
        self._count_restarts(entry)
        ways = dict(_ways(entry))
        for key in sorted(touched.jobs_gone | touched.tasks_gone.keys()):
            job = self._cell.jobs.get(key)
            yield from self._close(key, range(len(job.tasks) if job else 0), entry, ways)
        for key, indexes in sorted(touched.tasks.items()):
            yield from self._compare(key, sorted(indexes), entry, ways)

    def going_on(self) -> Iterator[AttemptRow]:
        """Yield the stays that have not ended."""
        for job, stays in sorted(self._open.items()):
            for index, stay in sorted(stays.items()):
                yield _row(job, index, stay)

    def _look(self, job: Job, task: Task) -> None:
        """Note a stay that has begun."""
        if task.state is State.RUNNING:
            spec = job.spec_of(task)
            self._open.setdefault(job.key, {})[task.index] = _Stay(
                task.attempt,
                task.machine,
                task.since,
                str(spec.kind),
                str(self._cell.rules.bands.of(spec.priority)),
                spec.priority,
                spec.needs(task.index),
                task.restarts,
            )

    def _compare(
        self, key: str, indexes: list[int], entry: Entry, ways: dict[tuple[str, int], _Way]
    ) -> Iterator[AttemptRow]:
        job = self._cell.jobs.get(key)
        if job is None:
            return
        open_here = self._open.get(key, {})
        for index in indexes:
            if index >= len(job.tasks):
                continue
            task, stay = job.tasks[index], open_here.get(index)
            goes_on = stay is not None and task.state is State.RUNNING and task.attempt == stay.attempt
            if stay is not None and not goes_on:
                del open_here[index]
                yield _row(key, index, stay, entry, ways.get((key, index)) or _by(entry))
            if not goes_on:
                self._look(job, task)

    def _close(
        self, key: str, there: range, entry: Entry, ways: dict[tuple[str, int], _Way]
    ) -> Iterator[AttemptRow]:
        """Yield the stays of tasks that are no more."""
        stays = self._open.get(key, {})
        for index in sorted(index for index in stays if index not in there):
            yield _row(key, index, stays.pop(index), entry, ways.get((key, index)) or _by(entry))
        if not stays:
            self._open.pop(key, None)

    def _count_restarts(self, entry: Entry) -> None:
        for event in entry.events:
            if isinstance(event, TasksRestarted):
                stays = self._open.get(event.job, {})
                for index, restarts in zip(event.indexes, event.restarts, strict=True):
                    if index in stays:
                        stays[index].restarts = restarts


def _ways(entry: Entry) -> Iterator[tuple[tuple[str, int], _Way]]:
    """Yield what an entry says of how stays ended, by job and index."""
    for event in entry.events:
        if isinstance(event, TasksEvicted):
            way = _Way(str(event.cause), event.reason)
            yield from (((event.job, index), way) for index in event.indexes)
        elif isinstance(event, TasksEnded):
            for row, index in enumerate(event.indexes):
                if event.attempts:  # the stay that ends here is a later one, which is stopped for it
                    yield (event.job, index), _Way("superseded", f"attempt {event.attempts[row]} had ended")
                    continue
                yield (
                    (event.job, index),
                    _Way(
                        str(event.ending),
                        event.reasons[row],
                        event.exit_codes[row] if event.exit_codes else None,
                        event.signals[row] if event.signals else None,
                    ),
                )


def _by(entry: Entry) -> _Way:
    """Return how stays ended of which an entry does not say so one by one."""
    for event in entry.events:
        if isinstance(event, RolledBack | RollbackWentOn):
            return _Way("rollback")
        if isinstance(event, JobChanged):
            return _Way("scale", entry.text)
    return _Way("other", entry.text)


def _row(
    job: str, index: int, stay: _Stay, entry: Entry | None = None, way: _Way | None = None
) -> AttemptRow:
    return AttemptRow(
        stay.attempt,
        task_name(job, index),
        job.partition("/")[0],
        job,
        index,
        stay.kind,
        stay.machine,
        stay.band,
        stay.priority,
        stay.limits.cpu_millis,
        stay.limits.ram_bytes,
        stay.limits.disk_bytes,
        stay.placed_at,
        entry.at if entry else None,
        entry.position if entry else None,
        way.ending if way else None,
        way.reason if way else "",
        way.exit_code if way else None,
        way.signal if way else None,
        stay.restarts,
    )
