"""Which machines can take a class of tasks: the filters, in order, each with its reasons.

A filter is SwarmKit's, for many machines at once: ``applies`` (SetTask), ``check`` and ``explain``. Another
one is another small class in ``STATIC_FILTERS`` or ``RESOURCE_FILTERS``; nothing else needs to know of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from operator import attrgetter

import msgspec
import numpy as np

from borgish.cell.machines.suitability import untolerated
from borgish.cell.model import Taint
from borgish.resources import DEVICE_MILLIS, show_bytes, show_cpu, show_devices
from borgish.scheduler.affinity import Rule
from borgish.scheduler.arrays import ALL, BoolArray, Rows
from borgish.scheduler.fleet import (
    CPU,
    DEVICE_PREFIX,
    DISK,
    KINDS,
    PORTS,
    RAM,
    RUNTIME_BIT,
    Fleet,
    device_kind,
)
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import MACHINE, Constraint, Toleration
from borgish.vocabulary import TaintEffect

TAINTS_LISTED_MAX = 16  # different taints that are listed one by one
SUITABLE_KEPT = 1024  # answers of the static filters that are kept; 10 kB each at 10,000 machines

AVOIDED = "avoided"
"""The reason that is over by itself."""

PLURALS = {"is": "are", "has": "have", "does": "do"}


class Reason(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A reason that rules out machines, and what a refusal says of it.

    ``fails`` are the machines that it rules out, and ``never`` those where it would hold on the empty machine
    too, both [row]. ``text`` is about one machine and begins with *is*, *has* or *does*. ``lack`` is about a
    cell with nothing else: ``no machine {lack}``. ``without`` says how the task would be without the reason:
    ``fits 3 machines {without}``.
    """

    key: str  # under which its machines are counted
    fails: BoolArray
    text: str
    never: BoolArray | None = None
    lack: str = ""
    without: str = ""
    resource: int | None = None  # that is short, where one is
    constraint: Constraint | None = None  # that is not met, where one is not
    rule: Rule | None = None  # that forbids it, where one does

    @property
    def plural(self) -> str:
        """The text about several machines."""
        verb, _, rest = self.text.partition(" ")
        return f"{PLURALS[verb]} {rest}"

    @property
    def comes_free(self) -> bool:
        """Whether it holds until something on the machine ends."""
        return self.resource is not None or self.key.startswith("port ")


class Filter(ABC):
    """One condition on machines."""

    def applies(self, _kind: TaskClass, /) -> bool:
        """Return whether it can fail for this class at all; where not, nothing else is called."""
        return True

    @abstractmethod
    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows, /) -> BoolArray:
        """Return which of the rows pass: an array of one axis, parallel to ``rows``."""

    @abstractmethod
    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        """Yield the reasons for which machines fail. Some may rule out none."""


