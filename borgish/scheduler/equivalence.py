"""Finds the equivalence class of a task.

Alike means: the same needs, facts wanted of a machine, preferences, ports, band, priority where that
decides what they may preempt, and whether they are replicas of a service. A job with rules of its own
on where its tasks are is a class by itself.
"""

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from borgish.bands import Bands
from borgish.cell.state import Cell
from borgish.scheduler.affinity import has_rules, rules_of, selects
from borgish.scheduler.fleet import BAND_INDEX, CPU, DISK, PORTS, RAM, Fleet, device_kind
from borgish.scheduler.task_class import ClassKey, Needs, TaskClass, Wanted
from borgish.spec.job import Affinity, JobSpec
from borgish.vocabulary import Runtime

CLASSES_KEPT = 4096  # more are forgotten after a pass that had no use for them


class Known(NamedTuple):
    """The class of a job's usual tasks, and what it followed from."""

    spec: JobSpec
    terms: tuple[Affinity, ...]
    kind: TaskClass


class Classes:
    """All classes in use, by what makes tasks alike. ``shared`` off: each task is a class of its own."""

    def __init__(self, *, shared: bool = True) -> None:
        self._classes: dict[ClassKey, TaskClass] = {}
        self._known: dict[str, Known] = {}  # by job: the class of its usual tasks
        self._shared = shared

    def __len__(self) -> int:
        return len(self._classes)

    @property
    def shared(self) -> bool:
        return self._shared

    def of(self, cell: Cell, spec: JobSpec, index: int, fleet: Fleet) -> TaskClass:
        """Return the class of one task, with its rules as they are now; below 0: of a job's usual tasks."""
        if self._shared and not has_own_needs(spec, index):
            index = -1
        known = self._known.get(spec.key)
        if index < 0 and known is not None and known.spec is spec and known.terms == fleet.topology.terms:
            return self._with_rules(known.kind, cell, spec, fleet)
        key = _key(spec, index, fleet)
        if spec.gang or has_rules(spec) or any(selects(term, spec) for term in fleet.topology.terms):
            key = key._replace(alone=spec.key)
        if not self._shared:
            key = key._replace(alone=f"{spec.key}/{index}")
        kind = self._classes.get(key)
        if kind is None:
            kind = self._classes[key] = _make(key, spec.priority, fleet.bands)
        if index < 0:
            self._known[spec.key] = Known(spec, fleet.topology.terms, kind)
        return self._with_rules(kind, cell, spec, fleet)

    def _with_rules(self, kind: TaskClass, cell: Cell, spec: JobSpec, fleet: Fleet) -> TaskClass:
        if kind.key.alone and kind.rules_version != fleet.topology.terms_version:
            kind.rules = rules_of(spec, partial(fleet.counter, cell), fleet.topology.terms)
            kind.rules_version = fleet.topology.terms_version
        return kind

    def retry_failed(self) -> None:
        """Take nothing as known to fail."""
        for kind in self._classes.values():
            kind.failed_version = -1

    def forget_unused(self, used: Collection[TaskClass]) -> None:
        """Drop classes that are not in use, when there are many, or when none is shared."""
        if len(self._classes) > CLASSES_KEPT or not self._shared:
            self._classes = {key: kind for key, kind in self._classes.items() if kind in used}
        self._known = {job: known for job, known in self._known.items() if known.kind in used}


def has_own_needs(spec: JobSpec, index: int) -> bool:
    """Return whether one task needs something else than the usual ones of its job."""
    own = spec.overrides.get(index)
    return own is not None and own.resources is not None


def _key(spec: JobSpec, index: int, fleet: Fleet) -> ClassKey:
    image = spec.image if spec.runtime is Runtime.DOCKER else ""
    devices = spec.needs(index).devices
    return ClassKey(
        _needs(spec, index, fleet),
        tuple(sorted((name, millis) for name, millis in devices.items() if millis)) if devices else (),
        tuple(spec.fixed_ports.values()),
        Wanted(spec.runtime, spec.constraints, spec.tolerations, image),
        spec.prefer,
        BAND_INDEX[fleet.bands.of(spec.priority)],
        min(spec.priority, fleet.bands.production),  # prod is never preempted (section 2.5)
        spec.is_service,
        "",
    )


def _needs(spec: JobSpec, index: int, fleet: Fleet) -> Needs:
    """Return amounts by kind, only those above zero: named resources and devices by name, ports last."""
    needs = spec.needs(index)
    amounts = [(CPU, needs.cpu_millis), (RAM, needs.ram_bytes), (DISK, needs.disk_bytes)]
    if needs.named:
        amounts += [(fleet.kind(name), amount) for name, amount in sorted(needs.named.items())]
    if needs.devices:
        amounts += [(fleet.kind(device_kind(name)), millis) for name, millis in sorted(needs.devices.items())]
    if spec.ports:
        amounts.append((PORTS, len(spec.ports) - len(spec.fixed_ports)))
    return tuple([(kind, float(amount)) for kind, amount in amounts if amount])


def _make(key: ClassKey, priority: int, bands: Bands) -> TaskClass:
    by_kind = dict(key.needs)
    return TaskClass(
        key,
        key.needs,
        key.devices,
        key.fixed_ports,
        key.wanted,
        key.prefer,
        key.reach,
        priority,
        bands.is_prod(priority),
        key.is_service,
        by_kind.get(CPU, 0.0),
        by_kind.get(RAM, 0.0),
        int(by_kind.get(PORTS, 0)),
    )
