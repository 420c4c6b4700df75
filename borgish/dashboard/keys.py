"""What is pressed, as names: bytes of a terminal in, keys out. Pure.

The codes are those of xterm (ECMA-48 and "XTerm Control Sequences"), which terminals of today and tmux send;
the mouse reports in SGR's form (mode 1006), whose numbers have no bound.
"""

import re
from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Key(StrEnum):
    """Keys that are no character."""

    UP = "up"
    DOWN = "down"
    LEFT = "left"
    RIGHT = "right"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    WHEEL_UP = "wheel up"
    WHEEL_DOWN = "wheel down"
    REDRAW = "redraw"
    TAB = "tab"
    BACK_TAB = "back tab"


class Click(msgspec.Struct, frozen=True):
    """The left button of the mouse at a cell of the terminal, both from 0."""

    column: int
    row: int


class Paste(msgspec.Struct, frozen=True):
    """Text that was pasted at once (mode 2004): it is typed where somebody types, and no keys elsewhere."""

    text: str


Pressed = Key | Click | Paste | str
"""A key, a click, what was pasted, or one printable character."""

_CODES = {
    "A": Key.UP,
    "B": Key.DOWN,
    "C": Key.RIGHT,
    "D": Key.LEFT,
    "H": Key.HOME,
    "F": Key.END,
    "Z": Key.BACK_TAB,
    "1~": Key.HOME,
    "4~": Key.END,
    "5~": Key.PAGE_UP,
    "6~": Key.PAGE_DOWN,
    "7~": Key.HOME,
    "8~": Key.END,
}
_CONTROLS = {
    "\t": Key.TAB,
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x08": Key.BACKSPACE,
    "\x7f": Key.BACKSPACE,
    "\x04": Key.PAGE_DOWN,  # Ctrl-D, -U, -F and -B, as in vi and less
    "\x15": Key.PAGE_UP,
    "\x06": Key.PAGE_DOWN,
    "\x02": Key.PAGE_UP,
    "\x0c": Key.REDRAW,  # Ctrl-L, as in all of them
}
_SEQUENCE = re.compile(r"\x1b(?:\[(?:<(\d+);(\d+);(\d+)([Mm])|([0-9;]*[A-Za-z~]))|O([A-Z]))")
_UNFINISHED = re.compile(r"\x1b(?:\[<?[0-9;]*|O)?\Z")
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_PASTE_CHARACTERS_MAX = 4096
_LEFT, _WHEEL_UP, _WHEEL_DOWN = 0, 64, 65
_PENDING_CHARACTERS_MAX = 32  # of a sequence that does not end


class Decoder:
    """Reads keys from what a terminal sends, piece by piece: a sequence may come in two."""

    def __init__(self) -> None:
        self._rest = ""
        self._pasted: str | None = None  # what came since a paste began

    def feed(self, text: str) -> list[Pressed]:
        """Return the keys in what came. "", after some time without more, ends what is unfinished: a lone
        escape is the key of that name."""
        ended = _PASTE_ENDS if self._pasted is not None else self._rest.replace("\x1b", "\x1b\0", 1)
        text = self._rest + text if text else ended
        self._rest = ""
        keys: list[Pressed] = []
        while text:
            if self._pasted is None:
                before, begins, text = text.partition(_PASTE_BEGINS)
                keys += self._keys(before)
                self._pasted = "" if begins else None
            else:
                pasted, ends, text = (self._pasted + text).partition(_PASTE_ENDS)
                self._pasted = None if ends else pasted[-_PASTE_CHARACTERS_MAX:]
                if ends:
                    keys.append(Paste("".join(each if each.isprintable() else " " for each in pasted)))
        return keys

    @property
    def is_unfinished(self) -> bool:
        """Whether more of a sequence is expected, which follows at once or never."""
        return bool(self._rest) or self._pasted is not None

    def _keys(self, text: str) -> Iterator[Pressed]:
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                if found := _CONTROLS.get(text[at]):
                    yield found
                elif text[at].isprintable():
                    yield text[at]
                at += 1
            elif known := _SEQUENCE.match(text, at):
                yield from _meant(known)
                at = known.end()
            elif _UNFINISHED.match(text, at) and len(text) - at <= _PENDING_CHARACTERS_MAX:
                self._rest = text[at:]
                return
            else:
                yield Key.ESCAPE
                at += 1


def _meant(sequence: re.Match[str]) -> Iterator[Pressed]:
    """Yield the key that a sequence stands for; none for those that say nothing to us."""
    button, column, row, way, code, short = sequence.groups()
    if button is None:
        if key := _CODES.get(code or short):
            yield key
    elif int(button) == _WHEEL_UP:
        yield Key.WHEEL_UP
    elif int(button) == _WHEEL_DOWN:
        yield Key.WHEEL_DOWN
    elif int(button) == _LEFT and way == "M":
        yield Click(int(column) - 1, int(row) - 1)
