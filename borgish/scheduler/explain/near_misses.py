"""The near misses of a class of tasks that no machine takes: what small change would make it fit."""

from math import floor, log10

import numpy as np

from borgish.resources import DEVICE_MILLIS, show_devices
from borgish.scheduler.affinity import Rule
from borgish.scheduler.arrays import FloatArray, IntArray
from borgish.scheduler.explain.reasons import Failures, can_come_free, shortage
from borgish.scheduler.feasibility import Reason, kind_name, show_amount
from borgish.scheduler.fleet import CPU, DISK, RAM, Fleet, device_kind, level_of
from borgish.scheduler.task_class import TaskClass

NEAR_ENOUGH = 0.95  # of an amount, for fewer figures
SINGLE_MAX = 2  # changes of one condition that are reported


def near_misses(
    fleet: Fleet, kind: TaskClass, failures: Failures, refused: int, staying: FloatArray, *, ever: bool
) -> list[str]:
    """Return the near misses in words; ``refused`` is how many tasks were not placed.

    ``staying`` is what the job's own tasks hold, by kind of resource and row: nobody leaves for a task of the
    same job. ``ever``: it can fit on the machines there are, when others leave.
    """
    found = [_with_less(fleet, kind, failures)]
    if ever and fleet.preemptible:
        found.append(_with_more_rights(fleet, kind, failures, staying))
    return [*filter(None, found), *_without_one(fleet, kind, failures, refused)]


def nearest(fleet: Fleet, failures: Failures) -> str:
    """Return the machine that fewest reasons rule out, with these reasons."""
    rows = np.flatnonzero(failures.present)
    row = int(rows[np.argmin(failures.against[rows])])
    reasons = [each.text for each in failures.all if each.fails[row]]
    return f"the nearest, {fleet.names[row]}, {' and '.join(reasons)}"


# Less of what is short


def _with_less(fleet: Fleet, kind: TaskClass, failures: Failures) -> str:
    """Return with how much less of which resources the nearest machines would do."""
    rows = np.flatnonzero(failures.only(failures.short()))
    if not len(rows):
        return ""
    available = {number: _available(fleet, kind, number)[rows] for number, _ in kind.needs}
    some = np.all([amount > 0 for amount in available.values()], axis=0)
    if not np.any(some):
        return ""
    row = int(np.argmin(np.where(some, shortage(available, kind), np.inf)))
    asked = {
        number: _written(fleet, kind, number, available[number].item(row))
        for number, amount in kind.needs
        if available[number].item(row) < amount
    }
    if not asked:
        return ""
    wanted = {number: asked[number][0] if number in asked else amount for number, amount in kind.needs}
    fits = np.all([available[number] >= amount for number, amount in wanted.items()], axis=0)
    words = [f"{kind_name(fleet, number)} <= {text}" for number, (_, text) in asked.items()]
    return f"fits {fleet.count_words(int(np.count_nonzero(fits)))} with {' and '.join(words)}"


def _available(fleet: Fleet, kind: TaskClass, number: int) -> FloatArray:
    """Return how much one task could have of a resource: of devices whole ones, or the largest part."""
    for name, millis in kind.devices:
        if fleet.kind(device_kind(name)) == number:
            device = fleet.device(name)
            whole = np.where(device.whole > 0, device.whole * float(DEVICE_MILLIS), device.most)
            return whole if millis >= DEVICE_MILLIS else device.most
    free: FloatArray = fleet.free[number]
    return free


def _written(fleet: Fleet, kind: TaskClass, number: int, amount: float) -> tuple[float, str]:
    """Return an amount cut so that it can be written in a job file in few figures, and as it is written."""
    if number in (RAM, DISK):
        return _bytes_written(int(amount))
    if any(fleet.kind(device_kind(name)) == number for name, _ in kind.devices):
        return amount, show_devices(int(amount))
    step = 10 ** max(0, floor(log10(max(1.0, amount))) - 2) if number == CPU else 1
    cut = floor(amount / step) * step
    return float(cut), show_amount(number, cut)


