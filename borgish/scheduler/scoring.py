"""Scoring: what a machine costs for a task. Less is better; the cost is the sum of all scorers.

What follows from facts (a user's preferences, soft taints, and images, which is package locality) is the
*static score*, and kept by class until facts change (the score cache, section 3.4). The rest changes with
placements: how full a machine is, who is there. A scorer of that kind is a small function that uses nothing
but ``+ - * /`` and ``abs``, so that it answers for one machine in plain numbers and for all of them in
arrays.

In cells of more than 2,000 machines not all are scored (relaxed randomisation, section 3.4 of the Borg paper,
which does not say how many are enough): machines are scanned until enough are found that fit, and of these
the best is taken. What is scanned is every so-many-th row, from another one on for another class: so racks
and sizes of machine are among them as they are in the cell, and the same machines are scanned again while
they fit. In a cell of 10,000 machines that is filled to the last, 0.1 % fewer tasks found a place, and a pass
took two thirds of the time. For what has rules, or finds no room, all machines are scored.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from borgish.cell.machines.suitability import untolerated
from borgish.cell.model import Taint
from borgish.scheduler.affinity import UNFIT, WEIGHT_COST
from borgish.scheduler.arrays import ALL, FloatArray, IntArray, Rows
from borgish.scheduler.feasibility import feasible, suitable
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.policies import Policy
from borgish.scheduler.task_class import TaskClass
from borgish.vocabulary import TaintEffect

Number = TypeVar("Number", float, FloatArray)
Result = TypeVar("Result", float, FloatArray, covariant=True)

VECTORS_KEPT = 256  # classes whose costs are kept; 80 kB each at 10,000 machines
RENEW_SHARE = 4  # when more than a fourth of the rows changed, all are computed anew
FEW_SHARE = 2  # where no more than half of the rows fits, only those are scored
SCANNED_MIN = 1024  # rows
SCAN_GROWTH = 3  # how many times as many are scanned next
ENOUGH_MIN = 64
ENOUGH_EACH = 4  # for each task to be placed
# Costs are in tiers: packing, images and devices stay below a failure domain, a domain below another machine,
# so that weights of a user's, up to 10, can decide otherwise.
SPREAD_COST = 2.0  # of a task of the same job on the machine: above packing, mixing and images together
DOMAIN_COST = 4.0
"""What a less used failure domain may cost a replica of a service: above all of these and above keeping off
machines with devices together, so that none of them puts replicas into one domain.
"""
REPLICA_COST = 2 * DOMAIN_COST
"""Of a replica of the same service on the machine: above a domain and all the rest together."""
MIX_COST = 0.1
IMAGE_COST = 0.5
AVOID_COST = 10 * REPLICA_COST  # beside a preference of the highest weight, which is 10


class Candidate(Protocol[Result]):
    """One machine, or many, for one more task of a class: scorers read what they need of it.

    ``same_job`` is how many tasks of the same job each has.
    """

    @property
    def fleet(self) -> Fleet: ...

    @property
    def kind(self) -> TaskClass: ...

    @property
    def same_job(self) -> int: ...

    def read(self, amounts: FloatArray, number: int, /) -> Result:
        """Return one row of amounts [resource, row], for these machines only."""
        ...


class OneMachine(NamedTuple):
    """The machine of one row, read as plain numbers from amounts [resource, row]: many times faster than
    arrays of one."""

    fleet: Fleet
    kind: TaskClass
    same_job: int
    row: int

    def read(self, amounts: FloatArray, number: int) -> float:
        return amounts.item(number, self.row)


class ManyMachines(NamedTuple):
    """The machines of some rows, read from amounts [resource, row] as arrays of one axis in parallel to
    them."""

    fleet: Fleet
    kind: TaskClass
    same_job: int
    rows: Rows

    def read(self, amounts: FloatArray, number: int) -> FloatArray:
        found: FloatArray = amounts[number][self.rows]
        return found


class Scorer(Protocol):
    """One thing that makes a machine better or worse, as a cost from 0 (best).

    It must not fall when ``same_job`` grows.
    """

    def __call__(self, candidate: Candidate[Number], /) -> Number | float: ...


def spread(candidate: Candidate[Number]) -> Number | float:
    """Few tasks of the same job, so that one machine's end takes few of them."""
    return candidate.same_job * (REPLICA_COST if candidate.kind.is_service else SPREAD_COST)


def mix(candidate: Candidate[Number]) -> Number | float:
    """Prod beside the rest, so that prod can expand in a spike (section 3.2); nothing where it is alone.

    What counts is the share of the cpu that tasks below prod hold for a prod task, and prod for the rest.
    """
    return candidate.read(candidate.fleet.shares, int(not candidate.kind.is_prod)) * -MIX_COST


