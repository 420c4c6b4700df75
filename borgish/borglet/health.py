"""Health checks (liveness probes): asks a task whether it is well, once, within the probe's timeout, whatever
the task answers."""

import asyncio
from urllib.parse import quote

from borgish.borglet.actions import Probe
from borgish.borglet.ports import HOST, Connect
from borgish.borglet.runtimes.base import TaskRuntime
from borgish.errors import BorgishError
from borgish.resources import show_seconds

LINE_BYTES_MAX = 4096
WORDS_MAX = 200


async def ask(probe: Probe, runtime: TaskRuntime, connect: Connect) -> str:
    """Probe once. Return "" for a good answer, else what was wrong with it, in words."""
    seconds = probe.health.timeout_seconds
    try:
        async with asyncio.timeout(seconds):
            return await _ask(probe, runtime, connect)
    except TimeoutError:
        return f"no answer within {show_seconds(seconds)}"
    except OSError as error:
        return f"port {probe.port}: {error.strerror or error}"[:WORDS_MAX]
    except BorgishError as error:
        return error.message[:WORDS_MAX]


async def _ask(probe: Probe, runtime: TaskRuntime, connect: Connect) -> str:
    if probe.health.command:
        return await _ask_command(probe, runtime)
    reader, writer = await connect(probe.port, LINE_BYTES_MAX)
    try:
        return await _ask_http(probe, reader, writer) if probe.health.http else ""
    finally:
        writer.close()


async def _ask_http(probe: Probe, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    path = quote(probe.health.http, safe="/?&=%:@!$'()*+,;~-._#")
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {HOST}:{probe.port}\r\nUser-Agent: borglet\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n".encode("ascii")
    )
    try:
        line = await reader.readline()
    except ValueError:  # a line over the limit
        return "the answer is not HTTP"
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return "the answer is not HTTP" if line else "the connection was closed without an answer"
    status = int(words[1])
    return "" if 200 <= status < 400 else f"GET {probe.health.http} answered {status}"


async def _ask_command(probe: Probe, runtime: TaskRuntime) -> str:
    health = probe.health
    output, code, _ = await runtime.exec(probe.key, health.command, health.timeout_seconds)
    if code == 0:
        return ""
    last = output.decode("utf-8", "replace").strip().rpartition("\n")[2][:WORDS_MAX]
    return f"the probe's command ended with exit code {code}" + (f": {last}" if last else "")
