"""Which of the tasks that wait are alike, and in which order they have their turn. ``pending`` has the queue.

Alike means: the same needs, facts wanted of a machine, preferences, ports, band, priority where that
decides what they may preempt, and whether they are replicas of a service. A job with rules of its own
on where its tasks are is a class by itself (equivalence classes, section 3.4 of the Borg paper).

High priorities come before low ones. Inside a priority users take turns (round robin, section 3.2), and the
jobs of a user, one task a turn, so that a job of 10,000 tasks does not hold up another user's single task
(head-of-line blocking); a job's tasks go by index. Who begins moves on with the journal's position, so that
nobody is always first when places come free one by one.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec

from borgish.bands import Bands
from borgish.cell.model import Cell, Job
from borgish.cell.tasks.failing import avoided, may_be_placed
from borgish.cell.tasks.leases import constraints
from borgish.cell.updates.handover import may_take_over
from borgish.scheduler.affinity import has_rules, rules_of, selects
from borgish.scheduler.fleet import BAND_INDEX, CPU, DISK, PORTS, RAM, Fleet, device_kind
from borgish.scheduler.task_class import NOT_FAILED, RETRY, ClassKey, TaskClass, Wanted
from borgish.spec.job import Affinity, JobSpec
from borgish.vocabulary import Runtime

NO_REACH = -1
"""Of who may preempt nobody: below every priority."""

CLASSES_KEPT = 4096  # of more those are forgotten that nobody uses
_Item = TypeVar("_Item")


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
        self.shared = shared
        self._classes_max = self._known_max = CLASSES_KEPT

    def __len__(self) -> int:
        return len(self._classes)

    def of(
        self,
        cell: Cell,
        job: Job,
        index: int,
        fleet: Fleet,
        avoids: tuple[str, ...] = (),
        *,
        is_incoming: bool = False,
    ) -> TaskClass:
        """Return the class of one task, with its rules as they are now; below 0: of a job's usual tasks.

        ``avoids`` are machines on which the task is not to be placed. ``is_incoming``: of a task's incoming
        attempt, which preempts nobody.
        """
        job_key, spec = job.key, job.spec
        if self.shared and not has_own_needs(spec, index):
            index = -1
        known = self._known.get(job_key)
        is_usual = index < 0 and not avoids and not is_incoming and not spec.gang
        if is_usual and known is not None and known.spec is spec and known.terms == fleet.topology.terms:
            return self._with_rules(known.kind, cell, spec, fleet)
        key = _key(spec, index, fleet)
        if avoids:
            key = key._replace(wanted=key.wanted._replace(avoids=avoids))
        if is_incoming:
            key = key._replace(reach=NO_REACH)
        if spec.gang or has_rules(spec) or any(selects(term, spec) for term in fleet.topology.terms):
            rules = (spec.spread, spec.near, spec.apart, tuple(sorted(spec.labels.items())))
            gang = len(cell.waiting.get(job_key, ())) if spec.gang else 0  # fewer may fit where all do not
            key = key._replace(alone=job_key, rules=(*rules, gang))
        if not self.shared:
            key = key._replace(alone=f"{job_key}/{index}")
        kind = self._classes.get(key)
        if kind is None:
            kind = self._classes[key] = _make(key, spec.priority, fleet.bands)
        if is_usual:
            self._known[job_key] = Known(spec, fleet.topology.terms, kind)
        return self._with_rules(kind, cell, spec, fleet)

    def _with_rules(self, kind: TaskClass, cell: Cell, spec: JobSpec, fleet: Fleet) -> TaskClass:
        if kind.key.alone and kind.rules_version != fleet.topology.terms_version:
            kind.rules = rules_of(spec, partial(fleet.counter, cell), fleet.topology.terms)
            kind.rules_version = fleet.topology.terms_version
            kind.failed_version = NOT_FAILED  # by other rules it may fit
        return kind

    def retry_failed(self) -> None:
        """Take nothing as known to fail: of each class one task is to be tried."""
        for kind in self._classes.values():
            if kind.failed_version >= 0:
                kind.failed_version = RETRY

    def forget_unused(self, used: Iterable[TaskClass], jobs: Container[str]) -> None:
        """Drop classes that are not in use, and what is known of others than these jobs, when there are many,
        or when none is shared."""
        if self.shared and len(self._classes) <= self._classes_max and len(self._known) <= self._known_max:
            return
        kept = set(used)
        self._classes = {key: kind for key, kind in self._classes.items() if kind in kept}
        self._known = {job: known for job, known in self._known.items() if known.kind in kept and job in jobs}
        # Where more are in use, not at each pass.
        self._classes_max = max(CLASSES_KEPT, 2 * len(self._classes))
        self._known_max = max(CLASSES_KEPT, 2 * len(self._known))


def has_own_needs(spec: JobSpec, index: int) -> bool:
    """Return whether one task needs something else than the usual ones of its job."""
    own = spec.overrides.get(index)
    return own is not None and own.resources is not None


def _key(spec: JobSpec, index: int, fleet: Fleet) -> ClassKey:
    image = spec.image if spec.runtime is Runtime.DOCKER else ""
    needs = spec.needs(index)
    devices = needs.devices
    # Amounts by kind, only those above zero: named resources and devices by name, ports last.
    amounts = [(CPU, needs.cpu_millis), (RAM, needs.ram_bytes), (DISK, needs.disk_bytes)]
    if needs.named:
        amounts += [(fleet.kind(name), amount) for name, amount in sorted(needs.named.items())]
    if devices:
        amounts += [(fleet.kind(device_kind(name)), millis) for name, millis in sorted(devices.items())]
    if spec.ports:
        amounts.append((PORTS, len(spec.ports) - len(spec.fixed_ports)))
    return ClassKey(
        tuple([(kind, float(amount)) for kind, amount in amounts if amount]),
        tuple(sorted((name, millis) for name, millis in devices.items() if millis)) if devices else (),
        tuple(spec.fixed_ports.values()),
        Wanted(spec.runtime, constraints(spec), spec.tolerations, image),
        spec.prefer,
        BAND_INDEX[fleet.bands.of(spec.priority)],
        min(spec.priority, fleet.bands.production),  # prod is never preempted (section 2.5)
        spec.is_service,
        "",
    )


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
        priority >= bands.production,
        key.is_service,
        by_kind.get(CPU, 0.0),
        by_kind.get(RAM, 0.0),
        int(by_kind.get(PORTS, 0)),
    )


class Waiting(msgspec.Struct, eq=False):
    """The waiting tasks of one job: ``indexes[done:]``, ascending. Most are of one class. ``spec`` is that
    from which their classes followed."""

    job: Job
    spec: JobSpec
    indexes: list[int]
    usual: TaskClass
    unusual: dict[int, TaskClass]  # tasks whose needs are their own
    done: int = 0
    is_taken: bool = False  # out of the queue, for the pass that goes on

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

    def counts(self) -> dict[TaskClass, int]:
        """Return how many tasks there are in all, by class."""
        if not self.unusual:
            return {self.usual: len(self.indexes)}
        return Counter(map(self.class_of, self.indexes))

    def class_of(self, index: int) -> TaskClass:
        """Return the class of one task."""
        return self.unusual.get(index, self.usual) if self.unusual else self.usual


Level = list[list[Waiting]]
"""All of one priority: for each user, the waiting jobs."""


def waiting_of(cell: Cell, classes: Classes, fleet: Fleet, key: str, at: float) -> Waiting | None:
    """Return what may be placed of a job with tasks that wait; None where nothing may be.

    ``at``: now, in seconds since 1970.
    """
    job = cell.jobs[key]
    tasks, spec, indexes = job.tasks, job.spec, sorted(cell.waiting[key])
    if cell.promised:  # those for whom a place is kept do not queue
        indexes = [index for index in indexes if not tasks[index].promised]
    if key in cell.leases:  # nor do those of which another attempt may run; a gang waits for all
        free = [index for index in indexes if not cell.is_leased(key, index)]
        indexes = [] if spec.gang and len(free) < len(indexes) else free
    if handovers := cell.handovers.get(key):  # of an update that has failed somebody is to decide first
        indexes = [i for i in indexes if i not in handovers or may_take_over(job, handovers[i])]
    if key in cell.failing:
        indexes = may_be_placed(cell, job, indexes, at)
    if not indexes:
        return None
    own = sorted(spec.overrides.keys() & cell.waiting[key]) if spec.overrides else ()
    unusual = {
        index: classes.of(cell, job, index, fleet)
        for index in (own if classes.shared else indexes)
        if not classes.shared or has_own_needs(spec, index)
    }
    if handovers:
        for index in handovers.keys() & set(indexes):
            avoids = avoided(handovers[index].task(index), at)
            unusual[index] = classes.of(cell, job, index, fleet, avoids, is_incoming=True)
    return Waiting(job, spec, indexes, classes.of(cell, job, -1, fleet), unusual)


def levels(waiting: Iterable[Waiting], position: int) -> list[Level]:
    """Return waiting jobs by priority, high to low. Who begins follows from the journal's position."""
    by_priority: dict[int, dict[str, list[Waiting]]] = {}
    for each in sorted(waiting, key=lambda each: each.job.key):
        spec = each.spec
        by_priority.setdefault(spec.priority, {}).setdefault(spec.user, []).append(each)
    found = []
    for _, users in sorted(by_priority.items(), reverse=True):
        level = [rotated(users[user], position) for user in sorted(users)]
        found.append(rotated(level, position))
    return found


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


def rotated(items: list[_Item], position: int, salt: str = "") -> list[_Item]:
    """Return items from another one on at each position of the journal. With another ``salt`` it is another
    one: who were rotated alike twice would be passed over, some of them at all positions."""
    start = crc32(f"{position}{salt}".encode()) % len(items) if position and items else 0
    return items[start:] + items[:start]
