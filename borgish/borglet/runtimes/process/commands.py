"""Commands that people run beside a task: their output, bounded, their input, and how they ended."""

import asyncio
import errno
import fcntl
import os
import signal
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import ExitStack
from io import FileIO
from typing import Any

from borgish.borglet.runtimes.base import END_TYPED, Input, Write
from borgish.borglet.runtimes.process.starter import start_failed
from borgish.borglet.runtimes.process.zygote import Answer, Zygote, read_some, writable
from borgish.borglet.runtimes.processes import signal_process
from borgish.errors import Conflict, Invalid, Unreachable
from borgish.wire.link import StdinReply, Terminal

OUTPUT_BYTES_MAX = 1024**2
NOT_STARTED = 127
TIMED_OUT = 124  # as timeout(1) has it
REST_SECONDS = 2.0  # for the last output of what was killed; a borgmaster waits 5 s beyond the time limit


async def run_beside(
    zygote: Zygote,
    command: dict[str, Any],
    timeout_seconds: float,
    stdin: Input | None = None,
    write: Write | None = None,
    terminal: Terminal | None = None,
) -> tuple[bytes, int, bool]:
    """Run a command; return its output (both streams), exit code (128 + n for a signal), whether it was cut.

    When the time is over, it and all it started are killed, and the code is 124; so it is when its output has
    not come to an end by then. With ``write`` all output goes there, and none is returned. Raises Invalid
    where there is no command, and Unreachable when the zygote does not answer or the shim was killed.
    """
    if not command["argv"]:
        raise Invalid("no command to run", "name one after the task")
    with ExitStack() as ours, ExitStack() as theirs:
        made = _make_terminal if terminal else _make_pipes
        read, feed, fds = made(ours, theirs, with_input=stdin is not None)
        if terminal:
            command = command | {"terminal": True}
            _set_size(read, terminal.rows, terminal.columns)
        try:
            answer = await zygote.ask(command | {"role": "exec"}, *fds)
        except OSError as error:
            raise Unreachable(f"cannot start a command: {error.strerror or error}", "try again") from error
        theirs.close()
        ours.callback(answer.close)
        beside = [_feed(feed, stdin, END_TYPED if terminal else b"")] if stdin and feed else []
        beside += [_follow_size(read, stdin)] if stdin and terminal else []
        working = [asyncio.create_task(work) for work in beside]
        try:
            return await _attend(command["argv"][0], answer, read, timeout_seconds, write)
        finally:
            for work in working:
                work.cancel()
            await asyncio.gather(*working, return_exceptions=True)


def _make_pipes(
    ours: ExitStack, theirs: ExitStack, *, with_input: bool
) -> tuple[int, FileIO | None, list[int]]:
    """Return where output is read, what takes input, and what the command gets: its output, its input."""
    read, write_end = os.pipe()
    ours.callback(os.close, read)
    theirs.callback(os.close, write_end)
    if not with_input:
        return read, None, [write_end]
    read_end, feed_end = os.pipe()
    theirs.callback(os.close, read_end)
    # Closed here or where the input ends.
    return read, ours.enter_context(FileIO(feed_end, "w")), [write_end, read_end]


def _make_terminal(
    ours: ExitStack, theirs: ExitStack, *, with_input: bool
) -> tuple[int, FileIO | None, list[int]]:
    """Return the same of a terminal. The command's side of it is all that a task ever gets of it."""
    read, side = os.openpty()
    ours.callback(os.close, read)
    theirs.callback(os.close, side)
    feed = ours.enter_context(FileIO(os.dup(read), "w")) if with_input else None
    return read, feed, [side, side]


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _follow_size(terminal: int, stdin: Input) -> None:
    async for rows, columns in stdin.sizes():
        _set_size(terminal, rows, columns)


async def _attend(
    name: str, answer: Answer, output: int, timeout_seconds: float, write: Write | None
) -> tuple[bytes, int, bool]:
    begun = await answer.next()
    if begun is None:
        raise Unreachable("the command was killed before it began", "try again")
    if "error" in begun:
        return await _refused(name, begun, write)
    kept = _Kept()
    reading = asyncio.create_task(_pass_on(output, write or kept.write))
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_seconds
    try:
        async with asyncio.timeout_at(until):
            ended = await answer.next()
    except TimeoutError:
        ended = {"code": TIMED_OUT}
    except asyncio.CancelledError:
        reading.cancel()
        raise
    finally:
        signal_process(begun["pid"], begun["ticks"], signal.SIGKILL)  # its shim kills what it started
    rest_until = loop.time() + REST_SECONDS
    try:
        async with asyncio.timeout_at(max(until, rest_until) if ended else rest_until):
            await reading
    except TimeoutError:
        if ended:
            ended = {"code": TIMED_OUT}
    if ended is None:
        raise Unreachable(
            "what watched the command was killed, so nobody knows how it ended",
            "see with ps whether what it started still runs, and end that",
        )
    if "error" in ended:
        return await _refused(name, ended, write)
    code = int(ended["code"])
    return bytes(kept.output), code if code >= 0 else 128 - code, kept.cut