SCORERS: tuple[Scorer, ...] = (spread, mix)
"""Besides packing, which is the policy's."""


def preferred(fleet: Fleet, kind: TaskClass) -> FloatArray | float:
    """What the user prefers: each condition that a machine does not meet costs by its weight: [row], or 0."""
    return sum(
        [
            np.where(fleet.attributes.mask(each.when, ALL), 0.0, each.weight * WEIGHT_COST)
            for each in kind.prefer
        ],
        start=0.0,
    )


def with_image(fleet: Fleet, kind: TaskClass) -> FloatArray | float:
    """Machines that have the image already cost less: [row], or 0 for all."""
    if not kind.wanted.image:
        return 0.0
    found: FloatArray = np.where(fleet.images.having(kind.wanted.image), 0.0, IMAGE_COST)
    return found


def not_avoided(fleet: Fleet, kind: TaskClass) -> FloatArray | float:
    """Machines without a taint that says to go elsewhere if possible cost less: [row], or 0 for all."""
    if not fleet.taints.any:
        return 0.0

    def avoided(taints: tuple[Taint, ...]) -> float:
        soft = tuple(taint for taint in taints if taint.effect is TaintEffect.AVOID)
        return AVOID_COST * len(tuple(untolerated(kind.wanted.tolerations, soft)))

    return fleet.taints.of_sets(avoided, ALL)


STATIC_SCORERS: tuple[Callable[[Fleet, TaskClass], FloatArray | float], ...] = (
    preferred,
    with_image,
    not_avoided,
)
"""What follows from facts."""


def static_score(fleet: Fleet, kind: TaskClass) -> FloatArray:
    """Return the part of the costs that follows from facts, ties included: [row], not to be written to."""
    if kind.static_score is None or kind.static_score_version != fleet.facts_version:
        found = fleet.tie
        for part in STATIC_SCORERS:
            cost = part(fleet, kind)
            found = found if isinstance(cost, float) and not cost else found + cost
        kind.static_score, kind.static_score_version = found, fleet.facts_version
    return kind.static_score


def cost_of(fleet: Fleet, policy: Policy, kind: TaskClass, row: int, same_job: int) -> float:
    """Return the cost of one machine for one more task, or ``UNFIT`` when there is no room.

    Of the filters only those of resources are asked: the running pass changes nothing else. Rules are for
    ``placing``.
    """
    free = fleet.free
    for number, amount in kind.needs:
        if free.item(number, row) < amount:
            return UNFIT
    if kind.devices and not all(fleet.device(name).fits(row, millis) for name, millis in kind.devices):
        return UNFIT
    if kind.fixed_ports and not fleet.has_fixed_ports(row, kind):
        return UNFIT
    candidate = OneMachine(fleet, kind, same_job, row)
    total: float = static_score(fleet, kind).item(row) + policy.cost(fleet, kind, row)
    for scorer in SCORERS:
        total = total + scorer(candidate)
    return total


def decides_first(fleet: Fleet, kind: TaskClass) -> bool:
    """Return whether tasks of the same job on a machine outweigh everything else that is scored."""
    keeps_off_devices = bool(fleet.devices) and not kind.devices and not kind.is_service
    return not (kind.prefer or kind.wanted.image or fleet.taints.any or keeps_off_devices)


def costs_of(fleet: Fleet, policy: Policy, kind: TaskClass, rows: Rows = ALL) -> FloatArray:
    """Return the costs of machines for a task whose job has none there, ``UNFIT`` where it cannot go.

    They are in parallel to ``rows``.
    """
    fits = feasible(fleet, kind, rows)
    if np.count_nonzero(fits) * FEW_SHARE > len(fits):
        most: FloatArray = np.where(fits, _costs(fleet, policy, kind, rows), UNFIT)
        return most
    costs, fitting = np.full(len(fits), UNFIT), np.flatnonzero(fits)
    if isinstance(rows, slice):
        costs[fitting] = _costs(fleet, policy, kind, fitting + (rows.start or 0))
    else:
        costs[fitting] = _costs(fleet, policy, kind, rows[fitting])
    return costs


def _costs(fleet: Fleet, policy: Policy, kind: TaskClass, rows: Rows) -> FloatArray:
    """Return the costs of machines as if the task fitted on each."""
    candidate = ManyMachines(fleet, kind, 0, rows)
    total: FloatArray = static_score(fleet, kind)[rows] + policy.costs(fleet, kind, rows)
    for scorer in SCORERS:
        cost = scorer(candidate)
        if not isinstance(cost, float) or cost:
            total = total + cost
    return total


def enough(tasks: int) -> int:
    """Return how many machines that fit are enough for so many tasks."""
    return max(ENOUGH_MIN, ENOUGH_EACH * tasks)


