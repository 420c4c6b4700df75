"""Puts tasks of one class on the best machines.

Taking a machine changes its cost and no other, as long as no rule is about more than single machines.
So the machines are ranked once, the best are taken from the top, and only those are scored again. Jobs of
many tasks take them level by level: those that have the fewest tasks of the job, then those with one more.

Rules of spread or affinity that count tasks of others are fixed while the class is placed, and added to
the costs once. Rules that count the very tasks that are placed change with each of them: those over
machines cost each machine by itself, those over racks or zones cost all machines of a *group*, which share
their values. (Allocs that share a machine are a group, too.) Each group is ranked by itself, and the next
task goes to the group whose best machine and whose rules cost least.
"""

import sys
from collections.abc import Sequence
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

import msgspec
import numpy as np

from borgish.cell.model import Job
from borgish.scheduler.affinity import UNFIT, Rule
from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.policies import Policy
from borgish.scheduler.scoring import Scored, cost_of, costs_of, decides_first
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import MACHINE

GROUPS_MIN = 64
MANY = 6  # rows from which on arrays are faster than one by one
ROWS_FOR_A_TASK = 100
"""To look at so many rows of arrays for each run takes as long as one task does that is taken from a heap."""
LIMIT_MAX = sys.float_info.max  # above every cost, below UNFIT

Ranked = list[tuple[float, int]]
"""A heap of (cost, row)."""

Run = tuple[Job, int]
"""Tasks of one job, and how many."""


class Taken(msgspec.Struct):
    """Where the first tasks of a run went, in parallel; ``devices`` is empty where they need none."""

    rows: list[int] = []
    devices: list[tuple[str, ...]] = []

    def take(self, fleet: Fleet, policy: Policy, kind: TaskClass, job: Job, rows: list[int]) -> None:
        """Put the next tasks on machines, which have room, one on each."""
        fleet.take(rows, kind, job)
        self.rows += rows
        if kind.devices:
            self.devices += [
                fleet.take_devices(row, kind, partial(policy.choose_device, fleet, kind, row)) for row in rows
            ]

    def undo(self, fleet: Fleet, kind: TaskClass, job: Job) -> None:
        """Take all of it back."""
        fleet.undo_take(self.rows, kind, job)
        for row, devices in zip(self.rows, self.devices, strict=False):
            fleet.give_back_devices(row, kind, devices)
        self.rows, self.devices = [], []


def ranking(scored: Scored, count: int) -> Ranked:
    """Return the ``count`` best machines that fit, and perhaps some more."""
    costs, rows = scored
    best = (costs <= _limit(costs, count)).nonzero()[0]
    found = best if rows is None else rows[best]
    ranked = list(zip(costs[best].tolist(), found.tolist(), strict=True))
    heapify(ranked)
    return ranked


def _limit(costs: FloatArray, count: int) -> float:
    """Return a cost that at least ``count`` machines are within, if so many fit.

    The machines are compared in groups: when ``count`` groups have their best within a limit, so have
    ``count`` machines. That is much less work than to put all machines in order.
    """
    groups = min(len(costs), max(4 * count, GROUPS_MIN))
    size = len(costs) // max(1, groups)
    if size < 2:
        return LIMIT_MAX
    best = costs[: size * groups].reshape(size, groups).min(axis=0)
    return min(float(np.partition(best, count - 1)[count - 1]), LIMIT_MAX)


def ranked_count(fleet: Fleet, count: int) -> int:
    """Return how many to rank so that the ``count`` best are among them while tasks are placed."""
    return count if fleet.independent_rows else len(fleet.names)


