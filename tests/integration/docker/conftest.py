"""What the tests with a real engine share."""

from collections.abc import AsyncIterator

import docker
import pytest

from tests.integration.docker.machine import Machine


@pytest.fixture
async def machine(
    docker_mark: str, busybox_image: str, docker_engine: docker.DockerClient
) -> AsyncIterator[Machine]:
    machine = Machine(docker_mark, busybox_image, docker_engine)
    yield machine
    await machine.close()
