"""Spreads replicas of a service over the failure domains of a cell: racks, zones, what its settings name.

Replicas go over machines first, then over each domain in the order of the settings, the smallest first;
how well they pack decides among places that are equal in all this. What the job itself asks for comes
before: its rules, a ``spread`` of its own over the domain, a ``near``, and preferences that weigh more than
``DOMAIN_COST``. A service is what is to keep running (``JobSpec.is_service``), whatever its band; tasks that
run to completion are packed, and not spread over domains.

A round gives each machine at most one more replica, in the order of how many are in its rack before that
one, how many in its zone, and its cost. As long as racks lie within zones this is what choosing one at a
time would give, in a few operations on arrays for any number of tasks: sorts of the four cheapest machines
for each task, as long as no domain that has others would have come first. For a few tasks the first machines
that share no domain need not even that. Only where rules of the job's own change what many machines cost
with each task (a ``spread`` over zones), or where it has rules and racks go across zones, is one chosen at a
time, among the best machines of *groups* that share the values of these rules and of the domains.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from borgish.cell.model import Job
from borgish.scheduler.affinity import UNFIT, Rule
from borgish.scheduler.arrays import BoolArray, CodeArray, FloatArray, IntArray
from borgish.scheduler.feasibility import suitable
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.placing import MANY, Taken, parts_of
from borgish.scheduler.policies import Policy
from borgish.scheduler.scoring import DOMAIN_COST, REPLICA_COST, Scored, cost_of, costs_of
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import JobSpec

FEW_MIN = 32
FEW_EACH = 4
"""The best machines, so many for each task, are put in order first; seldom are more needed to be even."""


def domains_of(fleet: Fleet, spec: JobSpec) -> tuple[str, ...]:
    """Return the failure domains that a job's tasks are spread over without its asking."""
    if spec.tasks < 2 or not spec.is_service or spec.near:
        return ()
    if not spec.spread:
        return tuple(fleet.domains())
    own = {spread.over for spread in spec.spread}
    return tuple([name for name in fleet.domains() if name not in own])


class Domain(NamedTuple):
    """One failure domain: the number of each row's value, and of each value how many replicas are there, and
    whether any machine is.
    """

    codes: CodeArray
    counts: IntArray
    there: BoolArray


class Replicas(NamedTuple):
    """The failure domains that one job is spread over, and the rows of its tasks while more are placed."""

    names: tuple[str, ...]
    rows: list[int]

    def domains(self, fleet: Fleet) -> list[Domain]:
        """Return what is counted of each domain, as it is now. It may be written to."""
        values = fleet.domains()
        found = []
        for name in self.names:
            codes, _, there, _ = values[name]
            if self.rows:
                counts = np.bincount(codes[self.rows], minlength=len(there))
            else:
                counts = np.zeros(len(there), dtype=np.int64)
            found.append(Domain(codes, counts, there))
        return found


class Order(NamedTuple):
    """Some places in the order in which replicas go to them, which index the rows that were scored.

    ``most`` are in a domain before any of these.
    """

    places: IntArray
    most: list[int]


