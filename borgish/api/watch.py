"""``/v1/watch``: what happens, as it happens, as server-sent events. An id is what Kubernetes calls a
resource version: list, then watch from there.

The log of messages and who has seen what is the master's; here they only become a stream. What has
come while the last piece was being sent goes out as one piece. A comment each 10 s shows that the
stream lives.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from litestar import get
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.errors import problem_of
from borgish.api.openapi import PRODUCES
from borgish.api.parameters import JobFilter, Kinds
from borgish.api.request import ApiRequest
from borgish.api.services import WatchMessage
from borgish.errors import BorgishError, Invalid

KINDS = frozenset({"event", "tasks", "summary"})
HEARTBEAT_SECONDS = 10.0
PIECES_WAITING_MAX = 1000  # for one reader; beyond, it falls behind in the master's log

_HEARTBEAT = b": alive\n\n"


@get("/v1/watch", opt={POLICY: Policy.READ, PRODUCES: {"text/event-stream": {}}})
async def watch(request: ApiRequest, kinds: Kinds = "event", job: JobFilter = "") -> Stream:
    """Stream what happens. ``Last-Event-ID`` resumes after a message; 410 when that is no longer kept."""
    last_id = request.headers.get("last-event-id", "")
    messages = request.services.hub.subscribe(_kinds(kinds), job, last_id)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return Stream(pieces(messages), media_type="text/event-stream", headers=headers)


async def pieces(messages: AsyncIterator[WatchMessage]) -> AsyncIterator[bytes]:
    """Yield the stream's bytes until the messages end; the last one says why when they broke off."""
    backlog = _Backlog()
    filling = asyncio.create_task(backlog.fill(messages))
    try:
        yield _HEARTBEAT  # so that the reader gets the headers now
        while not filling.done() or backlog.waiting:
            yield await backlog.take()
        await filling
    finally:
        filling.cancel()


class _Backlog:
    """What is to be sent to one reader. Bounded: a reader that does not read stops its filling."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self._news = asyncio.Event()
        self._space = asyncio.Event()

    async def fill(self, messages: AsyncIterator[WatchMessage]) -> None:
        try:
            async for message in messages:
                self.waiting.append(encode(message))
                self._news.set()
                if len(self.waiting) >= PIECES_WAITING_MAX:
                    self._space.clear()
                    await self._space.wait()
        except BorgishError as error:
            self.waiting.append(b"event: gone\ndata: %s\n\n" % msgspec.json.encode(problem_of(error)))
        finally:
            self._news.set()

    async def take(self) -> bytes:
        """Return all that waits, or a heartbeat when nothing came for long."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return _HEARTBEAT
        self._news.clear()
        taken = b"".join(self.waiting)
        self.waiting.clear()
        self._space.set()
        return taken


def encode(message: WatchMessage) -> bytes:
    """Return one message as a server-sent event; JSON has no line breaks to take care of."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (message.id.encode(), message.kind.encode(), message.data)


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(filter(None, text.split(",")))
    if not kinds or not kinds <= KINDS:
        raise Invalid(f"invalid kinds '{text}'", f"Use one or more of {', '.join(sorted(KINDS))}")
    return kinds


WATCH = (watch,)
