"""One line that says where things are: redrawn in place on a terminal, plain lines elsewhere."""

import sys

from borgish.cli.screen import is_terminal, width_of
from borgish.cli.table import cut
from borgish.clock import SystemClock

PLAIN_EVERY_SECONDS = 1.0


class Progress:
    """Shows the latest text on stderr. The caller made it safe."""

    def __init__(self) -> None:
        self._live = is_terminal(sys.stderr)
        self._clock = SystemClock()
        self._shown = ""
        self._shown_at = float("-inf")

    def show(self, text: str) -> None:
        """Show the text, if it differs; elsewhere than on a terminal at most once a second."""
        now = self._clock.now().mono
        if text == self._shown or (not self._live and now < self._shown_at + PLAIN_EVERY_SECONDS):
            return
        self._shown, self._shown_at = text, now
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{cut(text, max(20, width_of(sys.stderr) - 1))}")
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away from a terminal, so that what follows stands in its place."""
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
        self._shown = ""
