"""A command beside a task whose output has no end: its time limit holds all the same."""

import asyncio
import json
import os
from typing import Any, cast

import pytest

from borgish.borglet.runtimes.base import Write
from borgish.borglet.runtimes.process import commands
from borgish.borglet.runtimes.process.commands import TIMED_OUT, run_beside
from borgish.borglet.runtimes.process.zygote import Answer, Zygote
from borgish.errors import Unreachable

NOBODY = {"pid": 0, "ticks": 0}
LONG_SECONDS = 60.0
SHORT_SECONDS = 0.05


class Shim:
    """One that says what it is told to, of a command whose output somebody holds open."""

    def __init__(self, *says: dict[str, int], killed: bool = False) -> None:
        self._said, says_end = os.pipe()
        os.write(says_end, b"".join(json.dumps(line).encode() + b"\n" for line in (NOBODY, *says)))
        self._held = [] if killed else [says_end]
        if killed:
            os.close(says_end)

    async def ask(self, _request: dict[str, Any], output: int) -> Answer:
        self._held.append(os.dup(output))
        os.write(output, b"said")
        return Answer(self._said)

    async def runs(self, seconds: float, write: Write | None = None) -> tuple[bytes, int, bool]:
        try:
            async with asyncio.timeout(LONG_SECONDS / 2):
                return await run_beside(cast(Zygote, self), {"argv": ("sh",)}, seconds, write=write)
        finally:
            for fd in self._held:
                os.close(fd)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "REST_SECONDS", SHORT_SECONDS)


async def stuck(_output: bytes) -> None:
    await asyncio.sleep(LONG_SECONDS)


@pytest.mark.parametrize("ended", [(), ({"code": 0},)], ids=["runs", "has ended"])
async def test_who_holds_its_output_open_does_not_hold_a_command(ended: tuple[dict[str, int], ...]) -> None:
    assert await Shim(*ended).runs(2 * SHORT_SECONDS) == (b"said", TIMED_OUT, False)


async def test_who_does_not_take_its_output_does_not_hold_a_command() -> None:
    assert await Shim({"code": 0}).runs(2 * SHORT_SECONDS, stuck) == (b"", TIMED_OUT, False)


async def test_that_its_shim_was_killed_is_said() -> None:
    with pytest.raises(Unreachable, match="was killed"):
        await Shim(killed=True).runs(LONG_SECONDS)
