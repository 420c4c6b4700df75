"""Puts tasks of one class on the best machines where rules of spread or affinity hold.

Rules that look at tasks of others are fixed while the class is placed, and added to the costs once.
Rules that look at the very tasks that are placed change with each of them: those over machines cost
each machine by itself, those over racks or zones cost all machines of a *group*, which share their
values. (Allocs that share a machine are a group, too.) The next task goes to the group whose best
machine and whose rules cost least. Where the job is spread over failure domains, machines of a group share
those, too, and among groups that cost little more the one whose domains have the fewest replicas comes first.
"""

from heapq import heapify, heappop, heappush

import msgspec
import numpy as np

from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.domains import Replicas
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.placing import Ranked, Ranking, Run, Taken, ranked_count, ranking
from borgish.scheduler.policy import Policy
from borgish.scheduler.rules import UNFIT, Rule
from borgish.scheduler.scoring import DOMAIN_WORTH, Scored
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


class Group(msgspec.Struct, eq=False):
    """Machines that share the values of all rules over attributes, and of failure domains: ``codes``."""

    codes: tuple[int, ...]
    ranking: RuledRanking


def place_by_rules(
    fleet: Fleet,
    policy: Policy,
    kind: TaskClass,
    costs: FloatArray,
    run: Run,
    own_max: int,
    replicas: Replicas,
) -> Taken:
    """Place tasks of one job whose class has rules; fewer than asked for means that no more fit.

    ``own_max`` is on how many machines the job is already.
    """
    spec, count = run
    work = _Work(fleet, policy, kind, costs, spec, ranked_count(fleet, count + own_max), replicas)
    taken = Taken()
    place_one = work.place_one_evenly if replicas.names else work.place_one
    while len(taken.rows) < count and place_one(taken):
        pass
    replicas.rows.extend(taken.rows)
    return taken


class _Work:
    """The groups in order of cost, while tasks are placed."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        kind: TaskClass,
        costs: FloatArray,
        spec: JobSpec,
        most: int,
        replicas: Replicas,
    ) -> None:
        single = tuple(rule for rule in kind.rules if rule.own and rule.over == MACHINE and fleet.are_apart)
        self._rules = [rule for rule in kind.rules if rule.own and rule not in single]
        self._counts: list[IntArray] = [rule.counts(fleet).copy() for rule in self._rules]
        self._absent = [fleet.absent(rule.over) if rule.keyed else -1 for rule in self._rules]
        fixed = _fixed_costs(fleet, kind)
        with_rules = costs + fixed
        for rule in single:
            with_rules = with_rules + rule.by_row(fleet)
        self._domains = replicas.domains(fleet)
        values = [fleet.codes(rule.over) for rule in self._rules] + [each.codes for each in self._domains]
        self._groups = [
            Group(codes, RuledRanking(fleet, policy, kind, ranked, spec, fixed, single))
            for codes, ranked in _groups(values, with_rules, most)
        ]
        self._heap: list[tuple[float, int]] = []
        if self._domains:
            shape = len(self._groups), len(values)
            self._values: IntArray = np.array([g.codes for g in self._groups], dtype=np.int64).reshape(shape)
            self._best: FloatArray = np.array([group.ranking.best() for group in self._groups])
        else:
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

    def place_one_evenly(self, taken: Taken) -> bool:
        """Put one task where its failure domains have the fewest; return whether there is a place."""
        costs = self._best.copy()
        for place, (rule, counts, absent) in enumerate(
            zip(self._rules, self._counts, self._absent, strict=True)
        ):
            values = self._values[:, place]
            costs += np.where(values == absent, UNFIT, rule.costs(counts)[values])
        found = (costs < costs.min(initial=UNFIT) + DOMAIN_WORTH).nonzero()[0]
        if not len(found):
            return False
        for place, domain in enumerate(self._domains, len(self._rules)):
            before = domain.counts[self._values[found, place]]
            found = found[before == before.min()]
        number = int(found[costs[found].argmin()])
        group = self._groups[number]
        group.ranking.take(taken)
        self._best[number] = group.ranking.best()
        self._count(group)
        for domain in self._domains:
            domain.counts[domain.codes[taken.rows[-1]]] += 1
        return True

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
        of_rules = group.codes[: len(self._rules)]
        for rule, counts, code in zip(self._rules, self._counts, of_rules, strict=True):
            cheaper |= not counts[code] and (rule.some or rule.miss > 0)
            counts[code] += 1
        return cheaper


def _fixed_costs(fleet: Fleet, kind: TaskClass) -> FloatArray:
    """Return what rules about others' tasks cost, by row."""
    fixed = np.zeros(len(fleet.names))
    for rule in kind.rules:
        if not rule.own:
            fixed = fixed + rule.by_row(fleet)
    return fixed


def _groups(values: list[IntArray], costs: FloatArray, most: int) -> list[tuple[tuple[int, ...], Ranked]]:
    """Return machines that fit by the values that they share, the best ``most`` of each ranked."""
    if not values:
        return [((), ranking(Scored(costs), most))]
    rows = np.flatnonzero(costs < UNFIT)
    codes = np.stack([each[rows] for each in values])
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
