"""Reads long job files in a process of its own, so that the event loop never waits for one.

A thread would not do: a parser holds the interpreter's lock, for which every step of the loop would wait. The
process is started for the first long file and forks for each, so that whatever a file costs, its memory too,
ends with it; a limit of the kernel's ends one that takes too long. It lives until its standard input ends,
which is when this process does. Short files, nearly all, are read on the loop, one between any two of its
rounds.
"""

import asyncio
import os
import resource
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import IO

import msgspec

from borgish.api.read_apply import read_apply
from borgish.bands import Bands
from borgish.cell.commands import ApplyApp
from borgish.errors import Invalid, Mistake, Poison, TooLarge, TooManyRequests
from borgish.spec.cron import CronSpec, read_job_or_cron
from borgish.spec.job import JobSpec

SHORT_BYTES_MAX = 4 * 1024
"""A file of so many bytes is read at once: the worst of them takes some 20 ms."""

CPU_SECONDS_MAX = 10  # for one file; the worst of 1 MiB takes one
MEMORY_BYTES_MAX = 1024**3
WAITING_OF_USER_MAX = 8  # long files of one user at a time; none of those that wait has left its socket
NICE = 10
_LENGTH_BYTES = 4


class _Question(msgspec.Struct, frozen=True):
    """``is_apply``: the body of an ``apply``; else a job file."""

    text: bytes
    user: str
    bands: Bands
    is_apply: bool = False


class _Answer(msgspec.Struct, frozen=True):
    """The job, the cron, what is to be applied, or what ``Invalid`` was raised with."""

    spec: JobSpec | None = None
    cron: CronSpec | None = None
    apply: ApplyApp | None = None
    message: str = ""
    hint: str = ""
    mistakes: tuple[Mistake, ...] = ()


class JobParser:
    """Reads one long file at a time; users take turns."""

    def __init__(self) -> None:
        self._process = _Process()
        self._turn = asyncio.Lock()
        self._pausing = asyncio.Lock()
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    async def pause(self) -> None:
        """Return when it is this request's turn to hold the loop for some milliseconds.

        Between two that do, the loop serves all others.
        """
        async with self._pausing:
            await asyncio.sleep(0)

    async def read(
        self, caller: str, body: Callable[[], Awaitable[bytes]], user: str, bands: Bands
    ) -> JobSpec | CronSpec:
        """Read the body of a request as ``read_job_or_cron`` does. It is received only when it is its turn
        among those of who asks. Raises Invalid, and TooManyRequests when too many of theirs wait."""
        answer = await self._ask(caller, body, lambda text: _Question(text, user, bands))
        found = answer.spec or answer.cron
        assert found is not None
        return found

    async def read_apply(self, caller: str, body: Callable[[], Awaitable[bytes]], bands: Bands) -> ApplyApp:
        """Read the body of a request as ``read_apply`` does, otherwise as ``read``."""
        answer = await self._ask(caller, body, lambda text: _Question(text, caller, bands, is_apply=True))
        assert answer.apply is not None
        return answer.apply

    async def _ask(
        self, caller: str, body: Callable[[], Awaitable[bytes]], question: Callable[[bytes], _Question]
    ) -> _Answer:
        if self._waiting[caller] >= WAITING_OF_USER_MAX:
            raise TooManyRequests(
                f"{WAITING_OF_USER_MAX} long job files of {caller} are being read already",
                "Send one at a time",
            )
        self._waiting[caller] += 1
        try:
            async with self._turns.setdefault(caller, asyncio.Lock()):
                text = await body()
                async with self._turn:
                    return await asyncio.to_thread(self._process.read, question(text))
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller], self._turns[caller]


class _Process:
    """The other side of the pipe. Its methods block."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # who asked may have been cancelled, and its thread goes on

    def read(self, question: _Question) -> _Answer:
        """Return what was read. Raises Invalid, TooLarge for what takes too much, and Poison."""
        message = msgspec.msgpack.encode(question)
        with self._lock:
            reply = self._ask(message)
            if reply is None:  # it was killed, since the last one most likely
                reply = self._ask(message)
        if reply is None:
            raise Poison("the process that reads long job files was killed", "Submit the job again")
        if not reply:
            raise TooLarge(
                "this job file takes too much time or memory to read", "Split it into several jobs"
            )
        answer = msgspec.msgpack.decode(reply, type=_Answer)
        if answer.message:
            raise Invalid(answer.message, answer.hint, answer.mistakes)
        return answer

    def _ask(self, question: bytes) -> bytes | None:
        """Return what is answered, b"" by one that reached its limits; None when there was nobody."""
        child = self._child = self._child or _start()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _send(child.stdin, question)
            return _receive(child.stdout)
        except (OSError, EOFError):
            child.kill()
            child.communicate()
            self._child = None
            return None


def _start() -> "subprocess.Popen[bytes]":
    # -P: nothing in the current directory, where anybody may have put it, is imported instead of the library.
    command = [sys.executable, "-P", "-m", __name__]
    # In a session of its own: what a terminal sends to its programs is not for it.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """Return the next message. Raises EOFError when there is none any more."""
    length = pipe.read(_LENGTH_BYTES)
    message = pipe.read(int.from_bytes(length, "big"))
    if len(length) < _LENGTH_BYTES or len(message) < int.from_bytes(length, "big"):
        raise EOFError
    return message


def main() -> None:
    """Answer questions until the standard input ends."""
    os.nice(NICE)
    while True:
        try:
            question = _receive(sys.stdin.buffer)
        except EOFError:
            return
        child = os.fork()
        if not child:
            _answer(question)
        del question
        if os.waitpid(child, 0)[1] != 0:
            _send(sys.stdout.buffer, b"")


def _answer(message: bytes) -> None:
    """Answer one question, and end this process; with 1 and without an answer where it takes too much."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        question = msgspec.msgpack.decode(message, type=_Question)
        try:
            answer = _read(question)
        except Invalid as invalid:
            answer = _Answer(message=invalid.message, hint=invalid.hint, mistakes=invalid.mistakes)
        _send(sys.stdout.buffer, msgspec.msgpack.encode(answer))
        code = 0
    finally:
        os._exit(code)


def _read(question: _Question) -> _Answer:
    if question.is_apply:
        return _Answer(apply=read_apply(question.text, question.user, question.bands))
    found = read_job_or_cron(question.text, question.user, question.bands)
    return _Answer(cron=found) if isinstance(found, CronSpec) else _Answer(found)


if __name__ == "__main__":
    main()
