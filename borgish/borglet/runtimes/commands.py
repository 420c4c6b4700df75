"""Commands that people run beside a task: their output, bounded, and how they ended."""

import asyncio
import os
import signal
from typing import Any

from borgish.borglet.runtimes.processes import signal_process
from borgish.borglet.runtimes.refusals import start_failed
from borgish.borglet.runtimes.zygote import Answer, Zygote, read_some
from borgish.errors import Invalid, Unreachable

OUTPUT_BYTES_MAX = 1024**2
NOT_STARTED = 127
TIMED_OUT = 124  # as timeout(1) says it


async def run_beside(
    zygote: Zygote, command: dict[str, Any], timeout_seconds: float
) -> tuple[bytes, int, bool]:
    """Run a command; return its output (both streams), exit code (128 + n for a signal), whether it was cut.

    When the time is over, it and all it started are killed, and the code is 124.
    """
    if not command["argv"]:
        raise Invalid("no command to run", "name one after the task")
    read, write = os.pipe()
    try:
        answer = await zygote.ask(command | {"role": "exec"}, write)
    except OSError as error:
        os.close(read)
        raise Unreachable(f"cannot start a command: {error.strerror or error}", "try again") from error
    finally:
        os.close(write)
    try:
        return await _attend(command["argv"][0], answer, read, timeout_seconds)
    finally:
        answer.close()
        os.close(read)


async def _attend(name: str, answer: Answer, output: int, timeout_seconds: float) -> tuple[bytes, int, bool]:
    begun = await answer.next()
    if begun is None:
        raise Unreachable("the command was killed before it began", "try again")
    if "error" in begun:
        return _refused(name, begun)
    reading = asyncio.create_task(_read_bounded(output))
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
        return _refused(name, ended)
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


def _refused(name: str, answer: dict[str, Any]) -> tuple[bytes, int, bool]:
    failed = start_failed(name, "", answer)
    return f"{failed}\n".encode(), NOT_STARTED, False
