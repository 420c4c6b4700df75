"""Which of a cell's borgmasters is asked: the one that leads, found by asking them in turn.

One that is asked too often says when to ask again. A standby sends on to the leader. While nobody leads, as
for some seconds when a leader has died, all are asked again for a while, as long as there is more than one
or a standby says so.
"""

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from borgish.addresses import may_follow, several
from borgish.clock import SystemClock
from borgish.errors import BorgishError, TooManyRequests, Unreachable

T = TypeVar("T")

SENT_ON = 307
LEADERLESS_SECONDS_MAX = 15.0
"""How long nobody may lead before that is said; an election takes half of it at most."""
PAUSE_SECONDS = 0.2
BUSY_SECONDS_MAX = 10.0
"""How long one question waits in all for a master that is asked too often."""
_HOPS_MAX = 5  # from one to the next, without a pause


class NotAnswering(Unreachable):
    """Nobody answers at an address."""


class NobodyLeads(Unreachable):
    """A standby answers, and knows no leader."""


class Redirected(BorgishError):
    """A standby answers, and says who leads."""

    def __init__(self, asked: str, location: str) -> None:
        parts = urlsplit(location)
        self.where = f"{parts.scheme}://{parts.netloc}"
        super().__init__(f"{asked} redirects to {self.where}", "Ask there")


class Masters:
    """The addresses of one cell's masters, and the one that is asked now."""

    def __init__(self, urls: str) -> None:
        """``urls`` are separated by commas; the first is asked first."""
        self._known = several(urls) or ("",)
        self.url = self._known[0]

    @property
    def known(self) -> tuple[str, ...]:
        """The addresses that were given, and the one asked now."""
        return tuple(dict.fromkeys((*self._known, self.url)))

    @property
    def all(self) -> str:
        """All addresses as one text, the one asked now first."""
        return ",".join(dict.fromkeys((self.url, *self._known)))

    def ask(self, question: Callable[[], T], before_next: Callable[[], None]) -> T:
        """Return what the leader answers to a question, which is put to the master at ``url``.

        ``before_next`` is called when another one is to be asked. Raises what the question does, and
        Unreachable that names everyone who was asked when nobody leads.
        """
        clock, began, tried, silent = SystemClock(), 0.0, list[BorgishError](), set[str]()
        busy_seconds = BUSY_SECONDS_MAX
        while True:
            try:
                return question()
            except TooManyRequests as busy:  # nothing was done, so that anything may be asked again
                busy_seconds -= busy.retry_after_seconds
                if busy_seconds < 0:
                    raise
                time.sleep(busy.retry_after_seconds)
                continue
            except Redirected as sent:
                if not may_follow(self.url, sent.where) or sent.where == self.url:
                    raise
                tried.append(sent)
                silent.clear()
                following = sent.where if len(tried) % _HOPS_MAX else self._next()
            except (NotAnswering, NobodyLeads) as error:
                tried.append(error)
                silent = silent | {self.url} if isinstance(error, NotAnswering) else set()
                if silent.issuperset(self._known):
                    raise (_nobody(tried) if len(self._known) > 1 else error) from None
                following = self._next()
            now = clock.now().mono
            began = began or now
            if now - began > LEADERLESS_SECONDS_MAX:
                raise _nobody(tried)
            if following == self._known[0]:
                time.sleep(PAUSE_SECONDS)
            before_next()
            self.url = following

    def _next(self) -> str:
        """Return the one to ask after the one asked now; the first again after the last."""
        if self.url not in self._known:
            return self._known[0]
        return self._known[(self._known.index(self.url) + 1) % len(self._known)]


def _nobody(tried: list[BorgishError]) -> Unreachable:
    messages = "; ".join(dict.fromkeys(error.message for error in tried[-8:]))
    return Unreachable(f"no borgmaster of this cell leads: {messages}", "Start one, or look into their logs")
