"""Calls to a Docker engine, made from threads, each with a deadline of its own.

The docker SDK blocks and waits a minute by default; an engine that hangs must not hang the borglet.
What the calls mean is left to the other ``docker*`` files, but for commands beside a task, which are
mostly streams.
"""

import asyncio
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env

from borgish.borglet.runtimes.base import END_TYPED, Input, Write
from borgish.borglet.runtimes.docker.socket import SILENT_HINT, socket_path
from borgish.borglet.runtimes.processes import family, signal_process, snapshot
from borgish.errors import Unreachable
from borgish.wire.link import Terminal

T = TypeVar("T")

# What the SDK hands out is not typed; these names document what is meant.
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

OUTPUT_BYTES_MAX = 1024**2
TIMED_OUT_CODE = 124  # as timeout(1) has it
END_LOOK_SECONDS = 0.02
LOOKS_MAX = 50  # a second of them: an engine that is busy tells of a command after its first output came
KILL_ROUNDS_MAX = 100
READ_BYTES = 64 * 1024
FRAME_HEAD_BYTES = 8  # which stream, and how many bytes follow


class Engine:
    """This machine's engine, on the socket that ``DOCKER_HOST`` names, if it does.

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
        socket_path()
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

    def blocking(self, call: Callable[[Client], T]) -> T:
        """Make a call from a thread of one's own."""
        try:
            return call(self._slow)
        except (requests.RequestException, DockerException) as error:
            raise Unreachable(f"no Docker engine answers ({error})", SILENT_HINT) from None

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
        """Call ``heard`` in this event loop with each event from ``since`` (seconds since 1970) on, until
        closed."""
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


# -- Commands beside a task, in its container ---------------------------------------------------------------


class Attached:
    """The streams of a command that was begun with its input open. Calls block; each side has its thread."""

    def __init__(self, raw: Any, *, terminal: bool = False) -> None:
        """``raw`` is what ``exec_start(socket=True)`` returns."""
        self._terminal = terminal
        self._socket = getattr(raw, "_sock", raw)  # a SocketIO's; with TLS it is the socket itself
        self._response = raw._response
        # Reading the head of the answer may have read ahead: the first output is in this buffer then.
        self._reader = self._response.raw._fp.fp

    def __next__(self) -> bytes:
        """Return some output. Raises StopIteration at its end."""
        if self._terminal:  # one stream, as it comes
            if said := bytes(self._reader.read1(READ_BYTES)):
                return said
            raise StopIteration
        size = 0
        while not size:
            head = self._reader.read(FRAME_HEAD_BYTES)
            if len(head) < FRAME_HEAD_BYTES:
                raise StopIteration
            size = int.from_bytes(head[4:], "big")
        output: bytes = self._reader.read(size)
        return output

    def send(self, data: bytes) -> None:
        """Write to its input, when there is room. Raises OSError when it has ended."""
        self._socket.sendall(data)

    def end(self) -> None:
        """Close its input; a terminal's end is typed. Raises OSError when it has ended."""
        if self._terminal:
            self._socket.sendall(END_TYPED)
        else:
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go. Who blocks in another thread is woken."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._response.close()


async def run_beside(
    engine: Engine,
    container: str,
    command: tuple[str, ...],
    timeout_seconds: float,
    stdin: Input | None = None,
    write: Write | None = None,
    terminal: Terminal | None = None,
) -> tuple[bytes, int, bool]:
    """Run a command; return its output, its exit code, and whether output or time was cut.

    With ``write`` all output goes there, and none is returned; what the command left behind is killed then.
    """
    more: dict[str, Any] = {"stdin": True} if stdin else {}
    if terminal:
        more |= {"tty": True, "environment": {"TERM": terminal.kind}}
    made = await engine.slow(
        lambda client: client.exec_create(container, list(command), **more), "make a command"
    )
    attached: asyncio.Future[Attached] = asyncio.get_running_loop().create_future()
    beside = [asyncio.create_task(_feed(engine, attached, stdin))] if stdin else []
    if stdin and terminal:
        beside.append(asyncio.create_task(_follow_size(engine, made["Id"], attached, stdin, terminal)))
    start = _attach(made["Id"], attached, terminal=terminal is not None) if stdin else _stream(made["Id"])
    output = bytearray()
    size = 0
    try:
        async with asyncio.timeout(timeout_seconds):
            async for part in engine.stream(start, "run a command"):
                if write:
                    await write(part)
                    continue
                size += len(part)
                output += part[: OUTPUT_BYTES_MAX - len(output)]
            code = await _exit_code(engine, made["Id"])
    except TimeoutError:
        await _end(engine, container, made["Id"])
        return bytes(output), TIMED_OUT_CODE, True
    except asyncio.CancelledError:  # whoever asked is gone, and so is the command's reason to run
        await _end(engine, container, made["Id"])
        raise
    finally:
        for work in beside:
            work.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    if write:  # not for each probe of a health: it looks at all processes
        await _end(engine, container, made["Id"])
    return bytes(output), code, size > len(output)


