"""The docker runtime keeps the contract, with a real engine."""

import msgspec
import pytest

from borgish.borglet.runtimes.docker import DockerRuntime
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.sidecars import SidecarContract
from tests.contract.runtime.suite import (
    LogContract,
    Program,
    ProgramContract,
    RunContract,
    as_shell,
    attempt_spec,
)

pytestmark = pytest.mark.docker


class DockerCase(msgspec.Struct):
    """A machine of its own for each test."""

    mark: str
    image: str

    def make(self) -> DockerRuntime:
        return DockerRuntime("contract", "m1", mark=self.mark)

    def spec(self, program: Program, **changes: object) -> AttemptSpec:
        whole = attempt_spec(as_shell(program), Runtime.DOCKER, image=self.image)
        return msgspec.structs.replace(whole, **changes)


@pytest.fixture
def runtime_case(docker_mark: str, busybox_image: str) -> DockerCase:
    return DockerCase(docker_mark, busybox_image)


class TestDocker(RunContract, LogContract, ProgramContract, SidecarContract):
    """Everything that is asked of a runtime is asked of this one."""
