"""The operator's terminal, handed to a program elsewhere: every key goes there, all that it says comes here.

However borgctl ends, short of being killed outright, the terminal is as it was before.
"""

import contextlib
import os
import signal
import termios
import tty
from types import FrameType, TracebackType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIZE_UNKNOWN = (24, 80)


class RawTerminal:
    """Makes a terminal raw for as long as it is entered. In the main thread only."""

    def __init__(self, fd: int) -> None:
        """``fd`` is that of a terminal."""
        self._fd = fd
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self.changed, self._changes = -1, -1

    def __enter__(self) -> "RawTerminal":
        self.changed, self._changes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = termios.tcgetattr(self._fd)
        for number in ENDING:
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._note)
        self._note()  # it may have changed since it was looked at
        try:
            tty.setraw(self._fd, termios.TCSANOW)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._restore()

    def size(self) -> tuple[int, int]:
        """Return its rows and columns."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.changed, 4096)
        return terminal_size(self._fd)

    def _note(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full, and so will be read
            os.write(self._changes, b".")

    def _restore(self) -> None:
        with contextlib.suppress(termios.error):  # it has gone
            termios.tcsetattr(self._fd, termios.TCSANOW, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in (self.changed, self._changes):
            os.close(end)


def terminal_size(fd: int) -> tuple[int, int]:
    """Return the rows and columns of a terminal."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:  # it has gone
        return _SIZE_UNKNOWN
    return (rows, columns) if rows and columns else _SIZE_UNKNOWN


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
