"""The end of a command in a container, with an engine that is slow to know of it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from itertools import repeat
from typing import Any, cast

import pytest

from borgish.borglet.runtimes.docker import engine as docker_engine
from borgish.borglet.runtimes.docker.engine import TIMED_OUT_CODE, Engine, run_beside
from borgish.errors import Unreachable

ANYWHERE = "/"  # stands for a container's name: it is in the control group of each process


class SlowClient:
    """Says so often that a command runs still, and then how it ended."""

    def __init__(self, looks: int) -> None:
        self._seen = iter([*repeat(True, looks), False])

    def exec_create(self, _container: str, _command: list[str]) -> dict[str, str]:
        return {"Id": "command"}

    def exec_inspect(self, _command: str) -> dict[str, Any]:
        return {"Running": next(self._seen, False), "ExitCode": 6, "Pid": 0}


class LateClient(SlowClient):
    """Neither answers at once nor says at once which process a command has."""

    def __init__(self, pid: int) -> None:
        super().__init__(looks=10**6)
        self._pids = iter([None, 0, 0, pid])

    def exec_inspect(self, _command: str) -> dict[str, Any]:
        if (pid := next(self._pids)) is None:
            raise Unreachable("the engine is busy")
        return {"Running": True, "ExitCode": None, "Pid": pid}


class Staying:
    """An engine of that client, with a command that says something and goes on."""

    def __init__(self, client: LateClient) -> None:
        self._client = client
        self.spoke = asyncio.Event()

    async def slow(self, call: Callable[[Any], Any], _what: str) -> Any:
        return call(self._client)

    async def quick(self, call: Callable[[Any], Any]) -> Any:
        return call(self._client)

    async def stream(self, _call: Callable[[Any], Any], _what: str) -> AsyncIterator[bytes]:
        yield b"said\n"
        self.spoke.set()
        await asyncio.sleep(3600)


class SlowEngine:
    def __init__(self, looks: int) -> None:
        self._client = SlowClient(looks)

    async def slow(self, call: Callable[[Any], Any], _what: str) -> Any:
        return call(self._client)

    async def quick(self, call: Callable[[Any], Any]) -> Any:
        return call(self._client)

    async def stream(self, _call: Callable[[Any], Any], _what: str) -> AsyncIterator[bytes]:
        yield b"said\n"


async def run(looks: int, timeout_seconds: float = 60.0) -> tuple[bytes, int, bool]:
    engine = cast("Engine", SlowEngine(looks))
    return await run_beside(engine, "container", ("true",), timeout_seconds)


@pytest.mark.parametrize("looks", [0, 1, 1000])
async def test_its_exit_code_is_waited_for(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_engine, "END_LOOK_SECONDS", 0.0)
    assert await run(looks) == (b"said\n", 6, False)


async def test_it_is_not_waited_for_longer_than_the_command_may_take() -> None:
    assert await run(10**6, timeout_seconds=0.05) == (b"said\n", TIMED_OUT_CODE, True)


async def test_who_turns_away_ends_it_before_the_engine_knows_its_process() -> None:
    command = await asyncio.create_subprocess_exec("sleep", "60")
    engine = Staying(LateClient(command.pid))
    asked = asyncio.create_task(run_beside(cast("Engine", engine), ANYWHERE, ("sleep", "60"), 60.0))
    await engine.spoke.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await asyncio.wait_for(command.wait(), 5) == -signal.SIGKILL
