"""The docker runtime keeps the contract, with a real engine."""

import msgspec
import pytest

from borgish.borglet.runtimes.docker import start as docker_start
from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.commands import CommandContract
from tests.contract.runtime.floods import DiskContract
from tests.contract.runtime.sidecars import SidecarContract
from tests.contract.runtime.suite import (
    DEADLINE_SECONDS,
    LogContract,
    Program,
    ProgramContract,
    RunContract,
    as_shell,
    attempt_spec,
)
from tests.fixtures_docker import ANY_ENGINE

pytestmark = pytest.mark.docker


class DockerCase(msgspec.Struct):
    """A machine of its own for each test."""

    mark: str
    image: str

    def make(self) -> DockerRuntime:
        return DockerRuntime("contract", "m1", mark=self.mark, rules=ANY_ENGINE)

    def spec(self, program: Program, **changes: object) -> AttemptSpec:
        whole = attempt_spec(as_shell(program), Runtime.DOCKER, image=self.image)
        return msgspec.structs.replace(whole, **changes)


@pytest.fixture
def runtime_case(docker_mark: str, busybox_image: str) -> DockerCase:
    return DockerCase(docker_mark, busybox_image)


@pytest.fixture(autouse=True)
def _looked_at_until_it_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it takes a program long to begin, when it counts as running already, and to end."""
    monkeypatch.setattr(
        docker_start, "PROGRAM_LOOKS_MAX", round(DEADLINE_SECONDS / docker_start.PROGRAM_LOOK_SECONDS)
    )
    monkeypatch.setattr(docker_start, "EARLY_END_SECONDS_MAX", DEADLINE_SECONDS)


class TestDocker(RunContract, LogContract, ProgramContract, CommandContract, SidecarContract, DiskContract):
    """Everything that is asked of a runtime is asked of this one."""
