"""Authentication: nothing behind it answers, not even *not found*, without a token of this cell.

Plain ASGI around the app, because a framework's own middleware runs only for routes that exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from borgish.addresses import is_loopback
from borgish.api.auth import Tokens, bearer
from borgish.api.errors import encode, headers_of, problem_of
from borgish.api.rate_limits import Limits, LimitSettings, LongBodies
from borgish.cell.access.model import ID_CHARACTERS, Principal
from borgish.clock import SystemClock
from borgish.errors import BorgishError, Forbidden, TooManyRequests, Unauthenticated
from borgish.failpoints import reach
from borgish.vocabulary import JSON_BYTES_MAX
from borgish.wire.bounded_http import ON_AUTHENTICATED, cut_off

Scope = Any  # the framework's and the server's types of the same ASGI dictionaries differ
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

OnRefused = Callable[[str, str, str, str, str], None]
"""Is told of a request for which the token did not do: user, role, token's id, source, why."""


def nobody_counts(_user: str, _role: str, _token: str, _source: str, _why: str) -> None:
    """Count nothing."""


LASTS = "borgish.lasts"
"""The key in the state of a request that may take long before its answer begins."""
UNLIMITED = Limits(LimitSettings(0, 1, 0, 1, 0), SystemClock())
_LENGTH_DIGITS_MAX = 18  # what is longer is not read as a number
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


class AuthMiddleware:
    """Checks host and token of each request, and notes in its scope who asks.

    ``hosts`` are the names this listener goes by; None takes any. On loopback the list stops web pages
    that reach it through a name of their own (DNS rebinding).
    """

    def __init__(
        self,
        app: App,
        tokens: Tokens,
        hosts: Iterable[str] | None,
        permit: Callable[[], None] = lambda: None,
        limits: Limits = UNLIMITED,
        refused: OnRefused = nobody_counts,
    ) -> None:
        """``permit`` raises while nothing may be answered but with its error."""
        self._refused = refused
        self._app = app
        self._permit = permit
        self._tokens = tokens
        self._hosts = None if hosts is None else frozenset(hosts)
        self._limits = limits
        self._bodies = LongBodies()
        self._open: set[_OpenRequest] = set()

    def drop_revoked(self) -> None:
        """End the streams, and what else may last, of tokens that no longer stand for who they did."""
        for request in list(self._open):
            if request.lasts and self._tokens.principal(request.token) != request.principal:
                _log.info("%r of %s ends: its token was revoked", request.path, request.principal.name)
                request.task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            try:
                request = self._admit(scope)
            except BorgishError as refused:
                await refuse(refused, send)
                return
            self._open.add(request)
            try:
                await self._pass_on(scope, receive, send, request)
            finally:
                self._open.discard(request)
                if request.has_long_body:  # its scope has had it until now
                    self._bodies.end(request.principal, request.source)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, request: "_OpenRequest") -> None:
        """Let the app answer. A stream that breaks off ends without its end mark, and a line in the log."""

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start":
                request.begun = True
                if 400 <= message["status"] < 500 and message["status"] != TooManyRequests.status:
                    self._limits.refused(request.principal, request.source)
                if message["status"] == Forbidden.status:
                    who = request.principal
                    token = who.token[:ID_CHARACTERS]
                    self._refused(who.name, who.role, token, request.source, "not allowed")
            await send(message)

        try:
            await self._app(scope, receive, watched)
            reach("answer.sent")
        except asyncio.CancelledError:
            is_known = self._tokens.principal(request.token) == request.principal
            if is_known or request.begun:
                # Also when the listener ends: whoever gets no answer asks the next master the same.
                await cut_off(scope, receive)
            else:
                await refuse(_unknown_token(), send)
        except Exception as error:  # the answer has begun: cutting it off is all that is left
            known = _borgish_cause(error)
            if known is None:
                raise
            _log.warning("the answer to %r broke off: %s", scope["path"], known)

    def _admit(self, scope: Scope) -> "_OpenRequest":
        headers, source = scope["headers"], (scope.get("client") or ("nowhere",))[0]
        if self._hosts is not None:
            _check_host(headers, self._hosts)
        if any(name == b"origin" for name, _ in headers):
            raise Forbidden("web pages are not answered", "Ask with borgctl, or without an Origin header")
        try:
            token = bearer(headers)
            principal = self._tokens.principal(token)
            if principal is None:
                raise _unknown_token()
        except Unauthenticated:
            self._refused("", "", "", source, "no token, or a wrong one")
            self._limits.unauthenticated(source)
            raise
        if on_authenticated := scope.get("state", {}).pop(ON_AUTHENTICATED, None):
            on_authenticated()
        scope["user"], scope["auth"] = principal, None
        self._limits.admit(principal, source)
        self._permit()
        request = _OpenRequest(scope, token, principal, source)
        if is_long(headers):
            self._bodies.begin(principal, source)
            request.has_long_body = True
        return request


class _OpenRequest:
    """A request that is being answered."""

    def __init__(self, scope: Scope, token: str, principal: Principal, source: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task, self.token, self.principal, self.source = task, token, principal, source
        self.begun = False  # its answer
        self.has_long_body = False  # in memory, or on its way there
        self._scope = scope

    @property
    def path(self) -> str:
        path: str = self._scope["path"]
        return path

    @property
    def lasts(self) -> bool:
        """Whether it may go on for long. Others are not ended: what a command does would be in doubt."""
        return self.begun or LASTS in self._scope.get("state", {})


def _unknown_token() -> Unauthenticated:
    return Unauthenticated("the token is not known in this cell", "Was it made for another cell?")


def is_long(headers: list[tuple[bytes, bytes]], bytes_max: int = JSON_BYTES_MAX) -> bool:
    """Return whether a body may be longer than those of most routes; one in chunks may be."""
    for name, value in headers:
        if name == b"transfer-encoding":
            return True
        if name == b"content-length":
            return not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX or int(value) > bytes_max
    return False


def hosts_of(listen: str) -> frozenset[str] | None:
    """Return the names that a listener on this host goes by; None for one that others may reach."""
    return LOOPBACK_HOSTS | {listen} if is_loopback(listen) else None


def _check_host(headers: list[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    given = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
    if len(given) != 1 or _without_port(given[0]) not in hosts:
        raise Forbidden("unknown Host header", f"Use {' or '.join(sorted(hosts))}")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _borgish_cause(error: Exception) -> BorgishError | None:
    """Return the error of ours that the framework wrapped, if it was one."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause if isinstance(cause, BorgishError) else None


async def refuse(refused: BorgishError, send: Send) -> None:
    """Answer with an error."""
    body, headers = encode(problem_of(refused))
    headers += headers_of(refused)
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
