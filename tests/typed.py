"""Pages of the documentation, typed as they stand: each command in a shell, which says what is shown.

Numbers, times and names of machines differ from run to run; "..." stands for lines that a page leaves out.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from borgish.cli.changes import Deadline
from tests.cells import ROOT, pauses
from tests.documents import Example, page, typed
from tests.e2e.watched import PATIENCE_SECONDS
from tests.forked import BORGCTL, FAUXMASTER, Ended, call, plain_environment

SECONDS_MAX = 120.0
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_VOLATILE = (
    (r"[0-9a-f]{64}", "SUM"),
    (r"\bplan-[\w-]+", "PLAN"),
    (rf"\b({_MONTHS})\b", "MONTH"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "DAY"),
    (r"\b(CES?T|UTC)\b", "ZONE"),
    (r"\d[\d:.TZ-]*", "N"),
    (r"\bN(ms|s|m|h)\b", "TIME"),
    (r"was restarted (once|N times)", "was restarted"),
    (r"\b(N|tasks?) (stop|start|restart|continue)s\b", r"\1 \2"),
    (r"\bN ago\b", "TIME ago"),
    (r"\s+", " "),
)
_SHELLS_OWN = re.compile(r"[$`*~|&;<>(){}\\]|^[A-Z_]+=")
_FORKED = {"borgctl": BORGCTL, "fauxmaster": FAUXMASTER}
"""Programs that are forked, where a line is nothing but their arguments: to load them takes longest."""


def normal(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, word in _VOLATILE:
        line = re.sub(pattern, word, line)
    return line.strip().replace("tasks", "task")


def differs(example: Example, said: Ended, *, more: bool = False, also: Callable[[str], str] = str) -> str:
    """Return what a command does not say as it is shown, or says beyond it; "" for nothing.

    ``more`` lets it say more, as how far it is meanwhile. ``also`` is applied to both after ``normal``.
    """
    shown = {also(normal(line)) for line in example.said}
    there = {also(normal(line)) for line in (said.out + said.err).splitlines() if line.strip()}
    if missing := shown - there - {"..."}:
        return f"does not say {sorted(missing)}, but {sorted(there)}"
    if shown and not more and "..." not in shown and there != shown:
        return f"says more than is shown: {sorted(there - shown)}"
    return ""


def until_said(words: str, look: Callable[[], str]) -> None:
    """Wait until what one looks at has these words in it; fail with what was there at last."""
    deadline = Deadline(PATIENCE_SECONDS)
    for _ in pauses():
        if words in (said := look()) or not deadline.left:
            break
    assert words in said


class Shell:
    """A person's shell at home, in a folder that has ``configs`` as the clone has."""

    def __init__(self, home: Path, user: str) -> None:
        self.home = home
        self._started: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {"HOME": str(home), "LOGNAME": user, "PATH": path}
        if not (home / "configs").exists():
            (home / "configs").symlink_to(ROOT / "configs")

    def run(self, line: str, stdin: str = "", code: int | None = 0) -> Ended:
        """Type a line, wait for it and return how it ended; with None any exit code will do."""
        if export := re.match(r"export (\w+)=(.*)", line):
            self._environment[export[1]] = export[2].replace("~", str(self.home))
            return Ended(0, "", "")
        program, *words = [""] if _SHELLS_OWN.search(line) else shlex.split(line, comments=True)
        if module := _FORKED.get(program):
            ended = call(module, words, stdin, SECONDS_MAX, self.home, self._environment)
        else:
            done = subprocess.run(
                ["bash", "-c", line],
                input=stdin,
                cwd=self.home,
                env=plain_environment() | self._environment,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            ended = Ended(done.returncode, done.stdout, done.stderr)
        assert code is None or ended.code == code, f"{line}: {ended}\n{self.logs()}"
        return ended

    def start(self, line: str) -> "subprocess.Popen[bytes]":
        """Type a line in a terminal of its own, where it goes on until the shell is closed."""
        with (self.home / f"terminal-{len(self._started)}.log").open("ab") as log:
            words = ["bash", "-c", f"exec {line}"]
            started = subprocess.Popen(
                words,
                cwd=self.home,
                env=plain_environment() | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(started)
        return started

    def last_log(self) -> Path:
        """Return the file with what is shown in the terminal that was opened last."""
        return self.home / f"terminal-{len(self._started) - 1}.log"

    def logs(self) -> str:
        """Return what is written in the terminals of what was started."""
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in self.home.glob("terminal-*.log"))

    def close(self) -> None:
        """End what was started, the latest first, as a person would by Control-C."""
        for started in reversed(self._started):
            if started.poll() is None:
                started.send_signal(signal.SIGINT)
                try:
                    started.wait(20)
                except subprocess.TimeoutExpired:
                    started.kill()
                    started.wait()


class Guide:
    """A page that somebody follows at home, command by command, until all of them were typed.

    A context: behind it what was started is ended, and a page of which a command was not typed fails.
    """

    def __init__(
        self,
        name: str,
        home: Path,
        user: str = "ann",
        instead: Mapping[str, str] | None = None,
    ) -> None:
        """``instead``: what stands in the place of hosts, ports and folders that a page only assumes."""
        self.name, self.shell = name, Shell(home, user)
        self._instead = dict(instead or {})
        self._left = typed(page(name))
        assert self._left, f"docs/{name}.md shows no command"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shell.close()
        if kind is None:
            assert self._left == [], f"docs/{self.name}.md: not typed"

    def next(
        self,
        code: int = 0,
        stdin: str = "",
        *,
        more: bool = False,
        also: Callable[[str], str] = str,
    ) -> Ended:
        """Type the next command; it says what is shown, and ends with 0 or with the code that is given."""
        example = self._left.pop(0)
        said = self.shell.run(self._as_typed(example.command), stdin, example.exit_code or code)
        told = example._replace(said=[self._as_typed(each) for each in example.said])
        assert not (why := differs(told, said, more=more, also=also)), f"{self.name}: {example.command} {why}"
        return said

    def upto(self, beginning: str) -> None:
        """Type all commands before the next one that begins like this."""
        while not self.coming.startswith(beginning):
            assert self.coming, f"docs/{self.name}.md: no {beginning} is left"
            self.next()

    def leave(self, beginning: str) -> str:
        """Go over the next command, which is to begin like this; return it as it would be typed."""
        assert self.coming.startswith(beginning), self.coming
        return self._as_typed(self._left.pop(0).command)

    def start(self, beginning: str) -> "subprocess.Popen[bytes]":
        """Type the next command in another terminal, where it goes on."""
        return self.shell.start(self.leave(beginning))

    def watch(self, beginning: str, words: str) -> None:
        """Type the next command, which goes on, in another terminal, until it shows these words there."""
        self.start(beginning)
        until_said(words, self.shell.last_log().read_text)
        self.shell.close()

    def rest(self) -> None:
        """Type what is left."""
        while self._left:
            self.next()

    def file(self, name: str, text: str) -> None:
        """Write a file that the page names."""
        (self.shell.home / name).write_text(text)

    def comes(self, line: str, words: str) -> None:
        """Wait until a command that looks says these words."""
        until_said(words, lambda: self.shell.run(line, code=None).out)

    @property
    def coming(self) -> str:
        """The next command; "" where all were typed."""
        return self._left[0].command if self._left else ""

    def _as_typed(self, line: str) -> str:
        for shown, there in self._instead.items():
            line = line.replace(shown, there)
        return line
