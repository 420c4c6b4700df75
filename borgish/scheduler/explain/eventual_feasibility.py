"""Whether a class of tasks that no machine takes can ever fit, and what it waits for when it can.

Jobs that have to be near to what does not run may wait for each other: a job is in an *affinity cycle*
when, for one of its terms, every job that could meet it cannot begin before it.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from borgish.cell.admission import unknown_attribute
from borgish.cell.model import Cell, Job
from borgish.resources import DEVICE_MILLIS
from borgish.scheduler.affinity import UNFIT, Labelled, Rule, selects
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.explain.reasons import Failures, can_come_free, shortage
from borgish.scheduler.feasibility import Reason, kind_name, show_amount
from borgish.scheduler.fleet import ABSENT, Amounts, Fleet
from borgish.scheduler.task_class import TaskClass
from borgish.spec.constraints import contradiction_words
from borgish.spec.job import Affinity, Constraint, JobSpec
from borgish.vocabulary import TASKS_PER_JOB_MAX, State

NAMES_SHOWN = 3
WAITING_MAX = 200  # with more jobs that wait in this way, cycles are not searched for


def impossible(cell: Cell, fleet: Fleet, kind: TaskClass, failures: Failures) -> str:
    """Return why it can never fit on the machines of this cell, not even on empty ones; "": it can."""
    why = (
        contradiction_words(kind.wanted.constraints)
        or _nowhere(fleet, failures)
        or _too_many(cell, fleet, kind, failures)
        or _too_large_a_gang(cell, fleet, kind, failures)
    )
    return f"can never fit: {why}" if why else ""


def _nowhere(fleet: Fleet, failures: Failures) -> str:
    """Return what no machine has."""
    if not len(fleet):
        return ""
    together = ~fleet.present
    for each in failures.all:
        if each.never is not None:
            if np.all(each.never[fleet.present]):
                return _lacking(fleet, each)
            together = together | each.never
    return f"no {fleet.noun} has all of this at once, even when empty" if np.all(together) else ""


def _lacking(fleet: Fleet, reason: Reason) -> str:
    named = reason.constraint.attribute if reason.constraint else ""
    attribute = reason.rule.over if reason.rule else named
    if attribute and fleet.preemptible and not fleet.attributes.has(attribute):
        return unknown_attribute(attribute, fleet.attributes.names())
    return f"no {fleet.noun} {reason.lack}"


def _too_many(cell: Cell, fleet: Fleet, kind: TaskClass, failures: Failures) -> str:
    """Return which rule allows fewer tasks on all machines than the job has."""
    job = cell.jobs.get(kind.key.alone)
    if job is None or any(override.resources for override in job.spec.overrides.values()):
        return ""
    tasks = job.running + job.pending
    for each in failures.all:
        if each.rule is not None and each.rule.own and each.rule.below < UNFIT:
            room = int(each.rule.below) * _values(fleet, failures, each.rule)
            if room < tasks:
                return f"by {each.rule.reason}, there is room for {room} of its {tasks} tasks"
    return ""


def _values(fleet: Fleet, failures: Failures, rule: Rule) -> int:
    """Return on how many values of a rule's attribute there are machines that would do when empty."""
    return len(np.unique(rule.values(fleet)[_possible(fleet, failures)]))


def _possible(fleet: Fleet, failures: Failures) -> BoolArray:
    """Return which machines would do when empty."""
    possible = fleet.present
    for each in failures.all:
        if each.never is not None:
            possible = possible & ~each.never
    return possible


def _too_large_a_gang(cell: Cell, fleet: Fleet, kind: TaskClass, failures: Failures) -> str:
    """Return that the machines could not hold all of a gang at once.

    Of tasks that differ in their needs only the sums are compared: these may fit, and the gang never.
    """
    job = cell.jobs.get(kind.key.alone)
    if job is None or not job.spec.gang:
        return ""
    runs = job.lagging is None  # else what runs has other needs
    if any(override.resources for override in job.spec.overrides.values()):
        return _too_much(fleet, job, runs=runs)
    tasks = job.pending + (job.running if runs else 0)
    room = _room_when_empty(fleet, kind, np.flatnonzero(_possible(fleet, failures)))
    if room >= tasks:
        return ""
    have = "has" if len(fleet) == 1 else "have"
    return (
        f"a gang is placed whole, and the {fleet.count_words(len(fleet))} {have} room for {room} of its "
        f"{tasks} tasks when empty"
    )


