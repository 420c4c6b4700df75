"""The groups of tests that need something of the machine, or a night, and whether they have it here.

A group that cannot run is left out, and the end of the run says so and why; named in
``BORGISH_REQUIRE`` it fails instead.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

REQUIRED_BY = "BORGISH_REQUIRE"
ENGINE_ANSWERS_SECONDS_MAX = 60  # where there is none, that is said at once


def required() -> set[str]:
    """Return the groups that must run."""
    return {name.strip() for name in os.environ.get(REQUIRED_BY, "").split(",") if name.strip()}


@functools.cache
def docker_lacks() -> str:
    """Return why no container can be run here, "" when one can."""
    import docker  # slow, and only wanted where a test asks
    from docker.errors import DockerException

    try:
        engine = docker.from_env(timeout=ENGINE_ANSWERS_SECONDS_MAX)
        engine.ping()
        engine.close()
    except (DockerException, OSError) as error:  # requests' errors are of the second kind
        return f"no Docker engine answers ({error})"
    return "" if shutil.which("busybox") else "no busybox to make an image of; install busybox-static"


@functools.cache
def postgres_lacks() -> str:
    """Return why no Postgres server can be run here, "" when one can."""
    if shutil.which("initdb") or any(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return ""
    return "no initdb on PATH or in /usr/lib/postgresql; install postgresql"


@functools.cache
def mounts_lacks() -> str:
    """Return why no file system can be mounted here, "" when one can."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        try:
            subprocess.run(mount, check=True, capture_output=True, text=True)
        except OSError as error:
            return f"no mount to call ({error})"
        except subprocess.CalledProcessError as error:
            return f"no right to mount a tmpfs ({error.stderr.strip()})"
        subprocess.run(["umount", folder], check=True)
    return ""


@functools.cache
def networks_lacks() -> str:
    """Return why no networks of their own can be made here, "" when they can."""
    made = f"bg-{os.getpid()}"
    try:
        subprocess.run(["ip", "netns", "add", made], check=True, capture_output=True, text=True)
    except OSError as error:
        return f"no ip to call ({error}); install iproute2"
    except subprocess.CalledProcessError as error:
        return f"no right to make a network namespace ({error.stderr.strip()})"
    subprocess.run(["ip", "netns", "del", made], check=True)
    return ""


def nightly_lacks() -> str:
    """Return how the long tests are run, "" when they are to run."""
    return "" if "nightly" in required() else "they take long; ./scripts/test nightly runs them"


def traces_lacks() -> str:
    """Return which public trace is not here, "" when all are."""
    from tests.bench.traces import lacking  # only wanted where a test asks

    return lacking()


LACKS: dict[str, Callable[[], str]] = {
    "docker": docker_lacks,
    "mounts": mounts_lacks,
    "networks": networks_lacks,
    "nightly": nightly_lacks,
    "postgres": postgres_lacks,
    "traces": traces_lacks,
}
