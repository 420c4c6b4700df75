"""The Debian package and the image of the master: built as people build them, installed, and run."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cells import ROOT
from tests.forked import plain_environment

pytestmark = pytest.mark.nightly
BUILD_SECONDS_MAX = 600
COMMANDS = ("borgctl", "borgmaster", "borglet")
INSTALLED = """
set -e
mount -t tmpfs tmpfs /opt
mkdir /opt/borgish
mount --bind {root}/opt/borgish /opt/borgish
export PATH={root}/usr/bin:$PATH
borgctl --version
borgmaster --version
borglet --version
setpriv --reuid=65534 --regid=65534 --clear-groups {root}/usr/bin/borgctl --version
borgctl up --dir {cell} --machines 1
borgctl --dir {cell} doctor || true
borgctl down --dir {cell} --purge
"""
"""The root of a package over the machine's, in a namespace of mounts of its own."""


def run(*command: object, seconds: float = BUILD_SECONDS_MAX) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=ROOT,
        env=plain_environment(),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("dpkg-deb", "/usr/bin/python3"):
        if shutil.which(needed) is None:
            pytest.skip(f"there is no {needed} here")
    return Path(run(ROOT / "scripts" / "package", tmp_path_factory.mktemp("package")).split()[-1])


@pytest.fixture
def seen_by_all() -> Iterator[Path]:
    """A folder that every user may look into. Those above pytest's own are closed to others than its user."""
    with tempfile.TemporaryDirectory(prefix="borgish-package-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.mounts
def test_the_package_has_all_that_it_needs(package: Path, seen_by_all: Path) -> None:
    root = seen_by_all / "root"
    run("dpkg-deb", "--extract", package, root)
    said = run("unshare", "--mount", "sh", "-c", INSTALLED.format(root=root, cell=seen_by_all / "cell"))
    for command in COMMANDS:
        assert f"{command} " in said
    assert said.count("borgctl 0.") == 2
    assert "1 machine up" in said
    assert "pass  daemons" in said
    for unit in ("borgmaster", "borglet"):
        installed = root / "usr/lib/systemd/system" / f"{unit}.service"
        assert installed.read_text() == (ROOT / "configs/systemd" / f"{unit}.service").read_text()
    for page in ("borgctl", "borgctl-job", "borgmaster", "borglet", "fauxmaster"):
        assert (root / "usr/share/man/man1" / f"{page}.1.gz").is_file()
    owners = run("dpkg-deb", "--contents", package).splitlines()
    assert [line for line in owners if " root/root " not in line] == []


@pytest.fixture
def image(package: Path) -> Iterator[str]:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("no debootstrap here, or not root")
    tag = f"borgish-test:{os.getpid()}"
    run(ROOT / "scripts" / "image-master", tag, package)
    yield tag
    run("docker", "rmi", "--force", tag)


@pytest.mark.docker
def test_the_image_of_the_master_serves_without_any_right(image: str) -> None:
    name = f"borgish-test-{os.getpid()}"
    here = ("--volume", f"{name}:/var/lib/borgish")
    run("docker", "volume", "create", name)
    try:
        init = ("cell", "init", "--dir", "/var/lib/borgish", "--listen", "0.0.0.0:7400")
        run("docker", "run", "--rm", *here, "--entrypoint", "borgctl", image, *init)
        rights = (
            "--read-only",
            "--tmpfs",
            "/tmp",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
        )
        run("docker", "run", "--detach", "--name", name, *rights, *here, image)
        asked = (
            "for n in $(seq 100); do borgctl --dir /var/lib/borgish status && exit; sleep 0.1; done; exit 1"
        )
        assert "machines" in run("docker", "exec", name, "sh", "-c", asked)
        run("docker", "stop", name)
        assert run("docker", "inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0"
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True)
        subprocess.run(["docker", "volume", "rm", name], capture_output=True)
