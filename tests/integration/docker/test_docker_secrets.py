"""Secrets of containers: as files and variables inside, and nowhere in what the engine shows."""

import io
import json
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.borglet.runtimes.secrets import SecretFolders, memory_folder
from borgish.wire.link import Assignment, AttemptSpec, SecretValue
from tests.integration.docker.machine import KEY, Machine, until

pytestmark = pytest.mark.docker

VALUE = b"sword\nfish\n"
SHOW = 'printf %s "$DB"; cat "$BORGISH_SECRETS/db.key"'


@pytest.fixture
def folders(tmp_path: Path) -> SecretFolders:
    base = memory_folder(tmp_path)
    if base is None:
        pytest.skip("this machine has no tmpfs")
    return SecretFolders(base)


@pytest.fixture
async def runtime(machine: Machine, folders: SecretFolders) -> AsyncIterator[DockerRuntime]:
    yield await machine.runtime(secrets=folders)
    folders.leave()


def held(machine: Machine, folders: SecretFolders, *run: str, **more: object) -> AttemptSpec:
    spec = machine.spec(*run, secret_files={"db.key": "db"}, secret_env={"DB": "db"})
    spec = msgspec.structs.replace(spec, **more)
    folders.hold(Assignment(1, (spec,), (), (SecretValue("ann", "db", VALUE),)))
    return spec


async def test_a_container_has_its_secrets_and_the_engine_shows_none(
    machine: Machine, runtime: DockerRuntime, folders: SecretFolders
) -> None:
    spec = held(machine, folders, "sh", "-c", f"{SHOW}; exec sleep 1000")
    await runtime.start(spec, 1)
    output, code, _ = await runtime.exec(KEY, ("sh", "-c", SHOW), 60.0)
    assert (output, code) == (VALUE * 2, 0)
    (name,) = machine.containers()
    shown = json.dumps(machine.engine.api.inspect_container(name))
    assert "fish" not in shown
    assert json.dumps(VALUE.decode())[1:-1] not in shown
    assert b"fish" in machine.engine.api.logs(name)


async def test_it_cannot_change_them_and_sees_another_value(
    machine: Machine, runtime: DockerRuntime, folders: SecretFolders
) -> None:
    spec = held(
        machine, folders, "sh", "-c", 'until grep -q two "$BORGISH_SECRETS/db.key"; do sleep 0.05; done'
    )
    await runtime.start(spec, 1)
    output, code, _ = await runtime.exec(KEY, ("sh", "-c", "echo x > $BORGISH_SECRETS/db.key"), 60.0)
    assert code != 0, output
    folders.hold(Assignment(2, (spec,), (), (SecretValue("ann", "db", b"two"),)))
    await until(lambda: (state := runtime.look(KEY)) is not None and state.exit is not None)


@pytest.fixture
def shell_less(machine: Machine) -> Iterator[str]:
    """An image that has a program, and no shell."""
    (busybox,) = (path for path in map(shutil.which, ("busybox",)) if path)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(busybox, "busybox")
    name = f"borgish-test/no-shell-{machine.mark}"
    machine.engine.api.import_image_from_data(packed.getvalue(), repository=name, tag="1")
    yield f"{name}:1"
    machine.engine.images.remove(f"{name}:1", force=True)


async def test_an_image_without_a_shell_says_what_to_do(
    machine: Machine, runtime: DockerRuntime, folders: SecretFolders, shell_less: str
) -> None:
    spec = held(machine, folders, "/busybox", "true", image=shell_less)
    with pytest.raises(StartFailed, match=r"has no /bin/sh.*secret_files"):
        await runtime.start(spec, 1)
