"""What every task runtime must do, as tests to inherit. Nothing here knows of a kind of runtime.

To hold a new runtime to it, write ``tests/contract/runtime/test_KIND_runtime.py``::

    class KindCase:                        # a RuntimeCase
        def make(self) -> TaskRuntime: ...                       # another runtime on the same machine
        def spec(self, program: Program, **changes: object) -> AttemptSpec: ...

    @pytest.fixture
    def runtime_case(...) -> Iterator[RuntimeCase]: yield KindCase(...)   # and clean up behind it

    class TestKind(RunContract, LogContract, ProgramContract, CommandContract): ...

``RunContract`` is for all, the fake too; ``LogContract`` for what keeps output; ``ProgramContract``
for what starts real programs. ``as_shell(program)`` is a program as a shell command for the latter.
``make`` is called again to play a borglet that starts anew while the former one is just dropped.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Protocol

import msgspec
import pytest

from borgish.borglet.runtimes.base import RunState, StartFailed, TaskRuntime
from borgish.clock import SystemClock
from borgish.resources import Resources
from borgish.spec.job import Restart, Stop
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Exit, LogWanted

DEADLINE_SECONDS = 120.0


class Program(msgspec.Struct, frozen=True):
    """What a test wants of a program: it prints, runs for a time, ends."""

    prints: tuple[str, ...] = ()
    runs_seconds: float = 300.0
    exit_code: int = 0
    ignores_term: bool = False


class RuntimeCase(Protocol):
    """One kind of runtime on one machine."""

    def make(self) -> TaskRuntime:
        """Return another runtime, not yet open, that sees the same machine."""
        ...

    def spec(self, program: Program, **changes: object) -> AttemptSpec:
        """Return an attempt that runs the program, with other fields changed; ``task`` is one of them."""
        ...


def as_shell(program: Program) -> tuple[str, ...]:
    """Return the command that does what the program says, for any POSIX shell."""
    lines = ['trap "" TERM'] if program.ignores_term else []
    lines += [f"echo '{line}'" for line in program.prints]
    if program.runs_seconds and not program.exit_code:
        lines.append(f"exec sleep {program.runs_seconds}")
    elif program.runs_seconds:
        lines.append(f"sleep {program.runs_seconds}")
    return ("sh", "-c", "\n".join([*lines, f"exit {program.exit_code}"]))


def attempt_spec(command: tuple[str, ...], kind: Runtime, **changes: object) -> AttemptSpec:
    """Return an attempt with what most tests do not care about filled in."""
    spec = AttemptSpec(
        task="ann/web/0",
        attempt=7,
        run=command,
        env={"BORGISH_TASK": "ann/web/0"},
        runtime=kind,
        resources=Resources(cpu_millis=100, ram_bytes=64 * 1024**2),
        restart=Restart(),
        stop=Stop(),
    )
    return msgspec.structs.replace(spec, **changes)


class Watched:
    """An open runtime and the news it gave."""

    def __init__(self, runtime: TaskRuntime) -> None:
        self.runtime = runtime
        self.news: list[str] = []
        self.found: list[RunState] = []

    async def open(self) -> "Watched":
        self.found = await self.runtime.open(self.news.append)
        return self

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                await asyncio.sleep(0.005)

    async def end_of(self, key: str) -> Exit:
        """Wait until the latest run of an attempt has ended and this was told."""
        await self.until(lambda: key in self.news and self._exit(key) is not None)
        ended = self._exit(key)
        assert ended is not None
        return ended

    async def has_said(self, key: str, word: bytes) -> None:
        """Wait until a word is in the output of the latest run: started is not yet having said anything."""
        said = b""
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for chunk in self.runtime.logs(key, LogWanted(follow=True)):
                said += chunk
                if word in said:
                    return
        raise AssertionError(f"{key} has ended and said {said!r}")

    def _exit(self, key: str) -> Exit | None:
        state = self.runtime.look(key)
        return state.exit if state else None


async def text(chunks: AsyncIterator[bytes]) -> str:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return b"".join([chunk async for chunk in chunks]).decode()


class RunContract:
    """Start, watch, end, adopt."""

    @pytest.fixture
    async def opened(self, runtime_case: RuntimeCase) -> AsyncIterator[Watched]:
        watched = await Watched(runtime_case.make()).open()
        yield watched
        await watched.runtime.close()

    async def test_a_machine_without_runs_has_none(self, opened: Watched) -> None:
        assert opened.found == []
        assert opened.runtime.trouble() == ""

    async def test_a_started_run_is_seen(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program())
        state = await opened.runtime.start(spec, 1)
        assert (state.key, state.run, state.exit) == (spec.key, 1, None)
        assert state.pid > 0
        assert state.started_at > 0
        assert opened.runtime.look(spec.key) == state

    async def test_starting_a_run_again_changes_nothing(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program())
        first, second = await asyncio.gather(opened.runtime.start(spec, 1), opened.runtime.start(spec, 1))
        third = await opened.runtime.start(spec, 1)
        assert first.pid == second.pid == third.pid

    async def test_a_run_that_ended_is_not_started_again(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program(runs_seconds=0, exit_code=3))
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        again = await opened.runtime.start(spec, 1)
        assert again.exit is not None
        assert again.exit.code == 3

    @pytest.mark.parametrize("code", [0, 1, 42])
    async def test_the_exit_code_is_told(self, runtime_case: RuntimeCase, opened: Watched, code: int) -> None:
        spec = runtime_case.spec(Program(runs_seconds=0, exit_code=code))
        await opened.runtime.start(spec, 1)
        ended = await opened.end_of(spec.key)
        assert (ended.code, ended.signal, ended.oom) == (code, None, False)
        assert ended.at > 0

    async def test_a_signal_reaches_the_program(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        await opened.runtime.signal(spec.key, "TERM")
        ended = await opened.end_of(spec.key)
        assert ended.signal == 15 or ended.code == 143
        assert not ended.ok

    async def test_kill_ends_a_program(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        await opened.runtime.kill(spec.key)
        ended = await opened.end_of(spec.key)
        assert ended.signal == 9 or ended.code == 137
        assert not ended.oom

    async def test_a_next_run_takes_the_place_of_the_one_before(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        short = runtime_case.spec(Program(runs_seconds=0, exit_code=1))
        await opened.runtime.start(short, 1)
        await opened.end_of(short.key)
        state = await opened.runtime.start(runtime_case.spec(Program()), 2)
        assert (state.run, state.exit) == (2, None)
        assert opened.runtime.look(short.key) == state

    async def test_attempts_do_not_touch_each_other(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        one = runtime_case.spec(Program(), task="ann/web/1")
        two = runtime_case.spec(Program(), task="ann/web/2")
        await asyncio.gather(opened.runtime.start(one, 1), opened.runtime.start(two, 1))
        await opened.runtime.kill(one.key)
        await opened.end_of(one.key)
        state = opened.runtime.look(two.key)
        assert state is not None
        assert state.exit is None

    async def test_what_is_unknown_is_no_error(self, opened: Watched) -> None:
        assert opened.runtime.look("ann/web/9@1") is None
        await opened.runtime.signal("ann/web/9@1", "TERM")
        await opened.runtime.kill("ann/web/9@1")
        await opened.runtime.forget("ann/web/9@1")

    async def test_a_running_program_is_adopted(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program())
        state = await opened.runtime.start(spec, 4)
        later = await Watched(runtime_case.make()).open()
        assert later.found == [state]
        assert (await later.runtime.start(spec, 4)).pid == state.pid
        await later.runtime.kill(spec.key)
        assert not (await later.end_of(spec.key)).ok
        await later.runtime.close()

    async def test_an_exit_nobody_saw_is_kept(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(runs_seconds=0.3, exit_code=5))
        state = await opened.runtime.start(spec, 2)
        await opened.runtime.close()
        await asyncio.sleep(0.4)  # it ends with nobody watching; either order is right
        later = await Watched(runtime_case.make()).open()
        (found,) = later.found
        assert (found.key, found.run) == (spec.key, 2)
        assert found.pid in (state.pid, 0)  # an engine does not keep the number of a process that ended
        await later.until(lambda: later._exit(spec.key) is not None)
        ended = later._exit(spec.key)
        assert ended is not None
        assert ended.code == 5
        await later.runtime.close()

    async def test_a_forgotten_attempt_is_not_found_again(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program(runs_seconds=0))
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        await opened.runtime.forget(spec.key)
        assert opened.runtime.look(spec.key) is None
        later = await Watched(runtime_case.make()).open()
        assert later.found == []
        await later.runtime.close()

    async def test_a_forgotten_attempt_begins_anew(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        await opened.runtime.start(runtime_case.spec(Program(prints=("first",), runs_seconds=0)), 1)
        spec = runtime_case.spec(Program(prints=("second",)))
        await opened.end_of(spec.key)
        await opened.runtime.forget(spec.key)
        state = await opened.runtime.start(spec, 1)
        assert state.exit is None
        later = await Watched(runtime_case.make()).open()
        assert later.found == [state]
        await later.has_said(spec.key, b"second")
        await later.runtime.kill(spec.key)
        assert not (await later.end_of(spec.key)).ok
        assert await text(later.runtime.logs(spec.key, LogWanted())) == "second\n"
        await later.runtime.close()


class LogContract:
    """Output: of this run, of the one before, the end of it, as it comes."""

    async def test_logs_are_the_output(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(prints=("one", "two"), runs_seconds=0))
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        logs = opened.runtime.logs(spec.key, LogWanted())
        assert await text(logs) == "one\ntwo\n"

    @pytest.mark.parametrize(("tail", "wanted"), [(1, "c\n"), (2, "b\nc\n"), (9, "a\nb\nc\n")])
    async def test_tail_is_the_last_lines(
        self, runtime_case: RuntimeCase, opened: Watched, tail: int, wanted: str
    ) -> None:
        spec = runtime_case.spec(Program(prints=("a", "b", "c"), runs_seconds=0))
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        assert await text(opened.runtime.logs(spec.key, LogWanted(tail=tail))) == wanted

    async def test_each_line_is_told_with_its_time(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(prints=("one", "two three"), runs_seconds=0))
        began = SystemClock().now().wall
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        ended = SystemClock().now().wall
        said = await text(opened.runtime.logs(spec.key, LogWanted(timestamps=True)))
        lines = [line.split(" ", 1) for line in said.splitlines()]
        assert [line for _, line in lines] == ["one", "two three"]
        for at, _ in lines:
            assert began - 1 <= datetime.fromisoformat(f"{at[:23]}+00:00").timestamp() <= ended + 1

    async def test_since_leaves_out_what_is_older(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(prints=("one", "two"), runs_seconds=0))
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        now = SystemClock().now().wall
        for since, wanted in ((now - 3600, "one\ntwo\n"), (now + 3600, "")):
            assert await text(opened.runtime.logs(spec.key, LogWanted(since=since))) == wanted

    async def test_previous_is_the_run_before(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        for run, word in ((1, "first"), (2, "second")):
            spec = runtime_case.spec(Program(prints=(word,), runs_seconds=0))
            opened.news.clear()
            await opened.runtime.start(spec, run)
            await opened.end_of(spec.key)
        now = opened.runtime.logs(spec.key, LogWanted())
        before = opened.runtime.logs(spec.key, LogWanted(previous=True))
        assert (await text(now), await text(before)) == ("second\n", "first\n")

    async def test_following_ends_when_the_run_has_ended(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program(prints=("soon",), runs_seconds=0.3, exit_code=1))
        await opened.runtime.start(spec, 1)
        assert await text(opened.runtime.logs(spec.key, LogWanted(follow=True))) == "soon\n"

    async def test_kill_ends_a_program_that_ignores_term(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program(prints=("armed",), ignores_term=True))
        await opened.runtime.start(spec, 1)
        await opened.has_said(spec.key, b"armed")
        await opened.runtime.signal(spec.key, "TERM")
        await opened.runtime.kill(spec.key)
        ended = await opened.end_of(spec.key)
        assert ended.signal == 9 or ended.code == 137

    async def test_the_output_of_a_forgotten_attempt_stays_for_a_while(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        for run, word in ((1, "first"), (2, "second")):
            spec = runtime_case.spec(Program(prints=(word,), runs_seconds=0))
            opened.news.clear()
            await opened.runtime.start(spec, run)
            await opened.end_of(spec.key)
        await opened.runtime.forget(spec.key)
        later = await Watched(runtime_case.make()).open()
        for runtime in (opened.runtime, later.runtime):
            now = runtime.logs(spec.key, LogWanted(follow=True))
            before = runtime.logs(spec.key, LogWanted(previous=True))
            assert (await text(now), await text(before)) == ("second\n", "first\n")
        await later.runtime.close()

    async def test_a_run_that_wrote_nothing_is_told_from_none(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(Program(runs_seconds=0))
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        for _ in range(2):
            now = opened.runtime.logs(spec.key, LogWanted())
            before = opened.runtime.logs(spec.key, LogWanted(previous=True))
            assert ([piece async for piece in now], [piece async for piece in before]) == ([b""], [])
            await opened.runtime.forget(spec.key)

    async def test_logs_of_nothing_are_empty(self, opened: Watched) -> None:
        logs = opened.runtime.logs("ann/web/9@1", LogWanted(follow=True))
        assert await text(logs) == ""


class ProgramContract:
    """What only real programs have: an environment, commands beside them, use of the machine."""

    async def test_a_missing_command_is_permanent(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(), run=("no-such-command-here",))
        with pytest.raises(StartFailed, match="no-such-command-here") as caught:
            await opened.runtime.start(spec, 1)
        assert caught.value.permanent
        assert opened.runtime.look(spec.key) is None

    async def test_the_environment_is_what_was_asked(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = runtime_case.spec(
            Program(),
            run=("sh", "-c", 'echo "$COLOUR"; echo "$1"', "sh", "$HOME é"),
            env={"COLOUR": "blue é"},
        )
        await opened.runtime.start(spec, 1)
        await opened.end_of(spec.key)
        logs = opened.runtime.logs(spec.key, LogWanted())
        assert await text(logs) == "blue é\n$HOME é\n"

    async def test_use_is_told(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program())
        await opened.runtime.start(spec, 1)
        await opened.runtime.sample()
        (usage,) = await opened.runtime.sample()
        assert (usage.task, usage.attempt) == (spec.task, spec.attempt)
        assert usage.ram_bytes > 0
        assert usage.cpu_millis >= 0

    async def test_a_port_held_by_a_foreign_program(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        with socket.socket() as foreign:
            foreign.bind(("0.0.0.0", 0))
            foreign.listen()
            port: int = foreign.getsockname()[1]
            with pytest.raises(StartFailed, match=str(port)) as caught:
                await opened.runtime.start(runtime_case.spec(Program(), ports={"http": port}), 1)
        assert (caught.value.port, caught.value.permanent) == (port, False)
