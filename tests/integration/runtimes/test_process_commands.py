"""A command beside a task that means to outlive its end: by whom it kills, and by what it does meanwhile."""

import asyncio
import os

import pytest

from borgish.borglet.runtimes.process.commands import Stdin
from borgish.vocabulary import HELD
from tests.contract.runtime.commands import gone, pass_on
from tests.contract.runtime.suite import DEADLINE_SECONDS
from tests.integration.runtimes.machine import PYTHON, Machine

MARK = str(20_000_000 + os.getpid())
LEFT = f"setsid sleep {MARK} & sleep 0.2;"
OTHER_THREAD = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=({MARK},)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
WAYS = {
    "of a session of its own": ("sh", "-c", LEFT),
    "killing who started it": ("sh", "-c", f"{LEFT} kill -9 $PPID; sleep 1"),
    "killing all it may": ("sh", "-c", f"{LEFT} kill -9 -1; sleep 0.1"),
    "whose first thread has ended": ("sh", "-c", '"$0" -c "$1" & sleep 0.3', PYTHON, OTHER_THREAD),
}


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_left(machine: Machine, way: str) -> None:
    async with machine.opened() as now:
        if (why := now.runtime.measures()["namespaces"]) != HELD:
            pytest.skip(f"no namespaces here: {why}")
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        _, code, _ = await now.runtime.exec(spec.key, WAYS[way], 20.0)
        assert code in (0, 128 + 9), "what is left holds its output open"
        await gone(MARK)


async def test_other_commands_and_the_task_go_on(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        stdin = Stdin()
        other = asyncio.create_task(now.runtime.exec(spec.key, ("cat",), DEADLINE_SECONDS, stdin))
        await pass_on(stdin, 0, b"before, ")
        _, code, _ = await now.runtime.exec(spec.key, ("sh", "-c", LEFT), DEADLINE_SECONDS)
        assert code == 0
        await pass_on(stdin, 8, b"after", end=True)
        assert await other == (b"before, after", 0, False)
        state = now.runtime.look(spec.key)
        assert state is not None
        assert state.exit is None
