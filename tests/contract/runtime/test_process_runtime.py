"""The process runtime is held to the contract: with control groups where they are allowed, and without."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from borgish.borglet.runtimes import disk
from borgish.borglet.runtimes.base import StartFailed, TaskRuntime
from borgish.borglet.runtimes.folders import Record, RunFolder, name_of
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.borglet.runtimes.process.shim.lease import FILE, write_lease
from borgish.borglet.runtimes.process.shims import Carried
from borgish.borglet.runtimes.process.starter import Starter
from borgish.borglet.runtimes.processes import is_alive
from borgish.spec.job import Program as Sidecar
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.commands import CommandContract
from tests.contract.runtime.floods import FLOODS, LIMIT, DiskContract, shell
from tests.contract.runtime.leases import LONG, LeaseContract, in_seconds
from tests.contract.runtime.sidecars import SidecarContract
from tests.contract.runtime.suite import (
    LogContract,
    Program,
    ProgramContract,
    RunContract,
    Watched,
    as_shell,
    attempt_spec,
)
from tests.integration.runtimes.machine import end_all


class ProcessCase:
    """Process runtimes on one folder."""

    def __init__(self, folder: Path, *, use_cgroups: bool) -> None:
        self._folder = folder
        self._use_cgroups = use_cgroups

    def make(self) -> TaskRuntime:
        return ProcessRuntime(self._folder, use_cgroups=self._use_cgroups)

    def spec(self, program: Program, **changes: object) -> AttemptSpec:
        return attempt_spec(as_shell(program), Runtime.PROCESS, **changes)


@pytest.fixture(params=[True, False], ids=["cgroups", "rlimits"])
def runtime_case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessCase]:
    yield ProcessCase(tmp_path / "m1", use_cgroups=request.param)
    end_all(tmp_path / "m1")


class TestProcess(
    RunContract, LogContract, ProgramContract, CommandContract, SidecarContract, LeaseContract, DiskContract
):
    """All of it."""


async def test_a_program_with_a_lease_dies_with_its_shim(runtime_case: ProcessCase, tmp_path: Path) -> None:
    """Nobody else would end it in time, were the borglet dead, too."""
    opened = await Watched(runtime_case.make()).open()
    spec = runtime_case.spec(Program(), lease_seconds=30.0)
    opened.runtime.renew(spec.key, in_seconds(LONG))
    state = await opened.runtime.start(spec, 1)
    record = RunFolder(tmp_path / "m1" / "runs" / name_of(spec.key)).record()
    assert record is not None
    await opened.runtime.close()
    os.kill(record.shim, signal.SIGKILL)
    await opened.until(lambda: not is_alive(state.pid, record.ticks))


async def test_a_lease_of_the_boot_before_is_none(runtime_case: ProcessCase, tmp_path: Path) -> None:
    """The clock by which leases are judged begins anew with each boot, and what was 30 s is hours then."""
    opened = await Watched(runtime_case.make()).open()
    spec = runtime_case.spec(Program(), lease_seconds=30.0)
    opened.runtime.renew(spec.key, in_seconds(LONG))
    write_lease(str(tmp_path / "m1" / "runs" / name_of(spec.key) / FILE), in_seconds(LONG), "another boot")
    with pytest.raises(StartFailed, match="lease"):
        await opened.runtime.start(spec, 1)
    await opened.runtime.close()


async def test_who_floods_the_disk_while_its_start_is_under_way_is_ended(
    runtime_case: ProcessCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it writes is found in the folder of the main program, before the start of it has returned."""
    monkeypatch.setattr(disk, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(disk, "BUSY_SHARE_MAX", 1.0)
    opened = await Watched(runtime_case.make()).open()
    sidecar = Sidecar("proxy", shell(FLOODS["bytes"]))
    main = runtime_case.spec(Program(), programs=(sidecar,), resources=LIMIT)
    beside, launch = main.beside(sidecar), Starter.launch

    async def returns_late(self: Starter, spec: AttemptSpec, *rest: Any) -> tuple[Record, Carried | None]:
        launched = await launch(self, spec, *rest)
        if spec.program:
            await opened.end_of(main.key)
        return launched

    monkeypatch.setattr(Starter, "launch", returns_late)
    await opened.runtime.start(main, 1)
    await opened.runtime.start(beside, 1)
    assert "limit 2MiB" in (await opened.end_of(main.key)).reason
    assert "limit 2MiB" in (await opened.end_of(beside.key)).reason
    await opened.runtime.close()
