"""Fetches what the present place asks for, in a thread, and what a task writes, in another.

What is held is the last whole answer to what is asked now. It is asked again as often as that is worth it;
of the past never, for that does not change.
"""

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from borgish.client import lines_in, quoted
from borgish.clock import Clock
from borgish.dashboard.asks import Answer, Ask
from borgish.errors import BorgishError, NotLeading, TooManyRequests, Unreachable
from borgish.text import zoned

if TYPE_CHECKING:
    from borgish.client import Client

AGAIN_SECONDS = 1.0
FAILED_AGAIN_SECONDS = 2.0
LINES_MAX = 5_000
LINE_BYTES_MAX = 16_384
TAIL_LINES = 1_000
_PASSING = (Unreachable, NotLeading, TooManyRequests)
"""Of these nothing follows for what was answered before: it stays, and is said to be old."""


class Reader:
    """Answers what is asked last. One thread writes ``answer``, replacing it as a whole."""

    def __init__(
        self, client: "Client", clock: Clock, heard: Callable[[], None], past: "Client | None" = None
    ) -> None:
        """``heard`` is called from the thread when there is something new. ``past`` is asked for what is of
        the past, in place of ``client``."""
        self._clock = clock
        self.answer = Answer(())
        self._client, self._past = client, past or client
        self._heard = heard
        self._asks: tuple[Ask, ...] = ()
        self._is_fixed = True
        self._is_closed = False
        self.asking_since: float | None = None  # by the monotonic clock, while an answer is waited for
        self.answered_at = clock.now().mono  # when one came last
        self._wake = threading.Condition()

    def start(self) -> None:
        """Begin, in a thread that ends with the process at the latest."""
        threading.Thread(target=self._run, name="reader", daemon=True).start()

    def close(self) -> None:
        """Ask for nothing more."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def want(self, asks: tuple[Ask, ...], *, fixed: bool) -> None:
        """Ask for this from now on; ``fixed``: once."""
        if asks == self._asks:
            return
        with self._wake:
            self._asks, self._is_fixed = asks, fixed
            self._wake.notify()

    def _run(self) -> None:
        views: list[object] = []  # the last answers to what was asked
        due: list[float] = []  # when each is to be asked for again, by the monotonic clock
        done: tuple[Ask, ...] = ()
        while True:
            with self._wake:
                if self._asks is done:
                    self._wake.wait(self._pause(due))
                if self._is_closed:
                    return
                asked, fixed = self._asks, self._is_fixed
            if asked is not done:
                views, due = [None] * len(asked), [0.0] * len(asked)
            answer = self._ask(asked, views, due, fixed=fixed)
            if asked is not self._asks:
                continue  # somebody went on meanwhile
            done = asked
            if answer != self.answer:
                self.answer = answer
                self._heard()

    def _pause(self, due: list[float]) -> float | None:
        return max(0.0, min(due) - self._clock.now().mono) if due and min(due) < math.inf else None

    def _ask(self, asked: tuple[Ask, ...], views: list[object], due: list[float], *, fixed: bool) -> Answer:
        """Ask for what is due; note the answers, and when they are due again."""
        try:
            for i, each in enumerate(asked):
                now = self._clock.now().mono
                if due[i] <= now:
                    due[i] = now + FAILED_AGAIN_SECONDS
                    self.asking_since = now
                    client = self._past if each.is_of_past else self._client
                    views[i] = client.get(each.path, _in_zone(each.params), each.answer)
                    self.answered_at = self._clock.now().mono
                    due[i] = math.inf if fixed else now + each.every_seconds
        except BorgishError as error:
            # All of them again, at one time: those that were not asked yet would make half an answer before.
            due[:] = [self._clock.now().mono + FAILED_AGAIN_SECONDS] * len(due)
            kept = tuple(views) if isinstance(error, _PASSING) and None not in views else ()
            return Answer(asked, kept, error)
        finally:
            self.asking_since = None
        return Answer(asked, tuple(views))


def _in_zone(params: tuple[tuple[str, str | int], ...]) -> dict[str, str | int]:
    """Return parameters in which times that were typed have the zone of who typed them."""
    return {name: zoned(str(value)) if name in _MOMENTS else value for name, value in params}


_MOMENTS = frozenset({"around", "from", "to"})


class Log:
    """What one task wrote last, and writes; with ``previous`` what its run before wrote."""

    def __init__(
        self, client: "Client", task: str, heard: Callable[[], None], *, previous: bool = False
    ) -> None:
        self.of = (task, previous)
        self.task = task
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        self.ended = ""  # why nothing more comes; "" while it may
        self._client = client
        self._heard = heard
        self._closing = threading.Event()
        self._interrupt: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin, in a thread that ends with the process at the latest."""
        threading.Thread(target=self._run, name=f"log {self.task}", daemon=True).start()

    def close(self) -> None:
        """Want no more, and let go of the connection."""
        self._closing.set()
        self._interrupt()

    @property
    def _is_closed(self) -> bool:
        return self._closing.is_set()

    def _run(self) -> None:
        while not self._is_closed:
            self._read()
            self._heard()
            self._closing.wait(AGAIN_SECONDS)  # the program may be started again, here or elsewhere

    def _read(self) -> None:
        """Read the output of one run, from its last lines to its end."""
        path = quoted("tasks", *self.task.split("/")) + "/logs"
        fresh = deque[str](maxlen=LINES_MAX)
        try:
            _, previous = self.of
            params = {"follow": not previous, "previous": previous, "tail": TAIL_LINES}
            pieces = self._client.stream(path, params, opened=self._opened)
            for lines in lines_in(pieces, LINE_BYTES_MAX):
                if self._is_closed:
                    return
                fresh.extend(map(_shown, lines))
                if lines:
                    self.lines, self.ended = fresh, ""  # what another run wrote stays until this one writes
                    self._heard()
            self.ended = "the output has ended"
        except BorgishError as error:
            self.ended = "" if self._is_closed else error.message

    def _opened(self, close: Callable[[], None]) -> None:
        self._interrupt = close
        if self._is_closed:
            close()


def _shown(line: bytes) -> str:
    """Return a line as a terminal would leave it: what a program wrote over itself is gone."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "backslashreplace")
