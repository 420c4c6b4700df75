"""Explains why no machine takes a class of tasks: per reason how many machines, in words, and the way out.
Borg has a "why pending?" annotation (section 2.6) for it.

It is written for whoever has to act on it: what can never be comes first, then the changes that would help
(near misses), then what the tasks wait for. Amounts in a hint are such as a job file takes.

A machine is counted under every reason that holds for it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import floor, log10

import msgspec
import numpy as np
import numpy.typing as npt

from borgish.cell.limits.admission import unknown_attribute
from borgish.cell.model import Cell, Job
from borgish.resources import DEVICE_MILLIS, show_devices
from borgish.scheduler.affinity import UNFIT, Labelled, Rule, selects
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.scheduler.feasibility import AVOIDED, Reason, kind_name, reasons, show_amount
from borgish.scheduler.fleet import ABSENT, CPU, DISK, PORTS, RAM, Amounts, Fleet, device_kind, level_of
from borgish.scheduler.task_class import Explanation, TaskClass
from borgish.spec.constraints import contradiction_words
from borgish.spec.job import Affinity, Constraint, JobSpec
from borgish.vocabulary import TASKS_PER_JOB_MAX, State

CountArray = npt.NDArray[np.int8]

NAMES_SHOWN = 3
WAITING_MAX = 200  # with more jobs that wait in this way, cycles are not searched for
NEAR_ENOUGH = 0.95  # of an amount, for fewer figures
SINGLE_MAX = 2  # changes of one condition that are reported

Members = Sequence[tuple[TaskClass, list[int]]]
"""Tasks of a gang by class, and the rows that they are on."""


class Failures:
    """The reasons, in the order of the filters, that rule out some machine.

    ``counts`` are how many each rules out, and ``against`` how many there are against each machine, by row.
    """

    def __init__(self, fleet: Fleet, kind: TaskClass) -> None:
        found = reasons(fleet, kind)
        counts = [int(np.count_nonzero(each.fails & fleet.present)) for each in found]
        self.all = [each for each, count in zip(found, counts, strict=True) if count]
        self.counts = [count for count in counts if count]
        self.machines = len(fleet)
        self.present = fleet.present
        self.against: CountArray = np.zeros(len(fleet.names), dtype=np.int8)
        for each in self.all:
            self.against += each.fails

    def reasons(self) -> dict[str, int]:
        """Return how many machines each reason rules out."""
        return {each.key: count for each, count in zip(self.all, self.counts, strict=True)}

    def only(self, reasons: Sequence[Reason]) -> BoolArray:
        """Return which machines nothing but these reasons rules out: [row]."""
        others = self.against.copy()
        for each in reasons:
            others -= each.fails
        found: BoolArray = (others == 0) & self.present
        return found

    def short(self) -> list[Reason]:
        """Return the reasons that are about too little of a resource."""
        return [each for each in self.all if each.resource is not None]


def shortage(available: dict[int, FloatArray], kind: TaskClass) -> FloatArray:
    """Return how much is short: [row], summed over resources, each as a share of what is asked for.

    ``available`` has an array [row] for each kind of resource that the class needs.
    """
    short: FloatArray = sum(
        (np.maximum(0.0, amount - available[number]) / amount for number, amount in kind.needs), np.zeros(1)
    )
    return short


def can_come_free(fleet: Fleet, kind: TaskClass, rows: IntArray, staying: FloatArray) -> BoolArray:
    """Return which of the rows would have enough for a task if all left but what is ``staying``.

    The answer is parallel to ``rows``; ``staying`` is [resource, row], over all rows of the fleet.
    """
    enough: BoolArray = np.ones(len(rows), dtype=np.bool_)
    for number, amount in kind.needs:
        enough &= fleet.capacity[number][rows] - staying[number][rows] >= amount
    if kind.fixed_ports:  # all tasks of a job want the same ones
        enough &= ~(staying[:, rows] > 0).any(axis=0)
    return enough


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
        misses = near_misses(fleet, kind, failures, refused, staying, ever=not never)
        hint = _hint(fleet, failures, [never, near, *misses])
        return Explanation(
            fleet.version,
            cell.position,
            failures.machines,
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
    machines = failures.machines
    if not machines:
        return f"the cell has no {fleet.noun}s"
    ordered = sorted(zip(failures.counts, failures.all, strict=True), key=lambda pair: -pair[0])
    words = [f"{count:,} {each.text if count == 1 else each.plural}" for count, each in ordered]
    fit = f"0 of {fleet.count_words(machines)} fit{'s' if machines == 1 else ''}"
    return ": ".join(filter(None, (fit, ", ".join(words))))


def _hint(fleet: Fleet, failures: Failures, parts: list[str]) -> str:
    """Return the way out: first what can never be, then the near misses."""
    if not failures.machines:
        return "start a borglet that joins this cell"
    if not np.any(fleet.up):
        return "no machine is up"
    return "; ".join(filter(None, parts))


# Whether it can ever fit, and what it waits for when it can


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
    if not failures.machines:
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
    runs = not job.is_mixed  # else what runs has other needs
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

    ``staying`` is what the job's own tasks hold: [resource, row].
    """
    rule = nobody_near(kind)
    if rule is not None:
        return f"a task with {_labels(rule)} to run"
    avoided = failures.only([each for each in failures.all if each.key == AVOIDED])
    if np.any(avoided):
        names = [fleet.names[row] for row in np.flatnonzero(avoided).tolist()]
        return f"the end of its back-off on {listed(names[:NAMES_SHOWN], max(0, len(names) - NAMES_SHOWN))}"
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


# Jobs that have to be near to what does not run may wait for each other: a job is in an *affinity cycle*
# when, for one of its terms, every job that could meet it cannot begin before it.


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


# Near misses: which small change would make it fit


def near_misses(
    fleet: Fleet, kind: TaskClass, failures: Failures, refused: int, staying: FloatArray, *, ever: bool
) -> list[str]:
    """Return the near misses in words; ``refused`` is how many tasks were not placed.

    ``staying`` is what the job's own tasks hold, [resource, row]: nobody leaves for a task of the same job.
    ``ever``: it can fit on the machines there are, when others leave.
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
            if each < fleet.bands.production
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
