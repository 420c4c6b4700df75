"""Which machines can take a class of tasks: the filters, in order, each with its words.

A filter answers for many machines at once. Another filter is another small class in ``FACTS`` or
``ROOM``; nothing else needs to know of it.
"""

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import Protocol

import msgspec
import numpy as np

from borgish.cell.model import Taint
from borgish.cell.taints import untolerated
from borgish.resources import DEVICE_MILLIS, show_bytes, show_cpu, show_devices
from borgish.scheduler.arrays import ALL, BoolArray, Rows
from borgish.scheduler.census import CPU, DEVICE_PREFIX, DISK, KINDS, PORTS, RAM
from borgish.scheduler.columns import RUNTIME_BIT, device_kind
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.rules import Rule
from borgish.spec.job import MACHINE, Constraint, Toleration
from borgish.vocabulary import TaintEffect

TAINTS_TOLD = 16  # different taints that are told one by one
SUITABLE_KEPT = 1024  # answers of the facts that are kept; 10 kB each at 10,000 machines


class Failing(msgspec.Struct, frozen=True, eq=False):
    """The machines that one reason rules out, and how to say so: of one machine, and of several.

    ``never`` are those where it would hold on the empty machine too, and ``lack`` says of a cell with
    nothing else: ``no machine {lack}``. ``without`` says how the task would be without the reason: ``fits
    3 machines {without}``. ``comes_free``: it holds until something there ends.
    """

    reason: str
    fails: BoolArray
    one: str
    many: str
    never: BoolArray | None = None
    lack: str = ""
    without: str = ""
    kind: int | None = None  # the resource that is short, where one is
    constraint: Constraint | None = None  # that is not met, where one is not
    rule: Rule | None = None  # that forbids it, where one does

    @property
    def comes_free(self) -> bool:
        return self.kind is not None or self.reason.startswith("port ")


class Filter(Protocol):
    """One condition on machines."""

    def concerns(self, kind: TaskClass, /) -> bool:
        """Return whether it can fail for this class at all; where not, it is not asked."""
        ...

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows, /) -> BoolArray:
        """Return which of the rows pass."""
        ...

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        """Yield, per reason, which machines fail. Reasons that rule out none may be among them."""
        ...


