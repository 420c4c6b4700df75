"""Everything a run started ends with it, however it tried to get away."""

import asyncio
import os
import time

import psutil
import pytest

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.errors import Conflict, Invalid
from borgish.resources import Resources
from tests.integration.runtimes.machine import DEADLINE_SECONDS, PYTHON, Machine, ends, outside

# Takes a MiB at a time up to 300, then waits: no danger where nothing holds it.
HOG = """
import time
held = []
while True:
    held += [bytearray(b"x") * 2**20] if len(held) < 300 else []
    time.sleep(0.002)
"""
# Ends its parent twice over and leaves its session: nobody's child, nobody's group.
ESCAPE = "setsid sh -c 'trap \"\" TERM HUP; sleep 60 & echo $!; wait' & "


async def test_a_kill_reaches_who_left_the_session(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sh", "-c", f"({ESCAPE}) ; exec sleep 60")
        state = await now.runtime.start(spec, 1)
        await now.until(lambda: machine.log(spec.key).endswith(b"\n"))
        child = outside(state.pid, int(machine.log(spec.key)))
        await now.runtime.kill(spec.key)
        ended = await now.end_of(spec.key)
        assert ended.signal == 9
        await ends(child)


async def test_a_program_that_ends_leaves_nothing(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sh", "-c", f"({ESCAPE}) ; until [ -e go ]; do sleep 0.01; done; exit 3")
        state = await now.runtime.start(spec, 1)
        await now.until(lambda: machine.log(spec.key).endswith(b"\n"))
        child = outside(state.pid, int(machine.log(spec.key)))
        (machine.run_folder(spec.key).path / "work/go").touch()
        ended = await now.end_of(spec.key)
        assert ended.code == 3
        await ends(child)


async def test_a_signal_reaches_all_processes(machine: Machine) -> None:
    async with machine.opened() as now:
        child = "setsid sh -c 'trap \"echo got; exit\" USR1; echo up; while :; do sleep 0.01; done' &"
        spec = machine.spec("sh", "-c", f"trap : USR1; {child} wait; wait; exit 5")
        await now.runtime.start(spec, 1)
        await now.until(lambda: machine.log(spec.key) == b"up\n")
        await now.runtime.signal(spec.key, "USR1")
        await now.end_of(spec.key)
        assert b"got\n" in machine.log(spec.key)


async def test_a_signal_without_a_name_is_refused(machine: Machine) -> None:
    async with machine.opened() as now:
        with pytest.raises(Invalid, match="NOSUCH"):
            await now.runtime.signal("ann/web/0@7", "NOSUCH")


async def test_a_fork_storm_is_bounded_and_ends(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_PIDS", (("pids.max", "40", True),))
    async with machine.opened() as now:
        assert isinstance(now.runtime, ProcessRuntime)
        storm = "i=0; while [ $i -lt 120 ]; do sleep 60 & i=$((i+1)); done; echo full; wait"
        spec = machine.spec("sh", "-c", storm, resources=Resources(100, 512 * 1024**2))
        await now.runtime.start(spec, 1)
        await now.until(lambda: machine.log(spec.key).endswith(b"\n"))
        if now.runtime.isolation != "weak":
            state = now.runtime.look(spec.key)
            assert b"fork" in machine.log(spec.key).lower() or (state is not None and state.exit is not None)
        await now.runtime.kill(spec.key)
        await now.end_of(spec.key)
        assert not [usage for usage in await now.runtime.sample() if usage.task == spec.task]


async def test_too_much_memory_ends_a_program(machine: Machine) -> None:
    """By the kernel where groups hold it, else by the next sample that sees it."""
    async with machine.opened() as now:
        spec = machine.spec(PYTHON, "-c", HOG, resources=Resources(100, 32 * 1024**2))
        await now.runtime.start(spec, 1)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (state := now.runtime.look(spec.key)) is None or state.exit is None:
                await now.runtime.sample()
                await asyncio.sleep(0.02)
        assert state.exit.oom
        assert not state.exit.ok


async def test_use_of_cpu_is_measured(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sh", "-c", "while :; do :; done")
        await now.runtime.start(spec, 1)
        await now.runtime.sample()
        seen: list[int] = []

        async with asyncio.timeout(DEADLINE_SECONDS):
            while not seen or not 50 < seen[-1] < 1500:
                await asyncio.sleep(0.2)
                seen += [usage.cpu_millis for usage in await now.runtime.sample()]


async def test_a_command_that_takes_too_long_ends_with_all_it_started(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        output, child = b"", f"60.{os.getpid()}"
        for seconds in (0.5, 5.0, 50.0):  # a busy machine needs longer to begin with it
            began = time.perf_counter()
            command = ("sh", "-c", f"({ESCAPE.replace('60', child)}); sleep 600")
            output, code, cut = await now.runtime.exec(spec.key, command, seconds)
            assert time.perf_counter() - began < seconds + DEADLINE_SECONDS
            assert (code, cut) == (124, False)
            if output:
                break
        async with asyncio.timeout(DEADLINE_SECONDS):
            while ["sleep", child] in [it.info["cmdline"] for it in psutil.process_iter(["cmdline"])]:
                await asyncio.sleep(0.01)
        assert now.runtime.look(spec.key) is not None
        assert await now.runtime.exec(spec.key, ("true",), DEADLINE_SECONDS) == (b"", 0, False)


async def test_a_command_that_is_not_there(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        output, code, _ = await now.runtime.exec(spec.key, ("no-such",), DEADLINE_SECONDS)
        assert code == 127
        assert b"no command 'no-such' in PATH" in output


async def test_a_command_that_is_longer_than_linux_allows(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        output, code, _ = await now.runtime.exec(spec.key, ("echo", "x" * 2**17), DEADLINE_SECONDS)
        assert code == 127
        assert b"into a file" in output


async def test_no_command_beside_what_has_ended(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("true")
        await now.runtime.start(spec, 1)
        await now.end_of(spec.key)
        with pytest.raises(Conflict, match="does not run"):
            await now.runtime.exec(spec.key, ("true",), DEADLINE_SECONDS)
