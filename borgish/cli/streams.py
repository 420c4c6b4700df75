"""What borgctl reads and writes through, whatever state it was started in.

A stream may be closed (``>&-``), or in an encoding without the characters of our bars and of users'
names: neither may end a command half way.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO


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
