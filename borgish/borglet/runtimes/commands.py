"""Commands that people run beside a task: their output, bounded, and how they ended."""

import asyncio
import os
import signal
from contextlib import ExitStack
from io import FileIO
from typing import Any

from borgish.borglet.runtimes.base import Input, Write
from borgish.borglet.runtimes.processes import signal_process
from borgish.borglet.runtimes.refusals import start_failed
from borgish.borglet.runtimes.zygote import Answer, Zygote, read_some, writable
from borgish.errors import Invalid, Unreachable

OUTPUT_BYTES_MAX = 1024**2
NOT_STARTED = 127
TIMED_OUT = 124  # as timeout(1) says it


async def run_beside(
    zygote: Zygote,
    command: dict[str, Any],
    timeout_seconds: float,
    stdin: Input | None = None,
    write: Write | None = None,
) -> tuple[bytes, int, bool]:
    """Run a command; return its output (both streams), exit code (128 + n for a signal), whether it was cut.

    When the time is over, it and all it started are killed, and the code is 124. With ``write`` all
    output goes there, and none is returned.
    """
    if not command["argv"]:
        raise Invalid("no command to run", "name one after the task")
    with ExitStack() as pipes, ExitStack() as theirs:
        read, write_end = os.pipe()
        pipes.callback(os.close, read)
        theirs.callback(os.close, write_end)
        fds = [write_end]
        feed = None
        if stdin:
            read_end, feed_end = os.pipe()
            theirs.callback(os.close, read_end)
            feed = pipes.enter_context(FileIO(feed_end, "w"))  # closed here or where the input ends
            fds.append(read_end)
        try:
            answer = await zygote.ask(command | {"role": "exec"}, *fds)
        except OSError as error:
            raise Unreachable(f"cannot start a command: {error.strerror or error}", "try again") from error
        theirs.close()
        pipes.callback(answer.close)
        feeding = asyncio.create_task(_feed(feed, stdin)) if stdin and feed else None
        try:
            return await _attend(command["argv"][0], answer, read, timeout_seconds, write)
        finally:
            if feeding:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)


async def _attend(
    name: str, answer: Answer, output: int, timeout_seconds: float, write: Write | None
) -> tuple[bytes, int, bool]:
    begun = await answer.next()
    if begun is None:
        raise Unreachable("the command was killed before it began", "try again")
    if "error" in begun:
        return await _refused(name, begun, write)
    reading = asyncio.create_task(_pass_on(output, write) if write else _read_bounded(output))
    try:
        async with asyncio.timeout(timeout_seconds):
            ended = await answer.next()
    except TimeoutError:
        ended = {"code": TIMED_OUT}
    except asyncio.CancelledError:
        reading.cancel()
        raise
    finally:
        signal_process(begun["pid"], begun["ticks"], signal.SIGKILL)  # its shim kills what it started
    kept, cut = await reading
    if ended and "error" in ended:
        return await _refused(name, ended, write)
    code = int(ended["code"]) if ended else NOT_STARTED
    return kept, code if code >= 0 else 128 - code, cut


async def _read_bounded(output: int) -> tuple[bytes, bool]:
    """Read to the end, keep the beginning; a command must not wait for what nobody will see."""
    kept, cut = bytearray(), False
    while data := await read_some(output):
        room = OUTPUT_BYTES_MAX - len(kept)
        cut = cut or len(data) > room
        kept += data[:room]
    return bytes(kept), cut


async def _pass_on(output: int, write: Write) -> tuple[bytes, bool]:
    """Read to the end, as fast as it is taken."""
    while data := await read_some(output):
        await write(data)
    return b"", False


async def _feed(pipe: FileIO, stdin: Input) -> None:
    """Write what comes to a command's input, as fast as it reads, and close it at the end."""
    os.set_blocking(pipe.fileno(), False)
    try:
        async for data in stdin.pieces():
            rest = memoryview(data)
            while rest:
                written = pipe.write(rest)
                if written is None:  # it is full
                    await writable(pipe.fileno())
                else:
                    rest = rest[written:]
    except BrokenPipeError:
        pass  # it reads no more, which is for it to decide
    finally:
        stdin.close()
        pipe.close()


async def _refused(name: str, answer: dict[str, Any], write: Write | None) -> tuple[bytes, int, bool]:
    text = f"{start_failed(name, '', answer)}\n".encode()
    if write:
        await write(text)
    return b"" if write else text, NOT_STARTED, False
