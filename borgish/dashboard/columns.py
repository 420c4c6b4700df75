"""Foreign text, and bars, in an exact number of columns, and lines made of such pieces. Pure.

A column is one cell of the terminal: a Chinese character takes two. What is invisible, or makes terminals
disagree on the width of its neighbours, is written out by its number. Bars read without colour: each kind of
use has a mark of its own.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

import msgspec
from rich.cells import cell_len, set_cell_size

from borgish.text import escape, safe
from borgish.vocabulary import Band

CUT_MARK = "…"
# Fillers of Hangul, variation selectors, skin tones: printable, and not to be seen or measured alone.
_UNCLEAR = re.compile("[\u115f\u1160\u3164\uffa0\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")
_CHARACTERS_PER_COLUMN_MAX = 4  # so that a huge text of marks without width costs little


class Role(StrEnum):
    """What a piece of a line is. How that looks is decided in ``panels``."""

    PLAIN = "plain"
    TITLE = "title"
    HEADING = "heading"
    DIM = "dim"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    BANNER = "banner"
    USED = "used"
    HELD = "held"
    MONITORING = "monitoring"
    PRODUCTION = "production"
    BATCH = "batch"
    FREE = "free"
    KEY = "key"  # what to press
    NEW = "new"  # what changed just now
    FOUND = "found"  # what was searched for


class Piece(msgspec.Struct, frozen=True):
    """Some columns of a line: text that is safe to show and exactly as wide as it should be. ``chosen``: the
    cursor is on its line."""

    text: str
    role: Role = Role.PLAIN
    chosen: bool = False


Line = tuple[Piece, ...]


def width_of(text: str) -> int:
    """Return how many columns a safe text takes."""
    return cell_len(text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return foreign text made safe, cut (with a mark) or padded to exactly ``width`` columns."""
    if width <= 0:
        return ""
    some = text[: width * _CHARACTERS_PER_COLUMN_MAX]
    shown = _visible(some)
    spare = width - cell_len(shown)
    if spare < 0 or len(some) < len(text):
        return set_cell_size(shown, width - 1) + CUT_MARK
    return " " * spare + shown if right else shown + " " * spare


def name(text: str, width: int, role: Role = Role.PLAIN) -> Piece:
    """Return a cell with a name; a long one is cut in the middle, as names often differ in their ends."""
    if len(text) > width >= 3 and text.isascii() and text.isprintable():
        tail = (width - 1) // 2
        text = text[: width - 1 - tail] + CUT_MARK + text[-tail:]
    return piece(text, width, role)


def piece(text: str, width: int, role: Role = Role.PLAIN, *, right: bool = False) -> Piece:
    """Return one cell of a table: ``text`` in ``width`` columns, and one column of gap."""
    return Piece(fit(text, width, right=right) + " ", role)


def words(text: str, role: Role = Role.PLAIN) -> Piece:
    """Return a piece as wide as its text, with two columns of gap."""
    return Piece(_visible(text) + "  ", role)


def line(pieces: Iterable[Piece], width: int, rest: str = "", role: Role = Role.PLAIN) -> Line:
    """Return a line of exactly ``width`` columns: the pieces, cut with a mark where they are wider, then
    ``rest`` in what is left."""
    made = tuple(pieces)
    room = width - sum(cell_len(one.text) for one in made)
    return (*made, Piece(fit(rest, room), role)) if room >= 0 else _cut(made, width)


def _cut(pieces: Sequence[Piece], width: int) -> Line:
    """Return pieces that are together wider than ``width`` columns in so many: with a mark at the end, if
    more than a gap has no room."""
    made: list[Piece] = []
    room = width
    for one in pieces:
        if kept := set_cell_size(one.text, min(room, cell_len(one.text))):
            made.append(Piece(kept, one.role, one.chosen))
        room -= cell_len(kept)
    if made and cell_len("".join(one.text for one in pieces).rstrip()) > width:
        last = made.pop()
        made.append(
            Piece(set_cell_size(last.text, cell_len(last.text) - 1) + CUT_MARK, last.role, last.chosen)
        )
    return tuple(made)


