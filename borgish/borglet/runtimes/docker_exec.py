"""Commands beside a task, in its container."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import APIError

from borgish.borglet.runtimes.base import Input, Write
from borgish.borglet.runtimes.docker_engine import Client, Engine
from borgish.errors import Unreachable

OUTPUT_BYTES_MAX = 1024**2
TIMED_OUT_CODE = 124  # as timeout(1) has it
END_LOOK_SECONDS = 0.02
FRAME_HEAD_BYTES = 8  # which stream, and how many bytes follow


class Attached:
    """The streams of a command that was begun with its input open. Calls block; each side has its thread."""

    def __init__(self, raw: Any) -> None:
        """``raw`` is what ``exec_start(socket=True)`` returns."""
        self._socket = getattr(raw, "_sock", raw)  # a SocketIO's; with TLS it is the socket itself
        self._response = raw._response
        # Reading the head of the answer may have read ahead: the first output is in this buffer then.
        self._reader = self._response.raw._fp.fp

    def __next__(self) -> bytes:
        """Return some output. Raises StopIteration at its end."""
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
        """Close its input. Raises OSError when it has ended."""
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
) -> tuple[bytes, int, bool]:
    """Run a command; return its output, its exit code, and whether output or time was cut.

    With ``write`` all output goes there, and none is returned.
    """
    more = {"stdin": True} if stdin else {}
    made = await engine.slow(
        lambda client: client.exec_create(container, list(command), **more), "make a command"
    )
    attached: asyncio.Future[Attached] = asyncio.get_running_loop().create_future()
    feeding = asyncio.create_task(_feed(engine, attached, stdin)) if stdin else None
    start = _attach(made["Id"], attached) if stdin else _stream(made["Id"])
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
        with suppress(APIError, Unreachable):
            await _end(engine, container, made["Id"])
        raise
    finally:
        if feeding:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    return bytes(output), code, size > len(output)


def _stream(command: str) -> Callable[[Client], Any]:
    return lambda client: client.exec_start(command, stream=True)


def _attach(command: str, attached: "asyncio.Future[Attached]") -> Callable[[Client], Attached]:
    loop = asyncio.get_running_loop()

    def give(made: Attached) -> None:
        if not attached.done():
            attached.set_result(made)

    def start(client: Client) -> Attached:
        made = Attached(client.exec_start(command, socket=True))
        loop.call_soon_threadsafe(give, made)
        return made

    return start


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
    """The engine has no call that ends a command; on this machine its process can be named."""

    def pid_of(client: Client) -> int:
        return int(client.exec_inspect(command)["Pid"])

    pid = await engine.quick(pid_of)
    with suppress(OSError):
        if pid and container in (Path("/proc") / str(pid) / "cgroup").read_text():
            os.kill(pid, signal.SIGKILL)
