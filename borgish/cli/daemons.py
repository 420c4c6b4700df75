"""Starts and ends the daemons of a local cell, and knows which of them run.

A pid file holds the pid alone, as people and programs expect. Beside it is the start time that the kernel
has for that pid, so that one which by now is another program's is never taken for the daemon, let alone
signalled.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from borgish.cli.changes import Deadline
from borgish.cli.local_cell import Daemon

LOG_BYTES_MAX = 1024 * 1024
_LOOK_SECONDS = 0.02
_KILLED_SECONDS_MAX = 10.0
_ENDED = re.compile(rb"ended ([0-9]+) programs")
"""The last words of ``borglet --stop-all``."""


def running_pid(daemon: Daemon) -> int:
    """Return the daemon's pid; 0 when it does not run."""
    try:
        pid = daemon.pid_file.read_text().strip()
        whose, _, started = daemon.started_file.read_text().strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return 0
    if whose != pid or not pid.isdecimal() or not started or _started_ticks(int(pid)) != started:
        return 0
    return int(pid)


def start(daemon: Daemon) -> subprocess.Popen[bytes]:
    """Start the daemon apart from this terminal and session; its output goes to its log."""
    rotate(daemon.log)
    with open(daemon.log, "ab", opener=_for_its_user) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", daemon.module, "--config", str(daemon.config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=daemon.config.parent,
            env=_environment(),
            start_new_session=True,
        )
    try:
        _write_pid(daemon, process.pid)
    except OSError:
        process.kill()  # `borgctl down` would not know of it
        process.wait()
        raise
    return process


def stop(daemons: Sequence[Daemon], seconds_max: float) -> list[str]:
    """Ask all that run to end, in order, and wait; kill what has not ended by then.

    Returns the names of those that ran.
    """
    pids = {daemon: pid for daemon in daemons if (pid := running_pid(daemon))}
    for pid in pids.values():
        _signal(pid, signal.SIGTERM)
    deadline = Deadline(seconds_max)
    while deadline.left and any(running_pid(daemon) for daemon in pids):
        time.sleep(_LOOK_SECONDS)
    for daemon in pids:
        kill(daemon)
        daemon.pid_file.unlink(missing_ok=True)
        daemon.started_file.unlink(missing_ok=True)
    return [daemon.name for daemon in pids]


def kill(daemon: Daemon) -> bool:
    """Kill a daemon with SIGKILL, and wait until it is gone; return whether it ran.

    The kernel takes a moment to end its threads and free its memory; until then it holds its port and locks.
    """
    pid = running_pid(daemon)
    if pid:
        _signal(pid, signal.SIGKILL)
    deadline = Deadline(_KILLED_SECONDS_MAX)
    while deadline.left and running_pid(daemon):
        time.sleep(_LOOK_SECONDS)
    return bool(pid)


def stop_everything_run_by(borglets: Sequence[Daemon]) -> tuple[int, list[tuple[Daemon, str]]]:
    """End every task on these machines, whose borglets must not run, each with its grace.

    Returns how many programs were ended, and the machines where that failed, with the last words of the
    attempt.
    """
    runs = [
        (
            daemon,
            subprocess.Popen(
                [sys.executable, "-m", daemon.module, "--config", str(daemon.config), "--stop-all"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=daemon.config.parent,
                env=_environment(),
            ),
        )
        for daemon in borglets
    ]
    results = [(daemon, run, run.communicate()[0]) for daemon, run in runs]
    ended = sum(int(count) for _, _, output in results for count in _ENDED.findall(output))
    return ended, [(daemon, last_lines(output)) for daemon, run, output in results if run.returncode != 0]


def last_words(daemon: Daemon) -> str:
    """Return the last lines of a daemon's log."""
    try:
        with daemon.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            return last_lines(file.read())
    except OSError as error:
        return f"{daemon.log}: {error.strerror}"


def last_lines(output: bytes, count: int = 12) -> str:
    """Return the last lines of some output."""
    return "\n".join(output.decode(errors="backslashreplace").strip().splitlines()[-count:])


def rotate(log: Path) -> None:
    """Set a log aside that has become large, so that a daemon starts with a small one."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))


def _started_ticks(pid: int) -> str:
    """Return when the kernel says a process was started; empty when it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        # Of a process that is killed the first thread may be gone while others hold its files and locks.
        is_gone = stat[0] in (b"Z", b"X") and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return ""
    return "" if is_gone else stat[19].decode()


def _write_pid(daemon: Daemon, pid: int) -> None:
    _write(daemon.started_file, f"{pid} {_started_ticks(pid)}\n")
    _write(daemon.pid_file, f"{pid}\n")


def _write(path: Path, text: str) -> None:
    """Write all of a file or nothing."""
    new = path.with_name(path.name + ".new")
    with open(new, "w", opener=_for_its_user) as file:
        file.write(text)
    new.replace(path)


def _for_its_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself just now
        os.kill(pid, number)


def _environment() -> dict[str, str]:
    """Return our environment, in which a daemon finds the borgish that runs here, installed or not."""
    import borgish

    home = str(Path(borgish.__file__).resolve().parent.parent)
    if home in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return dict(os.environ)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths)}