class Sampler:
    """Chooses which machines are scanned, as follows from a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def samples(self, fleet: Fleet, kind: TaskClass, tasks: int) -> Iterator[slice]:
        """Yield more and more rows, with start and step. None are yielded where all have to be scanned."""
        step = len(fleet.names) // max(SCANNED_MIN, enough(tasks))
        start = self._seed + int(kind.cpu) + int(kind.ram) // 2**20
        while step > 1:
            yield slice(start % step, None, step)
            step //= SCAN_GROWTH


class Scored(NamedTuple):
    """What machines cost for a class: those of ``rows``, in parallel, or all. Not to be written to."""

    costs: FloatArray
    rows: IntArray | None = None


class ScoreCache:
    """Keeps the costs of the classes used last; computes again only rows that changed.

    ``enabled`` off, all rows are computed each time. With a sampler, enough machines are scanned where
    that will do (relaxed randomisation, section 3.4).
    """

    def __init__(self, policy: Policy, sampler: Sampler | None = None, *, enabled: bool = True) -> None:
        self._kept: dict[TaskClass, None] = {}
        self._policy = policy
        self._sampler = sampler
        self._enabled = enabled and policy.kept

    def costs(self, fleet: Fleet, kind: TaskClass) -> FloatArray:
        """Return the costs of all rows for a class, as they are now. They are not to be written to."""
        self._keep(kind)
        if self._is_stale(fleet, kind) or kind.costs is None or kind.scored is not None:
            kind.costs, kind.scored = costs_of(fleet, self._policy, kind), None
        elif kind.costs_version != fleet.version:
            rows = (fleet.changed > kind.costs_version).nonzero()[0]
            if len(rows) * RENEW_SHARE > len(kind.costs):
                kind.costs = costs_of(fleet, self._policy, kind)
            elif len(rows):
                kind.costs[rows] = costs_of(fleet, self._policy, kind, rows)
        self._note(fleet, kind)
        return kind.costs

    def scored(self, fleet: Fleet, kind: TaskClass, tasks: int) -> Scored:
        """Return the costs of enough machines for so many tasks, as they are now."""
        if self._sampler is None:
            return Scored(self.costs(fleet, kind))
        if kind.costs is not None and kind.scored is None and not self._is_stale(fleet, kind):
            return Scored(self.costs(fleet, kind))
        if kind.costs is None or self._is_stale(fleet, kind) or not self._renew(fleet, kind, tasks):
            for rows in self._sampler.samples(fleet, kind, tasks):
                found = feasible(fleet, kind, rows).nonzero()[0]
                if len(found) >= enough(tasks):
                    kind.scored = found * rows.step + rows.start
                    kind.costs = _costs(fleet, self._policy, kind, kind.scored)
                    break
            else:
                return Scored(self.costs(fleet, kind))
        self._keep(kind)
        self._note(fleet, kind)
        return Scored(kind.costs, kind.scored)

    def _is_stale(self, fleet: Fleet, kind: TaskClass) -> bool:
        """Return whether what is kept will not do, whichever rows changed."""
        if not self._enabled or kind.costs_learned != self._policy.version:
            return True
        return kind.scored is None and kind.costs is not None and len(kind.costs) != len(fleet.names)

    def _renew(self, fleet: Fleet, kind: TaskClass, tasks: int) -> bool:
        """Bring the costs of some machines up to date; return whether these are enough still."""
        costs, rows = kind.costs, kind.scored
        if costs is None or rows is None:
            return False
        changed = (fleet.changed[rows] > kind.costs_version).nonzero()[0]
        if len(changed):
            costs[changed] = costs_of(fleet, self._policy, kind, rows[changed])
        return int(np.count_nonzero(costs < UNFIT)) >= enough(tasks)

    def _note(self, fleet: Fleet, kind: TaskClass) -> None:
        kind.costs_version, kind.costs_learned = fleet.version, self._policy.version

    def takes(self, fleet: Fleet, kind: TaskClass, row: int) -> bool:
        """Return whether one machine takes a task of the class now, rules included."""
        return (
            self.is_suitable(fleet, kind, row)
            and cost_of(fleet, self._policy, kind, row, 0) < UNFIT
            and not any(rule.hard and rule.fails(fleet)[row] for rule in kind.rules)
        )

    def is_suitable(self, fleet: Fleet, kind: TaskClass, row: int) -> bool:
        """Return whether one machine is right for the class, whatever is free there."""
        return bool(suitable(fleet, kind)[row])

    def _keep(self, kind: TaskClass) -> None:
        self._kept.pop(kind, None)
        self._kept[kind] = None
        if len(self._kept) > VECTORS_KEPT:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            oldest.costs = oldest.scored = oldest.static_score = None