class Up(Filter):
    """The machine is not down."""

    def check(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return fleet.up[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        yield Reason(key="down", fails=~self.check(fleet, kind, ALL), text="is down")


class Answers(Filter):
    """It answered one of its last polls. Most often it is about to be down, and what is placed there would
    be moved again."""

    def check(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.silent[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        yield Reason(key="not answering", fails=~self.check(fleet, kind, ALL), text="is not answering")


class NotCordoned(Filter):
    """Nobody has closed it for new tasks."""

    def check(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.cordoned[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        yield Reason(key="cordoned", fails=~self.check(fleet, kind, ALL), text="is cordoned")


class NotQuarantined(Filter):
    """It does not go down again and again (``cell.flapping``)."""

    def check(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.quarantined[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        text = "is quarantined after it went down again and again"
        yield Reason(key="quarantined", fails=~self.check(fleet, kind, ALL), text=text)


class EndsPrograms(Filter):
    """Its kernel ends what is killed. Where it does not, mostly a disk is broken."""

    def check(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.stuck[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        fails = ~self.check(fleet, kind, ALL)
        yield Reason(key="unkillable", fails=fails, text="has a program that cannot be killed")


class NotDraining(Filter):
    """Nobody wants it empty."""

    def check(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.draining[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        yield Reason(key="drained", fails=~self.check(fleet, kind, ALL), text="is drained")


class HasRuntime(Filter):
    """It has the runtime that starts the task."""

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        found: BoolArray = (fleet.runtimes[rows] & RUNTIME_BIT[kind.wanted.runtime]) != 0
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        runtime, fails = kind.wanted.runtime, ~self.check(fleet, kind, ALL)
        yield Reason(
            key=f"runtime {runtime}",
            fails=fails,
            text=f"has no {runtime} runtime",
            never=fails,
            lack=f"has the {runtime} runtime",
        )


class RuntimeWorks(Filter):
    """The runtime, where it is there, reports that it works."""

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        bit = RUNTIME_BIT[kind.wanted.runtime]
        found: BoolArray = ((fleet.runtimes[rows] & ~fleet.working[rows]) & bit) == 0
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        runtime = kind.wanted.runtime
        yield Reason(
            key=f"runtime {runtime} unhealthy",
            fails=~self.check(fleet, kind, ALL),
            text=f"has a {runtime} runtime that does not work",
        )


class Constraints(Filter):
    """Its attributes meet every constraint of the job."""

    def applies(self, kind: TaskClass) -> bool:
        return bool(kind.wanted.constraints)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up[rows].shape, dtype=np.bool_)
        for constraint in kind.wanted.constraints:
            passes &= fleet.attributes.mask(constraint, rows)
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        for constraint in dict.fromkeys(kind.wanted.constraints):
            fails = ~fleet.attributes.mask(constraint, ALL)
            yield Reason(
                key=f"constraint {constraint}",
                fails=fails,
                text=f"does not match {constraint}",
                never=fails,
                lack=f"matches {constraint}",
                without=f"without the constraint {constraint}",
                constraint=constraint,
            )


class Tolerates(Filter):
    """The job tolerates its taints; those that evict, for good."""

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        if not fleet.taints.any:
            return np.ones(fleet.up[rows].shape, dtype=np.bool_)
        passes: BoolArray = (
            fleet.taints.of_sets(lambda taints: not refused_by(kind.wanted.tolerations, taints), rows) > 0
        )
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        refused = [each for each in fleet.taints.all() if refused_by(kind.wanted.tolerations, (each,))]
        for name, taints in _listed(refused).items():
            has = fleet.taints.of_sets(partial(_has_any, frozenset(taints)), ALL) > 0
            text = f"has the taint {name}, which is not tolerated"
            without = f"if the taint {name.removesuffix(f':{taints[0].effect}')} were tolerated"
            yield Reason(key=f"taint {name}", fails=has, text=text, without=without)


def _listed(taints: list[Taint]) -> dict[str, list[Taint]]:
    """Return taints as they are listed: one by one, by their keys where they are many, or all as one."""
    for name in (str, attrgetter("key")):
        listed: dict[str, list[Taint]] = {}
        for taint in taints:
            listed.setdefault(name(taint), []).append(taint)
        if len(listed) <= TAINTS_LISTED_MAX:
            return listed
    return {f"of one of {len(listed)} keys": taints}


def _has_any(wanted: frozenset[Taint], taints: tuple[Taint, ...]) -> bool:
    return not wanted.isdisjoint(taints)


def refused_by(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the taints that keep new tasks off. Who may stay for a time only does not begin there."""
    for_good = tuple(each for each in tolerations if each.for_seconds is None)
    return tuple(
        taint
        for effect, known in ((TaintEffect.EVICT, for_good), (TaintEffect.REFUSE, tolerations))
        for taint in untolerated(known, tuple(taint for taint in taints if taint.effect is effect))
    )


class NotAvoided(Filter):
    """The task has not failed there of late (``cell.failing``)."""

    def applies(self, kind: TaskClass) -> bool:
        return bool(kind.wanted.avoids)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up.shape, dtype=np.bool_)
        for name in kind.wanted.avoids:
            passes[fleet.rows_on(name)] = False
        found: BoolArray = passes[rows]
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        fails, text = ~self.check(fleet, kind, ALL), "is avoided for a while: the task failed there"
        yield Reason(key=AVOIDED, fails=fails, text=text)


class RunsImage(Filter):
    """Where some machine has the image, its architecture is known, and this machine is of it."""

    def applies(self, kind: TaskClass) -> bool:
        return bool(kind.wanted.image)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        archs = fleet.images.archs(kind.wanted.image)
        if not archs:
            return np.ones(fleet.up[rows].shape, dtype=np.bool_)
        return fleet.attributes.mask(Constraint("arch", "in", archs), rows)

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        fails = ~self.check(fleet, kind, ALL)
        archs = " or ".join(fleet.images.archs(kind.wanted.image))
        text = f"has another architecture than {archs}, for which the image is"
        lack = f"is of the architecture {archs}, for which the image is"
        yield Reason(key="image architecture", fails=fails, text=text, never=fails, lack=lack)


class FreeResources(Filter):
    """Enough of every resource is free. What a task does not ask for cannot be short."""

    def applies(self, kind: TaskClass) -> bool:
        return bool(kind.needs)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        (first, least), *others = kind.needs
        passes: BoolArray = fleet.free[first][rows] >= least
        for number, amount in others:
            passes &= fleet.free[number][rows] >= amount
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        devices = {number for name, number in fleet.kinds.named.items() if name.startswith(DEVICE_PREFIX)}
        usable = fleet.usable()
        for number, amount in kind.needs:
            if number in devices:  # these are listed one by one
                continue
            name, fails = kind_name(fleet, number), fleet.free[number] < amount
            short = fails & usable if np.any(fails & usable) else fails & fleet.present
            most = max(0.0, float(np.max(fleet.free[number], where=short, initial=0.0)))
            largest = float(np.max(fleet.capacity[number], initial=0.0))
            asked = show_amount(number, amount)
            yield Reason(
                key=name,
                fails=fails,
                text=f"has too {'few' if number == PORTS else 'little'} {name} free "
                f"(needs {asked}, most free {show_amount(number, most)})",
                never=fleet.capacity[number] < amount,
                lack=f"has {asked} of {name} (the largest has {show_amount(number, largest)})",
                resource=number,
            )


class DevicesFree(Filter):
    """A part of one device, or so many whole ones, are free."""

    def applies(self, kind: TaskClass) -> bool:
        return bool(kind.devices)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up[rows].shape, dtype=np.bool_)
        for name, millis in kind.devices:
            passes &= fleet.device(name).mask(millis, rows)
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        for name, millis in kind.devices:
            text = f"has too little {name} free (needs {show_devices(millis)} of one)"
            if millis >= DEVICE_MILLIS:
                text = f"has too few whole {name} free (needs {show_devices(millis)})"
            number = fleet.kind(device_kind(name))
            yield Reason(
                key=f"device {name}",
                fails=~fleet.device(name).mask(millis, ALL),
                text=text,
                never=fleet.capacity[number] < millis,
                lack=f"has {show_devices(millis)} {name}",
                resource=number,
            )


class FixedPortsFree(Filter):
    """No port that the job wants by its number is taken."""

    def applies(self, kind: TaskClass) -> bool:
        return bool(kind.fixed_ports)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = self._beside(fleet, kind, rows)
        for port in kind.fixed_ports:
            passes &= ~fleet.fixed_ports.taken(port)[rows]
        return passes

    def _beside(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        """Return which rows have enough ports of any number beside those, which may be of the range, too."""
        wanted = np.full(fleet.up[rows].shape, kind.ports)
        for port in kind.fixed_ports:
            wanted += fleet.fixed_ports.own(port, rows)
        found: BoolArray = (fleet.free[PORTS][rows] >= wanted) | (wanted == 0)
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        few = ~self._beside(fleet, kind, ALL) & (fleet.free[PORTS] >= kind.ports)
        for port in kind.fixed_ports:
            fails = fleet.fixed_ports.taken(port).copy()
            few &= ~fails
            without = f"without the fixed port {port}"
            yield Reason(key=f"port {port}", fails=fails, text=f"has port {port} taken", without=without)
        text = "has too few ports free beside those asked for by number"
        yield Reason(key="ports beside", fails=few, text=text)


class Rules(Filter):
    """No rule of spread or affinity forbids it."""

    def applies(self, kind: TaskClass) -> bool:
        return any(rule.hard for rule in kind.rules)

    def check(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up.shape, dtype=np.bool_)
        for rule in kind.rules:
            if rule.hard:
                passes &= ~rule.fails(fleet)
        found: BoolArray = passes[rows]
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Reason]:
        own: BoolArray = np.zeros(len(fleet.names), dtype=np.bool_)
        for rule in kind.rules:
            if not rule.hard:
                continue
            fails = rule.fails(fleet)
            if rule.own and rule.below == 1.0 and not rule.most:  # apart from its like: two rules
                if not np.any(fails & ~own):
                    continue
                own |= fails
            is_keyed = rule.keyed and rule.over != MACHINE
            yield Reason(
                key=rule.reason,
                fails=fails,
                text=f"has no place by the rule: {rule.reason}",
                never=fleet.codes(rule.over) == fleet.absent(rule.over) if is_keyed else None,
                lack=f"has the attribute {rule.over}" * is_keyed,
                without=f"if it need not be {rule.reason}",
                rule=rule,
            )


STATIC_FILTERS: tuple[Filter, ...] = (
    Up(),
    Answers(),
    NotCordoned(),
    NotDraining(),
    NotQuarantined(),
    EndsPrograms(),
    HasRuntime(),
    RuntimeWorks(),
    Tolerates(),
    NotAvoided(),
    RunsImage(),
    Constraints(),
)
"""What follows from the machine's facts and what the class wants of them; answers are kept."""

RESOURCE_FILTERS: tuple[Filter, ...] = (FreeResources(), DevicesFree(), FixedPortsFree())
"""What changes with every placement, on the machine of that placement alone."""

RULE_FILTERS: tuple[Filter, ...] = (Rules(),)
"""What a placement changes on other machines too, so that no answer is kept."""

FILTERS = (
    STATIC_FILTERS + RESOURCE_FILTERS + RULE_FILTERS
)  # facts first: what people want to read first among equals


def feasible(fleet: Fleet, kind: TaskClass, rows: Rows = ALL) -> BoolArray:
    """Return which of the rows pass every filter but ``RULE_FILTERS``: in parallel, not to be written to."""
    passes = suitable(fleet, kind)[rows]
    for each in RESOURCE_FILTERS:
        if each.applies(kind):
            passes = passes & each.check(fleet, kind, rows)
    return passes


def reasons(fleet: Fleet, kind: TaskClass) -> list[Reason]:
    """Return the reasons for which machines fail, in the order of the filters. Some may rule out none."""
    return [reason for each in FILTERS if each.applies(kind) for reason in each.explain(fleet, kind)]


def suitable(fleet: Fleet, kind: TaskClass) -> BoolArray:
    """Return which machines are right for a class, whatever is free there: [row], not to be written to."""
    if kind.suitable is None or kind.suitable_version != fleet.facts_version:
        passes = fleet.suitable.get(kind.wanted)  # another class may want the same
        if passes is None:
            passes = fleet.present
            for each in STATIC_FILTERS:
                if each.applies(kind):
                    passes = passes & each.check(fleet, kind, ALL)
            if len(fleet.suitable) >= SUITABLE_KEPT:
                fleet.suitable.clear()
            fleet.suitable[kind.wanted] = passes
        kind.suitable, kind.suitable_version = passes, fleet.facts_version
    return kind.suitable


def kind_name(fleet: Fleet, kind: int) -> str:
    """Return the name of a kind of resource, as a job file has it."""
    if kind < KINDS:
        return ("cpu", "ram", "disk", "ports")[kind]
    named = next(name for name, number in fleet.kinds.named.items() if number == kind)
    return named.removeprefix(DEVICE_PREFIX)


def show_amount(kind: int, amount: float) -> str:
    """Write an amount of a kind of resource for people."""
    if kind == CPU:
        return show_cpu(int(amount))
    return show_bytes(int(amount)) if kind in (RAM, DISK) else str(int(amount))
