"""What a borgmaster answers that does not lead: how it is, and for all else who does.

Clients are redirected with 307, method and body kept, and the body names the leader as well; 503 while nobody
leads. There is one place to read from, so no answer is older than another. It asks for the same tokens as
the API of one who leads, which it knows by its copy of the cell.
"""

from collections.abc import Callable

import msgspec

from borgish.api.auth import Policy, check
from borgish.api.errors import encode, problem_of
from borgish.api.middleware import Receive, Scope, Send
from borgish.errors import BorgishError, Forbidden, Unreachable
from borgish.vocabulary import BODY_BYTES_MAX
from borgish.wire.api import HealthView, Problem

HEALTH = "/v1/health"
AGAIN_SECONDS = 1


class StandbyApp:
    """ASGI. ``health`` is asked at each request."""

    def __init__(self, health: Callable[[], HealthView]) -> None:
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. The body of a request is for somebody else, and only taken off the connection."""
        if scope["type"] != "http":
            return
        await _drained(receive)
        view = self._health()
        if scope["path"] == HEALTH and scope["method"] == "GET":
            await _show(view, scope, send)
        elif view.leader:
            await _send_on(view, scope, send)
        else:
            await _refuse(nobody_leads(view), send, [(b"retry-after", b"%d" % AGAIN_SECONDS)])


def nobody_leads(view: HealthView) -> Unreachable:
    """Return the error of who asks while there is no leader."""
    waits = view.trouble or "it leads as soon as it may"
    return Unreachable(f"no borgmaster leads cell {view.cell} now; {view.address} stands by: {waits}")


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


async def _send_on(view: HealthView, scope: Scope, send: Send) -> None:
    asked = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    detail = f"the borgmaster at {view.address} stands by; the one at {view.leader} leads"
    problem = Problem("Temporary Redirect", 307, detail, hint=f"Ask {view.leader}")
    body, headers = encode(problem)
    await _answer(send, 307, body, [*headers, (b"location", view.leader.encode() + asked)])


async def _refuse(
    error: BorgishError, send: Send, headers: "list[tuple[bytes, bytes]] | None" = None
) -> None:
    body, known = encode(problem_of(error))
    await _answer(send, error.status, body, known + (headers or []))


async def _answer(send: Send, status: int, body: bytes, headers: "list[tuple[bytes, bytes]]") -> None:
    kept = [header for header in headers if header[0] != b"content-length"]
    kept += [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": kept})
    await send({"type": "http.response.body", "body": body})
