"""Spreads replicas of a service over the failure domains of a cell: racks, zones, what its settings name.

Replicas go over machines first, then over each domain in the order of the settings, the smallest first;
how well they pack decides among places that are equal in all this. What the job itself asks for comes
before: its rules, a ``spread`` of its own over the domain, a ``near``, and preferences that weigh more than
``DOMAIN_WORTH``. Tasks that run to completion are packed, and not spread over domains.

A round gives each machine at most one more replica, in the order of how many are in its rack before that
one, how many in its zone, and its cost. As long as racks lie within zones this is what choosing one at a
time would give, in a few operations on arrays for any number of tasks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.feasibility import suitable
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.placing import MANY, Taken
from borgish.scheduler.policy import Policy
from borgish.scheduler.rules import UNFIT
from borgish.scheduler.scoring import DOMAIN_WORTH, REPLICA_COST, Scored, cost_of, costs_of
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
    """One failure domain: the number of each row's value, and how many replicas are at each value."""

    codes: IntArray
    counts: IntArray


class Replicas(NamedTuple):
    """The failure domains that one job is spread over, and the rows of its tasks while more are placed."""

    names: tuple[str, ...]
    rows: list[int]

    def domains(self, fleet: Fleet) -> list[Domain]:
        """Return what is counted of each domain, as it is now. It may be written to."""
        values = fleet.domains()
        found = []
        for name in self.names:
            codes = fleet.codes(name)
            found.append(Domain(codes, np.bincount(codes[self.rows], minlength=values[name])))
        return found


class Order(NamedTuple):
    """Some places in the order in which replicas go to them. ``most`` are in a domain before any of these."""

    places: IntArray
    most: list[int]


class Evenly:
    """Places tasks of one class without rules, job after job, on the machines that were scored for it."""

    def __init__(self, fleet: Fleet, policy: Policy, kind: TaskClass, scored: Scored) -> None:
        self._fleet, self._policy, self._kind = fleet, policy, kind
        self._rows = np.arange(len(scored.costs)) if scored.rows is None else scored.rows
        self._costs = scored.costs.copy()  # for a job that has no task there
        self._is_sample = scored.rows is not None
        self._one_by_one = not fleet.are_apart and bool(kind.ports or kind.fixed_ports)
        self._stale: list[int] = []  # places that were taken since they were scored

    def place(self, spec: JobSpec, count: int, replicas: Replicas) -> Taken:
        """Place tasks of one job.

        Fewer than asked for means that no more fit, or that they would not be even on these machines though
        they may be on all.
        """
        taken = Taken()
        while len(taken.rows) < count:
            self._renew()
            places = self._choose(1 if self._one_by_one else count - len(taken.rows), replicas)
            if not len(places):
                break
            rows = self._rows[places].tolist()
            taken.take(self._fleet, self._policy, self._kind, spec, rows)
            replicas.rows.extend(rows)
            self._stale += places.tolist()
        return taken

    def _renew(self) -> None:
        """Score again what has changed."""
        fleet, policy, kind = self._fleet, self._policy, self._kind
        if not self._stale:
            return
        if self._one_by_one:  # allocs of one machine share its ports
            self._costs = costs_of(fleet, policy, kind)
        elif len(self._stale) < MANY:
            for place in self._stale:
                self._costs[place] = cost_of(fleet, policy, kind, self._rows.item(place), 0)
        else:
            self._costs[self._stale] = costs_of(fleet, policy, kind, self._rows[self._stale])
        self._stale.clear()

    def _choose(self, count: int, replicas: Replicas) -> IntArray:
        """Return where the next tasks go, by their place among the rows, each at most once; nowhere: none."""
        costs = self._costs_beside(replicas)
        cheapest = costs.argmin() if len(costs) else 0
        best = costs.item(cheapest) if len(costs) else UNFIT
        if best == UNFIT:
            return np.zeros(0, dtype=np.int64)
        if count == 1 and not replicas.names:
            return np.array([cheapest])
        domains = replicas.domains(self._fleet)
        near = few = (costs < best + DOMAIN_WORTH).nonzero()[0]
        if len(near) > (most := max(FEW_MIN, FEW_EACH * count)):
            few = np.sort(near[costs[near].argpartition(most - 1)[:most]])
        order = self._order(costs, few, count, domains)
        if not any(order.most):
            return order.places
        if few is not near and not self._is_even(order, few, self._rows[near], domains):
            few, order = near, self._order(costs, near, count, domains)
        if self._is_sample and not self._is_even(order, few, None, domains):
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

    def _order(self, costs: FloatArray, places: IntArray, count: int, domains: Sequence[Domain]) -> Order:
        """Return the first ``count`` of some places in the order in which replicas go to them."""
        order = costs[places].argsort(kind="stable")
        before: list[IntArray] = []
        rows = self._rows[places[order]]
        for codes, counts in domains:
            values = codes[rows]
            grouped = np.lexsort((*reversed(before), values)) if before else values.argsort(kind="stable")
            ordered = values[grouped]
            number = np.empty_like(values)
            number[grouped] = np.arange(len(values)) - ordered.searchsorted(ordered)
            before.append(counts[values] + number)
        first = np.lexsort((*reversed(before),))[:count] if before else slice(count)
        return Order(places[order[first]], [int(each[first].max()) for each in before])

    def _is_even(
        self, order: Order, looked_at: IntArray, all_rows: IntArray | None, domains: Sequence[Domain]
    ) -> bool:
        """Return whether no domain that has other rows would have been chosen before the last that was.

        ``all_rows`` None: those of all machines that are right for the class, whatever is free there.
        """
        for most, (codes, counts) in zip(order.most, domains, strict=True):
            if not most:
                continue
            there = np.bincount(codes[self._rows[looked_at]], minlength=len(counts))
            others = codes[suitable(self._fleet, self._kind) if all_rows is None else all_rows]
            more = np.bincount(others, minlength=len(counts)) > there
            if (more & (counts + there < most)).any():
                return False
        return True