class Ranking:
    """Some machines in order of cost for tasks of one class and job, and those taken for it.

    Machines that have tasks of the job are apart from the fresh ones, since their costs are other.
    """

    def __init__(self, fleet: Fleet, policy: Policy, kind: TaskClass, fresh: Ranked, job: Job) -> None:
        self._fleet, self._policy, self._kind, self._job = fleet, policy, kind, job
        self._key = job.key
        self._fresh = fresh
        self._own: Ranked = []
        # Whether costs are computed again before they count: allocs of one machine share its ports.
        self.renews = not fleet.independent_rows and bool(kind.ports or kind.fixed_ports)
        self.owned: list[int] = []  # rows with tasks of this job, out of the ranking for it

    def best(self) -> float:
        """Return the cost of the best machine, ``UNFIT`` when there is none."""
        self._pass_owned()
        while self.renews and self._fresh and self._renew(self._fresh):
            self._pass_owned()
        while self.renews and self._own and self._renew(self._own):
            pass
        fresh = self._fresh[0][0] if self._fresh else UNFIT
        own = self._own[0][0] if self._own else UNFIT
        return min(fresh, own)

    def take(self, taken: Taken) -> None:
        """Put a task on the best machine, which ``best`` has just found."""
        self._pass_owned()
        if self._own and (not self._fresh or self._own[0] < self._fresh[0]):
            row = heappop(self._own)[1]
        else:
            row = heappop(self._fresh)[1]
            self.owned.append(row)
        taken.take(self._fleet, self._policy, self._kind, self._job, [row])
        self._push_own(row)

    def take_fresh(self, taken: Taken, count: int) -> None:
        """Put tasks on machines that have none of the job, as long as there are any, one on each.

        Right only where each of these is better than all that have some.
        """
        rows: list[int] = []
        owned: list[int] = []
        jobs, key, fresh = self._fleet.jobs, self._key, self._fresh
        while fresh and len(rows) < count:
            row = heappop(fresh)[1]
            (owned if key in jobs[row] else rows).append(row)
        taken.take(self._fleet, self._policy, self._kind, self._job, rows)
        self.owned += owned
        self.owned += rows
        if len(rows) < count:
            for row in self.owned:
                self._push_own(row)

    def _renew(self, heap: Ranked) -> bool:
        """Score the machine on top again; return whether its cost has changed: it can only have grown."""
        cost, row = heap[0]
        now = self._cost(row)
        if now < UNFIT:
            heapreplace(heap, (now, row))
        else:
            heappop(heap)
        return now != cost

    def _pass_owned(self) -> None:
        """Move fresh machines that have tasks of the job already to where they belong."""
        while self._fresh and self._key in self._fleet.jobs[self._fresh[0][1]]:
            row = heappop(self._fresh)[1]
            self.owned.append(row)
            self._push_own(row)

    def _push_own(self, row: int) -> None:
        cost = self._cost(row)
        if cost < UNFIT:
            heappush(self._own, (cost, row))

    def _cost(self, row: int) -> float:
        return cost_of(self._fleet, self._policy, self._kind, row, self._fleet.jobs[row].get(self._key, 0))


def place(
    fleet: Fleet, policy: Policy, kind: TaskClass, scored: Scored, runs: Sequence[Run], own_max: int
) -> list[Taken]:
    """Place tasks of one class without rules; return, for each run, where its first tasks went.

    ``own_max`` is on how many machines the widest of these jobs is already. Less than a run's count
    means that nothing more of the class fits on the scored machines. Each task takes at most one of the
    ranked machines away, so that as many machines as tasks, and ``own_max`` more, always hold the best.
    """
    spread_first = decides_first(fleet, kind)
    tasks = sum(count for _, count in runs)
    if spread_first and fleet.independent_rows:
        is_first = len(runs) == 1 and not own_max  # a job that has none yet: the usual case, and quick
        if is_first and (at_once := _at_once(fleet, policy, kind, scored, runs[0])):
            return [at_once]
        if len(runs) * len(scored.costs) <= ROWS_FOR_A_TASK * tasks:
            return _by_levels(fleet, policy, kind, scored, runs)
    ranked = ranking(scored, ranked_count(fleet, tasks + own_max))
    placed = []
    for number, (job, count) in enumerate(runs, 1):
        choice = Ranking(fleet, policy, kind, ranked, job)
        taken = Taken()
        if spread_first and not choice.renews:
            choice.take_fresh(taken, count)
        while len(taken.rows) < count and choice.best() < UNFIT:
            choice.take(taken)
        placed.append(taken)
        if number < len(runs):
            rows = choice.owned  # for tasks of another job these are as good as any
            if len(rows) < MANY:
                costs = [cost_of(fleet, policy, kind, row, 0) for row in rows]
            else:
                costs = costs_of(fleet, policy, kind, np.array(rows)).tolist()
            for pair in zip(costs, rows, strict=True):
                if pair[0] < UNFIT:
                    heappush(ranked, pair)
    return placed


