"""Makes room for tasks that found none: chooses which lower tasks have to leave, few and cheap ones.

Sections 2.5 and 3.2 of the Borg paper: tasks of lower priority, lowest first, until the task fits. Prod is
never preempted, monitoring's included; batch and free give way, also to each other within these bands.
Machines differ by what their victims cost: how many, how high, how much work is lost. A victim never
preempts in its turn within one pass, so there are no preemption cascades.

Who preempts is not placed at once, for its victims still hold what it needs. Its place is *promised*: the
task stays pending, its machine counts its needs as held, and a later pass redeems the promise when what is
leaving has ended there, or takes it back when nothing leaves any more. (Kubernetes nominates a node for the
same reason.) Promises are journalled, so that a new master neither forgets a place nor preempts twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from heapq import heappop, heappush
from math import ceil
from typing import Protocol

import msgspec
import numpy as np

from borgish.cell.limits.disruption import Limit
from borgish.cell.model import Cell, Job, Task
from borgish.cell.tasks.allocs import inside, is_alloc_set, priority_of
from borgish.clock import Now
from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.feasibility import suitable
from borgish.scheduler.fleet import PORTS, Amounts, Fleet, count_devices, level_of
from borgish.scheduler.plan import Preemption, Promise
from borgish.scheduler.task_class import TaskClass
from borgish.vocabulary import JobKind, task_name

LIMIT_SHARE = 0.05  # of all running tasks, that one pass may preempt: a mistake must not empty a cell at once
LIMIT_MIN = 10  # so many a pass may preempt in any case
OPTIONS_COMPARED = 32  # machines whose victims are chosen, for each task to have the cheapest of
WORK_SECONDS_MAX = 86_400.0  # more work lost than this costs no more


ALLOCS = object()
"""What marks allocs, and tasks of several versions: each differs from the others."""


BEYOND_BUDGET_PRICE = 1000.0
"""What one victim costs beyond its budget: more than all that may leave one machine within theirs."""


class DisruptionBudget(Protocol):
    """Says which limits a task's going down counts towards, and what each has left (``disruption.Gate``)."""

    def limits(self, job: str, index: int, /) -> Iterable[Limit]: ...

    def room(self, limit: Limit, /) -> int: ...


class VictimGroup(msgspec.Struct, eq=False):
    """Tasks on one machine that may have to leave, alike in priority and needs; the first to leave first.

    ``amounts``, ``devices`` and ``ports`` are those of each. Where single devices or ports matter, a group is
    one task. ``is_beyond`` what their budgets allow: only production may have them leave.
    """

    tasks: list[tuple[str, int]]  # job and index
    priority: int
    price: float
    amounts: Amounts
    devices: dict[str, int]
    ports: tuple[int, ...]
    is_beyond: bool = False


Victims = tuple[tuple[VictimGroup, int], ...]
"""Groups, and how many of each have to leave."""


class PreemptionOption(msgspec.Struct, frozen=True):
    """A machine for one task, and who has to leave for it, as of a version of the rows."""

    victims: Victims
    version: int

    @property
    def count(self) -> int:
        return sum(count for _, count in self.victims)


class PreemptionSearch(msgspec.Struct, eq=False):
    """The machines for tasks of one class: those whose options are known, and which to evaluate next."""

    candidates: list[int]
    evaluated: int = 0
    ranked: list[tuple[float, int]] = []  # a heap of price and row
    options: dict[int, PreemptionOption] = {}  # by row


