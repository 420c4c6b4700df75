"""What tests with containers share: an image, and a label by which each test's leftovers go."""

import contextlib
import fcntl
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest

from borgish.borglet.runtimes.docker import engine as engine_calls
from borgish.borglet.runtimes.docker.host import Rules

ANY_ENGINE = Rules(without=("seccomp", "network"))
"""Tests run also with an engine that lacks what one of a cell has."""
IMAGE = "borgish-test/busybox:1"
SCRIPT = Path(__file__).parent.parent / "scripts" / "image"


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerClient]:
    """The machine's engine."""
    engine = docker.from_env(timeout=120)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def busybox_image(docker_engine: docker.DockerClient) -> str:
    """The name of a small image, made from this machine's busybox as people make it."""
    with (Path(tempfile.gettempdir()) / "borgish-test-image.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)  # test processes side by side make it once
        if not docker_engine.images.list(name=IMAGE):
            subprocess.run([SCRIPT, IMAGE], check=True, capture_output=True)
    return IMAGE


@pytest.fixture
def docker_mark(docker_engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark for the containers of one test, which are all removed behind it.

    The engine of a busy machine may take its time: only tests about a silent one give up on it soon.
    """
    for limit in ("QUICK_SECONDS_MAX", "SLOW_SECONDS_MAX"):
        monkeypatch.setattr(engine_calls, limit, 20.0)
    mark = secrets.token_hex(6)
    yield mark
    for container in docker_engine.containers.list(
        all=True, filters={"label": f"borgish.owner={mark}"}, ignore_removed=True
    ):
        with contextlib.suppress(docker.errors.APIError):  # it may be leaving already
            container.remove(force=True, v=True)