def _at_once(fleet: Fleet, policy: Policy, kind: TaskClass, scored: Scored, run: Run) -> Taken | None:
    """Place the tasks of a job that has none yet; None where there is not a machine for each."""
    costs, (job, count) = scored.costs, run
    if count >= len(costs):
        return None
    best = np.array([costs.argmin()]) if count == 1 else costs.argpartition(count - 1)[:count]
    best = best[np.lexsort((best, costs[best]))] if count > 1 else best
    if not costs.item(best[-1]) < UNFIT:
        return None
    taken = Taken()
    taken.take(fleet, policy, kind, job, (best if scored.rows is None else scored.rows[best]).tolist())
    return taken


def _by_levels(
    fleet: Fleet, policy: Policy, kind: TaskClass, scored: Scored, runs: Sequence[Run]
) -> list[Taken]:
    """Place tasks where a machine with fewer tasks of the job is better than any with more: those of a job on
    the best of the machines with the fewest, all at once, then on those with one more."""
    costs, rows = scored.costs.copy(), np.arange(len(scored.costs)) if scored.rows is None else scored.rows
    placed, at = [], rows.tolist()
    for job, count in runs:
        taken = Taken()
        own: IntArray = np.array([fleet.jobs[row].get(job.key, 0) for row in at], dtype=np.int64)
        while (left := count - len(taken.rows)) > 0 and len(fits := np.flatnonzero(costs < UNFIT)):
            best = fits[own[fits] == own[fits].min()]
            if left < len(best):
                best = best[costs[best].argpartition(left - 1)[:left]]
            best = best[np.lexsort((rows[best], costs[best]))]
            taken.take(fleet, policy, kind, job, rows[best].tolist())
            own[best] += 1
            costs[best] = costs_of(fleet, policy, kind, rows[best])
        placed.append(taken)
    return placed