def _room_when_empty(fleet: Fleet, kind: TaskClass, rows: IntArray) -> int:
    """Return how many tasks of a class empty machines hold, as far as its own rules let them."""
    copies = np.full(len(rows), 1.0 if kind.fixed_ports else np.inf)
    for number, amount in kind.needs:
        copies = np.minimum(copies, fleet.capacity[number][rows] // amount)
    for name, millis in kind.devices:
        devices = np.count_nonzero(fleet.device(name).free[:, rows] != ABSENT, axis=0)
        parts = DEVICE_MILLIS // millis if millis < DEVICE_MILLIS else 1 / (millis // DEVICE_MILLIS)
        copies = np.minimum(copies, devices * parts // 1)
    least = float(copies.sum())
    for rule in kind.rules:
        if rule.own and rule.below < UNFIT:
            at_value = np.zeros(int(rule.values(fleet).max(initial=0)) + 1)
            np.add.at(at_value, rule.values(fleet)[rows], copies)
            least = min(least, float(np.minimum(at_value, rule.below).sum()))
    return int(min(least, TASKS_PER_JOB_MAX))


def _too_much(fleet: Fleet, job: Job, *, runs: bool) -> str:
    """Return of which resource the tasks of a gang ask for more than all machines have."""
    asked: Amounts = {}
    for task in job.tasks:
        if task.state is State.PENDING or (runs and task.state is State.RUNNING):
            fleet.kinds.add(asked, job.spec.needs(task.index))
    for number, amount in asked.items():
        there = float(fleet.capacity[number][fleet.present].sum()) if number < len(fleet.capacity) else 0.0
        if amount > there:
            name = kind_name(fleet, number)
            asks = f"its tasks ask for {show_amount(number, amount)} of {name} together"
            return f"a gang is placed whole, and {asks}: all {fleet.noun}s have {show_amount(number, there)}"
    return ""


def unmet(cycles: "AffinityCycles", kind: TaskClass) -> str:
    """Return what does not run that it has to be near to, and whether it waits in a circle."""
    rule = nobody_near(kind)
    if rule is None:
        return ""
    nothing = f"nothing runs with {_labels(rule)}"
    return "; ".join(filter(None, (nothing, cycles.words(kind.key.alone))))


def _labels(rule: Rule) -> str:
    return rule.reason.removeprefix("near ").rpartition(" over ")[0]


def waits_for(fleet: Fleet, kind: TaskClass, failures: Failures, staying: FloatArray) -> str:
    """Return what it waits for, in words; "" where waiting alone does not help.

    ``staying`` is what the job's own tasks hold, by kind of resource and row.
    """
    rule = nobody_near(kind)
    if rule is not None:
        return f"a task with {_labels(rule)} to run"
    would = failures.only([each for each in failures.all if each.comes_free])
    rows = np.flatnonzero(would & _possible(fleet, failures))
    rows = rows[can_come_free(fleet, kind, rows, staying)]
    if not len(rows):
        return ""
    short = shortage({number: fleet.free[number][rows] for number, _ in kind.needs}, kind)
    order = np.lexsort((rows, np.broadcast_to(short, rows.shape)))
    names = [fleet.names[row] for row in rows[order[:NAMES_SHOWN]].tolist()]
    more = len(rows) - len(names)
    return f"room on {listed(names, more)}"


def listed(names: list[str], more: int = 0) -> str:
    """Return ``m1, m2 and m3``, or ``m1, m2, m3 and 4 more``."""
    parts = [*names, f"{more:,} more"] if more else names
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


# Affinity cycles


def nobody_near(kind: TaskClass) -> Rule | None:
    """Return the first rule by which the class has to be near to tasks that run nowhere."""
    for rule in kind.rules:
        if rule.some and not rule.own and not rule.counter.total:
            return rule
    return None


class AffinityCycles:
    """The cycles of a cell at one moment; nothing is computed before it is asked for."""

    def __init__(self, cell: Cell, fleet: Fleet) -> None:
        self._cell, self._fleet = cell, fleet

    def words(self, job: str) -> str:
        """Return that a job waits for others that wait for it, and the way out; "": it does not."""
        circle = self.find(job)
        if not circle:
            return ""
        way_out = "give one of them a weight in its near"
        round_about = " in a circle" * (len(circle) > 2)
        return f"{', '.join(circle[:-1])} and {circle[-1]} wait for each other{round_about}: {way_out}"

    def find(self, job: str) -> list[str]:
        """Return the jobs of a circle, beginning with this one; each has to be near to the next."""
        before: dict[str, str] = {}
        to_do = [job]
        for here in to_do:
            for there in (key for term in self._stuck.get(here, ()) for key in term):
                if there == job:
                    way = [here]
                    while way[0] != job:
                        way.insert(0, before[way[0]])
                    return way
                if there not in before:
                    before[there] = here
                    to_do.append(there)
        return []

    @cached_property
    def _stuck(self) -> dict[str, list[list[str]]]:
        """By job that cannot begin: for each of its terms that nothing meets, the jobs that would."""
        waits = self._waiting()
        while True:
            free = {k for k, terms in waits.items() if all(any(o not in waits for o in t) for t in terms)}
            if not free:
                return waits
            waits = {key: terms for key, terms in waits.items() if key not in free}

    def _waiting(self) -> dict[str, list[list[str]]]:
        pending = [job.spec for job in self._cell.jobs.values() if job.pending]
        unmet = {spec.key: terms for spec in pending if (terms := tuple(self._unmet(spec)))}
        if len(unmet) > WAITING_MAX:
            return {}
        by_label: dict[tuple[str, str], list[JobSpec]] = {}
        for spec in pending:
            for label in spec.labels.items():
                by_label.setdefault(label, []).append(spec)
        return {
            key: [[spec.key for spec in _with_label(term, by_label) if selects(term, spec)] for term in terms]
            for key, terms in unmet.items()
        }

    def _unmet(self, spec: JobSpec) -> Iterator[Affinity]:
        """Yield the terms that nothing meets, of those that name a label's value: others go for met."""
        for term in spec.near:
            if term.weight or selects(term, spec) or _named(term) is None:
                continue
            if not self._fleet.counter(self._cell, Labelled(term.labels)).total:
                yield term


def _named(term: Affinity) -> Constraint | None:
    """Return the first of a term's conditions that says which values a label may have."""
    return next((each for each in term.labels if each.op in ("==", "in")), None)


def _with_label(term: Affinity, by_label: dict[tuple[str, str], list[JobSpec]]) -> Iterator[JobSpec]:
    named = _named(term)
    for value in dict.fromkeys(named.values) if named else ():
        yield from by_label.get((named.attribute, value), ()) if named else ()
