"""The process runtime is held to the contract: with control groups where they are allowed, and without."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from borgish.borglet.runtimes.base import TaskRuntime
from borgish.borglet.runtimes.process import ProcessRuntime
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.commands import CommandContract
from tests.contract.runtime.sidecars import SidecarContract
from tests.contract.runtime.suite import (
    LogContract,
    Program,
    ProgramContract,
    RunContract,
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


class TestProcess(RunContract, LogContract, ProgramContract, CommandContract, SidecarContract):
    """All of it."""
