"""Masters and borglets of an earlier release are replaced under a running task, which does not notice.

The earlier release is a wheel of a commit of this repository, in an environment of its own.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from borgish.cli.changes import Deadline
from borgish.cli.daemons import running_pid
from borgish.cli.local_cell import borglets_of, master_of
from tests.cells import ROOT

COMMITS = (
    pytest.param("707e0b94a39ee02286d1e854802d069ac800073b", id="before-users-and-invitations"),
    pytest.param("495ecf4c0cdc488d3fd1e492d910ab6d75104ec4", id="before-doctor", marks=pytest.mark.nightly),
)
"""The landed states that this one goes on from."""
SECONDS_MAX = 60.0
JOB = "name: {0}\nrun: [sleep, '100000']\nresources: {{cpu: 10m, ram: 8MiB, disk: 1MiB}}\n"


def environment() -> dict[str, str]:
    """Return one in which only what an interpreter has installed is found."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("BORGISH_", "PYTHON"))}


class Release:
    """An installed release. Its commands fail the test when they fail."""

    def __init__(self, python: Path) -> None:
        self.python = python

    def borgctl(self, folder: Path, *words: object) -> str:
        command = [self.python, "-m", "borgish.cli.borgctl", "--dir", folder, *words]
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            env=environment(),
            cwd=folder.parent,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{logs(folder)}"
        return done.stdout

    def read(self, folder: Path, *words: object) -> Any:
        return json.loads(self.borgctl(folder, *words, "-o", "json"))

    def submit(self, folder: Path, name: str) -> None:
        (folder.parent / f"{name}.yaml").write_text(JOB.format(name))
        self.borgctl(folder, "job", "submit", "--settle", "0", folder.parent / f"{name}.yaml")


def logs(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.rglob("*.log"))


def make_release(commit: str, folder: Path) -> Release:
    """Build the wheel of a commit, and install it beside the packages that are here."""
    tree = folder / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True)
    if archive.returncode:
        said = archive.stderr.decode().strip()
        pytest.fail(f"{commit} is not in this clone; try git fetch --unshallow. {said}", pytrace=False)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", folder, tree], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    wheel = next(folder.glob("*.whl"))
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = [str(python), "-c", "import borgish; print(borgish.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, env=environment(), cwd=folder, check=True)
    assert found.stdout.startswith(str(packages)), found.stdout
    return Release(python)


@pytest.fixture(params=COMMITS, scope="module")
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return make_release(request.param, tmp_path_factory.mktemp("old"))


@pytest.fixture
def cell(old: Release, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cell"
    old.borgctl(folder, "up", "--machines", "1")
    yield folder
    NEW.borgctl(folder, "down", "--purge", "--yes")


NEW = Release(Path(sys.executable))


def replace(folder: Path, name: str) -> None:
    """End a daemon in order, and start it as it is now."""
    every = [master_of(folder), *borglets_of(folder)]
    daemon = next(it for it in every if it.name == name)
    before = running_pid(daemon)
    os.kill(before, signal.SIGTERM)
    deadline = Deadline(SECONDS_MAX)
    while running_pid(daemon) and deadline.left:
        time.sleep(0.02)
    NEW.borgctl(folder, "up")
    assert running_pid(daemon) not in (0, before)
    program = os.readlink(f"/proc/{running_pid(daemon)}/exe")
    assert Path(f"/proc/{running_pid(daemon)}/cmdline").read_bytes().startswith(str(NEW.python).encode()), (
        program
    )


def task(folder: Path, name: str) -> dict[str, Any]:
    """Return what must not change of a task while daemons are replaced."""
    found = NEW.read(folder, "task", "show", name)
    seen = found.get("task", found)
    return {key: seen[key] for key in ("state", "machine", "attempt", "pid", "restarts", "started_at")}


def test_no_task_notices_that_its_cell_is_upgraded(old: Release, cell: Path) -> None:
    old.submit(cell, "before")
    user = old.read(cell, "job", "list")[0]["user"]
    NEW.submit(cell, "by-new-borgctl")
    names = [f"{user}/before/0", f"{user}/by-new-borgctl/0"]
    known = {name: task(cell, name) for name in names}
    assert all(Path(f"/proc/{seen['pid']}").exists() for seen in known.values())

    replace(cell, "borgmaster")
    assert {name: task(cell, name) for name in names} == known
    NEW.submit(cell, "on-old-borglet")
    names.append(f"{user}/on-old-borglet/0")
    known[names[-1]] = task(cell, names[-1])

    replace(cell, "m1")
    assert {name: task(cell, name) for name in names} == known
    NEW.borgctl(cell, "job", "kill", "--yes", "before")
    pid = known[names[0]]["pid"]
    deadline = Deadline(SECONDS_MAX)
    while Path(f"/proc/{pid}").exists() and deadline.left:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
