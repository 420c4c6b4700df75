"""Whether a class of tasks that no machine takes can ever fit, and what it waits for when it can."""

import numpy as np

from borgish.cell.doubts import unknown_attribute
from borgish.cell.state import Cell
from borgish.scheduler.circles import Circles, nobody_near
from borgish.scheduler.equivalence import TaskClass
from borgish.scheduler.failures import Failures
from borgish.scheduler.feasibility import Failing
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.misses import shortage
from borgish.scheduler.rules import UNFIT, Rule
from borgish.spec.contradiction import contradiction_words

NAMES_SHOWN = 3


def impossible(cell: Cell, fleet: Fleet, kind: TaskClass, failures: Failures) -> str:
    """Return why it can never fit on the machines of this cell, not even on empty ones; "": it can."""
    why = (
        contradiction_words(kind.wanted.constraints)
        or _nowhere(fleet, failures)
        or _too_many(cell, fleet, kind, failures)
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


def _lacking(fleet: Fleet, failing: Failing) -> str:
    named = failing.constraint.attribute if failing.constraint else ""
    attribute = failing.rule.over if failing.rule else named
    if attribute and fleet.gives_way and not fleet.attributes.has(attribute):
        return unknown_attribute(attribute, fleet.attributes.names())
    return f"no {fleet.noun} {failing.lack}"


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
    possible = fleet.present
    for each in failures.all:
        if each.never is not None:
            possible = possible & ~each.never
    return len(np.unique(rule.values(fleet)[possible]))


def unmet(circles: Circles, kind: TaskClass) -> str:
    """Return what does not run that it has to be near to, and whether it waits in a circle."""
    rule = nobody_near(kind)
    if rule is None:
        return ""
    nothing = f"nothing runs with {_labels(rule)}"
    return "; ".join(filter(None, (nothing, circles.words(kind.key.alone))))


def _labels(rule: Rule) -> str:
    return rule.reason.removeprefix("near ").rpartition(" over ")[0]


def waits_for(fleet: Fleet, kind: TaskClass, failures: Failures) -> str:
    """Return what it waits for, in words; "" where waiting alone does not help."""
    rule = nobody_near(kind)
    if rule is not None:
        return f"a task with {_labels(rule)} to run"
    would = failures.only([each for each in failures.all if each.comes_free])
    for each in failures.all:
        if each.never is not None:
            would = would & ~each.never
    rows = np.flatnonzero(would)
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