class TrialMachine:
    """What one machine has for one task while victims are tried."""

    def __init__(self, fleet: Fleet, kind: TaskClass, row: int, coming: dict[int, float]) -> None:
        self._kind = kind
        self._free = {
            number: fleet.free.item(number, row) + coming.get(number, 0.0) for number, _ in kind.needs
        }
        if PORTS in self._free:
            self._free[PORTS] -= fleet.ports[row].count(kind.fixed_ports)
        self._devices = {
            name: {f"{name}:{d}": free for d, free in enumerate(fleet.device(name).free[:, row].tolist())}
            for name, _ in kind.devices
        }
        self._known = {name for devices in self._devices.values() for name in devices}
        self._taken = {port for port in kind.fixed_ports if fleet.fixed_ports.taken(port)[row]}

    def fits(self) -> bool:
        """Return whether the task has room."""
        for number, amount in self._kind.needs:
            if self._free[number] < amount:
                return False
        for name, millis in self._kind.devices:
            if not self._has_device(name, millis):
                return False
        return not self._taken

    def _has_device(self, name: str, millis: int) -> bool:
        free = list(self._devices[name].values())
        if millis < DEVICE_MILLIS:
            return max(free, default=0.0) >= millis
        return free.count(DEVICE_MILLIS) >= millis // DEVICE_MILLIS

    def helped_by(self, group: VictimGroup) -> float:
        """Return how much of what is short one of a group would leave, in shares of what is short."""
        return sum(
            [
                min(1.0, group.amounts.get(number, 0) / (amount - self._free[number]))
                for number, amount in self._kind.needs
                if self._free[number] < amount
            ]
        )

    def wanted_of(self, group: VictimGroup) -> int:
        """Return how many of a group would have to leave, as far as it helps; 0 when it does not."""
        wanted = 1 if group.devices.keys() & self._known or set(group.ports) & self._taken else 0
        for number, amount in self._kind.needs:
            if self._free[number] < amount and (each := group.amounts.get(number, 0)):
                wanted = max(wanted, ceil((amount - self._free[number]) / each))
        return min(wanted, len(group.tasks))

    def spared_of(self, group: VictimGroup, count: int) -> int:
        """Return how many of those of a group that were to leave may stay after all."""
        if group.devices or group.ports:
            self.change(group, -1)
            spared = int(self.fits())
            self.change(group, 1)
            return spared
        slack = [
            (self._free[number] - amount) // each
            for number, amount in self._kind.needs
            if (each := group.amounts.get(number, 0))
        ]
        return int(min([*slack, count]))

    def change(self, group: VictimGroup, count: int) -> None:
        """Let so many of a group leave; a negative number comes back."""
        for number in self._free:
            self._free[number] += count * group.amounts.get(number, 0)
        for name, millis in group.devices.items():
            of = self._devices.get(name.partition(":")[0])
            if of is not None and name in of:
                of[name] += count * millis
        ports = set(group.ports) & set(self._kind.fixed_ports)
        self._taken = self._taken - ports if count > 0 else self._taken | ports


def order_of(trial: TrialMachine, group: VictimGroup) -> tuple[bool, int, float, float, tuple[str, int]]:
    """Return in which order groups have to leave: those within their budgets first, of these the lowest, of
    these what helps most."""
    return group.is_beyond, group.priority, -trial.helped_by(group), group.price, group.tasks[0]


def needed(trial: TrialMachine, chosen: list[tuple[VictimGroup, int]]) -> Iterator[tuple[VictimGroup, int]]:
    """Yield who has to leave when all who may stay after all do, the highest first."""
    for group, count in reversed(chosen):
        spared = trial.spared_of(group, count)
        if spared:
            trial.change(group, -spared)
        if count > spared:
            yield group, count - spared


