"""What every runtime of real programs must do with commands beside a task, as tests to inherit: what they
read, what is read of them, how they end."""

import asyncio

from borgish.borglet.runtimes.commands import Stdin
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