class _Kept:
    """The beginning of an output. The rest is read, too: a command must not wait for what nobody will see."""

    def __init__(self) -> None:
        self.output, self.cut = bytearray(), False

    async def write(self, data: bytes) -> None:
        room = OUTPUT_BYTES_MAX - len(self.output)
        self.cut = self.cut or len(data) > room
        self.output += data[:room]


async def _read_output(fd: int) -> bytes:
    """Return some output, b"" at its end, which a terminal that nobody has any more shows as an error."""
    try:
        return await read_some(fd)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


async def _pass_on(output: int, write: Write) -> None:
    """Read to the end, as fast as it is taken."""
    while data := await _read_output(output):
        await write(data)


async def _feed(pipe: FileIO, stdin: Input, last: bytes) -> None:
    """Write what comes to a command's input, as fast as it reads, then ``last``, and close it."""
    os.set_blocking(pipe.fileno(), False)
    try:
        async for data in stdin.pieces():
            await _write_all(pipe, data)
        await _write_all(pipe, last)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # it reads no more, which is for it to decide
            raise
    finally:
        stdin.close()
        pipe.close()


async def _write_all(pipe: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = pipe.write(rest)
        if written is None:  # it is full
            await writable(pipe.fileno())
        else:
            rest = rest[written:]


async def _refused(name: str, answer: dict[str, Any], write: Write | None) -> tuple[bytes, int, bool]:
    text = f"{start_failed(name, '', answer)}\n".encode()
    if write:
        await write(text)
    return b"" if write else text, NOT_STARTED, False


# -- What is passed to a command's standard input -----------------------------------------------------------


class Stdin:
    """One command's input. ``put`` is for who has it, ``pieces`` and ``close`` for who runs the command.

    Input comes in requests of its own, each a piece with its offset, answered when the command has read so
    far. That is all the back-pressure there is: at most one piece waits here and one is being written, so
    that memory is bounded whatever is sent. A piece that is sent again is taken once, and neither TLS nor a
    proxy between needs to read and write one request at a time. Output is the answer to the request that
    began the command, a line of JSON a piece; who goes away ends the command.
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()  # the command has begun and can read
        self._waiting: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(1)
        self._one_puts = asyncio.Lock()
        self._received = 0
        self._ended = False
        self._closed = False
        self._size = (0, 0)
        self._resized = asyncio.Event()

    def resize(self, rows: int, columns: int) -> None:
        """Let its terminal have another size; of several that come at once only the last counts."""
        self._size = rows, columns
        self._resized.set()

    async def sizes(self) -> AsyncIterator[tuple[int, int]]:
        """Yield the size of its terminal, rows and columns, each time that it changes; never ends."""
        while True:
            await self._resized.wait()
            self._resized.clear()
            yield self._size

    async def put(self, offset: int, data: bytes, wait_seconds: float, *, end: bool) -> StdinReply:
        """Take a piece that begins at ``offset``, and return how much was taken so far.

        That may be less than the piece brings when the command does not read in ``wait_seconds``: it is to
        be sent again. What is sent twice is taken once. Raises Conflict for a piece too far ahead.
        """
        async with self._one_puts:
            if offset > self._received:
                raise Conflict(f"input was taken up to byte {self._received}, not up to {offset}")
            rest = data[self._received - offset :]
            if (rest or end) and not (self._ended or self._closed):
                try:
                    async with asyncio.timeout(wait_seconds):
                        await self._waiting.put((rest, end))
                except TimeoutError:
                    return self._reply()
                self._received += len(rest)
                self._ended = end
            return self._reply()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the input as it comes, to its end."""
        self.wanted.set()
        end = False
        while not end:
            data, end = await self._waiting.get()
            if data:
                yield data

    def close(self) -> None:
        """Take no more: the command has ended, or closed its input."""
        self._closed = True
        if not self._waiting.empty():  # whoever waits to put is let go
            self._waiting.get_nowait()

    def _reply(self) -> StdinReply:
        return StdinReply(self._received, self._ended, self._closed)
