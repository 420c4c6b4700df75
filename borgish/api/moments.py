"""Reads moments as callers write them: ISO 8601, an age or how long it is until then, a position, a
checkpoint's name.
"""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from borgish.errors import Invalid
from borgish.resources import parse_seconds
from borgish.vocabulary import CHECKPOINT_NAME_PATTERN

LAST_MOMENT = 253_402_300_800.0
"""The end of the year 9999, after which no calendar here goes on."""

AT = "at"  # the parameter of all reads that can be asked of the past, and their mark in ``opt``
AT_LEAST = "at_least"
"""The parameter by which a standby may answer, from this position of the journal on. It goes with ``at``, and
is the mark in ``opt`` of reads without a past that a standby can answer, too."""
LEADER_ONLY = "leader_only"
"""The mark in ``opt`` of a read that no standby answers, with the reason."""
READ_IS_AUDITED = "reading it is noted in the audit log, which only the leader writes"
NOW = "now"
AT_CHARACTERS_MAX = 100
OTHER_MOMENTS = (
    "a time like 2026-01-31T12:00:00Z, an age like 5m, '5m ago' or '2 hours ago', a position of the journal"
)
_DATE_PATTERN = (
    r"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)?"
)
MOMENT_PATTERN = rf"{_DATE_PATTERN}|[0-9]{{1,6}}[smhd]"
"""What is documented of moments: each of these is one, though more is understood."""
AT_PATTERN = rf"{MOMENT_PATTERN}|now|[0-9]{{1,18}}"
_AGE = re.compile(r"-?([0-9.]+) ?([a-z]+?)( ago)?", re.ASCII)
_UNITS = {
    word: f"{size}{unit}"
    for words, size, unit in (
        ("second seconds sec secs", 1, "s"),
        ("minute minutes min mins", 1, "m"),
        ("hour hours", 1, "h"),
        ("day days", 1, "d"),
        ("week weeks", 7, "d"),
    )
    for word in words.split()
}
_SPAN = re.compile(r"[0-9.]+ ?[a-z]+", re.ASCII)
_POSITION = re.compile(r"[0-9]{1,40}", re.ASCII)
_CHECKPOINT = re.compile(CHECKPOINT_NAME_PATTERN, re.ASCII)


class Moment(msgspec.Struct, frozen=True):
    """A moment as it was asked for: one of the three, or none of them, which is now."""

    text: str
    position: int | None = None
    at: float | None = None  # seconds since 1970
    checkpoint: str = ""


def read_moment(text: str, now: float) -> Moment:
    """Return the moment that somebody asks for; ``now`` is in seconds since 1970. Raises Invalid for what is
    none."""
    if text == NOW:
        return Moment(text)
    if _POSITION.fullmatch(text):
        return Moment(text, position=int(text))
    if _CHECKPOINT.fullmatch(text):
        return Moment(text, checkpoint=text)
    try:
        return Moment(text, at=_seconds(text, now))
    except (ValueError, OverflowError):
        raise Invalid(
            f"invalid moment '{text[:AT_CHARACTERS_MAX]}'",
            f"Give {OTHER_MOMENTS}, or the name of a checkpoint",
        ) from None


def not_reached(position: int, head: int) -> Invalid:
    """Return the error for a position of the journal above ``head``, its last."""
    return Invalid(f"position {position} does not exist yet", f"The latest is {head}")


def no_such_name(name: str, where: str, named: Iterable[str]) -> Invalid:
    """Return the error for a word that could be a checkpoint's name and is none: it may be a misspelt
    moment of any other kind.
    """
    names = ", ".join(filter(None, named))
    hint = f"Give {OTHER_MOMENTS}, or the name of a checkpoint"
    return Invalid(f"no checkpoint '{name}' is {where}", f"{hint}: {names or 'none has one'}")


def moment(text: str, name: str, now: float) -> float | None:
    """Return the time of a parameter in seconds since 1970, None for "". Raises Invalid, naming it.

    A time without a zone is in UTC; 2h is two hours ago.
    """
    if not text:
        return None
    try:
        return _seconds(text, now)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{name}: '{text}' is neither a time nor an age",
            "Write it like 2026-01-31T12:00:00Z, or 30m, 2h, 1d for that long ago",
        ) from None


def moment_ahead(text: str, name: str, now: float) -> float | None:
    """Return a moment to come, in seconds since 1970 as ``now`` is: 2h is in two hours. None for "".

    Raises Invalid for what is no such moment.
    """
    if not text:
        return None
    try:
        at = now + parse_seconds(text, 0, math.inf) if _SPAN.fullmatch(text) else _seconds(text, now)
        if not 0 < at < LAST_MOMENT:
            raise ValueError
        return at
    except (ValueError, OverflowError):
        raise Invalid(
            f"{name}: '{text[:63]}' is neither a time nor a duration from now",
            "Write it like 2026-12-31 or 2026-12-31T18:00:00Z, or 12h, 30d for that long from now",
        ) from None


def _seconds(text: str, now: float) -> float:
    """Raises ValueError and OverflowError."""
    if aged := _AGE.fullmatch(text):
        return now - _span(aged[1], aged[2])
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _span(number: str, unit: str) -> float:
    """Return the seconds of ``5`` and ``m`` or ``minutes``. Raises ValueError."""
    if unit not in _UNITS:
        return parse_seconds(f"{number}{unit}", 0, math.inf)
    return float(number) * parse_seconds(_UNITS[unit], 0, math.inf)
