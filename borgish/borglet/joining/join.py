"""Gets this machine into its cell, and back when the master seems to have lost it.

One blocking request in a thread of its own, again until it is accepted. What is in the way is
logged once, with what to do, and again when it changes or a minute has passed.
"""

import asyncio
import http.client
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from borgish.addresses import WILDCARDS, may_follow
from borgish.borglet.joining.identity import Identity
from borgish.borglet.settings import Settings
from borgish.borglet.state_folder import Membership
from borgish.clock import Clock
from borgish.credentials import MEMBER
from borgish.errors import (
    BorgishError,
    Conflict,
    Refused,
    TooManyRequests,
    Unauthenticated,
    Unreachable,
    UnsafeConfiguration,
)
from borgish.ids import new_request_id
from borgish.tls.https import MasterConnection
from borgish.wire.api import Problem
from borgish.wire.link import JoinReply, JoinRequest

T = TypeVar("T")

log = logging.getLogger("borglet.join")

NOT_POLLED_SECONDS = 15.0
DUE_SECONDS = 2.0
PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 5.0
PAUSE_GROWTH = 1.25
"""Borglets often start beside their master: it is found a quarter later than it serves, not twice as late."""
REQUEST_SECONDS = 5.0
REMIND_SECONDS = 60.0
ANSWER_BYTES_MAX = 64 * 1024
JOIN_HINT = "Put an invitation there: `borgctl machine invite` makes one"


