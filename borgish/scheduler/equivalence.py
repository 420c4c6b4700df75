"""Equivalence classes: tasks that are alike in all that placing looks at are looked at once.

Alike means: the same needs, constraints, runtime, number of ports and band. What a class keeps
follows from the machines' rows and is told stale by their version numbers.
"""

import msgspec

from borgish.scheduler.arrays import FloatArray
from borgish.scheduler.census import BAND_INDEX, CPU, DISK, PORTS, RAM
from borgish.scheduler.machines import Fleet
from borgish.spec.job import Constraint, JobSpec
from borgish.vocabulary import Runtime, band_of

CLASSES_KEPT = 4096  # more are forgotten after a pass that had no use for them

ClassKey = tuple[tuple[tuple[int, float], ...], tuple[Constraint, ...], Runtime, int]


class Explanation(msgspec.Struct, frozen=True):
    """Why no machine takes a class of tasks, as of a version of the machines' rows."""

    version: int
    machines: int
    reasons: dict[str, int]
    text: str
    hint: str


class TaskClass(msgspec.Struct, eq=False):
    """Tasks alike. ``needs`` are amounts by kind, only those above zero, ports among them."""

    needs: tuple[tuple[int, float], ...]
    constraints: tuple[Constraint, ...]
    runtime: Runtime
    band: int
    cpu: float
    ram: float
    ports: int
    costs: FloatArray | None = None  # by row: less is better, inf where it does not fit
    costs_version: int = -1  # of the rows these costs were computed from
    failed_version: int = -1  # of the rows when nothing more of it fitted; -1: it is not known to fail
    explanation: Explanation | None = None  # why it failed


class Classes:
    """All classes in use, by what makes tasks alike."""

    def __init__(self) -> None:
        self._classes: dict[ClassKey, TaskClass] = {}

    def __len__(self) -> int:
        return len(self._classes)

    def of(self, spec: JobSpec, index: int, fleet: Fleet) -> TaskClass:
        """Return the class of one task."""
        needs = _needs(spec, index, fleet)
        key = (needs, spec.constraints, spec.runtime, BAND_INDEX[band_of(spec.priority)])
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _make(key)
        return found

    def forget_unused(self, used: set[TaskClass]) -> None:
        """Drop classes that are not in use, when there are many."""
        if len(self._classes) > CLASSES_KEPT:
            self._classes = {key: kind for key, kind in self._classes.items() if kind in used}


def _needs(spec: JobSpec, index: int, fleet: Fleet) -> tuple[tuple[int, float], ...]:
    """Return amounts by kind, only those above zero: named resources by name, ports last."""
    needs = spec.needs(index)
    amounts = [(CPU, needs.cpu_millis), (RAM, needs.ram_bytes), (DISK, needs.disk_bytes)]
    amounts += [(fleet.kind(name), amount) for name, amount in sorted(needs.named.items())]
    amounts.append((PORTS, len(spec.ports)))
    return tuple([(kind, float(amount)) for kind, amount in amounts if amount])


def _make(key: ClassKey) -> TaskClass:
    needs, constraints, runtime, band = key
    by_kind = dict(needs)
    return TaskClass(
        needs,
        constraints,
        runtime,
        band,
        by_kind.get(CPU, 0.0),
        by_kind.get(RAM, 0.0),
        int(by_kind.get(PORTS, 0)),
    )