class EvenPlacement:
    """Places tasks of one class, job after job, on the machines that were scored for it."""

    def __init__(self, fleet: Fleet, policy: Policy, kind: TaskClass, scored: Scored) -> None:
        self._fleet, self._policy, self._kind = fleet, policy, kind
        self._rows = np.arange(len(scored.costs)) if scored.rows is None else scored.rows
        self._rules = parts_of(fleet, kind) if kind.rules else None
        self._costs = self._with_rules(scored.costs.copy(), self._rows)  # for a job that has no task there
        self._is_sample = scored.rows is not None
        self._one_by_one = not fleet.independent_rows and bool(kind.ports or kind.fixed_ports)
        self._stale: list[int] = []  # places that were taken since they were scored
        self._suitable: dict[int, IntArray] = {}  # by place of a domain: right machines of each value

    def place(self, job: Job, count: int, replicas: Replicas) -> Taken:
        """Place tasks of one job.

        Fewer than asked for means that no more fit, or that they would not be even on these machines though
        they may be on all.
        """
        domains = self._fleet.domains()
        if self._rules and (self._rules.shared or not all(domains[name].holds for name in replicas.names)):
            return self._place_by_groups(job, count, replicas, self._rules.shared)
        taken = Taken()
        while len(taken.rows) < count:
            self._renew()
            places = self._choose(1 if self._one_by_one else count - len(taken.rows), replicas)
            if not len(places):
                break
            rows = self._rows[places].tolist()
            taken.take(self._fleet, self._policy, self._kind, job, rows)
            replicas.rows.extend(rows)
            self._stale += places.tolist()
        return taken

    def _place_by_groups(self, job: Job, count: int, replicas: Replicas, shared: tuple[Rule, ...]) -> Taken:
        """Place tasks of a job one by one: its rules change with each of them, or racks go across zones."""
        taken = Taken()
        groups = _Groups(
            self._fleet, shared, replicas.domains(self._fleet), self._rows, self._costs_beside(replicas)
        )
        while len(taken.rows) < count and (place := groups.take()) >= 0:
            taken.take(self._fleet, self._policy, self._kind, job, [self._rows.item(place)])
            replicas.rows.append(taken.rows[-1])
            self._stale.append(place)
            self._renew()
            if self._one_by_one:
                groups.renew(self._costs_beside(replicas))
            else:
                there = self._fleet.jobs[taken.rows[-1]].get(job.key, 0)
                groups.rescore(self._costs.item(place) + there * REPLICA_COST)
        return taken

    def _renew(self) -> None:
        """Score again what has changed."""
        fleet, policy, kind = self._fleet, self._policy, self._kind
        if not self._stale:
            return
        if self._one_by_one:  # allocs of one machine share its ports
            self._costs = self._with_rules(costs_of(fleet, policy, kind, self._rows), self._rows)
        elif len(self._stale) < MANY:
            for place in self._stale:
                row = self._rows.item(place)
                cost = cost_of(fleet, policy, kind, row, 0)
                if self._rules:
                    cost += self._rules.fixed.item(row)
                    cost += sum([rule.cost(rule.counter.by_row.item(row)) for rule in self._rules.single])
                self._costs[place] = cost
        else:
            rows = self._rows[self._stale]
            self._costs[self._stale] = self._with_rules(costs_of(fleet, policy, kind, rows), rows)
        self._stale.clear()

    def _with_rules(self, costs: FloatArray, rows: IntArray) -> FloatArray:
        """Return costs of rows with those of the rules that change with each row by itself."""
        if self._rules:
            costs = costs + self._rules.fixed[rows]
            for rule in self._rules.single:
                costs = costs + rule.costs(rule.counter.by_row[rows])
        return costs

    def _choose(self, count: int, replicas: Replicas) -> IntArray:
        """Return where the next tasks go, by their place among the rows, each at most once; nowhere: none."""
        costs = self._costs_beside(replicas)
        cheapest = costs.argmin() if len(costs) else 0
        best = costs.item(cheapest) if len(costs) else UNFIT
        if best == UNFIT:
            return np.zeros(0, dtype=np.int64)
        if count == 1 and not replicas.names:
            return np.array([cheapest])
        limit, most = best + DOMAIN_COST, max(FEW_MIN, FEW_EACH * count)
        is_few = len(costs) > most
        if is_few:
            few = _in_order(costs, np.sort(costs.argpartition(most - 1)[:most]), limit)
            if found := self._apart(few[: FEW_EACH * count], count, replicas):
                return few[found]
        domains = replicas.domains(self._fleet)
        if is_few:
            order = self._order(few, count, domains)
            if self._is_even(order, few, costs < limit, domains):
                return order.places
        near = _in_order(costs, np.arange(len(costs)), limit)
        order = self._order(near, count, domains)
        if self._is_sample and not self._is_even(order, near, costs < limit, domains):
            return order.places[:0]
        return order.places

    def _costs_beside(self, replicas: Replicas) -> FloatArray:
        """Return the costs with those of replicas that are there already."""
        if not replicas.rows or not len(self._rows):
            return self._costs
        costs = self._costs.copy()
        rows, tasks = np.unique(replicas.rows, return_counts=True)
        places = np.minimum(self._rows.searchsorted(rows), len(costs) - 1)
        here = self._rows[places] == rows
        costs[places[here]] += tasks[here] * REPLICA_COST
        return costs

    def _apart(self, places: IntArray, count: int, replicas: Replicas) -> list[int]:
        """Return which ``count`` of places, the cheapest, share no domain with each other or a replica.

        That is what ``_order`` results in where domains are many and tasks few, in a fraction of its time.
        None are returned where there are not so many.
        """
        rows, values, used = self._rows[places], [], set[int]()
        of_fleet = self._fleet.domains()
        for name in replicas.names:
            _, numbers, there, _ = of_fleet[name]
            if count > len(there):
                return []
            values.append(numbers[rows].tolist())
            if replicas.rows:
                used.update(numbers[replicas.rows].tolist())
        found: list[int] = []
        for place, domains in enumerate(zip(*values, strict=True)):
            if used.isdisjoint(domains):
                found.append(place)
                if len(found) == count:
                    return found
                used.update(domains)
        return []

    def _order(self, places: IntArray, count: int, domains: Sequence[Domain]) -> Order:
        """Return the first ``count`` of places, given by cost, in the order in which replicas go to them."""
        most: list[int] = []
        keys: list[IntArray] = []  # before, of those domains in which the places that are left differ
        for codes, counts, _ in domains:
            values = codes[self._rows[places]]
            before = counts[values] + _numbered(values)
            if count < len(places):  # what has more in its smallest domain than the last of these is none
                first = keys[0] if keys else before
                few = (first <= np.partition(first, count - 1)[count - 1]).nonzero()[0]
                places, before, keys = places[few], before[few], [key[few] for key in keys]
            most.append(before.item(before.argmax()) if len(before) else 0)
            if len(before) and before.item(before.argmin()) < most[-1]:
                keys.append(before)
                order = before.argsort(kind="stable") if len(keys) == 1 else np.lexsort((*reversed(keys),))
                places, keys = places[order], [key[order] for key in keys]
                most[-1] = int(keys[-1][:count].max())
        return Order(places[:count], most)

    def _is_even(self, order: Order, compared: IntArray, near: BoolArray, domains: Sequence[Domain]) -> bool:
        """Return whether no domain that has other rows would have been chosen before the last that was.

        The others are those near in cost; beside a sample all machines that are right for the class,
        whatever is free there.
        """
        for number, (most, (codes, counts, there)) in enumerate(zip(order.most, domains, strict=True)):
            if not most:
                continue
            known = np.bincount(codes[self._rows[compared]], minlength=len(counts))
            lacking = (there & (counts + known < most)).nonzero()[0]
            if len(lacking):
                others = self._others(number, codes, near, len(there))
                if (others[lacking] > known[lacking]).any():
                    return False
        return True

    def _others(self, number: int, codes: CodeArray, near: BoolArray, size: int) -> IntArray:
        """Return how many rows there are of each value of a domain."""
        if not self._is_sample:
            return np.bincount(codes[self._rows[near]], minlength=size)
        found = self._suitable.get(number)
        if found is None:
            right = codes[suitable(self._fleet, self._kind)]
            found = self._suitable[number] = np.bincount(right, minlength=size)
        return found


