"""A measured figure: its samples, the goal it has, what others reach, and how all that is printed."""

import statistics
from collections.abc import Sequence

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """What a figure is to reach, in the figure's unit. ``op`` is <=, >= or ~, which is within ``slack``."""

    op: str
    value: float
    slack: float = 0.0

    def met(self, value: float) -> bool:
        if self.op == "~":
            return abs(value - self.value) <= self.slack
        return value <= self.value if self.op == "<=" else value >= self.value

    def __str__(self) -> str:
        return f"{self.op} {self.value:.6g}" + (f" +- {self.slack:g}" if self.slack else "")


def at_most(value: float) -> Goal:
    return Goal("<=", value)


def at_least(value: float) -> Goal:
    return Goal(">=", value)


def near(value: float, slack: float) -> Goal:
    return Goal("~", value, slack)


MEDIAN, LARGEST, MEAN = 0.5, 1.0, -1.0
"""Quantiles with a name; the mean stands in place of one."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is left of a figure when its samples are gone. What was not measured has no value."""

    name: str
    value: float | None
    unit: str
    n: int
    min: float | None
    max: float | None
    goal: str
    peer: str
    met: bool | None = None  # None: it has no goal, or no value
    note: str = ""
    absent: str = ""
    quantile: float = MEDIAN
    decimals: int | None = None

    def shown(self, value: float | None) -> str:
        """Return one of its values as people read it."""
        if value is None:
            return ""
        return short(value) if self.decimals is None else f"{value:,.{self.decimals}f}"


class Figure(msgspec.Struct, frozen=True):
    """One figure. ``quantile`` of the samples is its value: 0.5 is the median, 1 the largest.

    ``peer`` is what others reach, and ``note`` what is to be known of this one. ``absent`` says what the
    machine lacks when it could not be measured. ``decimals`` is how many are shown; three digits that count,
    unless given.
    """

    name: str
    unit: str
    samples: Sequence[float] = ()
    goal: Goal | None = None
    peer: str = ""
    quantile: float = MEDIAN
    absent: str = ""
    decimals: int | None = None
    note: str = ""

    @property
    def value(self) -> float:
        return quantile(self.samples, self.quantile)

    def line(self) -> str:
        """Return the figure as people read it."""
        record = self.record()
        if self.absent:
            return f"{self.name:<32} not measured: {self.absent}"
        parts = [f"{self.name:<32} {record.shown(record.value):>9} {self.unit:<12}"]
        if record.met is not None:
            parts.append(f"goal {self.goal}: {'met' if record.met else 'MISSED'}")
        parts.append(f"(n {record.n}, {record.shown(record.min)} to {record.shown(record.max)})")
        parts += [f"[{about}]" for about in (self.peer, self.note) if about]
        return "  ".join(parts)

    def record(self) -> Record:
        """Return the figure as a program reads it."""
        value = None if self.absent else self.value
        return Record(
            name=self.name,
            value=value,
            unit=self.unit,
            n=len(self.samples),
            min=min(self.samples, default=None),
            max=max(self.samples, default=None),
            goal=str(self.goal) if self.goal else "",
            peer=self.peer,
            met=self.goal.met(value) if self.goal and value is not None else None,
            note=self.note,
            absent=self.absent,
            quantile=self.quantile,
            decimals=self.decimals,
        )


def quantile(samples: Sequence[float], part: float) -> float:
    """Return the median for 0.5, the mean for ``MEAN``, else the sample that ``part`` of all is not above."""
    if part == MEAN:
        return statistics.mean(samples)
    if part == MEDIAN:
        return statistics.median(samples)
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def short(value: float) -> str:
    """Return a number with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
