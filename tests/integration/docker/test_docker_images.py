"""The images of a real engine, as they come and go."""

import secrets
from collections.abc import Iterator

import docker
import pytest

from borgish.borglet.facts import ARCH_NAMES
from tests.integration.docker.machine import Machine, until

pytestmark = pytest.mark.docker


@pytest.fixture
def tag(docker_engine: docker.DockerClient) -> Iterator[str]:
    """A name that no image has yet."""
    name = f"borgish-test/tagged:{secrets.token_hex(6)}"
    yield name
    if docker_engine.images.list(name=name):
        docker_engine.images.remove(name)


async def test_images_are_told_with_the_architecture_that_machines_have_as_attribute(
    machine: Machine,
) -> None:
    runtime = await machine.runtime()
    await until(lambda: machine.image in runtime.images())
    own = machine.engine.info()["Architecture"]
    assert runtime.images()[machine.image] == ARCH_NAMES.get(own, own)


async def test_an_image_that_comes_or_goes_is_noticed(machine: Machine, tag: str) -> None:
    runtime = await machine.runtime(look_seconds=0.05)
    await until(lambda: machine.image in runtime.images())
    assert tag not in runtime.images()
    machine.engine.images.get(machine.image).tag(tag)
    await until(lambda: tag in runtime.images())
    machine.engine.images.remove(tag)
    await until(lambda: tag not in runtime.images())
    assert machine.image in runtime.images()
