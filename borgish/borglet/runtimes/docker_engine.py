"""Calls to a Docker engine, made from threads, each with a deadline of its own.

The docker SDK blocks and waits a minute by default; an engine that hangs must not hang the borglet.
What the calls mean is left to the other ``docker*`` files.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env

from borgish.errors import Unreachable

T = TypeVar("T")

# What the SDK hands out is not typed; these names say what is meant.
Client = Any
Inspected = dict[str, Any]  # GET /containers/ID/json
Listed = dict[str, Any]  # one of GET /containers/json
News = dict[str, Any]  # one of GET /events

QUICK_SECONDS_MAX = 2.0  # list and inspect
SLOW_SECONDS_MAX = 10.0  # create, start, kill, remove
RECONNECT_SECONDS = 0.5
QUICK_CALLS_MAX = 4
SLOW_CALLS_MAX = 8  # more at once make no engine faster
STREAMS_MAX = 64
FRAMES_AT_ONCE_MAX = 256

SILENT_HINT = "Look at it with `docker info`. Containers that run go on running."


class Engine:
    """The engine that ``DOCKER_HOST`` names, else the one of this machine.

    Calls raise Unreachable when it does not answer in time, APIError when it refuses.
    """

    def __init__(self) -> None:
        self._quick_threads = ThreadPoolExecutor(QUICK_CALLS_MAX, "docker-quick")
        self._slow_threads = ThreadPoolExecutor(SLOW_CALLS_MAX, "docker-slow")
        self._stream_threads = ThreadPoolExecutor(STREAMS_MAX, "docker-stream")
        self._streams: set[Any] = set()
        self._closed = threading.Event()

    async def open(self) -> None:
        """Agree on the version of the protocol. Raises Unreachable."""
        self._quick: Client = await _within(
            self._quick_threads, lambda: _client("auto", QUICK_SECONDS_MAX), "answer"
        )
        version = self._quick.api_version
        self._slow: Client = _client(version, SLOW_SECONDS_MAX)
        self._endless: Client = _client(version, None)

    async def quick(self, call: Callable[[Client], T]) -> T:
        """Make a call that only looks."""
        return await _within(self._quick_threads, lambda: call(self._quick), "answer")

    async def slow(self, call: Callable[[Client], T], what: str) -> T:
        """Make a call that does something; ``what``, as in "start a container", is for the error."""
        return await _within(self._slow_threads, lambda: call(self._slow), what)

    async def stream(self, call: Callable[[Client], Any], what: str) -> AsyncIterator[bytes]:
        """Yield what a call streams, as it comes; the stream ends with whoever reads it."""
        stream = await _within(self._stream_threads, lambda: call(self._endless), what)
        self._streams.add(stream)
        try:
            while frames := await _within(self._stream_threads, lambda: next(stream, b""), what):
                yield frames
        finally:
            self._end(stream)

    async def endless(self, call: Callable[[], T], what: str) -> T:
        """Do what may take as long as it likes, beside streams."""
        return await _within(self._stream_threads, call, what)

    async def whole(self, call: Callable[[Client], Any], what: str) -> AsyncIterator[bytes]:
        """Yield what a call streams that ends by itself, many frames at a time."""
        frames: Iterator[bytes] = await _within(self._slow_threads, lambda: call(self._slow), what)
        while some := await _within(
            self._slow_threads, lambda: b"".join(islice(frames, FRAMES_AT_ONCE_MAX)), what
        ):
            yield some

    def listen(self, since: float, filters: dict[str, Any], heard: Callable[[News], None]) -> None:
        """Call ``heard`` in this event loop with each event from ``since`` on, until closed."""
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=self._listen, args=(loop, since, filters, heard), name="docker-events", daemon=True
        ).start()

    def _listen(
        self,
        loop: asyncio.AbstractEventLoop,
        since: float,
        filters: dict[str, Any],
        heard: Callable[[News], None],
    ) -> None:
        """Reconnect for as long as it takes: that nothing answers is noticed by those who ask."""
        while not self._closed.is_set():
            with suppress(DockerException, requests.RequestException):
                news = self._endless.events(since=f"{since:.9f}", filters=filters, decode=True)
                self._streams.add(news)
                for event in news:
                    since = event["timeNano"] / 1e9
                    try:
                        loop.call_soon_threadsafe(heard, event)
                    except RuntimeError:  # the loop has ended, and whoever listened with it
                        return
                self._streams.discard(news)
            self._closed.wait(RECONNECT_SECONDS)

    def _end(self, stream: Any) -> None:
        self._streams.discard(stream)
        with suppress(OSError, AttributeError, DockerException):  # it has ended by itself
            stream.close()

    def close(self) -> None:
        """Let go. Calls under way end by their own deadline."""
        self._closed.set()
        for stream in tuple(self._streams):
            self._end(stream)
        for threads in (self._quick_threads, self._slow_threads, self._stream_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def _client(version: str, timeout_seconds: float | None) -> Client:
    return docker.APIClient(version=version, timeout=timeout_seconds, **kwargs_from_env())


async def _within(threads: Executor, call: Callable[[], T], what: str) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, call)
    except requests.Timeout:
        raise Unreachable(f"the Docker engine did not {what} in time", SILENT_HINT) from None
    except APIError:
        raise
    except (DockerException, requests.RequestException) as error:
        raise Unreachable(f"no Docker engine answers ({error})", SILENT_HINT) from None
