"""What every runtime of real programs must do with commands beside a task, as tests to inherit: what they
read, what is read of them, how they end."""

import asyncio
import os
from collections.abc import Iterator

import psutil

from borgish.borglet.runtimes.process.commands import Stdin
from borgish.wire.link import Terminal
from tests.contract.runtime.suite import DEADLINE_SECONDS, Program, RuntimeCase, Watched


async def pass_on(stdin: Stdin, offset: int, data: bytes, *, end: bool = False) -> None:
    """Pass a piece of input on, however long the command takes to read it."""
    reply = await stdin.put(offset, data, DEADLINE_SECONDS, end=end)
    assert (reply.received, reply.ended) == (offset + len(data), end)


class CommandContract:
    """Commands beside a task."""

    async def test_a_command_beside_the_task(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(), env={"COLOUR": "blue"})
        await opened.runtime.start(spec, 1)
        command = ("sh", "-c", "echo $COLOUR; echo wrong >&2; exit 6")
        output, code, cut = await opened.runtime.exec(spec.key, command, DEADLINE_SECONDS)
        # Two streams: which of them comes first is for the engine to say.
        assert (sorted(output.splitlines()), code, cut) == ([b"blue", b"wrong"], 6, False)

    async def test_a_command_that_closes_its_output_has_not_ended(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        command = ("sh", "-c", "echo first; exec >&- 2>&-; sleep 0.2; exit 6")
        assert await opened.runtime.exec(spec.key, command, DEADLINE_SECONDS) == (b"first\n", 6, False)

    async def test_a_command_reads_what_is_passed_to_it(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        """Much, binary, and while its output is read: neither side may wait for the other."""
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        given = bytes(range(256)) * 8192  # 2 MiB, more than all pipes between hold
        read = bytearray()
        stdin = Stdin()

        async def write(output: bytes) -> None:
            read.extend(output)

        running = asyncio.create_task(opened.runtime.exec(spec.key, ("cat",), DEADLINE_SECONDS, stdin, write))
        size = 100_000
        for offset in range(0, len(given), size):
            await pass_on(stdin, offset, given[offset : offset + size])
        await pass_on(stdin, len(given), b"", end=True)
        assert await running == (b"", 0, False)
        assert bytes(read) == given
        assert (await stdin.put(len(given), b"more", 1.0, end=False)).closed

    async def test_output_comes_while_input_is_awaited(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        stdin = Stdin()
        said: asyncio.Queue[bytes] = asyncio.Queue()
        command = ("sh", "-c", "while read -r line; do echo got $line; done; exit 5")
        running = asyncio.create_task(
            opened.runtime.exec(spec.key, command, DEADLINE_SECONDS, stdin, said.put)
        )
        offset = 0
        for word in (b"one", b"two"):
            await pass_on(stdin, offset, word + b"\n")
            offset += len(word) + 1
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await said.get() == b"got " + word + b"\n"
        await pass_on(stdin, offset, b"", end=True)
        assert await running == (b"", 5, False)

    async def test_a_command_need_not_read_what_is_passed_to_it(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        stdin = Stdin()
        running = asyncio.create_task(opened.runtime.exec(spec.key, ("true",), DEADLINE_SECONDS, stdin))
        assert await running == (b"", 0, False)
        assert (await stdin.put(0, b"x" * 1_000_000, DEADLINE_SECONDS, end=True)).closed

    async def test_a_command_without_input_reads_its_end(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        assert await opened.runtime.exec(spec.key, ("cat",), DEADLINE_SECONDS) == (b"", 0, False)

    async def test_the_output_of_a_command_is_cut(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        many = ("sh", "-c", "head -c 3000000 /dev/zero")
        output, _, cut = await opened.runtime.exec(spec.key, many, DEADLINE_SECONDS)
        assert (len(output), cut) == (1024**2, True)

    async def test_a_command_has_the_terminal_that_was_asked_for(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        """Its size, also when that changes, its kind, and keys that are signals."""
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        seen = Seen()
        script = (
            'size() { until [ "$(stty size)" = "$1" ]; do sleep 0.02; done; }; size \'30 100\'; '
            "echo kind $TERM $(id -u) $(stat -L -c %u /proc/self/fd/0); size '50 120'; echo resized; "
            "read -r line; echo got $line; cat; exit 7"
        )
        terminal = Terminal(30, 100, "vt100")
        running = asyncio.create_task(
            opened.runtime.exec(
                spec.key, ("sh", "-c", script), DEADLINE_SECONDS, seen.stdin, seen.write, terminal
            )
        )
        await seen.until(b"kind vt100")
        seen.stdin.resize(50, 120)
        await seen.until(b"resized")
        await pass_on(seen.stdin, 0, b"word\n")
        said = await seen.until(b"got word\r\n")
        await pass_on(seen.stdin, 5, b"", end=True)
        assert await running == (b"", 7, False)
        kind, user, owner = said.partition(b"kind ")[2].split()[:3]
        assert (kind, user) == (b"vt100", owner), "the terminal is its user's"

    async def test_the_keys_of_a_terminal_are_signals(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        seen = Seen()
        command = (
            "sh",
            "-c",
            "trap 'echo interrupted; exit 8' INT; echo ready; while :; do sleep 0.02; done",
        )
        running = asyncio.create_task(
            opened.runtime.exec(spec.key, command, DEADLINE_SECONDS, seen.stdin, seen.write, Terminal())
        )
        await seen.until(b"ready")
        await pass_on(seen.stdin, 0, b"\x03")
        assert await running == (b"", 8, False)
        assert b"interrupted" in seen.all

    async def test_what_a_command_started_ends_with_it(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        """However it ends: by itself, or since nobody wants it any more."""
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        mark = str(10_000_000 + os.getpid())
        script = f"sleep {mark} & sleep {mark} & echo begun; [ $0 = stay ] || exit 3; wait"
        for terminal in (None, Terminal()):
            seen = Seen()
            command = ("sh", "-c", script, "go")
            said = await opened.runtime.exec(
                spec.key, command, DEADLINE_SECONDS, seen.stdin, seen.write, terminal
            )
            assert said == (b"", 3, False)
            await gone(mark)
            seen = Seen()
            command = ("sh", "-c", script, "stay")
            staying = asyncio.create_task(
                opened.runtime.exec(spec.key, command, DEADLINE_SECONDS, seen.stdin, seen.write, terminal)
            )
            await seen.until(b"begun")
            staying.cancel()
            await asyncio.wait({staying})
            await gone(mark)


async def gone(mark: str) -> None:
    """Wait until no process of this machine has the mark in its command line."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while any(mark in word for words in command_lines() for word in words):
            await asyncio.sleep(0.02)


def command_lines() -> Iterator[list[str]]:
    return (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))


class Seen:
    """Somebody at a terminal: what is passed on, and what was seen."""

    def __init__(self) -> None:
        self.stdin = Stdin()
        self.all = b""
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, output: bytes) -> None:
        self.all += output
        await self._pieces.put(output)

    async def until(self, words: bytes) -> bytes:
        """Wait until the words were written, and return all up to there and a bit more."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while words not in self.all:
                await self._pieces.get()
        return self.all
