"""The end of a command in a container, with an engine that is slow to know of it."""

from collections.abc import AsyncIterator, Callable
from itertools import repeat
from typing import Any, cast

import pytest

from borgish.borglet.runtimes import docker_engine
from borgish.borglet.runtimes.docker_engine import TIMED_OUT_CODE, Engine, run_beside


class SlowClient:
    """Says so often that a command runs still, and then how it ended."""

    def __init__(self, looks: int) -> None:
        self._seen = iter([*repeat(True, looks), False])

    def exec_create(self, _container: str, _command: list[str]) -> dict[str, str]:
        return {"Id": "command"}

    def exec_inspect(self, _command: str) -> dict[str, Any]:
        return {"Running": next(self._seen, False), "ExitCode": 6, "Pid": 0}


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
