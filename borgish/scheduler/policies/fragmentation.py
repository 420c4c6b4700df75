"""Policies that keep what is free of use to typical tasks, which are learned from the cell.

A task goes where it makes the least of what is free useless. Differences below a step (of 1 % as published,
of 2 % in ``hybrid``) are noise and count as none, and ties are broken by one order of all machines: so
machines that are nearly alike are filled one after the other. (With exact differences the published measure
leaves three points more of its GPUs unused.)

For one kind of device, a *state* is what is free on one machine: now, or after a task was placed. Two
measures of what is useless in it, both the mean over typical shapes of what is free of the devices and
cannot be used by the shape:

- ``fragments``, as published (FGD, ATC 2023): all, where the shape cannot run; else what is free on
  devices that are too small for it.
- ``stranded``: all but what as many tasks of the shape would use as fit together. A machine with eight
  free devices and cpu for one such task strands seven.

``Hybrid``, the default, strands as little as possible, of devices where there are any, else of the rest.
What is stranded is what is free and of no use, since something else on its machine is short (section
3.2 of the Borg paper, which gives no formula): eight free devices with cpu for one task are one device. Of
devices it is mixed with the published measure of fragments, three to seven. Without devices, it is what is
left of cpu, ram, disk or a named resource beyond the proportion in which the tasks ask for them, a formula
cheap enough for every placement (``Balance``).
"""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple, Self

import numpy as np

from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray, Rows
from borgish.scheduler.feasibility import suitable
from borgish.scheduler.fleet import CPU, DISK, RAM, Fleet
from borgish.scheduler.policies.policy import Balance, BestFit, Demand, Policy, Shape, has_devices
from borgish.scheduler.task_class import TaskClass

TYPICAL_SHARE = 0.95
"""The most frequent shapes that make up so much of all tasks are typical."""

LEAST = 1e-9  # in place of a need of nothing, which is no limit


class States(NamedTuple):
    """What is free on machines: one state a column, of the machine in ``rows``.

    ``others`` is [resource, state], of those resources that ``TypicalShapes.others`` names.
    """

    cpu: FloatArray
    ram: FloatArray
    others: FloatArray
    free: FloatArray  # by device, in thousandths; 0 where there is no such device
    rows: IntArray

    def part(self, start: int, stop: int) -> "States":
        """Return some of them."""
        few = slice(start, stop)
        return States(self.cpu[few], self.ram[few], self.others[:, few], self.free[:, few], self.rows[few])


class Fits(NamedTuple):
    """How typical shapes fare in states, all [shape, state] but ``total``, which is [state]."""

    can: BoolArray  # at least one task fits
    small: FloatArray  # free on devices too small for it
    copies: FloatArray  # as many tasks as the devices take
    total: FloatArray  # free on all devices


