"""What found no place in a pass, and why; what failed before is not tried again while nothing can help it."""

from collections.abc import Collection, Iterable

import numpy as np

from borgish.cell.model import Cell
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.explain import Explainer, Members
from borgish.scheduler.feasibility import feasible, suitable
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.plan import Refusal
from borgish.scheduler.task_class import TaskClass

EXPLAINED_AGAIN = 50  # how many known refusals a pass puts in new words; the rest has its turn later


class Refusals:
    """The tasks that one pass refuses. ``failed`` are the classes of which nothing more fits in it."""

    def __init__(self, cell: Cell, fleet: Fleet) -> None:
        self.failed: dict[TaskClass, None] = {}
        self._fleet = fleet
        self._explainer = Explainer(cell, fleet)
        self._refused: dict[str, dict[TaskClass, list[int]]] = {}  # indexes by job and class

    def recall(self, kinds: Iterable[TaskClass]) -> None:
        """Take as failed what failed in an earlier pass: only counts or machines that changed can help it."""
        changed: dict[int, _ChangedMachines] = {}
        for kind in kinds:
            since = kind.failed_version
            if since < 0 or kind.counts_version != kind.failed_counts:
                continue
            if since != self._fleet.version:
                if since not in changed:
                    changed[since] = _ChangedMachines(self._fleet, since)
                if changed[since].may_fit(self._fleet, kind):
                    continue
            self.failed[kind] = None

    def add(self, job: str, kind: TaskClass, indexes: list[int]) -> None:
        """Refuse tasks of a job."""
        self._refused.setdefault(job, {}).setdefault(kind, []).extend(indexes)

    def fail(self, job: str, kind: TaskClass, indexes: list[int]) -> None:
        """Refuse tasks of a job, and take nothing more of their class for the rest of the pass."""
        self.failed[kind] = None
        kind.failed_counts = kind.counts_version  # these may change for the better within the pass
        self.add(job, kind, indexes)

    def explain_gang(self, kind: TaskClass, fitting: int, wanted: int, members: Members) -> None:
        """Explain why a gang is not placed, while those of its tasks that fit are on the machines."""
        kind.explanation = self._explainer.explain_gang(kind, fitting, wanted, members)

    def explained(self, held_back: Collection[TaskClass]) -> dict[str, tuple[Refusal, ...]]:
        """Return all refusals by job, with reasons: those of what is new, and of the rest of the oldest anew.

        ``held_back`` are classes that may preempt in the next pass.
        """
        most: dict[TaskClass, int] = {}  # how many tasks of each were refused, at most of one job
        for by_class in self._refused.values():
            for kind, indexes in by_class.items():
                most[kind] = max(most.get(kind, 0), len(indexes))
        known: list[tuple[int, TaskClass]] = []
        for kind in self.failed:
            # Since it failed, room has only become less.
            kind.failed_version = -1 if kind in held_back else self._fleet.version
            if kind.explanation is None:
                kind.explanation = self._explainer.explain(kind, most.get(kind, 1))
            elif self._explainer.is_stale(kind):
                known.append((kind.explanation.version, kind))
        for _, kind in sorted(known, key=lambda pair: pair[0])[:EXPLAINED_AGAIN]:
            kind.explanation = self._explainer.explain(kind, most.get(kind, 1))
        return {job: self._of(job) for job in sorted(self._refused)}

    def _of(self, job: str) -> tuple[Refusal, ...]:
        return tuple(
            [
                Refusal(
                    job,
                    tuple(sorted(indexes)),
                    why.machines,
                    why.reasons,
                    why.text,
                    why.hint,
                    why.impossible,
                    why.waits_for,
                )
                for kind, indexes in self._refused[job].items()
                if (why := kind.explanation) is not None
            ]
        )


class _ChangedMachines:
    """The machines that changed since a version of the rows: only these can help what failed then."""

    def __init__(self, fleet: Fleet, since: int) -> None:
        self._rows: IntArray = np.flatnonzero((fleet.changed > since) & fleet.usable())
        self._free = fleet.free[:, self._rows]
        self._with_lower: dict[int, FloatArray] = {}  # by reach: what is free, and held by lower tasks

    def may_fit(self, fleet: Fleet, kind: TaskClass) -> bool:
        """Return whether one of them takes a task of the class, or may when lower ones leave it."""
        if _enough(self._free, kind).any() and feasible(fleet, kind, self._rows).any():
            return True
        lower = [held for priority, held in fleet.held.items() if priority < kind.reach]
        if not lower:
            return False
        there = self._with_lower.get(kind.reach)
        if there is None:
            there = self._free + np.sum([held[:, self._rows] for held in lower], axis=0)
            self._with_lower[kind.reach] = there
        room = _enough(there, kind)
        return bool(room.any() and (room & suitable(fleet, kind)[self._rows]).any())


def _enough(there: FloatArray, kind: TaskClass) -> BoolArray:
    """Return which columns of amounts [resource, machine] hold what a task of the class needs."""
    passes = np.ones(there.shape[1], dtype=np.bool_)
    for number, amount in kind.needs:
        passes &= there[number] >= amount
    return passes
