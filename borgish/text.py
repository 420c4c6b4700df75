"""Foreign text made fit for a terminal, and times and indexes as people read them.

Whatever comes from users or their programs passes through ``safe`` before it is shown on a terminal:
nothing in it can move the cursor, set a title, hide or reorder text.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache

from borgish.clock import SystemClock


def safe(text: str) -> str:
    """Return one line of text with everything that is not printable escaped, line ends included."""
    if text.isprintable():  # false for control, format, surrogate and separator characters
        return text
    return "".join(c if c.isprintable() else escape(c) for c in text)


def safe_lines(text: str) -> str:
    """Return text like ``safe`` does, but leave line ends and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else escape(c) for c in text)


def escape(character: str) -> str:
    """Return a character by its number, as Python writes it: ``\\x1b``, ``\\u202e``."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def age(moment: str | None, now: float | None = None) -> str:
    """Return how long ago an ISO 8601 moment was, in one or two digits and a unit: ``5m``."""
    if not moment:
        return "-"
    return span(seconds_since(moment, now))


def seconds_since(moment: str, now: float | None = None) -> float:
    """Return for how many seconds an ISO 8601 moment has been past; less than 0 for one to come."""
    return (SystemClock().now().wall if now is None else now) - wall_time(moment)


def wall_time(moment: str) -> float:
    """Return an ISO 8601 moment in seconds since 1970."""
    at = datetime.fromisoformat(moment)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def first_line(text: str) -> str:
    """Return the first line of a text."""
    return text.partition("\n")[0]


def begun(text: str) -> str:
    """Return a text as a sentence begins: with a capital, if a word stands first, and no name or path."""
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def span(seconds: float) -> str:
    """Return a duration in whole units, the largest that gives at least two: ``90s``, ``5m``, ``3h``."""
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds / size)}{unit}"
    return f"{int(seconds)}s"


@lru_cache(4096)  # of a list's tasks many began at one moment
def instant(seconds: float) -> str:
    """Return seconds since 1970 as the API writes them: ``2026-01-31T12:00:00.000Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def instant_or_none(seconds: float) -> str | None:
    """Return the moment, or None for 0, which stands for *not known*."""
    return instant(seconds) if seconds else None


def clock_time(moment: str) -> str:
    """Return the time of day of an ISO 8601 moment, in the zone of who asks: ``14:03:21``."""
    return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S")


def day_and_time(moment: str) -> str:
    """Return an ISO 8601 moment in the zone of who asks: ``2026-01-31 14:03:21``."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


# As ``instant`` writes them. After = or a quote stands what somebody gave.
_INSTANT = re.compile(r"(?<![\w=\"'`])\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\.\d{3}Z(?!\w)")


def local_times(text: str) -> str:
    """Return a text of the master with the instants in it in the zone of who asks."""
    return _INSTANT.sub(_local_time, text) if "Z" in text else text


def _local_time(found: re.Match[str]) -> str:
    try:
        return day_and_time(found[0])
    except (ValueError, OverflowError):  # no such day
        return found[0]


def zoned(text: str) -> str:
    """Return a time with the zone of who asks when it names none, a time of day as the latest such.

    All else is returned as it is, for the master; digits alone are a position.
    """
    if text.isdecimal():
        return text
    try:
        at = _time_of_day(text) or datetime.fromisoformat(text)
        return (at if at.tzinfo else at.astimezone()).isoformat()
    except (ValueError, OverflowError):
        return text


def _time_of_day(text: str) -> datetime | None:
    """Return when it last was ``12:05`` or ``12:05:30``; None for what is no time of day."""
    if ":" not in text:
        return None
    try:
        of_day = time.fromisoformat(text)
    except ValueError:
        return None
    now = datetime.fromtimestamp(SystemClock().now().wall).astimezone()
    today = datetime.combine(now.date(), of_day)
    return today if today.astimezone() <= now else today - timedelta(days=1)


def plural(count: int, noun: str) -> str:
    """Return ``1 task``, ``2 tasks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show_indexes(indexes: Iterable[int]) -> str:
    """Return indexes as text, runs joined by a dash: ``0-4,7``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


@lru_cache(maxsize=256)
def read_indexes(text: str) -> tuple[range, ...]:
    """Return the runs that ``show_indexes`` wrote."""
    pairs = (part.partition("-") for part in text.split(",") if part)
    return tuple(range(int(low), int(high or low) + 1) for low, _, high in pairs)


def has_index(text: str, index: int) -> bool:
    """Return whether an index is among those that ``show_indexes`` wrote."""
    return any(index in run for run in read_indexes(text))


def tasks_text(indexes: Iterable[int]) -> str:
    """Return ``task 3`` or ``tasks 0-4,7``."""
    text = show_indexes(indexes)
    return f"task {text}" if text.isdigit() else f"tasks {text}"
