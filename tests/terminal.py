"""A person's terminal, in which tests look at what is drawn and press keys."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

from borgish.clock import SystemClock

DEADLINE_SECONDS = 60.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HOME = "\x1b[H"
# The program has the terminal as its own, as one started by a shell has.
_OWN_TERMINAL = "import fcntl, sys, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)"


class Terminal:
    """A program in a terminal of its own, and what is seen there. ``source`` is Python."""

    def __init__(self, source: str, size: tuple[int, int], env: dict[str, str]) -> None:
        self.output = ""
        self._clock = SystemClock()
        self._ours, self._theirs = pty.openpty()
        self.resize(*size)
        self.modes_before = self.modes
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{_OWN_TERMINAL}\n{source}"],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC"} | env,
        )

    @property
    def screen(self) -> list[str]:
        """The lines of the last frame that came whole, without codes."""
        frames = self.output.split(_HOME)
        return _CODES.sub("", frames[-1]).replace("\r", "").split("\n")

    @property
    def modes(self) -> list[object]:
        return termios.tcgetattr(self._ours)  # both ends have the same

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.screen)

    def is_full(self, columns: int, lines: int) -> bool:
        """Whether the last frame came to its end and has this size."""
        return [len(line) for line in self.screen] == [columns] * lines

    def until(self, holds: Callable[[], bool]) -> None:
        """Read what comes until something holds."""
        end = self._clock.now().mono + DEADLINE_SECONDS
        while not holds():
            assert self._clock.now().mono < end, self.output[-6000:]
            self.read(0.05)

    def ended(self) -> int:
        """Read until the program has ended and return its exit code."""
        self.until(lambda: self.process.poll() is not None)
        self._let_go()
        # What was written last may come late: where nobody else has the terminal, its end comes after it.
        with contextlib.suppress(OSError):
            while self.read(DEADLINE_SECONDS):
                pass
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        self._let_go()

    def _let_go(self) -> None:
        if self._theirs >= 0:
            os.close(self._theirs)
        self._theirs = -1

    def read(self, seconds: float) -> bool:
        """Take in what comes within a time; return whether anything did."""
        ready, _, _ = select.select([self._ours], [], [], seconds)
        if ready:
            self.output += os.read(self._ours, 65536).decode("utf-8", "replace")
        return bool(ready)