class Preemptions:
    """What one pass preempts; in alloc sets nobody, since there is nobody to preempt in their rows.

    Budgets hold victims where lower bands preempt; production passes them where nothing else will do, and
    says so. ``held_back`` are classes that would have been given more but for the limit of a pass, so that
    the next one may.
    """

    def __init__(
        self,
        cell: Cell,
        fleet: Fleet,
        now: Now,
        budget: DisruptionBudget | None = None,
        *,
        preempts: bool = True,
    ) -> None:
        self._cell, self._fleet, self._now, self._budget = cell, fleet, now, budget
        self._preempts = preempts
        self.held_back: set[TaskClass] = set()
        self._searches: dict[TaskClass, PreemptionSearch] = {}
        self._group_keys: dict[str, object] = {}  # by job; see ``_group_key``
        self._chosen: dict[tuple[str, int], None] = {}
        self._before_gang: dict[tuple[str, int], None] | None = None  # chosen before the gang at hand
        self._taken: Counter[Limit] = Counter()  # of budgets
        self._room: dict[Limit, int] = {}  # of budgets, at the beginning of the pass
        self._beyond: set[tuple[str, str]] = set()  # of ``evictions``, those that pass a budget
        self._coming: dict[int, dict[int, float]] = {}  # by row and kind: what victims will leave
        self._evictions: dict[tuple[str, str], list[int]] = {}  # by victims' job and preemptor
        self._notices: dict[str, tuple[str, float]] = {}  # by preemptor: reason and seconds for victims
        self._promises: dict[str, tuple[list[int], list[str]]] = {}

    @cached_property
    def left(self) -> int:
        """How many more tasks it may preempt: most passes preempt nobody, and need not count who runs."""
        running = sum(map(len, self._cell.placed.values()))
        return max(LIMIT_MIN, int(LIMIT_SHARE * running))

    def may_help(self, kind: TaskClass) -> bool:
        """Return whether there is anybody at all whom tasks of a class may preempt."""
        return self._preempts and any(priority < kind.reach for priority in self._fleet.held)

    def make_room(self, kind: TaskClass, job: Job, indexes: list[int]) -> list[int]:
        """Make room for tasks of a class, for the first ones first; return those for which there is none."""
        search = self._searches.get(kind)
        if search is None:
            search = self._searches[kind] = PreemptionSearch(self._candidates(kind).tolist())
        for done, index in enumerate(indexes):
            row = self._best(kind, search)
            if row < 0:
                return indexes[done:]
            option = search.options.pop(row)
            self._accept(kind, job, index, row, option)
            heappush(search.ranked, (self._total(row, option.victims), row))  # it may have another
        return []

    def make_room_for_all(self, tasks: Mapping[TaskClass, list[int]], job: Job) -> bool:
        """Make room for all of these tasks of a job, by class, or for none; return which."""
        before = self._state()
        self._before_gang = before.chosen
        has_room = not any(self.make_room(kind, job, indexes) for kind, indexes in tasks.items())
        self._before_gang = None
        if not has_room:
            self._restore(tasks, job, before)
        return has_room

    # Options

    def _candidates(self, kind: TaskClass) -> IntArray:
        """Return machines where enough is held below the class's reach: low victims and few first."""
        fleet = self._fleet
        passes = suitable(fleet, kind)
        for rule in kind.rules:
            if rule.hard:
                passes = passes & ~rule.fails(fleet)
        rows = np.flatnonzero(passes)
        short, level = np.zeros(len(rows)), np.full(len(rows), -1.0)
        by_priority = sorted(fleet.held.items(), key=lambda pair: pair[0])
        for number, amount in kind.needs:
            free = fleet.free[number][rows] + self._coming_on(rows, number)
            short += np.maximum(0.0, amount - free) * fleet.inverse[number][rows]
            lower = [(each, held[number][rows]) for each, held in by_priority if each < kind.reach]
            level = np.maximum(level, level_of(amount, free, lower))
        fitting = np.flatnonzero(level < np.inf)
        order = np.lexsort((fleet.tie[rows[fitting]], short[fitting], level[fitting]))
        found: IntArray = rows[fitting][order]
        return found

    def _coming_on(self, rows: IntArray, number: int) -> FloatArray:
        coming = np.zeros(len(self._fleet.names))
        for row, amounts in self._coming.items():
            coming[row] = amounts.get(number, 0.0)
        return coming[rows]

    def _best(self, kind: TaskClass, search: PreemptionSearch) -> int:
        """Return the row of the cheapest option, evaluated again where things changed; -1: none."""
        while search.evaluated < len(search.candidates) and len(search.ranked) < OPTIONS_COMPARED:
            self._evaluate(kind, search, search.candidates[search.evaluated])
            search.evaluated += 1
        while search.ranked:
            row = search.ranked[0][1]
            option = search.options.get(row)
            if option is None or option.version < self._fleet.changed[row] or self._is_over_budget(option):
                heappop(search.ranked)
                self._evaluate(kind, search, row)
            elif option.count > self.left and not self._is_first():
                self.held_back.add(kind)
                return -1
            else:
                heappop(search.ranked)
                # A rule may forbid it, since others of its job have got places.
                if not any(rule.hard and rule.fails(self._fleet)[row] for rule in kind.rules):
                    return row
        return -1

    def _is_first(self) -> bool:
        """Return whether nobody else has preempted in this pass: a single task, or a whole gang, may cost
        more than the limit then, or it never would find room."""
        return not (self._chosen if self._before_gang is None else self._before_gang)

    def _is_over_budget(self, option: PreemptionOption) -> bool:
        """Return whether others have taken meanwhile what victims within their budgets were to use."""
        used = Counter(
            limit
            for group, count in option.victims
            if not group.is_beyond
            for task in group.tasks[:count]
            for limit in self._limits(task)
        )
        return any(count > self._left_of(limit) for limit, count in used.items())

    def _limits(self, task: tuple[str, int]) -> Iterable[Limit]:
        return () if self._budget is None else self._budget.limits(*task)

    def _left_of(self, limit: Limit) -> int:
        """Return how much more may count towards a limit. Call it with a budget only."""
        assert self._budget is not None
        if limit not in self._room:
            self._room[limit] = self._budget.room(limit)
        return self._room[limit] - self._taken[limit]

    def _evaluate(self, kind: TaskClass, search: PreemptionSearch, row: int) -> None:
        """Choose the victims on a machine, if there are any that will do."""
        victims = None
        if row not in self._coming or self._may_do(kind, row):
            victims = self._victims(kind, row)
        search.options.pop(row, None)
        if victims is not None:
            search.options[row] = PreemptionOption(victims, self._fleet.version)
            heappush(search.ranked, (self._total(row, victims), row))

    def _may_do(self, kind: TaskClass, row: int) -> bool:
        """Return whether all who may leave a machine would be enough: seldom, where somebody made room."""
        lower = [held for priority, held in self._fleet.held.items() if priority < kind.reach]
        free = self._fleet.free
        return all(
            free.item(number, row) + sum([held.item(number, row) for held in lower]) >= amount
            for number, amount in kind.needs
        )

    def _total(self, row: int, victims: Victims) -> float:
        return sum([group.price * count for group, count in victims]) + self._fleet.tie.item(row)

    def _victims(self, kind: TaskClass, row: int) -> Victims | None:
        """Return who has to leave a machine for one task; None when that would not do."""
        trial = TrialMachine(self._fleet, kind, row, self._coming.get(row, {}))
        chosen: list[tuple[VictimGroup, int]] = []
        if not trial.fits():
            groups = sorted(self._groups(kind, row), key=lambda group: order_of(trial, group))
            for group in groups:
                count = trial.wanted_of(group)
                if count:
                    trial.change(group, count)
                    chosen.append((group, count))
                    if trial.fits():
                        break
            if not trial.fits():
                return None
        return tuple(needed(trial, chosen))

    def _groups(self, kind: TaskClass, row: int) -> Iterator[VictimGroup]:
        """Yield the tasks on a machine that may have to leave for one of the class."""
        alike: dict[object, list[tuple[float, str, int]]] = {}
        single = bool(kind.devices or kind.fixed_ports)
        jobs, chosen = self._cell.jobs, self._chosen
        for pair in self._cell.placed[self._fleet.names[row]]:
            key, index = pair
            group_key = self._group_key(key)
            if group_key is not None and pair not in chosen:
                each = pair if single or group_key is ALLOCS else group_key
                alike.setdefault(each, []).append((-jobs[key].tasks[index].since, key, index))
        used: Counter[Limit] = Counter()  # budgets are one for all groups
        may_pass = kind.reach >= self._fleet.bands.production
        # Whom a budget spares depends on the order, and a set has none.
        groups = alike.values() if self._budget is None else sorted(alike.values(), key=min)
        for same in groups:
            _, key, index = same[0]
            priority = jobs[key].spec_of(jobs[key].tasks[index]).priority
            if jobs[key].spec.kind is JobKind.ALLOC_SET:
                priority = priority_of(self._cell, jobs[key], index)
            if priority < kind.reach:
                same.sort()
                within, beyond = self._by_budget(kind, same, used)
                if within:
                    yield self._group(within, priority)
                if beyond and may_pass:
                    yield self._group(beyond, priority, is_beyond=True)

    def _group_key(self, key: str) -> object:
        """Return what tasks of a job share with others that are alike; None: they never have to leave."""
        known = self._group_keys.get(key, key)
        if known is not key:
            return known
        job = self._cell.jobs[key]
        spec, needs = job.spec, job.spec.resources
        group_key: object = (spec.priority, needs.cpu_millis, needs.ram_bytes, needs.disk_bytes)
        if needs.named or needs.devices or spec.ports or spec.overrides:
            group_key = (spec.priority, key)
        if spec.kind is JobKind.ALLOC_SET:
            group_key = ALLOCS
        # What is in an alloc has no room of its own.
        if spec.priority >= self._fleet.bands.production or spec.inside:
            group_key = None
        elif job.is_mixed:  # those run different things
            group_key = ALLOCS
        if job.rollout is not None and job.rollout.hold is None:  # some of them leave in a moment
            group_key = None
        self._group_keys[key] = group_key
        return group_key

    def _by_budget(
        self, kind: TaskClass, tasks: list[tuple[float, str, int]], used: Counter[Limit]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Return the tasks that the class need not be near to: those that budgets let leave, and the others.

        ``used`` is what others on this machine would use of the budgets.
        """
        if any(rule.some for rule in kind.rules):
            tasks = [each for each in tasks if not self._is_wanted_near(kind, *each[1:])]
        within: list[tuple[str, int]] = []
        beyond: list[tuple[str, int]] = []
        for _, key, index in tasks:
            wanted = Counter(self._limits((key, index)))
            if all(used[limit] + count <= self._left_of(limit) for limit, count in wanted.items()):
                used += wanted
                within.append((key, index))
            else:
                beyond.append((key, index))
        return within, beyond

    def _group(self, tasks: list[tuple[str, int]], priority: int, *, is_beyond: bool = False) -> VictimGroup:
        key, index = tasks[0]
        job = self._cell.jobs[key]
        task = job.tasks[index]
        needs = job.spec_of(task).needs(index)
        amounts: Amounts = {}
        self._fleet.kinds.add(amounts, needs)
        devices: dict[str, int] = {}
        if task.devices:
            count_devices(devices, task.devices, needs.devices)
        if task.ports:
            amounts[PORTS] = self._fleet.ports[self._fleet.row[task.machine]].count(task.ports)
        price = self._price(job, task) + BEYOND_BUDGET_PRICE * is_beyond
        return VictimGroup(tasks, priority, price, amounts, devices, task.ports, is_beyond)

    def _is_wanted_near(self, kind: TaskClass, key: str, index: int) -> bool:
        """Return whether the class must be near a task, or what is in it: these must not leave for it.

        It would then be near to nothing, and take the next one's place, for ever.
        """
        job = self._cell.jobs[key]
        specs = [job.spec]
        if is_alloc_set(job):
            specs += [inner.spec for inner, _ in inside(self._cell, job, index)]
        near = [rule.counter.choice for rule in kind.rules if rule.some]
        return any(choice.chooses(spec) for choice in near for spec in specs)

    def _price(self, job: Job, task: Task) -> float:
        """Return what it costs that a task has to leave: one, for its priority, and for the work lost.

        With an alloc leaves what is in it.
        """
        lost = min(max(0.0, self._now.wall - task.since), WORK_SECONDS_MAX) / WORK_SECONDS_MAX
        price = 1.0 + job.spec.priority / 100 + lost
        if job.spec.kind is JobKind.ALLOC_SET:
            price += sum([self._price(*inner) for inner in inside(self._cell, job, task.index)])
        return price

    # Accepting

    def _accept(self, kind: TaskClass, job: Job, index: int, row: int, option: PreemptionOption) -> None:
        fleet = self._fleet
        preemptor = task_name(job.key, index)
        coming = self._coming.setdefault(row, {})
        devices: dict[str, int] = {}
        for group, count in option.victims:
            for name, millis in group.devices.items():
                devices[name] = devices.get(name, 0) + millis
            for key, each in group.tasks[:count]:
                self._chosen[key, each] = None
                self._taken.update(self._limits((key, each)))
                self._evictions.setdefault((key, preemptor), []).append(each)
                if group.is_beyond:
                    self._beyond.add((key, preemptor))
            for number, amount in group.amounts.items():
                coming[number] = coming.get(number, 0.0) + amount * count
        self.left -= option.count
        reason = f"preempted for {preemptor} ({fleet.bands.of(job.spec.priority)})"
        self._notices[preemptor] = reason, job.spec.preempt_within_seconds or -1.0
        indexes, machines = self._promises.setdefault(job.key, ([], []))
        indexes.append(index)
        machines.append(fleet.names[row])
        fleet.take((row,), kind, job)
        fleet.keep_devices(row, kind, devices)

    def _state(self) -> "_State":
        return _State(
            self.left,
            dict(self._chosen),
            Counter(self._taken),
            {row: dict(amounts) for row, amounts in self._coming.items()},
            {key: list(indexes) for key, indexes in self._evictions.items()},
            {job: (list(indexes), list(machines)) for job, (indexes, machines) in self._promises.items()},
        )

    def _restore(self, tasks: Mapping[TaskClass, list[int]], job: Job, before: "_State") -> None:
        class_of = {index: kind for kind, indexes in tasks.items() for index in indexes}
        kept = len(before.promises.get(job.key, ((), ()))[0])
        promised = self._promises.get(job.key, ([], []))
        for index, name in zip(promised[0][kept:], promised[1][kept:], strict=True):
            row = self._fleet.row[name]
            self._fleet.undo_take((row,), class_of[index], job)
            self._fleet.release_devices(row, class_of[index])
        for key, index in self._chosen.keys() - before.chosen.keys():
            task = self._cell.jobs[key].tasks[index]
            for port in job.spec.fixed_ports.values():
                if port in task.ports:  # the victim has it still
                    self._fleet.fixed_ports.set((self._fleet.row[task.machine],), port, taken=True)
        self.left, self._chosen, self._taken = before.left, before.chosen, before.taken
        self._coming, self._evictions, self._promises = before.coming, before.evictions, before.promises
        self._searches.clear()

    # What comes of it

    def preemptions(self) -> tuple[Preemption, ...]:
        """Return who has to leave for whom."""
        found = []
        for (job, preemptor), indexes in sorted(self._evictions.items()):
            reason, notice_seconds = self._notices[preemptor]
            if (job, preemptor) in self._beyond:
                reason += ", beyond its disruption budget"
            found.append(Preemption(job, tuple(sorted(indexes)), preemptor, reason, notice_seconds))
        return tuple(found)

    def promises(self) -> tuple[Promise, ...]:
        """Return where places are kept."""
        return tuple(
            Promise(job, tuple(indexes), tuple(machines))
            for job, (indexes, machines) in sorted(self._promises.items())
        )


class _State(msgspec.Struct):
    """What accepting options changes."""

    left: int
    chosen: dict[tuple[str, int], None]
    taken: Counter[Limit]
    coming: dict[int, dict[int, float]]
    evictions: dict[tuple[str, str], list[int]]
    promises: dict[str, tuple[list[int], list[str]]]
