"""Says why no machine takes a class of tasks: per reason how many machines, in words, and the way out.

A machine is counted under every reason that holds for it.
"""

from math import floor, log10

import numpy as np

from borgish.scheduler.arrays import BoolArray
from borgish.scheduler.census import DISK, RAM
from borgish.scheduler.equivalence import Explanation, TaskClass
from borgish.scheduler.feasibility import FILTERS, Failing, kind_name, show_amount
from borgish.scheduler.fleet import Fleet


def explain(fleet: Fleet, kind: TaskClass) -> Explanation:
    """Return why no machine takes these tasks, as things are now."""
    failing = [each for part in FILTERS if part.concerns(kind) for each in part.explain(fleet, kind)]
    counts = [int(np.count_nonzero(each.fails & fleet.present)) for each in failing]
    reasons = {each.reason: count for each, count in zip(failing, counts, strict=True) if count}
    return Explanation(
        fleet.version, len(fleet), reasons, _text(fleet, failing, counts), _hint(fleet, kind, failing)
    )


def _text(fleet: Fleet, failing: list[Failing], counts: list[int]) -> str:
    """Return one line, what rules out most machines first."""
    if not len(fleet):
        return "the cell has no machines"
    ordered = sorted(zip(counts, failing, strict=True), key=lambda pair: -pair[0])
    words = [f"{count} {each.one if count == 1 else each.many}" for count, each in ordered if count]
    return f"0 of {_machines(len(fleet))} fit{'s' if len(fleet) == 1 else ''}: {', '.join(words)}"


def _hint(fleet: Fleet, kind: TaskClass, failing: list[Failing]) -> str:
    """Return the nearest change that would help: first what can never be, then the nearest miss."""
    if not len(fleet):
        return "start a borglet that joins this cell"
    if not np.any(fleet.up):
        return "no machine is up"
    never, less = _impossible(fleet, failing), _less(fleet, kind, failing)
    return "; ".join(filter(None, (never, less))) or _otherwise(fleet, failing)


def _impossible(fleet: Fleet, failing: list[Failing]) -> str:
    """Return what no machine of the cell has, not even an empty one."""
    together = ~fleet.present
    for each in failing:
        if each.never is not None:
            if np.all(each.never[fleet.present]):
                return f"can never fit: no machine {each.lack}"
            together = together | each.never
    return "can never fit: no machine has all of this at once, even when empty" if np.all(together) else ""


def _less(fleet: Fleet, kind: TaskClass, failing: list[Failing]) -> str:
    """Return with how much less of which resources the nearest machines would do."""
    rows = np.flatnonzero(_passing(fleet, [each for each in failing if each.kind is None]))
    if not len(rows):
        return ""
    short = np.zeros(len(rows))
    for number, amount in kind.needs:
        short += np.maximum(0.0, amount - fleet.free[number][rows]) / amount
    nearest = int(rows[np.argmin(short)])
    asked = {
        number: _round_down(number, fleet.free.item(number, nearest))
        for number, _ in _lacking(fleet, kind, nearest)
    }
    if min(asked.values(), default=0.0) <= 0:
        return ""
    fits = rows[
        np.all(
            [fleet.free[number][rows] >= asked.get(number, amount) for number, amount in kind.needs], axis=0
        )
    ]
    words = " and ".join(f"{kind_name(fleet, n)} <= {show_amount(n, amount)}" for n, amount in asked.items())
    return f"fits {_machines(len(fits))} with {words}"


def _lacking(fleet: Fleet, kind: TaskClass, row: int) -> list[tuple[int, float]]:
    return [(number, amount) for number, amount in kind.needs if fleet.free.item(number, row) < amount]


def _otherwise(fleet: Fleet, failing: list[Failing]) -> str:
    """Return which machines fail for one reason only, or that there is nothing but to wait."""
    best, words = 0, ""
    for each in failing:
        others = _passing(fleet, [other for other in failing if other is not each])
        count = int(np.count_nonzero(others))
        if each.kind is None and count > best:
            best, words = count, each.one if count == 1 else each.many
    if best:
        return f"would fit {_machines(best)} that {words}"
    return "waits until something there ends"


def _passing(fleet: Fleet, failing: list[Failing]) -> BoolArray:
    """Return which machines none of these rules out."""
    passes = fleet.present
    for each in failing:
        passes = passes & ~each.fails
    return passes


def _machines(count: int) -> str:
    return f"{count:,} machine{'' if count == 1 else 's'}"


def _round_down(kind: int, amount: float) -> float:
    """Return an amount cut to three figures as it is shown, so that no more is said than there is."""
    unit = 1
    while kind in (RAM, DISK) and amount >= 1024 * unit:
        unit *= 1024
    step = max(1.0, unit * 10.0 ** (floor(log10(max(1.0, amount / unit))) - 2))
    return floor(amount / step) * step
