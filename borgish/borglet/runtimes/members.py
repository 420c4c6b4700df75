"""All processes of a run: to signal them, and to end them."""

import contextlib
import os
import signal

from borgish.borglet.runtimes.folders import Record
from borgish.borglet.runtimes.processes import Process, family, signal_process, snapshot
from borgish.borglet.runtimes.shim.groups import group_pids, kill_groups


def members(record: Record, processes: dict[int, Process]) -> dict[int, Process]:
    """Return the processes of a run that has no group: what its shim and its program started."""
    parents = ((record.shim, record.shim_ticks), (record.pid, record.ticks))
    roots = [pid for pid, ticks in parents if pid in processes and processes[pid].ticks == ticks]
    return family(processes, roots, record.pid if record.pid in roots else 0)


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