class RuledRanking(Ranking):
    """A ranking in which rules over machines count. ``fixed`` is what the other rules add to costs: [row]."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        kind: TaskClass,
        fresh: Ranked,
        job: Job,
        fixed: FloatArray,
        rules: tuple[Rule, ...],
    ) -> None:
        super().__init__(fleet, policy, kind, fresh, job)
        self._fixed = fixed
        self._rules = rules
        self.renews = self.renews or bool(rules)

    def _cost(self, row: int) -> float:
        cost = super()._cost(row) + self._fixed.item(row)
        for rule in self._rules:
            cost += rule.cost(rule.counter.by_row.item(row))
        return cost


class RuleParts(NamedTuple):
    """The rules of a class, by how tasks that are placed by them change what they cost."""

    fixed: FloatArray  # of rules that count tasks of others only: what they cost, by row
    single: tuple[Rule, ...]  # own, and each row is changed by itself
    shared: tuple[Rule, ...]  # own, and rows that share a value change together


def parts_of(fleet: Fleet, kind: TaskClass) -> RuleParts:
    """Return the rules of a class by their kind."""
    fixed = np.zeros(len(fleet.names))
    for rule in kind.rules:
        if not rule.own:
            fixed = fixed + rule.by_row(fleet)
    single = tuple(
        rule for rule in kind.rules if rule.own and rule.over == MACHINE and fleet.independent_rows
    )
    shared = tuple(rule for rule in kind.rules if rule.own and rule not in single)
    return RuleParts(fixed, single, shared)


class Group(msgspec.Struct, eq=False):
    """Machines that share the values of all rules over attributes. ``codes`` are these, by rule."""

    codes: tuple[int, ...]
    ranking: RuledRanking


def place_by_rules(
    fleet: Fleet, policy: Policy, kind: TaskClass, costs: FloatArray, run: Run, own_max: int
) -> Taken:
    """Place tasks of one job whose class has rules; fewer than asked for means that no more fit.

    ``costs`` are without rules: [row]. ``own_max`` is on how many machines the job is already.
    """
    job, count = run
    work = _Work(fleet, policy, kind, costs, job, ranked_count(fleet, count + own_max))
    taken = Taken()
    while len(taken.rows) < count and work.place_one(taken):
        pass
    return taken


class _Work:
    """The groups in order of cost, while tasks are placed."""

    def __init__(
        self, fleet: Fleet, policy: Policy, kind: TaskClass, costs: FloatArray, job: Job, most: int
    ) -> None:
        fixed, single, self._rules = parts_of(fleet, kind)
        self._counts: list[IntArray] = [rule.counts(fleet).copy() for rule in self._rules]
        self._absent = [fleet.absent(rule.over) if rule.keyed else -1 for rule in self._rules]
        with_rules = costs + fixed
        for rule in single:
            with_rules = with_rules + rule.by_row(fleet)
        self._groups = [
            Group(codes, RuledRanking(fleet, policy, kind, ranked, job, fixed, single))
            for codes, ranked in _groups(fleet, self._rules, with_rules, most)
        ]
        self._heap: list[tuple[float, int]] = []
        self._order()

    def _order(self) -> None:
        """Put the groups in order anew, as after a rule began to prefer what it did not."""
        costs = [(self._cost(group), number) for number, group in enumerate(self._groups)]
        self._heap = [pair for pair in costs if pair[0] < UNFIT]
        heapify(self._heap)

    def place_one(self, taken: Taken) -> bool:
        """Put one task on the best machine of the best group; return whether there is one."""
        while self._heap:
            cost, number = heappop(self._heap)
            group = self._groups[number]
            now = self._cost(group)
            if now > cost:  # others went to its values meanwhile
                if now < UNFIT:
                    heappush(self._heap, (now, number))
                continue
            group.ranking.take(taken)
            if self._count(group):
                self._order()
            elif (after := self._cost(group)) < UNFIT:
                heappush(self._heap, (after, number))
            return True
        return False

    def _cost(self, group: Group) -> float:
        cost = group.ranking.best()
        for rule, counts, code, absent in zip(
            self._rules, self._counts, group.codes, self._absent, strict=True
        ):
            cost += rule.cost(counts.item(code)) if code != absent else UNFIT
        return cost

    def _count(self, group: Group) -> bool:
        """Count a task in a group; return whether that made other groups cheaper."""
        cheaper = False
        for rule, counts, code in zip(self._rules, self._counts, group.codes, strict=True):
            cheaper |= not counts[code] and (rule.some or rule.miss > 0)
            counts[code] += 1
        return cheaper


def _groups(
    fleet: Fleet, rules: tuple[Rule, ...], costs: FloatArray, most: int
) -> list[tuple[tuple[int, ...], Ranked]]:
    """Return machines that fit by the values that they share, the best ``most`` of each ranked."""
    if not rules:
        return [((), ranking(Scored(costs), most))]
    rows = np.flatnonzero(costs < UNFIT)
    codes = np.stack([fleet.codes(rule.over)[rows] for rule in rules])
    combined = np.zeros(len(rows), dtype=np.int64)
    for each in codes:
        combined = combined * (int(each.max(initial=0)) + 1) + each
    order = np.argsort(combined, kind="stable")
    starts = np.flatnonzero(np.diff(combined[order], prepend=-1))
    found = []
    for part in np.split(order, starts[1:]) if len(order) else ():
        ranked = [(cost, int(rows[part[place]])) for cost, place in ranking(Scored(costs[rows[part]]), most)]
        heapify(ranked)
        found.append((tuple(codes[:, part[0]].tolist()), ranked))
    return found
