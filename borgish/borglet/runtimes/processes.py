"""Who a process is, and which belong to a run: by boot, pid and start time, so that a pid used anew is
never taken for the process that had it before."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec

from borgish.borglet.runtimes.shim.basics import stat_fields

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(msgspec.Struct, frozen=True):
    """One process of a snapshot. ``reaped_ticks`` is what its collected children used."""

    pid: int
    parent: int
    session: int
    ticks: int
    own_ticks: int
    reaped_ticks: int


def boot_id() -> str:
    """Return what changes whenever the machine boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def is_alive(pid: int, ticks: int) -> bool:
    """Tell whether that very process lives; one that only waits to be collected does not."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX" and int(fields[19]) == ticks


def open_process(pid: int, ticks: int) -> int | None:
    """Return a descriptor of that very process; None when it is gone, or only waits to be collected."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if is_alive(pid, ticks):
        return fd
    os.close(fd)
    return None


def signal_process(pid: int, ticks: int, number: int) -> None:
    """Signal that very process; gone is no error."""
    fd = open_process(pid, ticks)
    if fd is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
        os.close(fd)


def snapshot() -> dict[int, Process]:
    """Return all living processes by pid."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields and fields[0] not in "ZX":
            times = [int(value) for value in fields[11:15]]
            found[int(name)] = Process(
                int(name), int(fields[1]), int(fields[3]), int(fields[19]), sum(times[:2]), sum(times[2:])
            )
    return found


def children_of(processes: dict[int, Process]) -> dict[int, list[Process]]:
    """Return the processes by their parent."""
    found: dict[int, list[Process]] = {}
    for process in processes.values():
        found.setdefault(process.parent, []).append(process)
    return found


def family(processes: dict[int, Process], roots: Iterable[int], session: int) -> dict[int, Process]:
    """Return all below the roots, and all of a session (0: none), by pid. Roots themselves are not in it."""
    below = children_of(processes)
    found = {p.pid: p for p in processes.values() if session and p.session == session}
    open_ends = [*roots, *found]
    while open_ends:
        for child in below.get(open_ends.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                open_ends.append(child.pid)
    return found


def private_bytes(pid: int) -> int:
    """Return the memory of a process that is its own: not of files, not shared. 0 when it is gone."""
    try:
        resident, shared = (Path(f"/proc/{pid}/statm").read_text().split())[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES
