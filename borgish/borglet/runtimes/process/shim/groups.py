"""The control groups of a run, as the request names them: pairs of a folder and its limits.

A limit is a file, a value, and whether the run may not start without it.
"""

import contextlib
import os
import signal
from typing import Any

from borgish.borglet.runtimes.process.shim.basics import make_folder, read_file, send, write_file


def make_groups(groups: list[Any]) -> None:
    """Make the groups and set their limits."""
    for folder, limits in groups:
        try:
            make_folder(folder)
        except FileNotFoundError:  # what holds the groups went with a runtime that was closed
            os.makedirs(folder, exist_ok=True)
        for name, value, must in limits:
            try:
                write_file(f"{folder}/{name}", value)
            except OSError:
                if must:
                    raise


def enter_group(folder: str) -> None:
    """Put this process, which has one thread, into a group.

    By ``tasks`` where there is such a file (version 1): moving a whole process by ``cgroup.procs``
    stops all forks of the machine for milliseconds.
    """
    try:
        write_file(f"{folder}/tasks", "0")
    except FileNotFoundError:
        write_file(f"{folder}/cgroup.procs", "0")


def group_pids(groups: list[Any]) -> list[int]:
    """Return the processes in the groups: the same in each of them."""
    for folder, _ in groups:
        with contextlib.suppress(OSError):
            return [int(line) for line in read_file(f"{folder}/cgroup.procs").split()]
    return []


def kill_groups(groups: list[Any]) -> None:
    """Kill what is in the groups; what forks faster than it is killed needs a second call."""
    for folder, _ in groups:
        for name, value in (("cgroup.kill", "1"), ("pids.max", "0")):  # no forks from here on
            with contextlib.suppress(OSError):
                write_file(f"{folder}/{name}", value)
    send(group_pids(groups), signal.SIGKILL)


def remove_groups(groups: list[Any]) -> None:
    """Remove empty groups."""
    for folder, _ in groups:
        with contextlib.suppress(OSError):  # what is busy is removed when the runtime opens next
            os.rmdir(folder)


def oom_kills(path: str) -> int:
    """Return how often the kernel ended a process of the run for its memory limit."""
    with contextlib.suppress(OSError, ValueError):
        counts = dict(line.split() for line in read_file(path).splitlines())
        return int(counts.get(b"oom_kill", 0))
    return 0
