"""The lease of a run: when it is over its shim ends the program, whether or not there is a borglet.

The borglet renews it by the file ``lease`` in the attempt's folder: until when it holds, on CLOCK_BOOTTIME,
which goes on while the machine is suspended, and of which boot. The time stands there twice, so that what is
read while it is written is known by it. A lease that cannot be read is not renewed.
"""

import contextlib
import os
import signal
import time

from borgish.borglet.runtimes.process.shim.basics import (
    PRIVATE,
    Request,
    read_file,
    send,
    stray_processes,
    write_padded,
)
from borgish.borglet.runtimes.process.shim.groups import group_pids, kill_groups
from borgish.borglet.runtimes.process.shim.inside import end_init

FILE = "lease"
LOOK_SECONDS = 0.5
"""No longer than that after a suspended machine has resumed, what ran out meanwhile is ended."""
READS = 10


def boot_seconds() -> float:
    """Return the time by which leases are judged."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_lease(path: str, until: float, boot: str) -> None:
    """Let a lease hold until then. In place: a full disk must end nobody's lease. Raises OSError."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, PRIVATE)
    try:
        write_padded(fd, f"{until:.3f} {boot} {until:.3f}".encode())
    finally:
        os.close(fd)


def read_lease(boot: str) -> float:
    """Return until when the lease of the run in this folder holds; 0 when there is none of this boot."""
    for _ in range(READS):
        with contextlib.suppress(OSError, ValueError):
            once, of, again = read_file(FILE).split()
            if once == again:
                return float(once) if of.decode() == boot else 0.0
    return 0.0


class Lease:
    """What ends a run when its lease is over: first its signal, after its grace SIGKILL, again and again."""

    def __init__(self, record: Request) -> None:
        self.is_over = False
        self._record = record
        self._signal, self._grace_seconds = record["lease"]
        self._until = read_lease(record["boot"])
        self._kill_at = 0.0

    def look(self) -> None:
        """End the program if it is time."""
        now = boot_seconds()
        if not self.is_over and now >= self._until:
            self._until = max(self._until, read_lease(self._record["boot"]))
            if now < self._until:
                return
            self.is_over = True
            self._kill_at = self._until + self._grace_seconds
            if now < self._kill_at:
                self._end(self._signal)
        if self.is_over and now >= self._kill_at:
            self._kill_at = now + 1
            kill_groups(self._record["groups"])
            self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        """Signal the program and what it started, as far as that is in its groups or its session."""
        pid, groups = self._record["pid"], self._record["groups"]
        found = group_pids(groups) or stray_processes(lambda fields: fields[3] == str(pid))
        send({pid, *found}, number)
        if number == signal.SIGKILL:
            end_init(self._record.get("init"))