def _bytes_written(amount: int) -> tuple[float, str]:
    """Return bytes in quarters of a unit, halves from 10 on, wholes from 100 on, or in the next smaller."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        size = 1024**power
        parts = 4 if amount < 10 * size else 2 if amount < 100 * size else 1
        cut = amount * parts // size * size / parts
        if cut > amount * NEAR_ENOUGH:
            return cut, f"{cut / size:.10g}{unit}"
    return float(amount), f"{amount}B"


# Others who would have to leave


def _with_more_rights(fleet: Fleet, kind: TaskClass, failures: Failures, staying: FloatArray) -> str:
    """Return where tasks that it may not preempt, or not now, hold enough for it."""
    if kind.devices:  # what is free of them in sum does not tell
        return ""
    rows = np.flatnonzero(failures.only(failures.short()))
    level = np.full(len(rows), -1.0)
    for number, amount in kind.needs:
        lower = [
            # Nobody leaves for a task of the same job.
            (each, held[number][rows] - (staying[number][rows] if each == kind.priority else 0.0))
            for each, held in sorted(fleet.held.items(), key=lambda pair: pair[0])
            if not fleet.bands.is_prod(each)
        ]
        level = np.maximum(level, level_of(amount, fleet.free[number][rows], lower))
    level[~can_come_free(fleet, kind, rows, staying)] = np.inf
    reached = int(np.count_nonzero(level < kind.reach))
    if reached:
        hold = "holds" if reached == 1 else "hold"
        return f"{fleet.count_words(reached)} {hold} enough for it in lower tasks, which may not leave now"
    least = float(level.min(initial=np.inf))
    if least == np.inf:
        return ""
    where = fleet.count_words(int(np.count_nonzero(level == least)))
    band = fleet.bands.of(int(least))
    return f"would fit {where} if it could preempt {band}, by a priority above {int(least)}"


# One condition less


def _without_one(fleet: Fleet, kind: TaskClass, failures: Failures, refused: int) -> list[str]:
    """Return what would do if a single condition were not, that with most machines first."""
    alone = failures.present & (failures.against == 1)
    found: list[tuple[int, str]] = []
    for each in failures.all:
        if each.resource is not None or _is_redundant(fleet, each):
            continue
        rows = np.flatnonzero(each.fails & alone)
        if each.rule is not None and each.rule.most:  # without a value to count by no change of it helps
            rows = rows[each.rule.values(fleet)[rows] != fleet.absent(each.rule.over)]
        if len(rows):
            found.append((len(rows), _without(fleet, kind, each, rows, refused)))
    return [words for _, words in sorted(found, key=lambda pair: -pair[0])[:SINGLE_MAX]]


def _is_redundant(fleet: Fleet, reason: Reason) -> bool:
    """Return whether the hint has it already, since no machine has what is asked for."""
    return not reason.without and reason.never is not None and bool(np.all(reason.never[fleet.present]))


def _without(fleet: Fleet, kind: TaskClass, reason: Reason, rows: IntArray, refused: int) -> str:
    machines = fleet.count_words(len(rows))
    if reason.rule is not None and reason.rule.most:
        return f"fits {_with_more_each(fleet, kind, reason.rule, rows, refused)}"
    if reason.without:
        return f"fits {machines} {reason.without}"
    return f"would fit {machines} that {reason.text if len(rows) == 1 else reason.plural}"


def _with_more_each(fleet: Fleet, kind: TaskClass, rule: Rule, rows: IntArray, refused: int) -> str:
    """Return which maximum of a spread would let all refused tasks in, or at least the next one."""
    values = rule.values(fleet)[rows]
    count = rule.counts(fleet)
    room: dict[int, int] = {}
    for value, copies in zip(values.tolist(), _copies(fleet, kind, rows).tolist(), strict=True):
        room[value] = room.get(value, 0) + int(copies)
    there = {value: int(count[value]) for value in room}
    most = min(there.values()) + 1
    if sum(room.values()) >= refused:
        while sum(min(room[value], max(0, most - there[value])) for value in room) < refused:
            most += 1
    fewer = f"{refused} fewer task{'' if refused == 1 else 's'}"
    return f"with at most {most} per {rule.over} instead of {rule.most}, or with {fewer}"


def _copies(fleet: Fleet, kind: TaskClass, rows: IntArray) -> IntArray:
    """Return how many tasks of a class each of these machines has room for."""
    copies = np.full(len(rows), 1.0 if kind.fixed_ports else np.inf)
    for number, amount in kind.needs:
        copies = np.minimum(copies, fleet.free[number][rows] // amount)
    found: IntArray = np.minimum(copies, 1e9).astype(np.int64)
    return found
