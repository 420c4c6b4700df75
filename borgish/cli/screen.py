"""Where output goes: data to stdout, words about it to stderr, colours only where they are wanted.

A stream may be closed (``>&-``), or in an encoding without the characters of our bars and of users'
names: neither may end a command half way.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
_CODES = {"bold": 1, "dim": 2, **_COLOURS, **{f"bright_{name}": code + 60 for name, code in _COLOURS.items()}}


def is_terminal(file: TextIO) -> bool:
    """Whether a person reads this, on something that understands cursor movement."""
    return file.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(file: TextIO) -> bool:
    """Whether to colour what is written there (https://no-color.org)."""
    return is_terminal(file) and not os.environ.get("NO_COLOR")


def can_show(text: str, file: TextIO) -> bool:
    """Whether the encoding of a file has these characters."""
    try:
        text.encode(file.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width_of(file: TextIO) -> int:
    """Return the columns of a terminal; 0 where lines may be as long as they like."""
    if not file.isatty():
        return 0
    import shutil

    return shutil.get_terminal_size().columns


def styled(text: str, style: str, file: TextIO) -> str:
    """Return the text in a style (``bold``, ``dim``, or a colour) where colours are wanted."""
    if not style or not has_colour(file):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def print_out(text: str) -> None:
    """Write what was asked for, to stdout; the caller has made it safe."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_err(text: str, style: str = "") -> None:
    """Write a word about what is going on, to stderr."""
    from borgish.text import safe_lines  # here, for borgctl imports this module before anything else

    sys.stderr.write(styled(safe_lines(text), style, sys.stderr) + "\n")
    sys.stderr.flush()


def make_usable() -> None:
    """Put a null device where a stream is closed; write what the encoding lacks by its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the process's life
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def let_go(stream: TextIO) -> None:
    """Make a stream whose reader has gone write to nowhere, so that the end of the process is quiet."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
