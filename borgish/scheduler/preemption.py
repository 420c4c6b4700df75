"""Makes room for tasks that found none: chooses which lower tasks have to leave, few and cheap ones.

Section 2.5 and 3.2 of the Borg paper: tasks of lower priority, lowest first, until the task fits;
prod is never preempted. Machines differ by what their victims cost: how many, how high, how much work
is lost. Who preempts is not placed at once: its place is kept while the victims leave.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

import msgspec
import numpy as np

from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.census import PORTS, Amounts, count_devices
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.feasibility import suitable
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.plan import Preemption, Promise
from borgish.spec.job import JobSpec
from borgish.vocabulary import band_of, task_name

LIMIT_SHARE = 0.05  # of all running tasks, that one pass may preempt
LIMIT_MIN = 10
LOOKED_AT_MORE = 64  # machines whose victims are chosen, beside one for each task
WORK_SECONDS_MAX = 86_400.0  # more work lost than this costs no more


class Budget(Protocol):
    """Says how many tasks of a job may be taken down on purpose now, beside those that are down."""

    def allows(self, job: str, /) -> int: ...


class NoBudget:
    """Every task may be disrupted."""

    def allows(self, _job: str) -> int:
        return 1_000_000


class Victim(msgspec.Struct, frozen=True):
    """A task that may have to leave, and what that costs."""

    job: str
    index: int
    priority: int
    price: float
    amounts: Amounts
    devices: dict[str, int]
    ports: tuple[int, ...]


class Offer(msgspec.Struct, frozen=True, order=True):
    """A machine for one task, and who has to leave for it."""

    price: float
    row: int
    victims: tuple[Victim, ...]


class Preemptions:
    """What one pass preempts. ``left`` is how many more tasks it may."""

    def __init__(self, cell: Cell, fleet: Fleet, now: Now, budget: Budget) -> None:
        self._cell, self._fleet, self._now, self._budget = cell, fleet, now, budget
        running = sum(map(len, cell.placed.values()))
        self.left = max(LIMIT_MIN, int(LIMIT_SHARE * running))
        self.stopped = False  # more would have been preempted but for the limit
        self._chosen: dict[tuple[str, int], None] = {}
        self._taken_of: dict[str, int] = {}  # by job
        self._coming: dict[int, dict[int, float]] = {}  # by row and kind: what victims will leave
        self._evictions: dict[tuple[str, str], list[int]] = {}  # by victims' job and preemptor
        self._notice: dict[str, float] = {}
        self._promises: dict[str, tuple[list[int], list[str]]] = {}

    def make_room(self, kind: TaskClass, spec: JobSpec, indexes: list[int]) -> list[int]:
        """Make room for tasks of a class, for the first ones first; return those for which there is none."""
        offers = self._offers(kind, len(indexes))
        for done, index in enumerate(indexes):
            offer = self._best(kind, offers)
            if offer is None:
                return indexes[done:]
            self._accept(kind, spec, index, offer)
            if again := self._offer(kind, offer.row):
                heappush(offers, again)
        return []

    def make_room_for_all(self, kind: TaskClass, spec: JobSpec, indexes: list[int]) -> bool:
        """Make room for all of these tasks or for none; return which."""
        before = msgspec.structs.replace(self._state())
        if not self.make_room(kind, spec, indexes):
            return True
        self._restore(kind, spec, before)
        return False

    # Offers

    def _offers(self, kind: TaskClass, tasks: int) -> list[Offer]:
        """Return the offers of the likeliest machines, as a heap."""
        rows = self._candidates(kind)[: 2 * tasks + LOOKED_AT_MORE]
        found = [offer for row in rows.tolist() if (offer := self._offer(kind, row)) is not None]
        heapify(found)
        return found

    def _candidates(self, kind: TaskClass) -> IntArray:
        """Return machines where enough is held below the class's reach: low victims and few first."""
        fleet = self._fleet
        passes = suitable(fleet, kind)
        for rule in kind.rules:
            if rule.hard:
                passes = passes & ~rule.fails(fleet)
        rows = np.flatnonzero(passes)
        short, level = np.zeros(len(rows)), np.full(len(rows), -1.0)
        for number, amount in kind.needs:
            free = fleet.free[number][rows] + self._coming_on(rows, number)
            short += np.maximum(0.0, amount - free) * fleet.inverse[number][rows]
            level = np.maximum(level, self._level(number, amount, free, rows, kind.reach))
        fitting = np.flatnonzero(level < np.inf)
        order = np.lexsort((fleet.tie[rows[fitting]], short[fitting], level[fitting]))
        found: IntArray = rows[fitting][order]
        return found

    def _level(self, number: int, amount: float, free: FloatArray, rows: IntArray, reach: int) -> FloatArray:
        """Return up to which priority tasks would have to leave for enough of one kind; inf: none will do."""
        level = np.where(free >= amount, -1.0, np.inf)
        for priority in sorted(priority for priority in self._fleet.held if priority < reach):
            free = free + self._fleet.held[priority][number][rows]
            level = np.where((level == np.inf) & (free >= amount), float(priority), level)
        return level

    def _coming_on(self, rows: IntArray, number: int) -> FloatArray:
        coming = np.zeros(len(self._fleet.names))
        for row, amounts in self._coming.items():
            coming[row] = amounts.get(number, 0.0)
        return coming[rows]

    def _best(self, kind: TaskClass, offers: list[Offer]) -> Offer | None:
        """Take the cheapest offer that still holds."""
        while offers:
            offer = heappop(offers)
            if len(offer.victims) > self.left and self._chosen:  # a single task may cost more
                self.stopped = True
                continue
            if all(self._may_leave(victim.job) for victim in offer.victims) and all(
                (victim.job, victim.index) not in self._chosen for victim in offer.victims
            ):
                return offer
            if again := self._offer(kind, offer.row):
                heappush(offers, again)
        return None

    def _offer(self, kind: TaskClass, row: int) -> Offer | None:
        """Return who has to leave a machine for one task; None when that would not do."""
        room = _Room(self._fleet, kind, row, self._coming.get(row, {}))
        victims: list[Victim] = []
        for victim in sorted(self._victims(kind, row), key=lambda each: self._order(room, each)):
            if room.fits():
                break
            room.without(victim)
            victims.append(victim)
        if not room.fits():
            return None
        for victim in reversed(victims.copy()):  # the highest first: stays, where it can
            room.with_again(victim)
            if room.fits():
                victims.remove(victim)
            else:
                room.without(victim)
        return Offer(sum(victim.price for victim in victims), row, tuple(victims))

    def _order(self, room: "_Room", victim: Victim) -> tuple[int, float, float, str, int]:
        return victim.priority, -room.helped_by(victim), victim.price, victim.job, victim.index

    def _victims(self, kind: TaskClass, row: int) -> Iterator[Victim]:
        for key, index in self._cell.placed[self._fleet.names[row]]:
            job = self._cell.jobs[key]
            task = job.tasks[index]
            below = job.spec.priority < kind.reach and task.alloc < 0
            if (
                below
                and not self._is_wanted_near(kind, job.spec)
                and (key, index) not in self._chosen
                and self._may_leave(key)
            ):
                needs = job.spec.needs(index)
                amounts: Amounts = {PORTS: len(task.ports)}
                self._fleet.kinds.add(amounts, needs)
                devices: dict[str, int] = {}
                count_devices(devices, task.devices, needs.devices)
                price = self._price(job.spec.priority, task.since)
                yield Victim(key, index, job.spec.priority, price, amounts, devices, task.ports)

    def _is_wanted_near(self, kind: TaskClass, spec: JobSpec) -> bool:
        """Return whether the class must be near tasks of a job: these must not leave for it."""
        return any(rule.some and rule.counter.choice.chooses(spec) for rule in kind.rules)

    def _may_leave(self, job: str) -> bool:
        return self._taken_of.get(job, 0) < self._budget.allows(job)

    def _price(self, priority: int, since: float) -> float:
        """Return what it costs that a task has to leave: one, for its priority, and for the work lost."""
        lost = min(max(0.0, self._now.wall - since), WORK_SECONDS_MAX) / WORK_SECONDS_MAX
        return 1.0 + priority / 100 + lost

    # Accepting

    def _accept(self, kind: TaskClass, spec: JobSpec, index: int, offer: Offer) -> None:
        fleet = self._fleet
        preemptor = task_name(spec.key, index)
        coming = self._coming.setdefault(offer.row, {})
        for victim in offer.victims:
            self._chosen[victim.job, victim.index] = None
            self._taken_of[victim.job] = self._taken_of.get(victim.job, 0) + 1
            self._evictions.setdefault((victim.job, preemptor), []).append(victim.index)
            for number, amount in victim.amounts.items():
                coming[number] = coming.get(number, 0.0) + amount
        self.left -= len(offer.victims)
        self._notice[preemptor] = spec.preempt_within_seconds or -1.0
        indexes, machines = self._promises.setdefault(spec.key, ([], []))
        indexes.append(index)
        machines.append(fleet.names[offer.row])
        fleet.take((offer.row,), kind, spec)

    def _state(self) -> "_State":
        return _State(
            self.left,
            dict(self._chosen),
            dict(self._taken_of),
            {row: dict(amounts) for row, amounts in self._coming.items()},
            {key: list(indexes) for key, indexes in self._evictions.items()},
            {job: (list(indexes), list(machines)) for job, (indexes, machines) in self._promises.items()},
        )

    def _restore(self, kind: TaskClass, spec: JobSpec, before: "_State") -> None:
        kept = len(before.promises.get(spec.key, ((), ()))[0])
        machines = self._promises.get(spec.key, ([], []))[1][kept:]
        self._fleet.untake([self._fleet.row[name] for name in machines], kind, spec)
        self.left, self._chosen, self._taken_of = before.left, before.chosen, before.taken_of
        self._coming, self._evictions, self._promises = before.coming, before.evictions, before.promises

    # What comes of it

    def preemptions(self) -> tuple[Preemption, ...]:
        """Return who has to leave for whom."""
        return tuple(
            Preemption(
                job,
                tuple(sorted(indexes)),
                preemptor,
                f"preempted for {preemptor} ({self._band(preemptor)})",
                self._notice[preemptor],
            )
            for (job, preemptor), indexes in sorted(self._evictions.items())
        )

    def _band(self, preemptor: str) -> str:
        return str(band_of(self._cell.jobs[preemptor.rpartition("/")[0]].spec.priority))

    def promises(self) -> tuple[Promise, ...]:
        """Return where places are kept."""
        return tuple(
            Promise(job, tuple(indexes), tuple(machines))
            for job, (indexes, machines) in sorted(self._promises.items())
        )


