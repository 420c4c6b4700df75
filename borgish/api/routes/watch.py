"""``/v1/watch``: what happens, as it happens, as server-sent events. An id is what Kubernetes calls a
resource version: list, then watch from there.

The log of messages and who has seen what is the master's; here they only become a stream. A comment each 10 s
shows that the stream lives.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
from litestar import get
from litestar.response import Stream

from borgish.api.auth import POLICY, Policy
from borgish.api.errors import problem_of
from borgish.api.moments import LEADER_ONLY
from borgish.api.openapi import PRODUCES
from borgish.api.parameters import JobFilter, Kinds
from borgish.api.request import ApiRequest
from borgish.api.services import WatchBatch
from borgish.errors import BorgishError, Invalid
from borgish.wire.bounded_http import abort_of

KINDS = frozenset({"event", "tasks", "summary"})
HEARTBEAT_SECONDS = 10.0
STALLED_SECONDS_MAX = 60.0
"""So long a watcher may read nothing while there is more for it than buffers hold."""

_HEARTBEAT = b": alive\n\n"


@get(
    "/v1/watch",
    opt={
        POLICY: Policy.READ,
        PRODUCES: {"text/event-stream": {}},
        LEADER_ONLY: "what is new is told by who leads",
    },
)
async def watch(request: ApiRequest, kinds: Kinds = "event", job: JobFilter = "") -> Stream:
    """Stream what happens. ``Last-Event-ID`` resumes after a message; 410 when that is no longer kept."""
    last_id = request.headers.get("last-event-id", "")
    messages = request.services.hub.subscribe(_kinds(kinds), job, last_id)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    stream = unless_stalled(pieces(messages), abort_of(request.scope))
    return Stream(stream, media_type="text/event-stream", headers=headers)


async def unless_stalled(
    stream: AsyncGenerator[bytes, None], abort: Callable[[], None]
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a stream; its connection is closed where nobody takes one for a while.

    Nothing else ends one that is not read: its end would be sent behind what waits, of which the kernel keeps
    megabytes.
    """
    loop = asyncio.get_running_loop()
    try:
        async for piece in stream:
            stalled = loop.call_later(STALLED_SECONDS_MAX, abort)
            try:
                yield piece
            finally:
                stalled.cancel()
    finally:
        await stream.aclose()


async def pieces(batches: AsyncGenerator[WatchBatch, None]) -> AsyncGenerator[bytes, None]:
    """Yield the stream's bytes until the batches end; the last one says why when they broke off."""
    following: asyncio.Task[WatchBatch | None] | None = None
    try:
        yield _HEARTBEAT  # so that the reader gets the headers now
        while True:
            following = asyncio.create_task(_next(batches))
            while not (await asyncio.wait({following}, timeout=HEARTBEAT_SECONDS))[0]:
                yield _HEARTBEAT
            if (batch := following.result()) is None:
                return
            yield batch.encoded()
    except BorgishError as error:
        yield b"event: gone\ndata: %s\n\n" % msgspec.json.encode(problem_of(error))
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
            if not following.cancelled():
                following.exception()  # seen, though nobody is left to be told
        await batches.aclose()  # its reader is counted no more


async def _next(batches: AsyncGenerator[WatchBatch, None]) -> WatchBatch | None:
    return await anext(batches, None)


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(filter(None, text.split(",")))
    if not kinds or not kinds <= KINDS:
        raise Invalid(f"invalid kinds '{text}'", f"Use one or more of {', '.join(sorted(KINDS))}")
    return kinds


WATCH = (watch,)
