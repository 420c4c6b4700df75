"""Daemons of a local cell: none runs that nobody could stop."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from borgish.cli import daemons
from borgish.cli.local_cell import Daemon
from tests.cells import wait_until


def test_a_daemon_whose_number_cannot_be_kept_is_not_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: `borgctl down` would know of none."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeping(*_command: object, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(["sleep", "1000"], **options))
        return started[0]

    def full(_path: Path, _text: str) -> None:
        raise OSError(28, "No space left on device")

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", sleeping)
    monkeypatch.setattr(daemons, "_write", full)
    daemon = Daemon("m1", "x", tmp_path / "x.toml", tmp_path / "x.log", tmp_path / "x.pid")
    with pytest.raises(OSError, match="No space left"):
        daemons.start(daemon)
    try:
        assert started[0].poll() is not None
    finally:
        started[0].kill()
        started[0].wait()


# Its first thread ends, and another one goes on: the kernel calls the process a zombie.
HALF_DEAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_daemon_runs_as_long_as_one_of_its_threads_does(tmp_path: Path) -> None:
    """It holds its locks until then: whoever started the next one would be told that the store is in use."""
    daemon = Daemon("m1", "x", tmp_path / "x.toml", tmp_path / "x.log", tmp_path / "x.pid")
    process = subprocess.Popen([sys.executable, "-c", HALF_DEAD])
    try:
        daemons._write_pid(daemon, process.pid)
        wait_until(lambda: state_of(process.pid) == "Z")
        assert daemons.running_pid(daemon) == process.pid
        process.kill()
        wait_until(lambda: daemons.running_pid(daemon) == 0)
    finally:
        process.kill()
        process.wait()


# It ends by no signal but SIGKILL, and the kernel has memory and threads of it to take back.
STUBBORN = """
import signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = bytearray(b"x") * 200_000_000
for _ in range(8): threading.Thread(target=time.sleep, args=(1000,)).start()
print(flush=True)
"""


def test_a_daemon_that_had_to_be_killed_is_gone_when_it_is_said_to_be(tmp_path: Path) -> None:
    """Whoever starts it again at once finds its port and its locks free."""
    daemon = Daemon("m1", "x", tmp_path / "x.toml", tmp_path / "x.log", tmp_path / "x.pid")
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        daemons._write_pid(daemon, process.pid)
        started = daemons._started_ticks(process.pid)
        assert daemons.stop([daemon], 0.0) == ["m1"]
        assert daemons._started_ticks(process.pid) != started
    finally:
        process.kill()
        process.communicate()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
