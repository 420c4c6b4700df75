"""Programs of one task on a real machine: what they share, and that nothing of it stays."""

import os
import signal
from pathlib import Path

import msgspec

from borgish.resources import Resources
from borgish.spec.job import Program
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.suite import Watched
from tests.integration.runtimes.machine import PYTHON, Machine, ends, outside

MIB = 1024**2
HOLD = "import time; held = bytearray({mib} << 20); print('holds', flush=True); time.sleep(600)"


def group(
    machine: Machine, main: str, beside: str, ram_bytes: int = 96 * MIB
) -> tuple[AttemptSpec, AttemptSpec]:
    """Return an attempt of two shell commands, and what the second needs."""
    sidecar = Program("proxy", ("sh", "-c", beside))
    limits = Resources(cpu_millis=100, ram_bytes=ram_bytes)
    spec = machine.spec("sh", "-c", main, programs=(sidecar,), resources=limits)
    return spec, spec.beside(sidecar)


def holding(mib: int) -> str:
    return f'exec {PYTHON} -c "{HOLD.format(mib=mib)}"'


async def written(machine: Machine, watched: Watched, spec: AttemptSpec, text: bytes) -> None:
    await watched.until(lambda: machine.log(spec.key) == text)


async def test_they_share_the_folder_of_the_task(machine: Machine) -> None:
    async with machine.opened() as now:
        main, beside = group(machine, "echo from main > note; exec sleep 60", "cat note; echo $HOME; pwd")
        await now.runtime.start(main, 1)
        work = machine.run_folder(main.key).path / "work"
        await now.until((work / "note").exists)
        await now.runtime.start(beside, 1)
        await now.end_of(beside.key)
        await written(machine, now, beside, f"from main\n{work}\n{work}\n".encode())


async def test_memory_is_of_the_task_not_of_each(machine: Machine) -> None:
    """Where no group can hold it for all, each is held to it by itself."""
    async with machine.opened() as now:
        main, beside = group(machine, holding(60), holding(60))
        await now.runtime.start(main, 1)
        await written(machine, now, main, b"holds\n")
        await now.runtime.start(beside, 1)
        if machine.use_cgroups:
            await now.until(lambda: any(key in now.news for key in (main.key, beside.key)))
            (over,) = [s for s in (main, beside) if (state := now.runtime.look(s.key)) and state.exit]
            assert (await now.end_of(over.key)).oom
        else:
            await written(machine, now, beside, b"holds\n")
            assert all(usage.ram_bytes > 60 * MIB for usage in await now.runtime.sample())
            assert now.news == []


async def test_nothing_stays_of_their_groups(machine: Machine) -> None:
    async with machine.opened() as now:
        main, beside = group(machine, "exec sleep 60", "exec sleep 60")
        for spec in (main, beside):
            await now.runtime.start(spec, 1)
        records = [machine.record(spec.key) for spec in (main, beside)]
        folders = [Path(folder) for r in records for folder, _ in [*r.groups, *r.within]]
        assert bool(folders) is machine.use_cgroups
        assert all(folder.is_dir() for folder in folders)
        for spec in (main, beside):
            await now.runtime.kill(spec.key)
            await now.end_of(spec.key)
        await now.until(lambda: not any(folder.exists() for folder in folders))


async def test_kill_9_of_a_sidecar_and_of_its_shim(machine: Machine) -> None:
    """The main program and its children are not touched, and the sidecar can be started again."""
    async with machine.opened() as now:
        main, beside = group(machine, "sleep 60 & echo $!; wait", "sleep 60 & echo $!; wait")
        first = await now.runtime.start(main, 1)
        second = await now.runtime.start(beside, 1)
        await now.until(lambda: all(machine.log(spec.key).endswith(b"\n") for spec in (main, beside)))
        children = [outside(state.pid, int(machine.log(state.key))) for state in (first, second)]
        record = machine.record(beside.key)
        os.kill(record.shim, signal.SIGKILL)
        os.kill(record.pid, signal.SIGKILL)
        await now.end_of(beside.key)
        await ends(children[1])  # that it left behind
        os.kill(children[0], 0)
        assert now.runtime.look(main.key) == first
        again = await now.runtime.start(msgspec.structs.replace(beside, run=("sleep", "60")), 2)
        assert again.exit is None


async def test_a_main_program_that_begins_anew_has_groups_of_its_own(machine: Machine) -> None:
    """Those of the run before may be on their way out still."""
    async with machine.opened() as now:
        main, beside = group(machine, "exec sleep 60", "exec sleep 60")
        await now.runtime.start(main, 1)
        await now.runtime.kill(main.key)
        await now.end_of(main.key)
        before = machine.record(main.key)
        await now.runtime.start(main, 2)
        await now.runtime.start(beside, 1)
        after, other = machine.record(main.key), machine.record(beside.key)
        assert other.within == after.within
        assert not {f for f, _ in before.within} & {f for f, _ in after.within}
