"""Lists in pieces: so many items an answer, and where to go on."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from borgish.wire.api import Page

T = TypeVar("T")


def cut(named: Iterable[tuple[str, T]], limit: int) -> tuple[list[T], Page]:
    """Return the first items of (name, item) pairs, and the page after them."""
    first = list(islice(named, limit + 1))
    following = first[limit - 1][0] if len(first) > limit else ""
    return [item for _, item in first[:limit]], Page(following)
