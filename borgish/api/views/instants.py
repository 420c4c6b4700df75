"""Writes moments as the API promises them: ISO 8601 in UTC, milliseconds, with a Z."""

from datetime import UTC, datetime


def instant(seconds: float) -> str:
    """Return seconds since 1970 as text: ``2026-01-31T12:00:00.000Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def instant_or_none(seconds: float) -> str | None:
    """Return the moment, or None for 0, which stands for *not known*."""
    return instant(seconds) if seconds else None
