"""A shim whose run is over carries another one, of which the program sees nothing of the first."""

import os
import signal
from pathlib import Path

import pytest

from borgish.borglet.runtimes.process import shims
from borgish.borglet.runtimes.process.shim import runs
from borgish.wire.link import Exit
from tests.contract.runtime.suite import Watched
from tests.integration.runtimes.machine import Machine, lives, wait_until, zygote_with


async def carried(machine: Machine, now: Watched, number: int, *command: str) -> tuple[int, Exit]:
    """Have one run end; return the shim that carried it and how it ended."""
    spec = machine.spec(*(command or ("true",)), task=f"ann/short/{number}")
    await now.runtime.start(spec, 1)
    return machine.record(spec.key).shim, await now.end_of(spec.key)


def open_files(pid: int) -> dict[str, str]:
    """Return what a shim has open when it waits, soon after the end of a run is told: its connection is there
    twice then."""
    found = dict[str, str]()

    def waits() -> bool:
        found.clear()
        found.update({entry.name: os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()})
        sockets = [there for there in found.values() if there.startswith("socket:")]
        return len(sockets) == 2 * len(set(sockets)) > 0

    wait_until(waits)
    return found


async def test_one_shim_carries_one_run_after_the_other(machine: Machine) -> None:
    async with machine.opened() as now:
        first = await carried(machine, now, 1, "sh", "-c", "echo one; sleep 60 & exit 3")
        before = open_files(first[0])
        second = await carried(machine, now, 2, "sh", "-c", "ls /proc/self/fd | wc -l; exit 4")
        assert [first[1].code, second[1].code] == [3, 4], (first, second)
        assert second[0] == first[0]
        assert open_files(first[0]) == before
        alone = await now.runtime.start(machine.spec("sh", "-c", "exec sleep 60", task="ann/short/3"), 1)
        assert machine.record(alone.key).shim == first[0]
        other = await now.runtime.start(
            machine.spec("sh", "-c", "ls /proc/self/fd | wc -l", task="ann/short/4"), 1
        )
        assert machine.record(other.key).shim != first[0]
        await now.end_of(other.key)
        # As many files are open in a program of a shim that was there as in one of a shim that was forked.
        assert machine.log("ann/short/2@7") == machine.log(other.key)
        assert machine.log("ann/short/1@7") == b"one\n"


async def test_kill_9_of_a_shim_that_waits(machine: Machine) -> None:
    async with machine.opened() as now:
        shim, _ = await carried(machine, now, 1)
        os.kill(shim, signal.SIGKILL)
        again, ended = await carried(machine, now, 2)
        assert again != shim
        assert ended.code == 0, ended


async def test_kill_9_of_a_shim_that_carries_its_second_run(machine: Machine) -> None:
    """The program goes on, and another shim sees its end."""
    async with machine.opened() as now:
        shim, _ = await carried(machine, now, 1)
        spec = machine.spec("sh", "-c", "while ! [ -e go ]; do sleep 0.02; done; exit 4")
        state = await now.runtime.start(spec, 1)
        assert machine.record(spec.key).shim == shim
        os.kill(shim, signal.SIGKILL)
        await now.until(lambda: machine.record(spec.key).shim != shim)
        assert lives(state.pid)
        (machine.run_folder(spec.key).path / "work/go").touch()
        assert "exit unknown" in (await now.end_of(spec.key)).reason
        first = now.runtime.look("ann/short/1@7")
        assert first is not None
        assert first.exit is not None
        assert first.exit.code == 0


async def test_shims_that_wait_end_with_their_borglet_and_those_that_carry_after_their_run(
    machine: Machine,
) -> None:
    async with machine.opened() as now:
        await now.runtime.start(machine.spec("sleep", "60", task="ann/short/0"), 1)
        idle, _ = await carried(machine, now, 1)
        spec = machine.spec("sh", "-c", "while ! [ -e go ]; do sleep 0.02; done; exit 4")
        await now.runtime.start(spec, 1)
        busy = machine.record(spec.key).shim
        assert busy == idle
        idle, _ = await carried(machine, now, 2)
    wait_until(lambda: not lives(idle))
    assert lives(busy)
    async with machine.opened() as later:
        (machine.run_folder(spec.key).path / "work/go").touch()
        assert (await later.end_of(spec.key)).code == 4
        wait_until(lambda: not lives(busy))


async def test_shims_that_nobody_needs_go(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine.opened() as now:
        shim, _ = await carried(machine, now, 1)
        await now.until(lambda: not lives(shim))
        monkeypatch.setattr(shims, "IDLE_MAX", 0)
        shim, _ = await carried(machine, now, 2)
        assert (await carried(machine, now, 3))[0] != shim


async def test_a_shim_carries_so_many_runs_and_no_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote_with(monkeypatch, runs, "RUNS_MAX = 2")
    async with machine.opened() as now:
        carriers = [await carried(machine, now, number) for number in range(5)]
        assert [ended.code for _, ended in carriers] == [0] * 5, carriers
        assert len({shim for shim, _ in carriers}) == 3
