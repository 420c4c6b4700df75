"""Lists in order as masters put them: long ones, and those of several cells as one. Pure.

What a master sorts by is in the views of what it lists, and is read from there.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar, cast

import msgspec

from borgish.text import wall_time
from borgish.vocabulary import HELD_UP, Outcome, Phase, State
from borgish.wire.api import JobView, MachineView, TaskView

T = TypeVar("T")
Key = tuple[Any, ...]


def merged(lists: Mapping[str, Iterable[Any]], noun: str, sort: str = "") -> Iterator[Any]:
    """Yield the items of several cells in one order, each with its cell in front, as ``cell``.

    ``noun`` is what they are, job, task or machine, and ``sort`` by what they are in order already.
    """
    rank, name, widened = RANKS[noun][sort.removeprefix("-")], _NAMES[noun], _Widened()
    return heapq.merge(
        *(map(widened.with_cell(cell), items) for cell, items in lists.items()),
        key=lambda item: (rank(item), name(item)),
        reverse=sort.startswith("-"),
    )


def in_order(items: Iterable[T], noun: str, sort: str) -> list[T]:
    """Return the items of one cell in the order that its master gives them by ``sort``."""
    rank, name = RANKS[noun][sort.removeprefix("-")], _NAMES_OF_ONE[noun]
    return sorted(items, key=lambda item: (rank(item), name(item)), reverse=sort.startswith("-"))


def folded_by_cell(items: Iterable[Any], folded: Callable[[Iterable[Any]], Iterator[Any]]) -> Iterator[Any]:
    """Yield what the table shows of the items of several cells, where ``folded`` does of one."""
    return chain.from_iterable(folded(group) for _, group in groupby(items, attrgetter("cell")))


class _Widened:
    """Kinds of items that have their cell as first field, each made once."""

    def __init__(self) -> None:
        self._made: dict[type, tuple[Callable[..., Any], Callable[[Any], Key]]] = {}

    def with_cell(self, cell: str) -> Callable[[Any], Any]:
        def widened(item: Any) -> Any:
            kind = type(item)
            if kind not in self._made:
                self._made[kind] = _wider(kind)
            make, values = self._made[kind]
            return make(cell, *values(item))

        return widened


def _wider(kind: Any) -> tuple[Callable[..., Any], Callable[[Any], Key]]:
    fields, field = msgspec.structs.fields(kind), cast("Any", msgspec.field)
    same = [
        (it.name, it.type, field(default=it.default, default_factory=it.default_factory)) for it in fields
    ]
    omits = kind.__struct_config__.omit_defaults
    made = msgspec.defstruct(kind.__name__, [("cell", str), *same], frozen=True, omit_defaults=omits)
    return made, attrgetter(*(it.name for it in fields))


def _least(_: Any) -> Key:
    return ()


def _most(count: Callable[[Any], float]) -> Callable[[Any], Key]:
    return lambda item: (-count(item),)


def _up(job: JobView) -> int:
    return job.running if job.up is None else job.up


def _cpu_share(machine: MachineView) -> float:
    return machine.committed.cpu_millis / (machine.capacity.cpu_millis or 1)


def _ram_share(machine: MachineView) -> float:
    return machine.committed.ram_bytes / (machine.capacity.ram_bytes or 1)


def _job_trouble(job: JobView) -> Key:
    is_well = not job.failed and job.pending <= job.waiting and _up(job) >= job.running
    return is_well, -wall_time(job.submitted_at)


def _task_trouble(task: TaskView) -> Key:
    if task.state is State.RUNNING:
        up = (None, Phase.HEALTHY) if task.probed else (None, Phase.HEALTHY, Phase.UP)
        need = 0 if task.phase in HELD_UP else 4 if task.phase in up else 3
    elif task.state is State.DEAD:
        need = 2 if task.outcome in (Outcome.FAILED, Outcome.LOST) else 4
    else:
        need = 4 if task.waiting else 1
    return need, -wall_time(task.since)


def _machine_trouble(machine: MachineView) -> Key:
    is_well = machine.state == "up" and machine.answering and not machine.conditions and not machine.orphans
    return is_well, -max(_cpu_share(machine), _ram_share(machine))


RANKS: Mapping[str, Mapping[str, Callable[[Any], Key]]] = {
    "job": {
        "": _least,
        "name": _least,
        "trouble": _job_trouble,
        "since": _most(lambda job: wall_time(job.submitted_at)),
        "tasks": _most(lambda job: job.tasks),
        "up": _most(_up),
        "pending": _most(lambda job: job.pending),
        "failed": _most(lambda job: job.failed),
        "priority": _most(lambda job: job.priority),
    },
    "task": {
        "": _least,
        "name": _least,
        "trouble": _task_trouble,
        "since": _most(lambda task: wall_time(task.since)),
        "restarts": _most(lambda task: task.restarts),
        "cpu": _most(lambda task: task.usage.cpu_millis if task.usage else 0),
        "ram": _most(lambda task: task.usage.ram_bytes if task.usage else 0),
    },
    "machine": {
        "": _least,
        "name": _least,
        "trouble": _machine_trouble,
        "tasks": _most(lambda machine: machine.tasks),
        "cpu": _most(_cpu_share),
        "ram": _most(_ram_share),
    },
}
"""By what is sorted, as masters do, the least first; by name where that is the same."""

_NAMES_OF_ONE: Mapping[str, Callable[[Any], Any]] = {
    "job": attrgetter("name"),
    "task": attrgetter("job", "index"),
    "machine": attrgetter("name"),
}
# The same job in two cells stands together, and of a job the tasks of one cell do, which may be one line.
_NAMES: Mapping[str, Callable[[Any], Key]] = {
    "job": attrgetter("name", "cell"),
    "task": attrgetter("job", "cell", "index"),
    "machine": attrgetter("name", "cell"),
}
