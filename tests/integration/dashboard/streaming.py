"""A small master that streams summaries, and a person's terminal to look at the dashboard with."""

import contextlib
import fcntl
import os
import pty
import queue
import re
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from borgish.clock import SystemClock
from borgish.wire.api import Problem, SummaryView

DEADLINE_SECONDS = 60.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HOME = "\x1b[H"

# Has the terminal as its own, as a program started by a shell has, and runs the dashboard there.
PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from borgish.client import Client
from borgish.dashboard import app
{before}
sys.exit(app.run(Client({url!r}, "t"), once={once}))
"""


class StreamingMaster:
    """Answers ``/v1/summary`` with ``view`` and streams what is ``told``; None breaks the stream."""

    def __init__(self, view: SummaryView) -> None:
        self.view = view
        self.url = ""
        self.away = False  # connections are closed without an answer
        self.told: queue.Queue[SummaryView | None] = queue.Queue()
        self.last_ids: list[str] = []
        self._count = 0

    def tell(self, view: SummaryView) -> None:
        self.view = view
        self.told.put(view)

    def leave(self) -> None:
        self.away = True
        self.told.put(None)

    def message(self, view: SummaryView) -> bytes:
        self._count += 1
        return b"id: 3.%d\nevent: summary\ndata: %s\n\n" % (self._count, msgspec.json.encode(view))


@contextmanager
def serving(master: StreamingMaster) -> Iterator[StreamingMaster]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(master))
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    master.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield master
    finally:
        master.leave()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(master: StreamingMaster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if master.away:
                return
            if self.headers.get("Authorization") != "Bearer t":
                self._send(
                    401, "application/problem+json", msgspec.json.encode(Problem("no", 401, "no token"))
                )
            elif self.path == "/v1/summary":
                self._send(200, "application/json", msgspec.json.encode(master.view))
            else:
                master.last_ids.append(self.headers.get("Last-Event-ID", ""))
                self._send(200, "text/event-stream", b": alive\n\n")
                while (view := master.told.get()) is not None:
                    self.wfile.write(master.message(view))

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
            pass

    return Handler


class Terminal:
    """The dashboard in a terminal of its own, and what is seen there."""

    def __init__(
        self, url: str, size: tuple[int, int], *, once: bool, before: str, env: dict[str, str]
    ) -> None:
        self.output = ""
        self._clock = SystemClock()
        self._ours, self._theirs = pty.openpty()
        self.resize(*size)
        self.modes_before = self.modes
        program = PROGRAM.format(url=url, once=once, before=before)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
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
            self._read(0.05)

    def ended(self) -> int:
        """Read until the program has ended and return its exit code."""
        self.until(lambda: self.process.poll() is not None)
        self._let_go()
        # What was written last may come late: where nobody else has the terminal, its end comes after it.
        with contextlib.suppress(OSError):
            while self._read(DEADLINE_SECONDS):
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

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], seconds)
        if ready:
            self.output += os.read(self._ours, 65536).decode("utf-8", "replace")
        return bool(ready)


@contextmanager
def terminal(
    url: str,
    size: tuple[int, int] = (80, 24),
    *,
    once: bool = False,
    before: str = "",
    env: dict[str, str] | None = None,
) -> Iterator[Terminal]:
    made = Terminal(url, size, once=once, before=before, env=env or {})
    try:
        yield made
    finally:
        made.close()
