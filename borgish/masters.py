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
SILENT_SECONDS_MAX = 8.0
"""How long one of several is waited for, at first: when it hangs or its host is gone, another one leads after
6 s. One that was silent for so long, and leads yet, is busy, and is then given all the time."""
BUSY_SECONDS_MAX = 10.0
"""How long one question waits in all for a master that is asked too often."""
_HOPS_MAX = 5  # from one to the next, without a pause


class NotAnswering(Unreachable):
    """Nobody answers at an address."""


class Silent(NotAnswering):
    """Nobody answered a question in time."""


class Untrusted(NotAnswering):
    """Who answers cannot show that it is a master of the cell. Nothing was sent."""


class NobodyLeads(Unreachable):
    """A standby answers, and knows no leader."""


class Redirected(BorgishError):
    """A standby answers, and says who leads."""

    def __init__(self, asked: str, location: str, detail: str = "") -> None:
        """``detail``: what the standby says of it."""
        parts = urlsplit(location)
        self.where = f"{parts.scheme}://{parts.netloc}"
        message = f"{asked} redirects to {self.where}"
        super().__init__(f"{message} ({detail})" if detail else message, "Ask there")


class Masters:
    """The addresses of one cell's masters, and the one that is asked now."""

    def __init__(self, urls: str) -> None:
        """``urls`` are separated by commas; the first is asked first."""
        self.given = several(urls) or ("",)
        self.url = self.given[0]
        self.slow: set[str] = set()  # those that were silent

    @property
    def are_several(self) -> bool:
        """Whether there is another one to ask."""
        return len(self.given) > 1

    def patience(self, seconds: float) -> float:
        """Return how long to wait for the one asked now, where ``seconds`` is all the time there is."""
        is_all = not self.are_several or self.url in self.slow
        return seconds if is_all else min(seconds, SILENT_SECONDS_MAX)

    @property
    def known(self) -> tuple[str, ...]:
        """The addresses that were given, and the one asked now."""
        return tuple(dict.fromkeys((*self.given, self.url)))

    @property
    def all(self) -> str:
        """All addresses as one text, the one asked now first."""
        return ",".join(dict.fromkeys((self.url, *self.given)))

    def ask(self, question: Callable[[], T], before_next: Callable[[], None]) -> T:
        """Return what the leader answers to a question, which is put to the master at ``url``.

        ``before_next`` is called when another one is to be asked. Raises what the question does, and
        Unreachable that names everyone who was asked when nobody leads.
        """
        search = Search(self)
        while True:
            asked = self.url
            try:
                return question()
            except BorgishError as error:
                pause_seconds = search.after(error)
            time.sleep(pause_seconds)
            if self.url != asked:
                before_next()

    def following(self) -> str:
        """Return the one to ask after the one asked now; the first again after the last."""
        if self.url not in self.given:
            return self.given[0]
        return self.given[(self.given.index(self.url) + 1) % len(self.given)]


class Search:
    """One question's way to the leader, whoever carries it."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters
        self._clock, self._began = SystemClock(), 0.0
        self._tried: list[BorgishError] = []
        self._silent: set[str] = set()
        self._busy_seconds = BUSY_SECONDS_MAX

    def after(self, error: BorgishError) -> float:
        """Have the master chosen that is asked next, after an answer that was an error, and return in how
        many seconds. Raises that error where it is the answer, and Unreachable when nobody leads."""
        masters, tried = self._masters, self._tried
        if isinstance(error, TooManyRequests):  # nothing was done, so that anything may be asked again
            self._busy_seconds -= error.retry_after_seconds
            if self._busy_seconds < 0:
                raise error
            return error.retry_after_seconds
        if isinstance(error, Redirected):
            if not may_follow(masters.url, error.where) or error.where == masters.url:
                raise error
            tried.append(error)
            self._silent.clear()
            following = error.where if len(tried) % _HOPS_MAX else masters.following()
        elif isinstance(error, NotAnswering | NobodyLeads):
            tried.append(error)
            if isinstance(error, Silent):
                masters.slow.add(masters.url)
            self._silent = self._silent | {masters.url} if isinstance(error, NotAnswering) else set()
            if self._silent.issuperset(masters.given):
                raise (_nobody(tried) if masters.are_several else error) from None
            following = masters.following()
        else:
            raise error
        now = self._clock.now().mono
        self._began = self._began or now
        if now - self._began > LEADERLESS_SECONDS_MAX:
            raise _nobody(tried)
        masters.url = following
        return PAUSE_SECONDS if following == masters.given[0] else 0.0


def _nobody(tried: list[BorgishError]) -> Unreachable:
    messages = "; ".join(dict.fromkeys(error.message for error in tried[-8:]))
    hints = {error.hint: None for error in tried if isinstance(error, Silent | Untrusted) and error.hint}
    hint = "; ".join(hints) or "Start one, or look into their logs"
    return Unreachable(f"no borgmaster of this cell leads: {messages}", hint)