def _numbered(values: CodeArray) -> IntArray:
    """Return for each of some values how many before it are the same."""
    grouped = values.argsort(kind="stable")
    there = np.bincount(values)
    number = np.empty(len(values), dtype=np.int64)
    number[grouped] = np.arange(len(values)) - (there.cumsum() - there)[values[grouped]]
    return number


def _in_order(costs: FloatArray, places: IntArray, limit: float) -> IntArray:
    """Return those of places whose cost is below a limit, the cheapest first."""
    found = costs[places]
    order = found.argsort(kind="stable")
    if len(order) and found.item(order[-1]) >= limit:
        order = order[: found[order].searchsorted(limit)]
    return places[order]


class _Groups:
    """Machines that share the values of a job's rules and of its failure domains, and each group's best."""

    def __init__(
        self, fleet: Fleet, rules: tuple[Rule, ...], domains: list[Domain], rows: IntArray, costs: FloatArray
    ) -> None:
        self._rules = rules
        self._number = -1  # the group that was taken from last, and which of its machines
        self._taken = -1
        self._counts = [rule.counts(fleet).copy() for rule in rules]
        places = (costs < UNFIT).nonzero()[0]
        codes: list[CodeArray] = [fleet.codes(rule.over)[rows[places]] for rule in rules]
        codes += [domain.codes[rows[places]] for domain in domains]
        combined = np.zeros(len(places), dtype=np.int64)
        for each in codes:
            combined = combined * (int(each.max(initial=0)) + 1) + each
        order = combined.argsort(kind="stable")
        self._starts = np.diff(combined[order], prepend=-1).nonzero()[0]
        self._places = places[order]
        self._bounds = [*self._starts.tolist(), len(order)]
        heads = order[self._starts]
        values = [each[heads] for each in codes]
        self._values, self._domain_values = values[: len(rules)], values[len(rules) :]
        self._before = [
            domain.counts[each] for domain, each in zip(domains, self._domain_values, strict=True)
        ]
        self._by_rule = []
        for rule, counts, each in zip(rules, self._counts, self._values, strict=True):
            absent = fleet.absent(rule.over) if rule.keyed else -1
            self._by_rule.append(np.where(each == absent, UNFIT, rule.costs(counts)[each]))
        self.renew(costs)

    def renew(self, costs: FloatArray) -> None:
        """Take other costs of all machines."""
        self._costs = costs[self._places]
        self._best = np.minimum.reduceat(self._costs, self._starts) if len(self._starts) else self._costs
        self._sum()

    def _sum(self) -> None:
        self._total = self._best
        for costs in self._by_rule:
            self._total = self._total + costs

    def take(self) -> int:
        """Return the place of the next task, and count it there; below 0: there is none."""
        total = self._total
        best = total.item(total.argmin()) if len(total) else UNFIT
        if best == UNFIT:
            return -1
        found = (total < best + DOMAIN_COST).nonzero()[0]
        for before in self._before:
            if len(found) > 1:
                here = before[found]
                found = found[here == here[here.argmin()]]
        self._number = number = found.item(total[found].argmin())
        start, end = self._bounds[number : number + 2]
        self._taken = start + int(self._costs[start:end].argmin())
        for before, values in zip(self._before, self._domain_values, strict=True):
            before[values == values[number]] += 1
        for rule, counts, values, costs in zip(
            self._rules, self._counts, self._values, self._by_rule, strict=True
        ):
            code = values.item(number)
            counts[code] += 1
            costs[values == code] = rule.cost(counts.item(code))
        return self._places.item(self._taken)

    def rescore(self, cost: float) -> None:
        """Note what one more task would cost on the machine that was taken last."""
        start, end = self._bounds[self._number : self._number + 2]
        self._costs[self._taken] = cost
        there = self._costs[start:end]
        self._best[self._number] = there[there.argmin()]
        self._sum()