class Up:
    """The machine is not down."""

    def concerns(self, _kind: TaskClass) -> bool:
        return True

    def mask(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return fleet.up[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        yield Failing("down", ~self.mask(fleet, kind, ALL), "is down", "are down")


class Answers:
    """It answered one of its last polls. Most often it is about to be down, and what is placed there would
    be moved again."""

    def concerns(self, _kind: TaskClass) -> bool:
        return True

    def mask(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.silent[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        yield Failing("not answering", ~self.mask(fleet, kind, ALL), "is not answering", "are not answering")


class NotCordoned:
    """Nobody has closed it for new tasks."""

    def concerns(self, _kind: TaskClass) -> bool:
        return True

    def mask(self, fleet: Fleet, _kind: TaskClass, rows: Rows) -> BoolArray:
        return ~fleet.cordoned[rows]

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        yield Failing("cordoned", ~self.mask(fleet, kind, ALL), "is cordoned", "are cordoned")


class HasRuntime:
    """It has the runtime that starts the task."""

    def concerns(self, _kind: TaskClass) -> bool:
        return True

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        found: BoolArray = (fleet.runtimes[rows] & RUNTIME_BIT[kind.wanted.runtime]) != 0
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        fails = ~self.mask(fleet, kind, ALL)
        words = f"no {kind.wanted.runtime} runtime"
        yield Failing(
            f"runtime {kind.wanted.runtime}",
            fails,
            f"has {words}",
            f"have {words}",
            fails,
            f"has the {kind.wanted.runtime} runtime",
        )


class RuntimeWorks:
    """The runtime, where it is there, says that it works."""

    def concerns(self, _kind: TaskClass) -> bool:
        return True

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        bit = RUNTIME_BIT[kind.wanted.runtime]
        found: BoolArray = ((fleet.runtimes[rows] & ~fleet.working[rows]) & bit) == 0
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        words = f"a {kind.wanted.runtime} runtime that does not work"
        yield Failing(
            f"runtime {kind.wanted.runtime} unhealthy",
            ~self.mask(fleet, kind, ALL),
            f"has {words}",
            f"have {words}",
        )


class Constraints:
    """Its attributes meet every constraint of the job."""

    def concerns(self, kind: TaskClass) -> bool:
        return bool(kind.wanted.constraints)

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up[rows].shape, dtype=np.bool_)
        for constraint in kind.wanted.constraints:
            passes &= fleet.attributes.mask(constraint, rows)
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        for constraint in dict.fromkeys(kind.wanted.constraints):
            fails = ~fleet.attributes.mask(constraint, ALL)
            yield Failing(
                f"constraint {constraint}",
                fails,
                f"does not match {constraint}",
                f"do not match {constraint}",
                fails,
                f"matches {constraint}",
                f"without the constraint {constraint}",
                constraint=constraint,
            )


class Tolerates:
    """The job tolerates its taints; those that evict, for good."""

    def concerns(self, _kind: TaskClass) -> bool:
        return True

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        if not fleet.marks.tainted:
            return np.ones(fleet.up[rows].shape, dtype=np.bool_)
        passes: BoolArray = (
            fleet.marks.of_sets(lambda taints: not refused_by(kind.wanted.tolerations, taints), rows) > 0
        )
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        refused = [each for each in fleet.marks.all() if refused_by(kind.wanted.tolerations, (each,))]
        for name, taints in _told_apart(refused).items():
            has = fleet.marks.of_sets(partial(_has_any, frozenset(taints)), ALL) > 0
            words = f"the taint {name}, which is not tolerated"
            without = f"if the taint {name.removesuffix(f':{taints[0].effect}')} were tolerated"
            yield Failing(f"taint {name}", has, f"has {words}", f"have {words}", without=without)


def _told_apart(taints: list[Taint]) -> dict[str, list[Taint]]:
    """Return taints by how they are told: one by one, by their keys where they are many, or all as one."""
    for name in (str, attrgetter("key")):
        told: dict[str, list[Taint]] = {}
        for taint in taints:
            told.setdefault(name(taint), []).append(taint)
        if len(told) <= TAINTS_TOLD:
            return told
    return {f"of one of {len(told)} keys": taints}


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


class RunsImage:
    """Where some machine has the image, its architecture is known, and this machine is of it."""

    def concerns(self, kind: TaskClass) -> bool:
        return bool(kind.wanted.image)

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        archs = fleet.marks.archs(kind.wanted.image)
        if not archs:
            return np.ones(fleet.up[rows].shape, dtype=np.bool_)
        return fleet.attributes.mask(Constraint("arch", "in", archs), rows)

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        fails = ~self.mask(fleet, kind, ALL)
        archs = " or ".join(fleet.marks.archs(kind.wanted.image))
        words = f"another architecture than {archs}, for which the image is"
        lack = f"is of the architecture {archs}, for which the image is"
        yield Failing("image architecture", fails, f"has {words}", f"have {words}", fails, lack)


class Room:
    """Enough of every resource is free. What a task does not ask for cannot be short."""

    def concerns(self, kind: TaskClass) -> bool:
        return bool(kind.needs)

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        (first, least), *others = kind.needs
        passes: BoolArray = fleet.free[first][rows] >= least
        for number, amount in others:
            passes &= fleet.free[number][rows] >= amount
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        for number, amount in kind.needs:
            if not _is_device(fleet, number):  # these are told one by one
                yield _short(fleet, number, amount)


class DevicesFree:
    """A part of one device, or so many whole ones, are free."""

    def concerns(self, kind: TaskClass) -> bool:
        return bool(kind.devices)

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up[rows].shape, dtype=np.bool_)
        for name, millis in kind.devices:
            passes &= fleet.device(name).mask(millis, rows)
        return passes

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        for name, millis in kind.devices:
            fails = ~fleet.device(name).mask(millis, ALL)
            asked = f"{show_devices(millis)} {name}"
            words = f"too little {name} free (needs {show_devices(millis)} of one)"
            if millis >= DEVICE_MILLIS:
                words = f"too few whole {name} free (needs {show_devices(millis)})"
            number = fleet.kind(device_kind(name))
            never = fleet.capacity[number] < millis
            yield Failing(
                f"device {name}", fails, f"has {words}", f"have {words}", never, f"has {asked}", kind=number
            )


class FixedPortsFree:
    """No port that the job wants by its number is taken."""

    def concerns(self, kind: TaskClass) -> bool:
        return bool(kind.fixed_ports)

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
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

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        for port in kind.fixed_ports:
            fails = fleet.fixed_ports.taken(port).copy()
            words = f"port {port} taken"
            without = f"without the fixed port {port}"
            yield Failing(f"port {port}", fails, f"has {words}", f"have {words}", without=without)
        few = ~self._beside(fleet, kind, ALL) & (fleet.free[PORTS] >= kind.ports)
        for port in kind.fixed_ports:
            few &= ~fleet.fixed_ports.taken(port)
        words = "too few ports free beside those asked for by number"
        yield Failing("ports beside", few, f"has {words}", f"have {words}")


class Rules:
    """No rule of spread or affinity forbids it."""

    def concerns(self, kind: TaskClass) -> bool:
        return any(rule.hard for rule in kind.rules)

    def mask(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> BoolArray:
        passes = np.ones(fleet.up.shape, dtype=np.bool_)
        for rule in kind.rules:
            if rule.hard:
                passes &= ~rule.fails(fleet)
        found: BoolArray = passes[rows]
        return found

    def explain(self, fleet: Fleet, kind: TaskClass) -> Iterator[Failing]:
        own: BoolArray = np.zeros(len(fleet.names), dtype=np.bool_)
        for rule in kind.rules:
            if rule.hard:
                failing = _forbidden(fleet, rule)
                if rule.own and rule.below == 1.0 and not rule.most:  # apart from its like: two rules
                    if not np.any(failing.fails & ~own):
                        continue
                    own |= failing.fails
                yield failing


def _forbidden(fleet: Fleet, rule: Rule) -> Failing:
    """Return which machines a rule forbids."""
    never, lack, words = None, "", f"no place by the rule: {rule.reason}"
    if rule.keyed and rule.over != MACHINE:
        never = fleet.codes(rule.over) == fleet.absent(rule.over)
        lack = f"has the attribute {rule.over}"
    without = f"if it need not be {rule.reason}"
    return Failing(
        rule.reason, rule.fails(fleet), f"has {words}", f"have {words}", never, lack, without, rule=rule
    )


FACTS: tuple[Filter, ...] = (
    Up(),
    Answers(),
    NotCordoned(),
    HasRuntime(),
    RuntimeWorks(),
    Tolerates(),
    RunsImage(),
    Constraints(),
)
"""What follows from the machine's facts and what the class wants of them; answers are kept."""

ROOM: tuple[Filter, ...] = (Room(), DevicesFree(), FixedPortsFree())
"""What changes with every placement, on the machine of that placement alone."""

RULES: tuple[Filter, ...] = (Rules(),)
"""What a placement changes on other machines too, so that no answer is kept."""

FILTERS = FACTS + ROOM + RULES  # facts first: what people want to read first among equals


def feasible(fleet: Fleet, kind: TaskClass, rows: Rows = ALL) -> BoolArray:
    """Return which of the rows pass every filter but those of RULES. It is not to be written to."""
    passes = suitable(fleet, kind)[rows]
    for each in ROOM:
        if each.concerns(kind):
            passes = passes & each.mask(fleet, kind, rows)
    return passes


def suitable(fleet: Fleet, kind: TaskClass) -> BoolArray:
    """Return which machines are right for a class, whatever is free there. It is not to be written to."""
    if kind.suits is None or kind.suits_version != fleet.facts_version:
        kind.suits, kind.suits_version = _suitable(fleet, kind), fleet.facts_version
    return kind.suits


def _suitable(fleet: Fleet, kind: TaskClass) -> BoolArray:
    key = kind.wanted
    passes = fleet.suitable.get(key)
    if passes is None:
        passes = fleet.present
        for each in FACTS:
            if each.concerns(kind):
                passes = passes & each.mask(fleet, kind, ALL)
        if len(fleet.suitable) >= SUITABLE_KEPT:
            fleet.suitable.clear()
        fleet.suitable[key] = passes
    return passes


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


def _is_device(fleet: Fleet, kind: int) -> bool:
    named = fleet.kinds.named
    return any(number == kind and name.startswith(DEVICE_PREFIX) for name, number in named.items())


def _short(fleet: Fleet, kind: int, amount: float) -> Failing:
    """Return which machines have too little of a resource free."""
    name = kind_name(fleet, kind)
    fails = fleet.free[kind] < amount
    most = max(0.0, float(np.max(fleet.free[kind], where=fails & fleet.usable(), initial=0.0)))
    words = (
        f"too {'few' if kind == PORTS else 'little'} {name} free "
        f"(needs {show_amount(kind, amount)}, most free {show_amount(kind, most)})"
    )
    never = fleet.capacity[kind] < amount
    largest = float(np.max(fleet.capacity[kind], initial=0.0))
    lack = f"has {show_amount(kind, amount)} of {name} (the largest has {show_amount(kind, largest)})"
    return Failing(name, fails, f"has {words}", f"have {words}", never, lack, kind=kind)