class _State(msgspec.Struct):
    """What accepting offers changes."""

    left: int
    chosen: dict[tuple[str, int], None]
    taken_of: dict[str, int]
    coming: dict[int, dict[int, float]]
    evictions: dict[tuple[str, str], list[int]]
    promises: dict[str, tuple[list[int], list[str]]]


class _Room:
    """What one machine has for one task while victims are tried."""

    def __init__(self, fleet: Fleet, kind: TaskClass, row: int, coming: dict[int, float]) -> None:
        self._kind = kind
        self._row_capacity = {number: fleet.capacity.item(number, row) for number, _ in kind.needs}
        self._free = {
            number: fleet.free.item(number, row) + coming.get(number, 0.0) for number, _ in kind.needs
        }
        self._devices = {
            name: {f"{name}:{d}": free for d, free in enumerate(fleet.device(name).free[:, row].tolist())}
            for name, _ in kind.devices
        }
        self._taken = {port for port in kind.fixed_ports if fleet.fixed_ports.taken(port)[row]}

    def fits(self) -> bool:
        """Return whether the task has room."""
        return (
            all(self._free[number] >= amount for number, amount in self._kind.needs)
            and not self._taken
            and all(self._has_device(name, millis) for name, millis in self._kind.devices)
        )

    def _has_device(self, name: str, millis: int) -> bool:
        free = list(self._devices[name].values())
        if millis < DEVICE_MILLIS:
            return max(free, default=0.0) >= millis
        return free.count(DEVICE_MILLIS) >= millis // DEVICE_MILLIS

    def helped_by(self, victim: Victim) -> float:
        """Return how much of what is short a victim would leave, in shares of what is short."""
        return sum(
            min(1.0, victim.amounts.get(number, 0) / (amount - self._free[number]))
            for number, amount in self._kind.needs
            if self._free[number] < amount
        )

    def without(self, victim: Victim) -> None:
        """Let a victim leave."""
        self._change(victim, 1)
        self._taken -= set(victim.ports)

    def with_again(self, victim: Victim) -> None:
        """Let it stay after all."""
        self._change(victim, -1)
        self._taken |= set(victim.ports) & set(self._kind.fixed_ports)

    def _change(self, victim: Victim, times: int) -> None:
        for number in self._free:
            self._free[number] += times * victim.amounts.get(number, 0)
        for name, millis in victim.devices.items():
            of = self._devices.get(name.partition(":")[0])
            if of is not None and name in of:
                of[name] += times * millis
