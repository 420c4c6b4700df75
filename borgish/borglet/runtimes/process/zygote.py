"""The borglet's side of the zygote: starts it, asks it, starts it again when it was killed.

What the zygote does is in ``shim``. Its program goes to it through its standard input, so that neither a
path nor a name of borgish is in its command line, where a broad ``pkill -f`` would find it. It is compiled
already, mostly since the last start: what the compiler leaves in memory each shim would be a copy of.
"""

import asyncio
import contextlib
import importlib.util
import json
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.abc import InspectLoader
from pathlib import Path
from types import CodeType
from typing import Any

from borgish.borglet.runtimes.process import shim

CHUNK_BYTES = 64 * 1024
BUSY_PAUSE_SECONDS = 0.005
BUSY_SECONDS_MAX = 5.0

_COMMAND = "import marshal, sys; exec(marshal.load(sys.stdin.buffer))"
LOADER = """
for name, code in marshal.load(sys.stdin.buffer):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main()
"""


def zygote_program() -> bytes:
    """Return what ``_COMMAND`` reads: a loader, and the modules of ``shim``, which need nothing but the
    standard library."""
    modules = [(name, _code(name)) for name in (f"{shim.__name__}.{each}" for each in shim.MODULES)]
    return marshal.dumps(compile(LOADER, "<loader>", "exec")) + marshal.dumps(modules)


def _code(module: str) -> CodeType | None:
    """Return what a module runs when it is imported, without importing it."""
    found = importlib.util.find_spec(module)
    assert found is not None, f"{module} is not there"
    assert isinstance(found.loader, InspectLoader), f"{module} is loaded by {found.loader}"
    return found.loader.get_code(module)


def memory_file(content: bytes) -> int:
    """Return a descriptor that reads the content from its start."""
    fd = os.memfd_create("request")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def read_some(fd: int) -> bytes:
    """Wait for a pipe and return what is in it, b"" at its end."""
    loop = asyncio.get_running_loop()
    await _ready(fd, loop.add_reader, loop.remove_reader)
    return os.read(fd, CHUNK_BYTES)


async def writable(fd: int) -> None:
    """Wait until a pipe has room, or nobody reads it any more."""
    loop = asyncio.get_running_loop()
    await _ready(fd, loop.add_writer, loop.remove_writer)


async def _ready(
    fd: int, watch: Callable[[int, Callable[[], None]], None], unwatch: Callable[[int], object]
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(fd, wake)
    try:
        await ready
    finally:
        unwatch(fd)


class Answer:
    """What a shim answers: lines, until it or the zygote ended."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    async def next(self) -> dict[str, Any] | None:
        """Return the next line; None when there will be none."""
        while b"\n" not in self._buffer:
            data = await read_some(self._fd)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        os.close(self._fd)


class Zygote:
    """One zygote, always there when asked."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int:
        """Return its process id; 0 when there is none."""
        return self._process.pid if self._process else 0

    def begin(self) -> None:
        """Start it. Does not wait: what is asked early waits in its socket."""
        self._close_socket()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        python = Path(sys.executable).resolve()
        program = memory_file(zygote_program())
        try:
            with self._errors.open("ab") as errors, theirs:
                self._process = subprocess.Popen(
                    (python.name, "-I", "-S", "-c", _COMMAND, str(theirs.fileno())),
                    executable=python,
                    env={"PATH": str(python.parent), "LANG": "C.UTF-8"},  # by which it finds its library
                    stdin=program,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        finally:
            os.close(program)
        self._socket = ours

    async def ask(self, request: dict[str, Any], *fds: int) -> Answer:
        """Send a request with further descriptors. Raises OSError when no zygote can be had."""
        content = memory_file(json.dumps(request).encode())
        read, write = os.pipe()
        try:
            await self.send(content, write, *fds)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(content)
            os.close(write)
        return Answer(read)

    async def close(self) -> None:
        """Let it end. Its shims go on."""
        process = self._process
        self._close_socket()
        if process:
            await asyncio.to_thread(process.wait)

    async def send(self, *fds: int) -> None:
        """Send the descriptors of a request: itself, where it is answered, and further ones. Raises OSError
        when no zygote can be had."""
        async with asyncio.timeout(BUSY_SECONDS_MAX):
            while True:
                try:
                    if self._socket is None:
                        self.begin()
                    if self._socket is not None:
                        socket.send_fds(self._socket, [b"."], [*fds])
                    return
                except BlockingIOError:
                    await asyncio.sleep(BUSY_PAUSE_SECONDS)
                except (BrokenPipeError, ConnectionResetError):
                    self.begin()

    def _close_socket(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)  # its end follows that of its socket at once
            self._process = None
