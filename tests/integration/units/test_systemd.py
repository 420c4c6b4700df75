"""The units for systemd: judged by ``systemd-analyze``, and their daemons run with the rights they give."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from borgish.cli.changes import Deadline
from borgish.client import Client
from borgish.errors import BorgishError
from borgish.vocabulary import HELD
from borgish.wire.api import MachineView
from tests.forked import plain_environment
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "configs" / "systemd"
SECONDS_MAX = 60.0
EXPOSURE_MAX = {"borgmaster": 2.0, "borglet": 7.0}
"""By systemd's own judgement, 0 to 10. A borglet makes namespaces and becomes other users."""
HELD_IN_A_UNIT = ("uid", "capabilities", "namespaces", "files", "read_only", "proc", "syscalls", "network")

with_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here; install systemd"
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up rights like a unit's")


def read_unit(name: str) -> dict[str, list[str]]:
    """Return the settings of a unit, all of each name in order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / f"{name}.service").read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@with_systemd
@pytest.mark.parametrize("name", EXPOSURE_MAX)
def test_a_unit_exposes_little(name: str) -> None:
    threshold = f"--threshold={round(EXPOSURE_MAX[name] * 10)}"
    command = ["systemd-analyze", "security", "--offline=true", threshold, str(UNITS / f"{name}.service")]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout[-3000:] + said.stderr


@with_systemd
@pytest.mark.parametrize("name", EXPOSURE_MAX)
def test_systemd_understands_each_line_of_a_unit(name: str, tmp_path: Path) -> None:
    text = (UNITS / f"{name}.service").read_text().replace(f"/usr/bin/{name}", "/bin/true")
    (tmp_path / f"{name}.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / f"{name}.service")]
    said = subprocess.run(command, capture_output=True, text=True)
    ours = [line for line in said.stderr.splitlines() if name in line]
    assert ours == []


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="no systemd-sysusers here")
@as_root
def test_the_user_and_the_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", UNITS / "borgish.sysusers"], check=True)
    line = next(it for it in (tmp_path / "etc/passwd").read_text().splitlines() if it.startswith("borgish:"))
    uid = int(line.split(":")[2])
    assert 0 < uid < 1000
    tmpfiles = ["systemd-tmpfiles", "--create", f"--root={tmp_path}", str(UNITS / "borgish.tmpfiles")]
    subprocess.run(tmpfiles, check=True)
    for name, owner in (("borgish", uid), ("borglet", 0)):
        found = (tmp_path / "var/lib" / name).stat()
        assert (found.st_mode & 0o7777, found.st_uid) == (0o700, owner)


def test_tasks_outlive_the_unit_of_their_borglet() -> None:
    unit = read_unit("borglet")
    assert unit["KillMode"] == ["process"]
    assert unit["Delegate"] == ["yes"]
    assert not {"PrivateTmp", "ProtectSystem", "MemoryMax"} & unit.keys()  # tasks would inherit them


def as_unit(name: str, folder: Path) -> list[str]:
    """Return the command of a unit, with the rights that it gives; its program is this environment's, and its
    folder another."""
    unit = read_unit(name)
    program, *arguments = shlex.split(unit["ExecStart"][0])
    assert program == f"/usr/bin/{name}"
    kept = " ".join(unit["CapabilityBoundingSet"]).split()
    bounding = ",".join(["-all", *(f"+{word.removeprefix('CAP_').lower()}" for word in kept)])
    rights = ["setpriv", "--bounding-set", bounding, "--inh-caps=-all", "--ambient-caps=-all"]
    words = [
        word.replace(f"/var/lib/{'borgish' if name == 'borgmaster' else name}", str(folder))
        for word in arguments
    ]
    return [*rights, "--no-new-privs", str(Path(sys.executable).parent / name), *words]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=plain_environment())
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0, log.read_text()


def borgctl(*words: object) -> str:
    command = [sys.executable, "-m", "borgish.cli.borgctl", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def failing(folder: Path) -> list[object]:
    """Return what doctor finds broken, or open."""
    words = ["--dir", str(folder), "doctor", "--security", "-o", "json"]
    command = [sys.executable, "-m", "borgish.cli.borgctl", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    return [it for it in json.loads(done.stdout) if it["level"] == "fail"]


def until_it_is_up(folder: Path, log: Path) -> MachineView:
    deadline = Deadline(SECONDS_MAX)
    while deadline.left:
        try:
            found = Client.find(folder).get("/v1/machines/m1", None, MachineView)
            if found.confinement:
                return found
        except BorgishError:
            pass
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@as_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv here; install util-linux")
def test_daemons_do_with_the_rights_of_their_units(tmp_path: Path) -> None:
    cell, machine, log = tmp_path / "cell", tmp_path / "m1", tmp_path / "log"
    borgctl("cell", "init", "--dir", cell, "--listen", f"127.0.0.1:{free_port()}")
    with running(as_unit("borgmaster", cell), log) as master:
        deadline = Deadline(SECONDS_MAX)
        while "serving" not in log.read_text() and deadline.left:
            time.sleep(0.05)
        _, join, url, token = borgctl("--dir", cell, "machine", "invite", "m1").split()[:4]
        start = [
            str(Path(sys.executable).parent / "borglet"),
            join,
            url,
            token,
            "--dir",
            str(machine),
            "--name",
            "m1",
        ]
        subprocess.run([*start, "--no-start"], check=True, env=plain_environment(), capture_output=True)
        with running(as_unit("borglet", machine), log):
            found = until_it_is_up(cell, log)
            lacking = {it: found.confinement[it] for it in HELD_IN_A_UNIT if found.confinement[it] != HELD}
            assert lacking == {}
            (tmp_path / "job.yaml").write_text(
                "name: x\nrun: [sleep, '1000']\nresources: {cpu: 10m, ram: 8MiB}\n"
            )
            borgctl("--dir", cell, "job", "submit", "--settle", 0, tmp_path / "job.yaml")
            assert failing(cell) == failing(machine) == []
            status = Path(f"/proc/{master.pid}/status").read_text()
            assert int(status.partition("CapBnd:")[2].split()[0], 16) == 0
        stop = [str(Path(sys.executable).parent / "borglet"), "--config", str(machine / "borglet.toml")]
        ended = subprocess.run([*stop, "--stop-all"], capture_output=True, text=True, env=plain_environment())
        assert "ended 1 programs" in ended.stderr
