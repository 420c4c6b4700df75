"""A measured figure: its samples, the goal it has, what others reach, and how all that is printed."""

import statistics
from collections.abc import Sequence
from typing import Any

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


MEAN = -1.0
"""In place of a quantile: the mean."""


class Figure(msgspec.Struct, frozen=True):
    """One figure. ``quantile`` of the samples is its value: 0.5 is the median, 1 the largest.

    ``absent`` says what the machine lacks when it could not be measured. ``decimals`` is how many are shown;
    three digits that count, unless given.
    """

    name: str
    unit: str
    samples: Sequence[float] = ()
    goal: Goal | None = None
    peer: str = ""
    quantile: float = 0.5
    absent: str = ""
    decimals: int | None = None

    @property
    def value(self) -> float:
        return quantile(self.samples, self.quantile)

    def line(self) -> str:
        """Return the figure as people read it."""
        if self.absent:
            return f"{self.name:<32} not measured: {self.absent}"
        parts = [f"{self.name:<32} {self._shown(self.value):>9} {self.unit:<12}"]
        if self.goal is not None:
            parts.append(f"goal {self.goal}: {'met' if self.goal.met(self.value) else 'MISSED'}")
        parts.append(
            f"(n {len(self.samples)}, {self._shown(min(self.samples))} to {self._shown(max(self.samples))})"
        )
        if self.peer:
            parts.append(f"[{self.peer}]")
        return "  ".join(parts)

    def _shown(self, value: float) -> str:
        return short(value) if self.decimals is None else f"{value:.{self.decimals}f}"

    def record(self) -> dict[str, Any]:
        """Return the figure as a program reads it; what was not measured has a null value."""
        known = {
            "name": self.name,
            "value": None if self.absent else self.value,
            "unit": self.unit,
            "goal": str(self.goal) if self.goal else "",
            "peer": self.peer,
            "n": len(self.samples),
            "min": min(self.samples, default=None),
            "max": max(self.samples, default=None),
        }
        if self.absent:
            return known | {"absent": self.absent}
        return known | ({"met": self.goal.met(self.value)} if self.goal else {})


def quantile(samples: Sequence[float], part: float) -> float:
    """Return the median for 0.5, the mean for ``MEAN``, else the sample that ``part`` of all is not above."""
    if part == MEAN:
        return statistics.mean(samples)
    if part == 0.5:
        return statistics.median(samples)
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def short(value: float) -> str:
    """Return a number with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
