"""Who a process is, which belong to a run, what they use, and how all of them are signalled.

A process is identified by boot, pid and start time, so that a pid used anew is never taken for the
process that had it before.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.folders import Record
from borgish.borglet.runtimes.process.shim.basics import stat_fields
from borgish.borglet.runtimes.process.shim.groups import group_pids, kill_groups
from borgish.errors import Invalid

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


def family(processes: dict[int, Process], roots: Iterable[int], session: int) -> dict[int, Process]:
    """Return all below the roots, and all of a session (0: none), by pid. Roots themselves are not in it."""
    below: dict[int, list[Process]] = {}
    for process in processes.values():
        below.setdefault(process.parent, []).append(process)
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


def program_lives(record: Record, boot: str) -> bool:
    """Tell whether a run's program is there; ``boot`` is that of now."""
    return record.boot == boot and is_alive(record.pid, record.ticks)


def shim_lives(record: Record, boot: str) -> bool:
    """Tell whether a run's shim is there."""
    return record.boot == boot and is_alive(record.shim, record.shim_ticks)


def signal_number(name: str) -> signal.Signals:
    """Return a signal by its name without SIG. Raises Invalid."""
    try:
        return signal.Signals["SIG" + name]
    except KeyError:
        raise Invalid(f"no signal '{name}'", "name one like TERM, INT, HUP or USR1") from None


# -- All processes of a run ---------------------------------------------------------------------------------


def members(record: Record, processes: dict[int, Process]) -> dict[int, Process]:
    """Return the processes of a run that has no group: what its shim and its program started."""
    parents = ((record.shim, record.shim_ticks), (record.pid, record.ticks), record.init or (0, 0))
    roots = [pid for pid, ticks in parents if pid in processes and processes[pid].ticks == ticks]
    return family(processes, roots, record.pid if record.pid in roots else 0)


def pids_of(record: Record) -> list[int]:
    """Return the processes of a run. Reads files."""
    return group_pids(record.groups) if record.groups else list(members(record, snapshot()))


def cpu_seconds_of(record: Record) -> float | None:
    """Return what the groups of a run have used so far; None where it has none. Reads files."""
    used = cgroups.used(folder for folder, _ in record.within or record.groups)
    return used[0] if used else None


def signal_run(record: Record, number: int) -> None:
    """Send a signal to every process of a run."""
    if record.groups:
        _signal_group(record, number)
    else:
        for process in members(record, snapshot()).values():
            signal_process(process.pid, process.ticks, number)


def kill_run(record: Record) -> None:
    """Kill every process of a run. Its shim sees to what is left; where there is none, this does."""
    found = {} if record.groups else members(record, snapshot())
    if record.init:
        signal_process(*record.init, signal.SIGKILL)  # and with it all that is in its namespace
    kill_groups(record.groups)
    signal_process(record.pid, record.ticks, signal.SIGKILL)
    if not record.groups:
        for process in found.values():
            signal_process(process.pid, process.ticks, signal.SIGKILL)


def _signal_group(record: Record, number: int) -> None:
    """Signal those still in the group once they are held: a pid used anew by others is not among them."""
    held: dict[int, int] = {}
    for pid in group_pids(record.groups):
        with contextlib.suppress(OSError):
            held[pid] = os.pidfd_open(pid)
    still = set(group_pids(record.groups))
    for pid, fd in held.items():
        if pid in still:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
        os.close(fd)


# -- What runs use: of their control groups, or added up over their processes -------------------------------


class Used(msgspec.Struct, frozen=True):
    """What a run has used up to a moment (``mono``, seconds), and the memory it holds."""

    mono: float
    cpu_seconds: float
    ram_bytes: int

    def cpu_millis_since(self, before: "Used") -> int:
        """Return the mean cpu use since then, in thousandths of a core."""
        seconds = self.mono - before.mono
        return max(0, round((self.cpu_seconds - before.cpu_seconds) * 1000 / seconds)) if seconds > 0 else 0


def measure(records: dict[str, Record], mono: float) -> dict[str, Used]:
    """Return what the runs have used, by attempt; those that are gone are left out. Reads files."""
    found = {}
    processes: dict[int, Process] | None = None
    for key, record in records.items():
        if record.groups:
            used = cgroups.used(folder for folder, _ in record.groups)
        else:
            processes = processes or snapshot()
            used = _added_up(record, processes)
        if used:
            found[key] = Used(mono, *used)
    return found


def _added_up(record: Record, processes: dict[int, Process]) -> tuple[float, int]:
    found = members(record, processes)
    if record.init:
        found.pop(record.init[0], None)  # ours, and nearly all of its memory shared with other shims
    ticks = sum(process.own_ticks + process.reaped_ticks for process in found.values())
    if shim := processes.get(record.shim):
        ticks += shim.reaped_ticks  # of programs that ended as its children
    return ticks / TICKS_PER_SECOND, sum(map(private_bytes, found))
