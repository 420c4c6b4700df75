"""Admission: whose request is begun next when more have come than can be begun at once.

However many requests come, and from whoever:

- In each round of the event loop requests are begun for ``SHARE_SECONDS`` only; all else that the process
  does, such as turns and polls, has its round as well.
- Of those that were begun a moment ago only so many are unanswered: what waits for a commit goes on in one
  round with all that do.
- Those who ask take turns. Who that is says the token, or the address where it is none of this cell. So one
  who sends thousands is not before anybody's first.
- Operators, machines that join and questions of health have every other turn, or every third while strangers
  wait as well: others hold them up by one request each, and they nobody else for good.
- Of each so many wait at the most, and further ones are answered 429; of each lane, and then 503. Both with
  ``Retry-After``, and nothing was done.
- A request holds its place until it is begun, and for ``IN_FLIGHT_SECONDS`` after that at the most: watches,
  commands that run and long bodies have none. Nor has one whose caller went away; it is not begun then.

Where nothing waits a request is begun at once.
"""

import asyncio
from collections import OrderedDict, deque
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from borgish.api.auth import Tokens, bearer
from borgish.api.middleware import App, Receive, Scope, Send, is_long, refuse
from borgish.api.routes.status import HEALTH
from borgish.cell.access.model import Principal, Role
from borgish.clock import Clock
from borgish.errors import BorgishError, Overloaded, TooManyRequests
from borgish.vocabulary import JSON_BYTES_MAX
from borgish.wire.bounded_http import LOSS, ON_AUTHENTICATED, Loss

SHARE_SECONDS = 0.004
"""Others wait for one share, and for whatever else is done in the same round of the loop."""
AT_START = 16
AT_ONCE_MAX = 32
GROWTH_MAX = 2.0

IN_FLIGHT_MAX = 32
"""Begun and not answered: one commit is for so many, and all of them go on in the round after it."""
IN_FLIGHT_SECONDS = 0.05
"""What is not answered after so long waits for something else than a commit, unless the disk is slow."""

OF_ASKER_MAX = 2_000
LONG_OF_ASKER_MAX = 16
"""Those with a long body, of which up to 64 KiB and what came together with that are in memory; of strangers
those with any."""
OF_STRANGER_MAX = 1_000
"""Of an address: a thousand machines behind one may ask for the cell's authority together."""
OF_LANE_MAX = 4_000
RETRY_SECONDS = 1.0

SHOWN_SECONDS = 60.0
"""So long after the last one the status says of whom requests were turned away."""
_SHOWN_MAX = 100

_FIRST = (Role.ADMIN, Role.OPERATOR, Role.JOIN)

T = TypeVar("T")


class Lane(IntEnum):
    """Who waits beside whom."""

    FIRST = 0  # operators, machines that join, and questions of health
    USERS = 1
    STRANGERS = 2  # who has no token of this cell


class Asker(NamedTuple):
    """Whose request it is. ``most`` may wait."""

    name: str
    lane: Lane
    most: int = OF_ASKER_MAX


class Waiting(Generic[T]):
    """Requests that wait: for each lane those who ask, for each of them their requests in order."""

    def __init__(self, of_lane_max: int) -> None:
        self._of_lane_max = of_lane_max
        # Whose turn it is, first.
        self._lanes: dict[Lane, OrderedDict[Asker, OrderedDict[T, None]]] = {
            lane: OrderedDict() for lane in Lane
        }
        self._turns = deque(Lane)
        self._counts = dict.fromkeys(Lane, 0)

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, asker: Asker, request: T) -> None:
        """Add a request. Raises TooManyRequests where the asker has too many, Overloaded where all have."""
        requests = self._lanes[asker.lane].get(asker, OrderedDict())
        if len(requests) >= asker.most:
            raise TooManyRequests(
                f"{len(requests):,} requests of {asker.name} wait already",
                "Nothing was done. Ask again in a moment, and for less at a time",
                RETRY_SECONDS,
            )
        if (count := self._counts[asker.lane]) >= self._of_lane_max:
            raise Overloaded(
                f"this borgmaster is overloaded: {count:,} requests wait",
                "Nothing was done. Ask again in a moment",
                RETRY_SECONDS,
            )
        requests[request] = None
        self._lanes[asker.lane][asker] = requests
        self._counts[asker.lane] += 1

    def remove(self, asker: Asker, request: T) -> bool:
        """Let a request wait no more, and return whether it did."""
        requests = self._lanes[asker.lane].get(asker)
        if requests is None or request not in requests:
            return False
        del requests[request]
        if not requests:
            del self._lanes[asker.lane][asker]
        self._counts[asker.lane] -= 1
        return True

    def next(self) -> T:
        """Return the request whose turn it is, which waits no more. There must be one."""
        lane = next(lane for lane in self._turns if self._counts[lane])
        self._turns.remove(lane)
        self._turns.append(lane)
        asker, requests = self._lanes[lane].popitem(last=False)
        request, _ = requests.popitem(last=False)
        if requests:
            self._lanes[lane][asker] = requests
        self._counts[lane] -= 1
        return request


