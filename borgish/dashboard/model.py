"""What one frame shows: a summary and a size in, lines of exactly that size out. Pure.

Narrow screens have the lists below each other, wide ones in two columns. Rows go to the lists by weight;
what one does not need, the others get.
"""

from collections.abc import Sequence

import msgspec

from borgish.dashboard import lists
from borgish.dashboard.bars import FREE_MARK, HELD_MARK, USED_MARK
from borgish.dashboard.fit import Line, Piece, Role, line
from borgish.dashboard.head import head
from borgish.dashboard.lists import Listing
from borgish.wire.api import SummaryView

WIDE_COLUMNS_MIN = 140
_GUTTER = Piece(" │ ", Role.DIM)
_GUTTER_COLUMNS = 3
_KEYS = "q quits  p pauses    "


class Shown(msgspec.Struct, frozen=True):
    """All that a frame depends on but its size."""

    view: SummaryView
    elapsed_seconds: float = 0.0  # since the view was true
    banner: str = ""  # what is wrong with what is shown
    keys: bool = True  # somebody can press keys


class Frame(msgspec.Struct, frozen=True):
    """Lines that are ``width`` columns wide, each; ``height`` of them, or fewer when not filled up."""

    width: int
    height: int
    lines: tuple[Line, ...]


def frame(shown: Shown, width: int, height: int, *, filled: bool = True) -> Frame:
    """Return what to show on a screen of this size. Without ``filled`` it ends after its last row."""
    width, height = max(1, width), max(1, height)
    top = [line([], width, shown.banner, Role.BANNER)] if shown.banner else []
    top += [line([], width, refused, Role.BANNER) for refused in shown.view.status.refusing]
    top += head(shown.view.status, shown.elapsed_seconds, width)
    bottom = [_foot(shown, width)]
    room = height - len(top) - len(bottom)
    body = _wide(shown.view, width, room) if width >= WIDE_COLUMNS_MIN else _narrow(shown.view, width, room)
    if filled:
        body += [line([], width)] * (room - len(body))
    return Frame(width, height, tuple([*top, *body, *bottom][:height]))


def _foot(shown: Shown, width: int) -> Line:
    keys = _KEYS if shown.keys else ""
    return line([], width, f"{keys}{USED_MARK} used  {HELD_MARK} committed  {FREE_MARK} free", Role.DIM)


def _narrow(view: SummaryView, width: int, height: int) -> list[Line]:
    listings = [lists.machines(view), lists.jobs(view), lists.pending(view), lists.events(view)]
    return _stack(listings, (3, 3, 3, 3), width, height)


def _wide(view: SummaryView, width: int, height: int) -> list[Line]:
    left_width = (width - _GUTTER_COLUMNS) // 2
    right_width = width - _GUTTER_COLUMNS - left_width
    left = _stack([lists.machines(view), lists.events(view)], (3, 2), left_width, height)
    right = _stack([lists.jobs(view), lists.pending(view)], (3, 2), right_width, height)
    rows = max(len(left), len(right))
    left += [line([], left_width)] * (rows - len(left))
    right += [line([], right_width)] * (rows - len(right))
    return [(*ours, _GUTTER, *theirs) for ours, theirs in zip(left, right, strict=True)]


def _stack(listings: Sequence[Listing], weights: Sequence[int], width: int, height: int) -> list[Line]:
    """Return the lists below each other, in at most ``height`` lines."""
    rows = shares([listing.rows for listing in listings], weights, height - len(listings))
    drawn = [row for listing, count in zip(listings, rows, strict=True) for row in listing.draw(width, count)]
    return drawn[: max(0, height)]


def shares(wanted: Sequence[int], weights: Sequence[int], rows: int) -> list[int]:
    """Return how many rows each gets: by weight, never more than it wants, nothing left over in vain."""
    given = [0] * len(wanted)
    for _ in range(max(0, rows)):
        hungry = [i for i in range(len(wanted)) if given[i] < wanted[i]]
        if not hungry:
            break
        given[min(hungry, key=lambda i: given[i] / weights[i])] += 1
    return given
