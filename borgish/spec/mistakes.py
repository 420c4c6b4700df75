"""Mistakes in what users write: gathering them while a text is read, and showing them like a good
compiler does.

Text of users is shown with every character that could move a cursor, or hide, written as an escape.
Where the mistakes come from is left to ``document`` (is it YAML?) and ``kinds`` (is it right?).
"""

import re
import unicodedata
from typing import NoReturn

from borgish.errors import Invalid, Mistake

MISTAKES_MAX = 100
EXCERPT_COLUMNS = 160
"""A mistake's line is kept whole up to here; of a longer one, the part around the column."""

_BEFORE = 40  # characters kept before the column, where a line is cut
_QUOTE_MAX = 60
_LINE_BREAK = re.compile(r"\r\n|\r|\n")


class Found:
    """The mistakes found so far in one text. The one after ``MISTAKES_MAX`` ends the reading, so that a text
    full of mistakes costs no more than one of the same size that is right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[str] | None = None
        self._kept: list[Mistake] = []
        self._has_more = False

    def __len__(self) -> int:
        return len(self._kept)

    def tell(self, line: int, column: int, message: str, hint: str = "", path: str = "") -> None:
        """Add a mistake at a line and column, both counted from 1. Raises Invalid when there are too many."""
        if len(self._kept) >= MISTAKES_MAX:
            self._has_more = True
            raise self.invalid()
        self._kept.append(Mistake(message, line, column, hint, self._excerpt(line, column), path))

    def only(self, line: int, column: int, message: str, hint: str) -> NoReturn:
        """Raise Invalid with this mistake instead of all found before, which it explains."""
        self._kept.clear()
        self.tell(line, column, message, hint)
        raise self.invalid()

    def stop(self) -> None:
        """Raise Invalid when there is a mistake."""
        if self._kept:
            raise self.invalid()

    def invalid(self) -> Invalid:
        """Return the error that carries every mistake found, of which there must be one, as in the text."""
        mistakes = sorted(self._kept, key=lambda m: (m.line, m.column))
        first, count = mistakes[0], f"{len(mistakes)} mistakes"
        if self._has_more:
            count = f"more than {count}"
            mistakes.append(Mistake(f"more than {MISTAKES_MAX} mistakes; the rest was not checked"))
        head = f"the job file has {'a mistake' if len(mistakes) == 1 else count}"
        where = f"line {first.line}: " if first.line else ""
        return Invalid(f"{head}; {where}{first.message}", first.hint, tuple(mistakes))

    def _excerpt(self, line: int, column: int) -> str:
        if self._lines is None:
            self._lines = lines_of(self._text)
        return cut_line(self._lines[line - 1], column) if 1 <= line <= len(self._lines) else ""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as editors count them."""
    return _LINE_BREAK.split(text)


def cut_line(line: str, column: int) -> str:
    """Return the line as a mistake keeps it; ``caret_offset`` says where its column is in it."""
    if column > EXCERPT_COLUMNS:
        start = column - 1 - _BEFORE
        return "…" + line[start : start + 2 * _BEFORE]
    return line if len(line) <= EXCERPT_COLUMNS else line[:EXCERPT_COLUMNS] + "…"


def caret_offset(column: int) -> int:
    """Return the index, in a line cut by ``cut_line``, of the character at the column."""
    return column - 1 if column <= EXCERPT_COLUMNS else _BEFORE + 1


def safe(text: str) -> str:
    """Return the text with every character that is not plainly visible written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    return repr(char)[1:-1] if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def quote(text: str) -> str:
    """Return the text in quotes, on one line and not too long, for use inside a message."""
    short = text if len(text) <= _QUOTE_MAX else text[:_QUOTE_MAX] + "…"
    return f"'{safe(short)}'"


def show_mistakes(mistakes: tuple[Mistake, ...], source_name: str) -> str:
    """Return the mistakes as plain text: where, what, the line with a caret, the hint.

    web.yaml:2:8: tasks: 0 is outside 1 to 10000
      tasks: 0
             ^
      hint: write a whole number from 1 to 10000
    """
    return "\n".join(_show(mistake, safe(source_name)) for mistake in mistakes)


def _show(mistake: Mistake, source: str) -> str:
    place = f"{source}:{mistake.line}:{mistake.column}" if mistake.line else source
    lines = [f"{place}: {safe(mistake.message)}"]
    if mistake.excerpt:
        before = mistake.excerpt[: caret_offset(mistake.column)] if mistake.column else ""
        lines += [f"  {safe(mistake.excerpt)}", "  " + " " * _width(safe(before)) + "^"]
    if mistake.hint:
        lines.append(f"  hint: {safe(mistake.hint)}")
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return how many columns of a terminal the text takes: East Asian wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
