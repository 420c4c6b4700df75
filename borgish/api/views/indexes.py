"""Sets of task indexes as people read them: ``0-4,7``."""

from collections.abc import Iterable
from functools import lru_cache

from borgish.text import show_indexes


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
