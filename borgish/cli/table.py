"""Lists as tables of plain text.

Drawn here and not by rich: a list of 10,000 tasks takes rich ten seconds, and importing it costs a
short command a fifth of its time. Where something moves or is laid out (the line that
follows a submit, the dashboard), rich does it.
"""

import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Generic, TextIO, TypeVar

import msgspec

from borgish.cli.screen import painted, width_of
from borgish.text import safe

T = TypeVar("T")
_GAP = "  "
_LAST_WIDTH_MIN = 12


class Column(msgspec.Struct, Generic[T], frozen=True):
    """One column: its title, and how an item's cell reads and looks."""

    title: str
    text: Callable[[T], str]
    style: Callable[[T], str] = lambda _: ""
    right: bool = False  # numbers
    wide: bool = False  # only in the wide table


class Cell(msgspec.Struct, frozen=True):
    """A cell's text, made safe, with its style."""

    text: str
    style: str = ""


def draw(items: Sequence[T], columns: Sequence[Column[T]], file: TextIO | None = None) -> str:
    """Return the items as a table with a header. Only the last column is cut to fit a terminal."""
    file = file or sys.stdout
    header = [Cell(column.title, "bold") for column in columns]
    rows = [header, *([_cell(column, item) for column in columns] for item in items)]
    widths = [max(cell_width(row[i].text) for row in rows) for i in range(len(columns))]
    room = _last_width(widths, width_of(file))
    rights = [column.right for column in columns]
    return "".join(_line(row, widths, rights, room, file) for row in rows)


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a safe text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(c) for c in text)


def cut(text: str, width: int) -> str:
    """Return the text, shortened with an ellipsis where it is wider than ``width`` columns."""
    if cell_width(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _character_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cell(column: Column[T], item: T) -> Cell:
    return Cell(safe(column.text(item)), column.style(item))


def _last_width(widths: Sequence[int], screen: int) -> int:
    """Return the room of the last column; 0 for as much as it needs."""
    before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    return max(_LAST_WIDTH_MIN, screen - before) if screen else 0


def _line(row: Sequence[Cell], widths: Sequence[int], rights: Sequence[bool], room: int, file: TextIO) -> str:
    parts = []
    for i, (cell, width, right) in enumerate(zip(row, widths, rights, strict=True)):
        last = i == len(row) - 1
        text = cut(cell.text, room) if last and room else cell.text
        pad = " " * (width - cell_width(text)) if right or not last else ""
        shown = painted(text, cell.style, file)
        parts.append(pad + shown if right else shown + pad)
    return _GAP.join(parts).rstrip() + "\n"
