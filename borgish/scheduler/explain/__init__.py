"""Explains why no machine takes a class of tasks: per reason how many machines, in words, and the way out.

It is written for whoever has to act on it: what can never be comes first, then the changes that would help,
then what the tasks wait for. Amounts in a hint are such as a job file takes.

A machine is counted under every reason that holds for it. Whether it can ever fit, and what it waits for,
is in ``eventual_feasibility``; which small changes would help is in ``near_misses``.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from borgish.cell.model import Cell
from borgish.scheduler.arrays import FloatArray
from borgish.scheduler.explain.eventual_feasibility import (
    AffinityCycles,
    impossible,
    nobody_near,
    unmet,
    waits_for,
)
from borgish.scheduler.explain.near_misses import near_misses, nearest
from borgish.scheduler.explain.reasons import Failures
from borgish.scheduler.fleet import PORTS, Amounts, Fleet
from borgish.scheduler.task_class import Explanation, TaskClass
from borgish.vocabulary import State

Members = Sequence[tuple[TaskClass, list[int]]]
"""Tasks of a gang by class, and the rows that they are on."""


class Explainer:
    """Explains what one pass has refused."""

    def __init__(self, cell: Cell, fleet: Fleet) -> None:
        self._cell, self._fleet = cell, fleet
        self._cycles = AffinityCycles(cell, fleet)

    def is_stale(self, kind: TaskClass) -> bool:
        """Return whether a class was explained as things are no more. Cycles change with jobs, not machines.

        A gang is explained when it is tried: why the next of its tasks does not fit is not seen later.
        """
        known = kind.explanation
        if known is None:
            return True
        if known.of_gang:
            return False
        if known.version != self._fleet.version:
            return True
        return known.position != self._cell.position and nobody_near(kind) is not None

    def explain(self, kind: TaskClass, refused: int = 1, others: Members = ()) -> Explanation:
        """Return why no machine takes these tasks, as things are now; ``refused``: how many were not.

        ``others`` are tasks of their job that are on machines for the time being.
        """
        cell, fleet = self._cell, self._fleet
        failures = Failures(fleet, kind)
        never = impossible(cell, fleet, kind, failures)
        staying = self._staying(kind, others)
        waits = "" if never else waits_for(fleet, kind, failures, staying)
        near = unmet(self._cycles, kind)
        hint = _hint(
            fleet, [never, near, *near_misses(fleet, kind, failures, refused, staying, ever=not never)]
        )
        return Explanation(
            fleet.version,
            cell.position,
            len(fleet),
            failures.reasons(),
            _text(fleet, failures),
            hint or (f"waits for {waits}" if waits else nearest(fleet, failures)),
            bool(never),
            waits,
        )

    def _staying(self, kind: TaskClass, others: Members) -> FloatArray:
        """Return what tasks of a gang hold, by kind of resource and row: none of them leaves for another."""
        fleet, job = self._fleet, self._cell.jobs.get(kind.key.alone)
        held: FloatArray = np.zeros_like(fleet.free)
        for other, rows in others:
            for number, amount in other.needs:
                np.add.at(held[number], rows, amount)
        for task in job.tasks if job is not None and job.spec.gang else ():
            row = fleet.row.get(task.machine) if task.state is State.RUNNING else None
            if job is not None and row is not None:
                amounts: Amounts = {PORTS: len(task.ports)}
                fleet.kinds.add(amounts, job.spec_of(task).needs(task.index))
                for number, taken in amounts.items():
                    held[number, row] += taken
        return held

    def explain_gang(self, kind: TaskClass, fitting: int, wanted: int, others: Members) -> Explanation:
        """Return why a gang is not placed, while those of its tasks that fit are on the machines."""
        found = self.explain(kind, wanted - fitting, others)
        if not fitting:
            return found
        if fitting < wanted:
            text = f"{fitting} of {wanted} tasks fit, and a gang is placed whole; for one more, {found.text}"
            return msgspec.structs.replace(found, text=text, of_gang=True)
        text = f"all {wanted} of these tasks fit, but not the others of their gang, and it is placed whole"
        hint = found.hint if found.impossible else "see the other tasks of the job"
        return msgspec.structs.replace(found, text=text, hint=hint, reasons={}, of_gang=True)


def _text(fleet: Fleet, failures: Failures) -> str:
    """Return one line, what rules out most machines first."""
    if not len(fleet):
        return f"the cell has no {fleet.noun}s"
    ordered = sorted(zip(failures.counts, failures.all, strict=True), key=lambda pair: -pair[0])
    words = [f"{count:,} {each.text if count == 1 else each.plural}" for count, each in ordered]
    fit = f"0 of {fleet.count_words(len(fleet))} fit{'s' if len(fleet) == 1 else ''}"
    return ": ".join(filter(None, (fit, ", ".join(words))))


def _hint(fleet: Fleet, parts: list[str]) -> str:
    """Return the way out: first what can never be, then the near misses."""
    if not len(fleet):
        return "start a borglet that joins this cell"
    if not np.any(fleet.up):
        return "no machine is up"
    return "; ".join(filter(None, parts))