class TypicalShapes:
    """The most frequent shapes, as arrays, for one kind of device. ``weight`` is a shape's share of tasks.

    ``rest`` is the share of shapes that need no such device: to them all that is free of it is of no use.
    ``others`` are the resources, by number, that count besides cpu and ram where any shape needs them.
    """

    def __init__(
        self, shapes: Sequence[Shape], device: str, *, with_ram: bool, others: Sequence[int] = ()
    ) -> None:
        users = [shape for shape in shapes if device in dict(shape.kind.devices)]
        everything = sum(shape.tasks for shape in shapes) or 1
        self.weight: FloatArray = np.array([shape.tasks / everything for shape in users])
        self.rest = 1.0 - float(self.weight.sum())
        self.cpu: FloatArray = _column([max(shape.kind.cpu, LEAST) for shape in users])
        self.ram: FloatArray = _column([max(shape.kind.ram if with_ram else 0.0, LEAST) for shape in users])
        needs = [dict(shape.kind.needs) for shape in users]
        self.others = [number for number in others if any(number in each for each in needs)]
        self._other_needs = [_column([each.get(number, 0.0) for each in needs]) for number in self.others]
        needed = [dict(shape.kind.devices)[device] for shape in users]
        self.millis: FloatArray = np.array(needed, dtype=np.float64)
        self.wholes: FloatArray = _column([max(1, millis // DEVICE_MILLIS) for millis in needed])
        levels = sorted({min(millis, DEVICE_MILLIS) for millis in needed})
        self._levels: FloatArray = np.array(levels, dtype=np.float64).reshape(-1, 1, 1)
        self._level: IntArray = np.array(
            [levels.index(min(millis, DEVICE_MILLIS)) for millis in needed], dtype=np.int64
        )
        wanted = list(dict.fromkeys(shape.kind.wanted for shape in users))
        self._wanted: IntArray = np.array(
            [wanted.index(shape.kind.wanted) for shape in users], dtype=np.int64
        )
        self._kinds = [next(s.kind for s in users if s.kind.wanted == each) for each in wanted]
        self._suitable: BoolArray = np.zeros((0, 0), dtype=np.bool_)
        self._groups: IntArray = np.zeros(0, dtype=np.int64)
        self._facts_version = -1

    def copy(self) -> Self:
        """Return the same, to be used with other rows: which of them suit a class is kept in the class."""
        other = copy(self)
        other._kinds = [copy(kind) for kind in self._kinds]
        return other

    def fits(self, fleet: Fleet, states: States) -> Fits:
        """Return how the shapes fare."""
        free = states.free[np.newaxis]
        large = free >= self._levels
        small = np.where(large, 0.0, free).sum(axis=1)[self._level]
        per_level = np.floor(free / self._levels).sum(axis=1)
        copies = np.floor(per_level[self._level] / self.wholes)
        can = (copies >= 1.0) & (states.cpu >= self.cpu) & (states.ram >= self.ram)
        for there, needed in zip(states.others, self._other_needs, strict=True):
            can &= (there >= needed) | (needed <= 0)  # below 0 is free where more is in use than there is
        can &= self._may(fleet)[self._wanted][:, states.rows]
        return Fits(can, small, copies, states.free.sum(axis=0))

    def fragments(self, fits: Fits) -> FloatArray:
        """Return the published measure: [state], in thousandths of a device."""
        found: FloatArray = self.weight @ np.where(fits.can, fits.small, fits.total) + self.rest * fits.total
        return found

    def stranded(self, fits: Fits, states: States) -> FloatArray:
        """Return what as many tasks as fit together would leave: [state], in thousandths of a device.

        Cpu, ram and the like are not rounded down to whole tasks: what one shape leaves of them others use.
        """
        together = np.minimum(np.minimum(states.cpu / self.cpu, states.ram / self.ram), fits.copies)
        for there, needed in zip(states.others, self._other_needs, strict=True):
            enough = np.where(needed > 0, there / np.maximum(needed, LEAST), np.inf)
            together = np.minimum(together, enough)
        used: FloatArray = (self.weight * self.millis) @ np.where(fits.can, together, 0.0)
        return fits.total - used

    def groups(self, fleet: Fleet) -> IntArray:
        """Return a number for each row: machines that are right for the same shapes have the same."""
        self._may(fleet)
        return self._groups

    def _may(self, fleet: Fleet) -> BoolArray:
        """Return for what is wanted of machines which are right, whatever is free there."""
        if self._facts_version != fleet.facts_version or self._suitable.shape[1] != len(fleet.names):
            rows = [suitable(fleet, kind) for kind in self._kinds]
            self._suitable = np.array(rows, dtype=np.bool_).reshape(len(rows), len(fleet.names))
            self._groups = np.unique(self._suitable, axis=1, return_inverse=True)[1].reshape(-1)
            self._facts_version = fleet.facts_version
        return self._suitable


def most_frequent(shapes: Sequence[Shape]) -> list[Shape]:
    """Return the first shapes that make up ``TYPICAL_SHARE`` of all tasks."""
    left = TYPICAL_SHARE * sum(shape.tasks for shape in shapes)
    chosen = []
    for shape in shapes:
        if left <= 0:
            break
        chosen.append(shape)
        left -= shape.tasks
    return chosen


def _column(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64).reshape(-1, 1)


GROWTH = 2.0
"""Shapes are learned again when there are so many times as many jobs, or as few; to know them all beforehand
brought no more."""
GROWTH_MIN = 16
STATES_AT_ONCE = 4096
ALIKE_MIN = 100  # of so many machines, those that are alike are evaluated once
NO_DEVICE_COST = 2.0  # of a machine with devices, to a task that needs none
"""More than any packing: such a machine is the last choice of such a task."""
FRAGMENTS = 0.7
"""The part of the published measure of fragments beside what is stranded, where there are devices."""


class Fgd(Policy):
    """Fragmentation gradient descent as published (ATC 2023): shapes without ram, steps of a hundredth."""

    steps = 100
    with_ram = False
    with_others = False  # disk and named resources
    plain: type[Policy] = BestFit
    """What packs machines without devices."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._plain = self.plain(seed)
        self._typical: dict[str, TypicalShapes] = {}
        self._learned_size = -1

    def learn(self, fleet: Fleet, demand: Demand) -> None:
        plain = self._plain.version
        self._plain.learn(fleet, demand)
        self.version += self._plain.version - plain
        if fleet.devices and self._has_changed(demand.size()):
            self._learned_size = demand.size()
            shapes = most_frequent(demand.shapes() if self.with_ram else without_ram(demand.shapes()))
            self._typical = {
                device: TypicalShapes(
                    shapes,
                    device,
                    with_ram=self.with_ram,
                    others=(DISK, *fleet.kinds.of_resources()) if self.with_others else (),
                )
                for device in fleet.devices
            }
            self.version += 1

    def copy(self) -> Self:
        other = super().copy()
        other._plain = self._plain.copy()
        other._typical = {device: typical.copy() for device, typical in self._typical.items()}
        return other

    def _has_changed(self, size: int) -> bool:
        more, fewer = max(size, self._learned_size), min(size, self._learned_size)
        return self._learned_size < 0 or more > GROWTH * fewer + GROWTH_MIN

    def costs(self, fleet: Fleet, kind: TaskClass, rows: Rows) -> FloatArray:
        if not fleet.devices:
            return self._plain.costs(fleet, kind, rows)
        costs = self._plain.costs(fleet, kind, rows)
        there = np.flatnonzero(has_devices(fleet, rows))
        numbers = there if isinstance(rows, slice) else rows[there]
        costs[there] = self._costs(fleet, kind, numbers)
        if not kind.devices:
            costs[there] += NO_DEVICE_COST
        return costs

    def cost(self, fleet: Fleet, kind: TaskClass, row: int) -> float:
        if not fleet.devices:
            return self._plain.cost(fleet, kind, row)
        return super().cost(fleet, kind, row)

    def choose_device(self, fleet: Fleet, kind: TaskClass, row: int, device: str) -> int:
        now = self._now(fleet, np.array([row]), device)
        after, _, given = _after(now, kind, device)
        useless = self._useless(fleet, device, after)
        free = fleet.device(device).free[given, row]
        return int(given[np.lexsort((free, np.round(useless, 6)))[0]])

    def _costs(self, fleet: Fleet, kind: TaskClass, rows: IntArray) -> FloatArray:
        """Return the costs on machines with devices."""
        gained = np.zeros(len(rows))  # thousandths of devices
        for device in fleet.devices:
            gained += self._gained(fleet, kind, rows, device)
        # rounded, since how sums are added up must not decide between two steps, at 0 above all
        score = np.floor(self.steps / (1.0 + np.exp(np.round(gained, 6) / -DEVICE_MILLIS)))
        found: FloatArray = 1.0 - score / self.steps
        return found

    def _gained(self, fleet: Fleet, kind: TaskClass, rows: IntArray, device: str) -> FloatArray:
        """Return how much less is useless of a kind of device after the task was placed, at best."""
        alike = np.arange(len(rows))
        if len(rows) >= ALIKE_MIN:
            first, alike = self._alike(fleet, rows, device)
            rows = rows[first]
        now = self._now(fleet, rows, device)
        needs = dict(kind.needs)
        others = [needs.get(number, 0.0) for number in self._others(device)]
        after, place, _ = _after(now, kind, device, (kind.cpu, kind.ram, *others))
        least = np.full(len(rows), np.inf)
        np.minimum.at(least, place, self._useless(fleet, device, after))
        before = self._useless(fleet, device, now)
        gained: FloatArray = (before - np.where(np.isinf(least), before, least))[alike]
        return gained

    def _alike(self, fleet: Fleet, rows: IntArray, device: str) -> tuple[IntArray, IntArray]:
        """Return the first of the rows of each kind, and the number of its kind for every row.

        Of a kind are machines that are free alike and right for the same shapes.
        """
        now = self._now(fleet, rows, device)
        groups = self._typical[device].groups(fleet)[rows] if device in self._typical else np.zeros(len(rows))
        columns = np.vstack([now.cpu, now.ram, now.others, now.free, groups]).T
        bare = np.ascontiguousarray(columns).view(np.dtype((np.void, columns.shape[1] * columns.itemsize)))
        _, first, alike = np.unique(bare.ravel(), return_index=True, return_inverse=True)
        return first, alike

    def _others(self, device: str) -> list[int]:
        """Return the numbers of the resources that count besides cpu and ram where the device is."""
        typical = self._typical.get(device)
        return typical.others if typical else []

    def _now(self, fleet: Fleet, rows: IntArray, device: str) -> States:
        """Return what is free on machines, a state each."""
        free = np.maximum(fleet.device(device).free[:, rows], 0.0)
        others = fleet.free[self._others(device)][:, rows]
        return States(fleet.free[CPU][rows], fleet.free[RAM][rows], others, free, rows)

    def _useless(self, fleet: Fleet, device: str, states: States) -> FloatArray:
        """Return what is useless in each state, some states at a time."""
        typical = self._typical.get(device)
        if typical is None:
            everything: FloatArray = states.free.sum(axis=0)
            return everything
        starts = range(0, len(states.rows), STATES_AT_ONCE)
        parts = [self._of(fleet, typical, states.part(start, start + STATES_AT_ONCE)) for start in starts]
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros(0)])

    def _of(self, fleet: Fleet, typical: TypicalShapes, states: States) -> FloatArray:
        """Return what is useless in each state."""
        return typical.fragments(typical.fits(fleet, states))


class Hybrid(Fgd):
    """Strand as little as possible.

    Of devices, in parts the published measure of fragments, with all that tasks need, and what is stranded
    when as many tasks of a shape as fit are placed together. Of the rest, ``Balance``.
    """

    steps = 50
    with_ram = True
    with_others = True
    plain = Balance

    def _of(self, fleet: Fleet, typical: TypicalShapes, states: States) -> FloatArray:
        fits = typical.fits(fleet, states)
        stranded = typical.stranded(fits, states)
        return stranded + (typical.fragments(fits) - stranded) * FRAGMENTS


def _after(
    now: States, kind: TaskClass, device: str, taken: Sequence[float] = ()
) -> tuple[States, IntArray, IntArray]:
    """Return the states that the task may leave, which of the states now each follows, and what gave a part.

    ``taken`` is what it takes of cpu, ram and the others; nothing where it has done so already.
    """
    millis = dict(kind.devices).get(device, 0)
    place, given = _ways(now.free, millis)
    free = now.free[:, place]
    if 0 < millis < DEVICE_MILLIS:
        free[given, np.arange(len(place))] -= millis
    elif millis:
        whole = free == DEVICE_MILLIS
        free[whole & (np.cumsum(whole, axis=0) <= millis // DEVICE_MILLIS)] = 0.0
    cpu, ram, *others = taken or (0.0,) * (2 + len(now.others))
    left = now.others[:, place] - _column(others)
    return States(now.cpu[place] - cpu, now.ram[place] - ram, left, free, now.rows[place]), place, given


def _ways(free: FloatArray, millis: int) -> tuple[IntArray, IntArray]:
    """Return the ways to place a task: machine by its place in ``free``, and the device that gives a part.

    A part may come from any device that has room, of those with equally much free from the first.
    """
    machines = np.arange(free.shape[1])
    if not 0 < millis < DEVICE_MILLIS:
        return machines, np.full(len(machines), -1)
    room = free >= millis
    for number in range(1, len(free)):
        room[number] &= ~(free[:number] == free[number]).any(axis=0)
    place, device = np.nonzero(room.T)
    return place, device


def without_ram(shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes that differ only in ram as one, which needs none."""
    found: dict[object, Shape] = {}
    for kind, tasks in shapes:
        key = (kind.cpu, kind.devices, kind.wanted)
        before = found.get(key)
        found[key] = Shape(kind, tasks + (before.tasks if before else 0))
    return sorted(found.values(), key=lambda shape: -shape.tasks)  # stable: equals keep their order
