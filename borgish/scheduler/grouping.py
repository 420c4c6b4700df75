"""Puts tasks of one class on the best machines where rules of spread or affinity hold.

Rules that look at tasks of others are fixed while the class is placed, and added to the costs once.
Rules that look at the very tasks that are placed change with each of them: those over machines cost
each machine by itself, those over racks or zones cost all machines of a *group*, which share their
values. (Allocs that share a machine are a group, too.) The next task goes to the group whose best
machine and whose rules cost least.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec
import numpy as np

from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.placing import Ranked, Ranking, Run, Taken, ranked_count, ranking
from borgish.scheduler.policy import Policy
from borgish.scheduler.rules import UNFIT, Rule
from borgish.scheduler.scoring import Scored
from borgish.spec.job import MACHINE, JobSpec


class RuledRanking(Ranking):
    """A ranking in which rules over machines count."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        kind: TaskClass,
        fresh: Ranked,
        spec: JobSpec,
        fixed: FloatArray,
        rules: tuple[Rule, ...],
    ) -> None:
        super().__init__(fleet, policy, kind, fresh, spec)
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

    fixed: FloatArray  # of rules that look at tasks of others only: what they cost, by row
    single: tuple[Rule, ...]  # own, and each row is changed by itself
    shared: tuple[Rule, ...]  # own, and rows that share a value change together


def parts_of(fleet: Fleet, kind: TaskClass) -> RuleParts:
    """Return the rules of a class by their kind."""
    fixed = np.zeros(len(fleet.names))
    for rule in kind.rules:
        if not rule.own:
            fixed = fixed + rule.by_row(fleet)
    single = tuple(rule for rule in kind.rules if rule.own and rule.over == MACHINE and fleet.are_apart)
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

    ``own_max`` is on how many machines the job is already.
    """
    spec, count = run
    work = _Work(fleet, policy, kind, costs, spec, ranked_count(fleet, count + own_max))
    taken = Taken()
    while len(taken.rows) < count and work.place_one(taken):
        pass
    return taken


class _Work:
    """The groups in order of cost, while tasks are placed."""

    def __init__(
        self, fleet: Fleet, policy: Policy, kind: TaskClass, costs: FloatArray, spec: JobSpec, most: int
    ) -> None:
        fixed, single, self._rules = parts_of(fleet, kind)
        self._counts: list[IntArray] = [rule.counts(fleet).copy() for rule in self._rules]
        self._absent = [fleet.absent(rule.over) if rule.keyed else -1 for rule in self._rules]
        with_rules = costs + fixed
        for rule in single:
            with_rules = with_rules + rule.by_row(fleet)
        self._groups = [
            Group(codes, RuledRanking(fleet, policy, kind, ranked, spec, fixed, single))
            for codes, ranked in _groups(fleet, self._rules, with_rules, most)
        ]
        self._heap: list[tuple[float, int]] = []
        self._order()

    def _order(self) -> None:
        """Put the groups in order anew, as after a rule began to like what it did not."""
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
