"""The terminal as the dashboard needs it: keys without Enter, and everything as it was afterwards."""

import codecs
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

_KEY_BYTES_MAX = 64
_CONTROL_CHARACTERS = 6  # the place of these in what tcgetattr returns
_DISABLED = b"\0"


class Keys:
    """The keys that are pressed. ``descriptor`` is None where nobody can press any."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._text = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in two reads

    @property
    def any(self) -> bool:
        """Whether somebody can press keys."""
        return self._descriptor is not None

    def wait(self, seconds: float, bell: "Bell") -> str | None:
        """Return the keys pressed, as soon as there are some; "" after the time, or when the bell rings; None
        at the end of input."""
        inputs = [bell.descriptor] if self._descriptor is None else [self._descriptor, bell.descriptor]
        ready, _, _ = select.select(inputs, [], [], seconds)
        if bell.descriptor in ready:
            bell.answer()
        if self._descriptor is None or self._descriptor not in ready:
            return ""
        try:
            pressed = os.read(self._descriptor, _KEY_BYTES_MAX)
        except OSError:  # the terminal was closed
            return None
        return self._text.decode(pressed) if pressed else None


class Bell:
    """Wakes who waits for keys, from any thread."""

    def __init__(self) -> None:
        self.descriptor, self._button = os.pipe()
        self._is_rung = threading.Event()  # so that the pipe never has more than a byte

    def ring(self) -> None:
        """Wake who waits now, or next."""
        if not self._is_rung.is_set():
            self._is_rung.set()
            os.write(self._button, b"!")

    def answer(self) -> None:
        """Be silent until it is rung again."""
        os.read(self.descriptor, _KEY_BYTES_MAX)
        self._is_rung.clear()


@contextmanager
def keys_of(descriptor: int) -> Iterator[Keys]:
    """Give the keys of a terminal one by one; Ctrl-C still interrupts. Restores the terminal in any case."""
    if not os.isatty(descriptor):
        yield Keys(None)
        return
    before = termios.tcgetattr(descriptor)
    try:
        _take_keys(descriptor)
        yield Keys(descriptor)
    finally:
        with suppress(termios.error):  # it was closed: nothing is left to restore
            termios.tcflush(descriptor, termios.TCIFLUSH)
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM an ordinary exception, so that what is open is closed and restored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def told_of_sizes(tell: Callable[[], None]) -> Iterator[None]:
    """Tell of each change of the terminal's size, also when it is what it was again: what is on the screen
    need not be."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours
        return
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: tell())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextmanager
def set_up(file: TextIO) -> Iterator[None]:
    """Make a terminal drop what does not fit a line: where it measures a character in another way than we
    do, that line looks odd and no other. And have it tell of clicks and the wheel (modes 1000, 1006)."""
    file.write("\x1b[?7l\x1b[?1000h\x1b[?1006h\x1b[?2004h")
    try:
        yield
    finally:
        file.write("\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?7h")
        file.flush()


def input_descriptor() -> int:
    """Return the descriptor of this process's input; -1 where it has none."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return -1


def _take_keys(descriptor: int) -> None:
    tty.setcbreak(descriptor, termios.TCSANOW)
    attributes = termios.tcgetattr(descriptor)
    # Stopping or dumping core would leave the screen to the shell as it is.
    for character in (termios.VSUSP, termios.VQUIT):
        attributes[_CONTROL_CHARACTERS][character] = _DISABLED
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
