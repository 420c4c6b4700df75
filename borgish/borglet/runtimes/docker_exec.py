"""Commands beside a task, in its container."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from borgish.borglet.runtimes.docker_engine import Client, Engine

OUTPUT_BYTES_MAX = 1024**2
TIMED_OUT_CODE = 124  # as timeout(1) has it
END_LOOK_SECONDS = 0.02


async def run_beside(
    engine: Engine, container: str, command: tuple[str, ...], timeout_seconds: float
) -> tuple[bytes, int, bool]:
    """Run a command; return its output, its exit code, and whether output or time was cut."""
    made = await engine.slow(lambda client: client.exec_create(container, list(command)), "make a command")
    output = bytearray()
    size = 0
    try:
        async with asyncio.timeout(timeout_seconds):
            async for part in engine.stream(
                lambda client: client.exec_start(made["Id"], stream=True), "run a command"
            ):
                size += len(part)
                output += part[: OUTPUT_BYTES_MAX - len(output)]
            code = await _exit_code(engine, made["Id"])
    except TimeoutError:
        await _end(engine, container, made["Id"])
        return bytes(output), TIMED_OUT_CODE, True
    return bytes(output), code, size > len(output)


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
