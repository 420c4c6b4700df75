"""Runs the commands that somebody chose in the dashboard: borgctl, as it would be typed, each in a process of
its own, and keeps what they write."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence

from borgish.dashboard.bodies import Output

LINES_MAX = 2_000


class Commands:
    """Runs each command once, in order; ``outputs`` has what they write."""

    def __init__(self, line_of: Callable[[Sequence[str]], list[str]], role: str) -> None:
        """``line_of`` returns the whole command line of a command of borgctl; ``role`` is whose commands are
        offered, "" for none."""
        self.outputs: list[Output] = []
        self.heard: Callable[[], None] = lambda: None  # is called when there is more
        self.role = role
        self._line_of = line_of

    def run(self, commands: Sequence[tuple[str, ...]]) -> None:
        """Start those that were not yet."""
        for command in commands[len(self.outputs) :]:
            output = Output("borgctl " + " ".join(command))
            self.outputs.append(output)
            threading.Thread(target=self._run, args=(command, output), name="command", daemon=True).start()

    def _run(self, command: tuple[str, ...], output: Output) -> None:
        try:
            process = subprocess.Popen(
                self._line_of(command),
                stdin=subprocess.DEVNULL,  # it cannot ask: that was done here
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "NO_COLOR": "1"},
                text=True,
                errors="backslashreplace",
                start_new_session=True,  # Ctrl-C ends the dashboard, not half of a command
            )
        except OSError as error:
            output.lines.append(f"borgctl cannot be started: {error.strerror}")
            output.code = 1
        else:
            for line in process.stdout or ():
                if len(output.lines) < LINES_MAX:
                    output.lines.append(line.rstrip("\n"))
                    self.heard()
            output.code = process.wait()
        self.heard()
