"""Programs and their exit codes outlive the borglet, the zygote and, the code apart, their shim."""

import asyncio
import os
import signal

import msgspec

from borgish.borglet.runtimes.process.shim.basics import replace_json, start_ticks
from borgish.borglet.runtimes.processes import kill_run, signal_run
from tests.integration.runtimes.machine import (
    Machine,
    bystander,
    command_line,
    ends,
    lives,
    outside,
    python,
    wait_until,
)

BORGLET = """
import asyncio, sys
from pathlib import Path
from tests.integration.runtimes.machine import Machine

async def main():
    machine = Machine(Path(sys.argv[1]), use_cgroups=sys.argv[2] == "True")
    runtime = machine.runtime()
    await runtime.open(lambda key: None)
    long = await runtime.start(machine.spec("sleep", "60", task="ann/web/0"), 1)
    short = await runtime.start(machine.spec("sh", "-c", "read x < go; exit 7", task="ann/web/1"), 3)
    print(long.pid, short.pid, runtime.zygote_pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_kill_9_of_the_borglet(machine: Machine) -> None:
    borglet = python(BORGLET, str(machine.folder), str(machine.use_cgroups))
    with borglet:
        assert borglet.stdout is not None
        gate = machine.run_folder("ann/web/1@7").path / "work/go"
        gate.parent.mkdir(parents=True)
        os.mkfifo(gate)
        long, short, zygote = map(int, borglet.stdout.readline().split())
        borglet.kill()
    wait_until(lambda: not lives(zygote))
    gate.write_text("go\n")  # it ends with nobody there to see
    wait_until(lambda: not lives(short))
    async with machine.opened() as later:
        states = {state.key: state for state in later.found}
        assert states["ann/web/0@7"].pid == long
        assert states["ann/web/0@7"].exit is None
        await later.until(lambda: (s := later.runtime.look("ann/web/1@7")) is not None and s.exit is not None)
        ended = later.runtime.look("ann/web/1@7")
        assert ended is not None
        assert ended.exit is not None
        assert (ended.run, ended.exit.code) == (3, 7)


async def test_kill_9_of_a_shim(machine: Machine) -> None:
    """The program goes on and so does its output; only the exit code cannot be learned."""
    async with machine.opened() as now:
        spec = machine.spec(
            "sh", "-c", "echo before; while ! [ -e go ]; do sleep 0.02; done; echo after; exit 4"
        )
        state = await now.runtime.start(spec, 1)
        await now.until(lambda: machine.log(spec.key) == b"before\n")
        shim = machine.record(spec.key).shim
        os.kill(shim, signal.SIGKILL)
        await now.until(lambda: machine.record(spec.key).shim != shim)
        seen = now.runtime.look(spec.key)
        assert seen is not None
        assert (seen.pid, seen.exit) == (state.pid, None)
        (machine.run_folder(spec.key).path / "work/go").touch()
        ended = await now.end_of(spec.key)
        assert (ended.code, ended.signal) == (None, None)
        assert "exit unknown" in ended.reason
        assert machine.log(spec.key) == b"before\nafter\n"


async def test_kill_9_of_borglet_shim_and_program(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sh", "-c", "sleep 60 & echo $!; wait")
        state = await now.runtime.start(spec, 2)
        await now.until(lambda: machine.log(spec.key).endswith(b"\n"))
        child = outside(state.pid, int(machine.log(spec.key)))
    record = machine.record(spec.key)
    os.kill(record.shim, signal.SIGKILL)
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not lives(record.shim) and not lives(record.pid))
    async with machine.opened() as later:
        (state,) = later.found
        assert state.exit is not None
        assert "exit unknown" in state.exit.reason
        await ends(child)
        assert (await later.runtime.start(spec, 3)).exit is None


async def test_kill_9_of_the_zygote(machine: Machine) -> None:
    async with machine.opened() as now:
        assert isinstance(now.runtime, type(machine.runtime()))
        first = await now.runtime.start(machine.spec("sleep", "60", task="ann/web/0"), 1)
        os.kill(now.runtime.zygote_pid, signal.SIGKILL)
        second = await now.runtime.start(machine.spec("sleep", "60", task="ann/web/1"), 1)
        assert lives(first.pid)
        assert lives(second.pid)


async def test_kill_9_of_the_zygote_among_starts(machine: Machine) -> None:
    """Each program is started exactly once."""
    async with machine.opened() as now:
        assert isinstance(now.runtime, type(machine.runtime()))
        specs = [machine.spec("sh", "-c", "echo x; exec sleep 60", task=f"ann/web/{i}") for i in range(16)]
        starts = [asyncio.create_task(now.runtime.start(spec, 1)) for spec in specs]
        await now.until(lambda: any(start.done() for start in starts))
        os.kill(now.runtime.zygote_pid, signal.SIGKILL)
        states = await asyncio.gather(*starts)
        assert len({state.pid for state in states}) == 16
        await now.until(lambda: all(machine.log(spec.key) for spec in specs))
        assert all(machine.log(spec.key) == b"x\n" for spec in specs)


async def test_a_run_of_another_boot_has_ended(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
    record = machine.record(spec.key)
    kill_run(record)
    wait_until(lambda: not lives(record.shim))
    folder = machine.run_folder(spec.key).path
    (folder / "exit.json").unlink()
    other = bystander()  # has the number and the start time, but of another boot
    changed = {"boot": "earlier", "pid": other.pid, "ticks": start_ticks(other.pid)}
    replace_json(str(folder / "run.json"), msgspec.json.decode((folder / "run.json").read_bytes()) | changed)
    async with machine.opened() as later:
        (state,) = later.found
        assert state.exit is not None
        assert "booted" in state.exit.reason
        await later.runtime.kill(spec.key)
        assert other.poll() is None
    other.kill()
    other.wait()


async def test_a_pid_used_anew_is_not_signalled(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        other = bystander()
        earlier = start_ticks(other.pid) - 1
        took_its_pid = msgspec.structs.replace(
            machine.record(spec.key),
            pid=other.pid,
            ticks=earlier,
            shim=other.pid,
            shim_ticks=earlier,
            groups=[],
        )
        signal_run(took_its_pid, signal.SIGTERM)
        kill_run(took_its_pid)
        assert other.poll() is None
        other.kill()
        other.wait()


async def test_no_name_of_ours_is_in_a_command_line(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sleep", "60")
        await now.runtime.start(spec, 1)
        shim = command_line(machine.record(spec.key).shim)
        assert "borg" not in shim
        assert "/" not in shim
