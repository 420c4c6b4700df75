"""What a borgmaster answers that does not lead: how it is, what its copy of the cell shows to those who ask
for no newer one, and for all else who leads.

Clients are redirected with 307, method and body kept, and the body names the leader as well; 503 while nobody
leads. So what is read is of the present, unless it was asked for with ``at_least``: then a standby answers
with what it has, from that position of the journal on, and the answer says of which (``as_of``). It asks for
the same tokens as the API of one who leads, which it knows by its copy of the cell.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import parse_qs

import msgspec
from litestar import Litestar, Request, Response

from borgish.api.app import create_routes
from borgish.api.auth import Policy, check
from borgish.api.errors import PROBLEM, encode, problem_of
from borgish.api.middleware import Receive, Scope, Send
from borgish.api.moments import AT_LEAST, Moment
from borgish.api.routes.status import HEALTH
from borgish.api.services import Reading, Services
from borgish.api.views.history import HistoryFilter
from borgish.cell.model import Cell
from borgish.errors import BorgishError, Forbidden, NotLeading, Unreachable
from borgish.vocabulary import BODY_BYTES_MAX
from borgish.wire.api import AsOf, CheckpointView, HealthView, Problem
from borgish.wire.api_past import CheckpointDetail, HistoryList, PastWindow

T = TypeVar("T")

AGAIN_SECONDS = 1


class CopyPast(Protocol):
    """What a standby knows of the past. Each raises NotLeading where it cannot be read; see ``Moments``,
    ``Past`` and ``CheckpointKeeper``."""

    async def find(self, moment: Moment) -> AsOf: ...

    async def read(self, as_of: AsOf, view: Callable[[Reading], T]) -> T: ...

    async def read_both(self, old: AsOf, new: AsOf, view: Callable[[Cell, Cell], T]) -> T: ...

    async def window(self, moment: Moment) -> PastWindow: ...

    async def latest(self, wanted: HistoryFilter, before: int, limit: int) -> HistoryList: ...

    async def checkpoints(self) -> list[CheckpointView]: ...

    async def checkpoint(self, position: int) -> CheckpointDetail: ...


class Copy(Protocol):
    """A standby and its copy of the cell."""

    @property
    def past(self) -> CopyPast: ...

    def health(self) -> HealthView:
        """Return how it is."""
        ...

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        """Call ``view`` with the copy from position ``at_least`` on, and return what it returns. Raises
        NotLeading where it does not come to have that."""
        ...


class StandbyApp:
    """ASGI."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. The body of a request is for somebody else, and only taken off the connection."""
        if scope["type"] != "http":
            return
        await _drained(receive)
        if scope["method"] == "GET" and scope["path"] == HEALTH:
            await _show(self._copy.health(), scope, send)
        elif _may_be_older(scope):
            await self._routes(scope, receive, send)
        else:
            await _answer(send, *self._sent_on(scope))

    @cached_property
    def _routes(self) -> Litestar:
        """Those of a leader, of whose services most are not here. Made when they are first asked for: most
        masters lead before that."""
        leaders: dict[str, Any] = dict.fromkeys(Services.__struct_fields__, _LeaderOnly())
        past = self._copy.past
        here = {
            "reader": _LeaderOnly(read=self._copy.read),
            "moments": _LeaderOnly(
                find=past.find, read=past.read, read_both=past.read_both, window=past.window
            ),
            "past": _LeaderOnly(latest=past.latest),
            "keeper": _LeaderOnly(listed=past.checkpoints, detail=past.checkpoint),
        }
        services = Services(**leaders | here)
        return create_routes(services, {NotLeading: self._on_not_leading})

    def _on_not_leading(self, request: Request[Any, Any, Any], error: NotLeading) -> Response[bytes]:
        status, body, headers = self._sent_on(request.scope, error.message)
        named = {name.decode(): value.decode() for name, value in headers}
        return Response(body, status_code=status, media_type=PROBLEM, headers=named)

    def _sent_on(self, scope: Scope, why: str = "") -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        """Return status, body and headers of what sends a client on to who leads; 503 where nobody does."""
        view = self._copy.health()
        if not view.leader:
            error = nobody_leads(view)
            return error.status, *_encoded(problem_of(error), (b"retry-after", b"%d" % AGAIN_SECONDS))
        asked = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        here = why or f"the borgmaster at {view.address} stands by"
        detail = f"{here}; the one at {view.leader} leads"
        if view.trouble:  # where only this one cannot follow, who led still leads: the client is to ask there
            detail = f"{here} and cannot follow: {view.trouble}; the one at {view.leader} led last"
        problem = Problem("Temporary Redirect", 307, detail, hint=f"Ask {view.leader}")
        return problem.status, *_encoded(problem, (b"location", view.leader.encode() + asked))


class _LeaderOnly:
    """A service of a leader, of which only this is ``here``."""

    def __init__(self, **here: Any) -> None:
        vars(self).update(here)

    def __getattr__(self, name: str) -> NoReturn:
        raise NotLeading("only the borgmaster that leads can do this")

    def __call__(self, *_given: object) -> NoReturn:
        raise NotLeading("only the borgmaster that leads knows this")


def nobody_leads(view: HealthView) -> Unreachable:
    """Return the error of who asks while there is no leader."""
    waits = view.trouble or "it leads as soon as it may"
    return Unreachable(f"no borgmaster leads cell {view.cell} now; {view.address} stands by: {waits}")


def _may_be_older(scope: Scope) -> bool:
    """Return whether a request asks for no newer cell than a standby may have."""
    query = scope["query_string"].decode("latin-1")  # what is no UTF-8 is refused by the routes
    return scope["method"] == "GET" and AT_LEAST in parse_qs(query, keep_blank_values=True)


async def _drained(receive: Receive) -> None:
    """Take a body off the connection, up to what anybody may send; a longer one ends with the connection."""
    seen, more = 0, True
    while more and seen <= BODY_BYTES_MAX:
        message = await receive()
        seen += len(message.get("body", b""))
        more = message.get("more_body", False)


async def _show(view: HealthView, scope: Scope, send: Send) -> None:
    try:
        check(Policy.READ, scope["user"], "")
    except Forbidden as refused:
        await _refuse(refused, send)
        return
    await _answer(send, 200, msgspec.json.encode(view), [(b"content-type", b"application/json")])


async def _refuse(error: BorgishError, send: Send) -> None:
    await _answer(send, error.status, *_encoded(problem_of(error)))


def _encoded(problem: Problem, *more: tuple[bytes, bytes]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    body, headers = encode(problem)
    return body, [*headers, *more]


async def _answer(send: Send, status: int, body: bytes, headers: "list[tuple[bytes, bytes]]") -> None:
    kept = [header for header in headers if header[0] != b"content-length"]
    kept += [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": kept})
    await send({"type": "http.response.body", "body": body})
