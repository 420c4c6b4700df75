"""Keeps the latest summary of a cell at hand: reads the watch in a thread, and comes back when it breaks.

What is held is always the last thing that was heard; how old it is and why nothing newer came is shown
beside it. The watch needs no memory of its own: each summary replaces the one before.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from borgish.client import decoder
from borgish.clock import Clock
from borgish.errors import BorgishError, Gone, Unreachable
from borgish.wire.api import SummaryView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from borgish.client import Message, Params

AGAIN_SECONDS_MIN = 0.25
AGAIN_SECONDS_MAX = 2.0
_PARAMS = {"kinds": "summary"}


class WatchSource(Protocol):
    """What is needed of a client."""

    def watch(self, params: "Params | None" = None, last_id: str = "") -> "Iterator[Message]":
        """See ``Client.watch``."""
        ...


class News(msgspec.Struct, frozen=True):
    """What is known. Moments are on the monotonic clock."""

    view: SummaryView
    heard_at: float
    lost_at: float | None = None  # since when nothing could be heard
    error: BorgishError | None = None  # why


class Feed:
    """Reads summaries until it is closed. One thread writes ``news``, replacing it as a whole."""

    def __init__(
        self,
        client: WatchSource,
        clock: Clock,
        first: SummaryView,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        """``heard`` is called from the thread when there are news."""
        self._heard = heard
        self.news = News(first, clock.now().mono)
        self._client = client
        self._clock = clock
        self._last_id = ""
        self._again_seconds = AGAIN_SECONDS_MIN
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to read, in a thread that ends with the process at the latest."""
        threading.Thread(target=self._read, name="summaries", daemon=True).start()

    def close(self) -> None:
        """Want no more news. The thread ends with what it hears next."""
        self._closed.set()

    def _read(self) -> None:
        while not self._closed.is_set():
            error = self._follow()
            if error is None:
                continue
            self._lose(error)
            self._closed.wait(self._again_seconds)
            self._again_seconds = min(2 * self._again_seconds, AGAIN_SECONDS_MAX)

    def _follow(self) -> BorgishError | None:
        """Read one watch to its end and return why it ended; None when another may begin at once."""
        try:
            for message in self._client.watch(_PARAMS, self._last_id):
                self._hear(message)
                if self._closed.is_set():
                    break
        except Gone:  # another master leads, or we were slow: a new watch begins with all there is
            resumed, self._last_id = bool(self._last_id), ""
            if resumed:
                return None
        except BorgishError as error:
            return error
        return Unreachable("the master ended the watch")

    def _hear(self, message: "Message") -> None:
        if message.kind != "summary":
            return
        try:
            view = decoder(SummaryView).decode(message.data)
        except msgspec.MsgspecError as error:
            raise BorgishError(
                f"the master's summary cannot be decoded: {error}",
                "Are master and client of the same version?",
            ) from error
        self.news = News(view, self._clock.now().mono)
        self._last_id = message.id
        self._again_seconds = AGAIN_SECONDS_MIN
        self._heard()

    def _lose(self, error: BorgishError) -> None:
        news = self.news
        lost_at = self._clock.now().mono if news.lost_at is None else news.lost_at
        self.news = News(news.view, news.heard_at, lost_at, error)
        self._heard()