def next_share(share: int, begun: int, seconds: float) -> int:
    """Return how many requests are a share from now on, when so many took so long."""
    fit = begun * SHARE_SECONDS / seconds if seconds > 0.0 else float(AT_ONCE_MAX)
    return int(max(1, min(AT_ONCE_MAX, fit, share * GROWTH_MAX)))


def asker_of(scope: Scope, principal: Principal | None) -> Asker:
    """Return whose a request is. Of machines that join each address is one: all have the same token."""
    source = (scope.get("client") or ("nowhere",))[0]
    long = is_long(scope["headers"], JSON_BYTES_MAX if principal else 0)
    if principal is None:
        return Asker(source, Lane.STRANGERS, LONG_OF_ASKER_MAX if long else OF_STRANGER_MAX)
    is_first = principal.role in _FIRST or scope["path"] == HEALTH
    name = source if principal.role == Role.JOIN else principal.name
    return Asker(name, Lane.FIRST if is_first else Lane.USERS, LONG_OF_ASKER_MAX if long else OF_ASKER_MAX)


class _InFlight:
    """Requests that were begun in one stretch of time, and how many are not answered."""

    count = 0


class Admission:
    """ASGI around an app: begins requests when it is their turn."""

    def __init__(self, app: App, tokens: Tokens, clock: Clock) -> None:
        self._app, self._tokens, self._clock = app, tokens, clock
        self._waiting = Waiting[asyncio.Future[bool]](OF_LANE_MAX)
        self._share = self._left = AT_START
        self._has_round = False  # another one is to come
        self._begun, self._began = 0, 0.0
        self._in_flight = _InFlight()
        self._letting_go: asyncio.TimerHandle | None = None  # of what is in flight
        self._turned_away: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app answer, when it is this request's turn."""
        if scope["type"] == "http" and not self._begins_at_once():
            try:
                if not await self._turn(scope):
                    return
            except TooManyRequests as full:
                self._note(full.message)
                await refuse(full, send)
                return
        in_flight = self._in_flight
        in_flight.count += 1
        try:
            await self._app(scope, receive, send)
        finally:
            in_flight.count -= 1
            if self._waiting:
                self._come_round()

    def busy(self) -> tuple[str, ...]:
        """Return a sentence for each reason why requests were turned away, until a minute after the last."""
        now = self._clock.now().mono
        return tuple(
            f"{words}: {count:,} more were turned away, the last {now - at:.0f} s ago"
            for words, (count, at) in self._turned_away.items()
            if now - at <= SHOWN_SECONDS
        )

    def _begins_at_once(self) -> bool:
        if not self._left or self._waiting or self._in_flight.count >= IN_FLIGHT_MAX:
            return False
        self._left -= 1
        self._come_round()
        return True

    async def _turn(self, scope: Scope) -> bool:
        """Return when it is a request's turn, False where its caller has gone. Raises TooManyRequests."""
        asker, loss = self._asker(scope), scope.get("state", {}).get(LOSS) or Loss()
        if loss.happened:
            return False
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def leave() -> None:
            if self._waiting.remove(asker, begun):
                begun.set_result(False)

        self._waiting.add(asker, begun)
        self._come_round()
        loss.call = leave
        try:
            return await begun
        finally:
            loss.call = None
            self._waiting.remove(asker, begun)  # where it was cancelled, as when the server stops

    def _asker(self, scope: Scope) -> Asker:
        try:
            principal = self._tokens.principal(bearer(scope["headers"]))
        except BorgishError:  # no token, or nobody knows any yet; why is said when it is its turn
            principal = None
        # What waits here is not slow to say who it is.
        if principal is not None and (call := scope.get("state", {}).pop(ON_AUTHENTICATED, None)):
            call()
        return asker_of(scope, principal)

    def _come_round(self) -> None:
        if not self._has_round:
            self._has_round = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        """Begin what is a share. Called once in a round of the loop, as long as there is something."""
        if self._begun:
            self._share = next_share(self._share, self._begun, self._clock.now().mono - self._began)
        self._begun, self._left, self._has_round = 0, self._share, False
        if not self._waiting:
            return
        if (room := IN_FLIGHT_MAX - self._in_flight.count) <= 0:
            if self._letting_go is None:
                self._letting_go = asyncio.get_running_loop().call_later(IN_FLIGHT_SECONDS, self._let_go)
            return
        loop = asyncio.get_running_loop()
        # The loop calls in order: between this call and the next round are these requests and nothing else.
        loop.call_soon(self._begin)
        while self._left and self._waiting and self._begun < room:
            request = self._waiting.next()
            if not request.done():  # cancelled, and about to say so
                request.set_result(True)
                self._begun, self._left = self._begun + 1, self._left - 1
        self._come_round()

    def _let_go(self) -> None:
        """Count what is in flight no more: it takes long."""
        self._letting_go, self._in_flight = None, _InFlight()
        self._come_round()

    def _begin(self) -> None:
        self._began = self._clock.now().mono

    def _note(self, words: str) -> None:
        count, at = self._turned_away.pop(words, (0, 0.0))
        now = self._clock.now().mono
        self._turned_away[words] = (count + 1 if now - at <= SHOWN_SECONDS else 1, now)
        if len(self._turned_away) > _SHOWN_MAX:
            self._turned_away.popitem(last=False)