def chosen(row: Line) -> Line:
    """Return a line as it is under the cursor."""
    return tuple(Piece(each.text, each.role, True) for each in row)


def marked(row: Line, text: str) -> Line:
    """Return a line in which a text stands out wherever it is, in whatever case."""
    found = re.compile(f"({re.escape(text)})", re.IGNORECASE)
    return tuple(
        Piece(part, Role.FOUND if i % 2 else each.role, each.chosen)
        for each in row
        for i, part in enumerate(found.split(each.text))
        if part
    )


@lru_cache(4096)  # the same texts are shown four times a second
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """Return a foreign text in lines of so many columns, made safe; at least one."""
    return tuple(textwrap.wrap(safe(text), max(20, width))) or ("",)


def _visible(text: str) -> str:
    shown = safe(text)
    return shown if shown.isascii() else _UNCLEAR.sub(lambda found: escape(found[0]), shown)


FREE_MARK = "·"
USED_MARK = "━"
HELD_MARK = "─"
BAND_MARKS = {Band.MONITORING: "█", Band.PRODUCTION: "▓", Band.BATCH: "▒", Band.FREE: "░"}


def share(part: float, whole: float) -> float:
    """Return a part of a whole, >= 0; 0 where there is nothing to share."""
    return max(0.0, part / whole) if whole > 0 else 0.0


def percent(part: float, whole: float) -> str:
    """Return a share as people read it, in at most four columns: ``62%``, ``<1%``; ``-`` of nothing."""
    if whole <= 0:
        return "-"
    shown = round(100 * share(part, whole))
    if shown == 0 and part > 0:
        return "<1%"
    return f"{shown}%" if shown <= 999 else ">9x"


def band_bar(uses: Iterable[tuple[Band, float]], whole: float, width: int) -> list[Piece]:
    """Return what each band may use of the whole, stacked, ``width`` columns in all."""
    pieces: list[Piece] = []
    filled, total = 0, 0.0
    for band, amount in uses:
        total += amount
        end = min(width, round(share(total, whole) * width))  # rounded sums: the bars end where the sum does
        pieces.append(Piece(BAND_MARKS[band] * (end - filled), Role(band)))
        filled = end
    return [*pieces, Piece(FREE_MARK * (width - filled), Role.DIM)]


def machine_bar(used: float, held: float, whole: float, width: int) -> list[Piece]:
    """Return what is used and what is committed of the whole. Use beyond what is committed is a warning."""
    used_end = min(width, round(share(used, whole) * width))
    held_end = min(width, round(share(held, whole) * width))
    inside = min(used_end, held_end)
    return [
        Piece(USED_MARK * inside, Role.USED),
        Piece(USED_MARK * (used_end - inside), Role.WARN),
        Piece(HELD_MARK * (held_end - inside if used_end < held_end else 0), Role.HELD),
        Piece(FREE_MARK * (width - max(used_end, held_end)), Role.DIM),
    ]


_SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(amounts: Sequence[float], whole: float, width: int) -> str:
    """Return how an amount went, the latest at the right, as bars of eighths of the whole, ``width`` columns
    in all; columns without an amount are blank. Of more amounts than columns each has the most of its share.
    """
    if width <= 0:
        return ""
    count = min(width, len(amounts))
    bounds = [len(amounts) * i // count for i in range(count + 1)] if count else []
    most = [max(amounts[a:b]) for a, b in pairwise(bounds)]
    return "".join(spark(each, whole) for each in most).rjust(width)


def spark(part: float, whole: float) -> str:
    """Return one bar: how full something is, in eighths; the lowest also for nothing."""
    return _SPARKS[min(len(_SPARKS) - 1, int(share(part, whole) * len(_SPARKS)))]
