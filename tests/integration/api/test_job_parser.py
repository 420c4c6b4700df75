"""Long job files are read by a process of their own, which may die, and whose work has an end."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from borgish.api import job_parser
from borgish.api.job_parser import WAITING_OF_USER_MAX, JobParser
from borgish.bands import DEFAULT_BANDS
from borgish.errors import Invalid, Poison, TooLarge, TooManyRequests
from borgish.spec.file.read import read_job
from borgish.spec.job import JobSpec

TEXT = b"name: web\nrun: [sleep, '1']\ntasks: 3\noverrides: {2: {env: {A: b}}}\n"


async def read(reader: JobParser, text: bytes = TEXT, asker: str = "ann") -> JobSpec:
    async def body() -> bytes:
        return text

    found = await reader.read(asker, body, "ann", DEFAULT_BANDS)
    assert isinstance(found, JobSpec)
    return found


def started(monkeypatch: pytest.MonkeyPatch, program: str = "") -> "list[subprocess.Popen[bytes]]":
    """Note the processes that are started; they run a program, when one is given."""
    processes = []
    start = job_parser._start

    def note() -> "subprocess.Popen[bytes]":
        command, pipe = [sys.executable, "-c", program], subprocess.PIPE
        processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe) if program else start())
        return processes[-1]

    monkeypatch.setattr(job_parser, "_start", note)
    return processes


async def test_it_reads_what_the_reader_reads() -> None:
    reader = JobParser()
    assert await read(reader) == read_job(TEXT, "ann")
    with pytest.raises(Invalid) as here:
        read_job(b"nam: web\n", "ann")
    with pytest.raises(Invalid) as there:
        await read(reader, b"nam: web\n")
    assert (there.value.message, there.value.hint) == (here.value.message, here.value.hint)
    assert there.value.mistakes == here.value.mistakes


async def test_nothing_is_imported_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert (await read(JobParser())).name == "web"


async def test_one_that_was_killed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, reader = started(monkeypatch), JobParser()
    await read(reader)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].wait()
    assert (await read(reader)).name == "web"
    assert len(processes) == 2


async def test_one_that_cannot_live_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, reader = started(monkeypatch, "pass"), JobParser()
    with pytest.raises(Poison, match="was killed"):
        await read(reader)
    assert len(processes) == 2


@pytest.mark.parametrize("limit", ["MEMORY_BYTES_MAX = 1", "CPU_SECONDS_MAX = 0"])
async def test_a_file_that_takes_too_much_is_refused_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """The limit is for the second question only: it is a number of the process that answers it."""
    program = (
        "from borgish.api import job_parser as parser\n"
        "answer = parser._answer\n"
        "def once(question):\n"
        f"    if b'heavy' in question: parser.{limit}\n"
        "    if b'heavy' in question and not parser.CPU_SECONDS_MAX: parser.read_job = busy\n"
        "    answer(question)\n"
        "def busy(*_):\n"
        "    while True: pass\n"
        "parser._answer = once\n"
        "parser.main()\n"
    )
    processes, reader = started(monkeypatch, program), JobParser()
    with pytest.raises(TooLarge, match="too much time or memory"):
        await read(reader, TEXT + b"# heavy" + b" " * 10**6)
    assert await read(reader) == read_job(TEXT, "ann")
    assert len(processes) == 1


async def test_it_ends_with_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, reader = started(monkeypatch), JobParser()
    await read(reader)
    assert processes[0].stdin is not None
    processes[0].stdin.close()
    assert processes[0].wait(60) == 0


async def test_users_take_turns_and_none_may_queue_for_ever() -> None:
    reader, came = JobParser(), list[str]()
    gate = asyncio.Event()

    async def ask(asker: str) -> None:
        async def body() -> bytes:
            came.append(asker)
            await gate.wait()
            return TEXT

        await reader.read(asker, body, asker, DEFAULT_BANDS)

    flood = [asyncio.create_task(ask("ann")) for _ in range(WAITING_OF_USER_MAX)]
    await asyncio.sleep(0)
    other = asyncio.create_task(ask("bob"))
    await asyncio.sleep(0)
    assert came == ["ann", "bob"], "one body of each user is received at a time"
    with pytest.raises(TooManyRequests, match="of ann are being read already"):
        await ask("ann")
    gate.set()
    await asyncio.gather(other, *flood)
    assert came.count("ann") == WAITING_OF_USER_MAX
    await ask("ann")
