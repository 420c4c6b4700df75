"""How a frame looks: roles become styles, lines become rich's ``Text``. No text is ever read as markup."""

from functools import lru_cache

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from borgish.dashboard.fit import Line, Role
from borgish.dashboard.model import Frame

STYLES = {
    Role.PLAIN: "",
    Role.TITLE: "bold",
    Role.HEADING: "dim",
    Role.DIM: "dim",
    Role.GOOD: "green",
    Role.WARN: "yellow",
    Role.BAD: "red",
    Role.BANNER: "bold reverse red",  # reverse stays where colours are not wanted
    Role.USED: "green",
    Role.HELD: "blue",
    Role.MONITORING: "magenta",
    Role.PRODUCTION: "green",
    Role.BATCH: "cyan",
    Role.FREE: "blue",
}
"""Colours of the terminal's own palette, so that they fit light and dark backgrounds."""

_ASCII = str.maketrans("█▓▒░━─│·…", "MPBF#=|.~")


def picture(frame: Frame, *, ascii_only: bool = False) -> Group:
    """Return the frame for a rich console of its size."""
    return Group(*(_text(row, ascii_only=ascii_only) for row in frame.lines))


def plain(frame: Frame, *, ascii_only: bool = False) -> str:
    """Return the frame as text without any codes, for files and pipes."""
    rows = ("".join(piece.text for piece in row) for row in frame.lines)
    return "".join(f"{_ascii(row) if ascii_only else row}".rstrip() + "\n" for row in rows)


def _text(row: Line, *, ascii_only: bool) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    for piece in row:
        text.append(_ascii(piece.text) if ascii_only else piece.text, STYLES[piece.role])
    return text


@lru_cache(4096)
def _ascii(text: str) -> str:
    """Return a text of the same width for terminals that know no other characters."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text.translate(_ASCII))
