"""What cannot be started is said in words, and whether to try again."""

import asyncio
from pathlib import Path

import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.process.shim import inside
from tests.integration.runtimes.machine import DEADLINE_SECONDS, Machine, zygote_with


def _script(path: Path, content: bytes, mode: int) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"#!/bin/sh\n", 0o644, "may not be executed"),
        (b"\x00\x01\x02\x03", 0o755, "no program for this machine"),
        (b"#!/no/such/interpreter\n", 0o755, "no program"),
    ],
)
async def test_what_is_no_program(machine: Machine, content: bytes, mode: int, words: str) -> None:
    async with machine.opened() as now:
        work = machine.run_folder("ann/web/0@7").path / "work"
        work.mkdir(parents=True)
        with pytest.raises(StartFailed, match=words) as caught:
            await now.runtime.start(machine.spec(_script(work / "x", content, mode)), 1)
        assert caught.value.permanent
        assert caught.value.hint


@pytest.mark.parametrize(
    ("run", "workdir", "words"),
    [
        (("sleep", "1"), "/no/such/folder", "/no/such/folder"),
        (("sleep", "a\x00b"), "", "null"),
        ((), "", "nothing to run"),
        (("sleep", "x" * 3_000_000), "", "words or variables that are too long"),
    ],
)
async def test_what_cannot_begin(machine: Machine, run: tuple[str, ...], workdir: str, words: str) -> None:
    async with machine.opened() as now:
        with pytest.raises(StartFailed, match=words) as caught:
            await now.runtime.start(machine.spec(*run, workdir=workdir), 1)
        assert caught.value.permanent


async def test_a_failed_start_waits_for_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its init ends at once: no process is left in its namespace that was not waited for."""
    zygote_with(monkeypatch, inside, "END_SECONDS_MAX = 1000")
    async with machine.opened() as now, asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(StartFailed):
            await now.runtime.start(machine.spec("no-such"), 1)


async def test_a_failed_start_leaves_the_run_before_as_it_was(machine: Machine) -> None:
    async with machine.opened() as now:
        good = machine.spec("sh", "-c", "echo kept; exit 3")
        await now.runtime.start(good, 1)
        await now.end_of(good.key)
        before = now.runtime.look(good.key)
        with pytest.raises(StartFailed):
            await now.runtime.start(machine.spec("no-such"), 2)
        assert now.runtime.look(good.key) == before
        assert machine.log(good.key) == b"kept\n"
    async with machine.opened() as later:
        assert later.found == [before]


async def test_the_program_is_alone_in_its_folder(machine: Machine) -> None:
    """Working folder, mask, descriptors, and what it is not given."""
    async with machine.opened() as now:
        spec = machine.spec(
            "sh", "-c", "pwd; umask; ls /proc/self/fd | wc -l; grep NoNewPrivs /proc/self/status"
        )
        await now.runtime.start(spec, 1)
        await now.end_of(spec.key)
        folder, mask, descriptors, privileges = machine.log(spec.key).decode().splitlines()
        assert folder == str(machine.run_folder(spec.key).path / "work")
        assert (mask, descriptors, privileges.split()) == ("0077", "4", ["NoNewPrivs:", "1"])