def _stream(command: str) -> Callable[[Client], Any]:
    return lambda client: client.exec_start(command, stream=True)


def _attach(
    command: str, attached: "asyncio.Future[Attached]", *, terminal: bool
) -> Callable[[Client], Attached]:
    loop = asyncio.get_running_loop()

    def give(made: Attached) -> None:
        if not attached.done():
            attached.set_result(made)

    def start(client: Client) -> Attached:
        made = Attached(client.exec_start(command, socket=True, tty=terminal), terminal=terminal)
        loop.call_soon_threadsafe(give, made)
        return made

    return start


async def _follow_size(
    engine: Engine, command: str, attached: "asyncio.Future[Attached]", stdin: Input, first: Terminal
) -> None:
    """Give its terminal the size that is asked for. It has none before the engine has started it."""
    await asyncio.wait({attached})
    await _resize(engine, command, first.rows, first.columns)
    async for rows, columns in stdin.sizes():
        await _resize(engine, command, rows, columns)


async def _resize(engine: Engine, command: str, rows: int, columns: int) -> None:
    for _ in range(LOOKS_MAX):
        try:
            await engine.quick(lambda client: client.exec_resize(command, height=rows, width=columns))
        except (APIError, Unreachable):  # it is about to begin, or has ended
            await asyncio.sleep(END_LOOK_SECONDS)
        else:
            return


async def _feed(engine: Engine, attached: "asyncio.Future[Attached]", stdin: Input) -> None:
    """Pass on what comes, as fast as the engine takes it, and close it at the end."""
    to = await attached
    try:
        async for data in stdin.pieces():
            await engine.endless(partial(to.send, data), "take input")
        await engine.endless(to.end, "take input")
    except (OSError, Unreachable):
        pass  # it has ended
    finally:
        stdin.close()


async def _exit_code(engine: Engine, command: str) -> int:
    """The output ends a moment before the engine knows the exit code, or long before the command."""
    while True:
        seen = await engine.quick(lambda client: client.exec_inspect(command))
        if not seen["Running"]:
            return int(seen["ExitCode"])
        await asyncio.sleep(END_LOOK_SECONDS)


async def _end(engine: Engine, container: str, command: str) -> None:
    """The engine has no call that ends a command; on this machine its processes can be named: its own, those
    of its session, and what descends from them."""

    for _ in range(LOOKS_MAX):
        with suppress(APIError, Unreachable):  # as busy, it is late with answers too
            seen = await engine.quick(lambda client: client.exec_inspect(command))
            if seen["Pid"]:
                return await asyncio.to_thread(_kill_command, container, int(seen["Pid"]))
            if seen["ExitCode"] is not None:
                return None  # it could not be started
        await asyncio.sleep(END_LOOK_SECONDS)  # 0 until the engine has noted what it started
    return None


def _kill_command(container: str, leader: int) -> None:
    """Kill until nothing is found any more: who forks is found the next time."""
    for _ in range(KILL_ROUNDS_MAX):
        processes = snapshot()
        found = family(processes, [leader], leader).values()
        there = [it for it in (*found, processes.get(leader)) if it and _is_in(container, it.pid)]
        if not there:
            return
        for process in there:
            with suppress(PermissionError):  # a borglet that is not root may use an engine all the same
                signal_process(process.pid, process.ticks, signal.SIGKILL)


def _is_in(container: str, pid: int) -> bool:
    try:
        return container in (Path("/proc") / str(pid) / "cgroup").read_text()
    except OSError:
        return False
