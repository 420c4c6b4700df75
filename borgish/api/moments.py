"""Reads moments of the past as callers write them: ISO 8601, or an age."""

import math
import re
from datetime import UTC, datetime

from borgish.errors import Invalid
from borgish.resources import parse_seconds

_AGE = re.compile(r"[0-9.]+ ?[a-z]+", re.ASCII)


def moment(text: str, name: str, now: float) -> float | None:
    """Return the moment in seconds since 1970, None for "". Raises Invalid, naming the parameter.

    A time without a zone is in UTC.
    """
    if not text:
        return None
    try:
        if _AGE.fullmatch(text):
            return now - parse_seconds(text, 0, math.inf)
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise Invalid(
            f"{name}: '{text}' is neither a time nor an age",
            "Write it like 2026-01-31T12:00:00Z, or 30m, 2h, 1d for so long ago",
        ) from None