class Redirected(Exception):
    """A master that stands by names the one that leads."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class Joiner:
    """Joins at each start, and when the master has not polled for 15 s.

    ``ask`` makes one request of a master and returns its answer; it raises SentOn, or what is in the way.
    ``heard`` gives when the master last polled, on the monotonic clock; ``joined`` is called with the cell
    after each join. ``is_due``, asked every few seconds, tells whether to join at once for another reason.
    """

    def __init__(
        self,
        masters: Sequence[str],
        membership: Membership,
        clock: Clock,
        ask: Callable[[str], Awaitable[JoinReply]],
        heard: Callable[[], float],
        joined: Callable[[str], None],
        is_due: Callable[[], bool] | None = None,
    ) -> None:
        self._membership, self._clock, self._is_due = membership, clock, is_due
        self._ask, self._heard, self._joined = ask, heard, joined
        self._warned, self._warned_at = "", 0.0
        self.change(masters)

    def change(self, masters: Sequence[str]) -> None:
        """Ask other masters from the next time on."""
        self._masters = masters
        self._master = masters[0]  # the one that is asked next

    async def run(self) -> None:
        """Join, watch, join again; never returns."""
        while True:
            await self._join()
            await self._until_unheard()

    async def _join(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while True:
            try:
                reply = await self._ask(self._master)
                self._accepted(reply)
                return
            except Redirected as sent:
                self._master = sent.where
            except (BorgishError, OSError, ValueError) as error:  # ValueError: a host name that is none
                self._warn(str(error))
                self._master = self._next()
            await asyncio.sleep(pause)
            pause = min(pause * PAUSE_GROWTH, PAUSE_SECONDS_MAX)

    def _accepted(self, reply: JoinReply) -> None:
        self._warned = ""
        self._membership.keep(reply.cell, reply.poll_token)
        log.info("joined cell %s at %s as machine %s", reply.cell, self._master, reply.machine)
        self._joined(reply.cell)

    def _next(self) -> str:
        """Return the master to ask after one that was of no use."""
        if self._master not in self._masters:
            return self._masters[0]
        return self._masters[(self._masters.index(self._master) + 1) % len(self._masters)]

    async def _until_unheard(self) -> None:
        left = NOT_POLLED_SECONDS
        while left > 0:
            await asyncio.sleep(left if self._is_due is None else min(left, DUE_SECONDS))
            if self._is_due is not None and self._is_due():
                return
            left = self._heard() + NOT_POLLED_SECONDS - self._clock.now().mono
        log.warning("not polled for %.0f s; joining again", NOT_POLLED_SECONDS)

    def _warn(self, text: str) -> None:
        now = self._clock.now().mono
        if text != self._warned or now - self._warned_at >= REMIND_SECONDS:
            self._warned, self._warned_at = text, now
            log.warning("cannot join the cell: %s Goes on trying.", text.rstrip(".") + ".")


class HttpJoin:
    """Asks masters by HTTP. ``make_request`` gives the request as it is now, but for the token."""

    def __init__(
        self,
        settings: Settings,
        membership: Membership,
        make_request: Callable[[], JoinRequest],
        clock: Clock,
        identity: Identity | None = None,
        invitation: str = "",
        told: Callable[[], str] = lambda: "",
    ) -> None:
        """``identity`` has the machine's certificate, which counts instead of a token; or it is to get one,
        by an ``invitation``. ``told`` gives the hash of the authorities that the cell trusts, as its master
        last said."""
        self.settings, self._membership, self._make_request = settings, membership, make_request
        self._clock, self._identity, self._invitation = clock, identity, invitation
        self._told = told

    async def __call__(self, master: str) -> JoinReply:
        """Make one request, in a thread. Raises SentOn, and Unreachable or a Refused that says what to do."""
        return await in_daemon_thread(lambda: self.once(master))

    def once(self, master: str) -> JoinReply:
        """Make one request, and wait for its answer: by an invitation, if there is one; as the machine that
        is in the cell; where that is not known, by what lets a new one in. Raises as above."""
        if self._invitation:
            return self._ask_with(master, self._invitation, "")
        if self._identity is not None:
            self._identity.expect_good(self._clock.now().wall)
        poll_token, path = self._membership.poll_token, self.settings.join_token_file
        if poll_token:
            try:
                return self._ask_with(master, f"{MEMBER}{self.settings.machine}.{poll_token}", poll_token)
            except Unauthenticated:
                if path is None or not path.exists():
                    raise
        return self._ask_with(master, self._join_token(), "")

    def _ask_with(self, master: str, token: str, poll_token: str) -> JoinReply:
        try:
            status, body, location = self._exchange(master, token, poll_token)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"no answer from the borgmaster at {master}: {error or type(error).__name__}",
                "Check that it runs and that 'master' in the configuration is its address.",
            ) from error
        if status == 307:
            url = urlsplit(location)
            if may_follow(master, where := f"{url.scheme}://{url.netloc}"):
                raise Redirected(where)
        if status not in (200, 201):
            raise self._refusal(status, body)
        try:
            reply = msgspec.json.decode(body, type=JoinReply)
        except msgspec.MsgspecError:
            raise Unreachable(f"what answers at {master} is not a borgmaster") from None
        if self._identity is not None and reply.certificate:
            self._identity.keep(reply.cell, reply.certificate, reply.authorities)
            log.info("this machine has a new certificate of cell %s", reply.cell)
        return reply

    def is_due(self) -> bool:
        """Whether the machine's certificate is to be signed anew; also where its file is damaged, which
        joining tells of."""
        identity = self._identity
        try:
            return identity is not None and identity.is_due(self._clock.now().wall, self._told())
        except (UnsafeConfiguration, OSError):
            return True

    def _join_token(self) -> str:
        path = self.settings.join_token_file
        if path is None:
            raise Unauthenticated("no join token: the configuration names no join_token_file", JOIN_HINT)
        try:
            token = path.read_text("utf-8").strip()
        except OSError as error:
            token, reason = "", f": {error.strerror}"
        except UnicodeDecodeError:
            token, reason = "", " is no text"
        else:
            reason = " is empty"
        token = token.rpartition("::")[2]  # what is before it says of which cell it is
        if not token or not token.isascii() or not token.isprintable():
            raise Unauthenticated(
                f"no join token: {path}{reason if not token else ' holds something else'}",
                JOIN_HINT,
            )
        return token

    def _exchange(self, master: str, token: str, poll_token: str) -> tuple[int, bytes, str]:
        connection = self._connection(master)
        try:
            connection.connect()
            body = msgspec.json.encode(self._request(connection, poll_token))
            headers = {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/json",
                "Idempotency-Key": new_request_id(),
            }
            path = urlsplit(master).path.rstrip("/") + "/v1/machines"
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read(ANSWER_BYTES_MAX), response.headers.get("location", "")
        finally:
            connection.close()

    def _connection(self, master: str) -> http.client.HTTPConnection:
        url = urlsplit(master)
        host = url.hostname or ""
        if url.scheme == "http":
            return http.client.HTTPConnection(host, url.port, timeout=REQUEST_SECONDS)
        if self._identity is not None:
            trust = self._identity.calling(shown=not self._invitation)
        else:
            ca = self.settings.tls.ca if self.settings.tls else ""
            trust = ssl.create_default_context(cafile=ca or None)
        return MasterConnection(host, url.port, REQUEST_SECONDS, trust)

    def _request(self, connection: http.client.HTTPConnection, poll_token: str) -> JoinRequest:
        """The request; one who listens everywhere gives the address that the master is reached from."""
        host = self.settings.host
        if host in WILDCARDS and connection.sock:
            host = str(connection.sock.getsockname()[0])
        to_sign = ""
        if self._identity is not None and (self._invitation or self.is_due()):
            to_sign = self._identity.to_sign()
        request = self._make_request()
        return msgspec.structs.replace(request, host=host, poll_token=poll_token, to_sign=to_sign)

    def _refusal(self, status: int, body: bytes) -> BorgishError:
        try:
            problem = msgspec.json.decode(body, type=Problem)
        except msgspec.MsgspecError:
            problem = Problem(title="", status=status, detail=f"HTTP status {status}")
        machine, path = self.settings.machine, self.settings.join_token_file
        if status in (401, 403):
            what, hint = f"what is in {path}", JOIN_HINT
            if self._invitation or self._identity is not None or path is None:
                kind = "certificate" if self._identity is not None else "token"
                what = f"the {'invitation' if self._invitation else kind} of machine {machine}"
                hint = f"Make another invitation: `borgctl machine invite {machine}`"
            return Unauthenticated(f"the borgmaster refused {what}: {problem.detail}", problem.hint or hint)
        if status == 409:
            return Conflict(
                f"the borgmaster refused the name '{machine}': {problem.detail}",
                problem.hint or "Give this machine another name: 'machine' in its configuration.",
            )
        if status >= 500 or status == TooManyRequests.status:
            return Unreachable(f"the borgmaster cannot take a machine now: {problem.detail}", problem.hint)
        return Refused(f"the borgmaster refused this machine: {problem.detail}", problem.hint)


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """Return what a blocking call returns. The thread never holds up the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(future.set_result, call())
        except BaseException as error:  # carried to the awaiting task, whatever it is
            settle = partial(future.set_exception, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())

    threading.Thread(target=work, daemon=True, name="borglet-join").start()
    return await future
