"""Containers that take all they can get, each beside a victim, which must not notice."""

import asyncio

import pytest

from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.wire.link import AttemptSpec, LogWanted
from tests.integration.docker.machine import PATIENCE_SECONDS, SLEEP, Machine, ended

pytestmark = pytest.mark.docker

MIB = 1024**2
FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 300"
LOG_FLOOD = f"yes {'x' * 1000} | head -c {40 * MIB}; exit 0"


@pytest.fixture
async def victim(machine: Machine) -> tuple[DockerRuntime, AttemptSpec]:
    runtime = await machine.runtime()
    spec = machine.spec(*SLEEP, task="ann/victim/0")
    await runtime.start(spec, 1)
    return runtime, spec


async def lives_well(runtime: DockerRuntime, spec: AttemptSpec) -> bool:
    """Return whether a container runs on, starts processes, has memory, and can write."""
    state = runtime.look(spec.key)
    script = "dd if=/dev/zero of=/tmp/a bs=8M count=1 2> /dev/null && echo $(ls /tmp)"
    output, code, _ = await runtime.exec(spec.key, ("sh", "-c", script), PATIENCE_SECONDS)
    return state is not None and state.exit is None and (output, code) == (b"a\n", 0)


async def test_a_fork_bomb_is_alone_with_its_processes(
    machine: Machine, victim: tuple[DockerRuntime, AttemptSpec]
) -> None:
    runtime, spec = victim[0], machine.spec("sh", "-c", FORK_BOMB, ram_bytes=128 * MIB)
    await runtime.start(spec, 1)
    pids = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while pids < 100 and (state := runtime.look(spec.key)) and state.exit is None:
            pids = max(pids, await asyncio.to_thread(_processes, machine, spec))
    assert pids <= 1024
    assert await lives_well(*victim)
    await runtime.kill(spec.key)
    assert not (await ended(runtime, spec.key)).ok
    assert await lives_well(*victim)


def _processes(machine: Machine, spec: AttemptSpec) -> int:
    found = machine.engine.containers.list(filters={"label": f"borgish.task={spec.task}"})
    mine = [each for each in found if each.labels["borgish.owner"] == machine.mark]
    stats = mine[0].stats(stream=False, one_shot=True) if mine else {}
    return int(stats.get("pids_stats", {}).get("current", 0))


async def test_a_memory_hog_is_ended_alone(
    machine: Machine, victim: tuple[DockerRuntime, AttemptSpec]
) -> None:
    runtime, spec = victim[0], machine.spec("sh", "-c", "sleep 0.2; tail /dev/zero", ram_bytes=16 * MIB)
    await runtime.start(spec, 1)
    exit_ = await ended(runtime, spec.key)
    assert (exit_.signal, exit_.oom) == (9, True)
    assert await lives_well(*victim)


async def test_a_flood_of_output_is_kept_in_three_small_files(
    machine: Machine, victim: tuple[DockerRuntime, AttemptSpec]
) -> None:
    runtime, spec = victim[0], machine.spec("sh", "-c", LOG_FLOOD)
    await runtime.start(spec, 1)
    assert (await ended(runtime, spec.key)).ok
    size = 0
    async for part in runtime.logs(spec.key, LogWanted()):
        size += len(part)
    assert 10 * MIB < size < 31 * MIB
    assert await lives_well(*victim)
