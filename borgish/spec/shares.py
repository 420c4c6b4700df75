"""How many of some tasks, and how many in a time: ``1``, ``10%`` and ``5 per 10m``."""

import re

import msgspec

from borgish.resources import parse_seconds, show_seconds
from borgish.vocabulary import TASKS_PER_JOB_MAX

RATE_MAX = 1000
SHARE_PATTERN = "^([1-9][0-9]{0,3}|[1-9][0-9]?%)$"
SHARE_OR_NONE_PATTERN = "^([0-9]{1,4}|[0-9]{1,2}%|100%)$"
_DAY_SECONDS = 86_400.0


class Share(msgspec.Struct, frozen=True):
    """A number of tasks, or a percentage of them, rounded down; never less than one task, unless ``count``
    is 0.

    Both are kept as they were written: a percentage goes with the number of tasks.
    """

    count: int = 1
    percent: int = 0  # 0: it is the count that is meant

    def of(self, total: int) -> int:
        """Return how many of so many tasks this is."""
        return max(self.count, total * self.percent // 100)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent else str(self.count)


class Rate(msgspec.Struct, frozen=True):
    """So many in any stretch of so long."""

    count: int
    within_seconds: float

    def __str__(self) -> str:
        return f"{self.count} per {show_seconds(self.within_seconds)}"


def parse_share(text: str, low: int = 1) -> Share:
    """Return what a text like ``1`` or ``10%`` says, at least ``low`` (0 or 1) tasks. Raises ValueError,
    worded to follow the text."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    if not re.fullmatch(r"[0-9]{1,6}", number):
        raise ValueError("is neither a number of tasks nor a percentage")
    most = 100 if percent else TASKS_PER_JOB_MAX
    if not low <= int(number) <= most:
        raise ValueError(f"is outside {low}{'%' * percent} to {most}{'%' * percent}")
    return Share(low, int(number)) if percent else Share(int(number))


def parse_rate(text: str) -> Rate:
    """Return what a text like ``5 per 10m`` says. Raises ValueError, worded to follow the text."""
    count, _, within = (part.strip() for part in text.partition(" per "))
    if not re.fullmatch(r"[0-9]{1,6}", count) or not within:
        raise ValueError("is not a number per time")
    if not 1 <= int(count) <= RATE_MAX:
        raise ValueError(f"is outside 1 to {RATE_MAX} tasks per time")
    return Rate(int(count), parse_seconds(within, 1, 30 * _DAY_SECONDS))
