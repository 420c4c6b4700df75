"""The confinement of a program, as the request describes it in ``inside`` (null: it has none).

    uid, gid       whom it runs as; -1: as whoever asks
    namespaces     the flags of those that it gets, 0: none. Then there is an *init* for each run: the first
                   process of its pid namespace, beside the program and a child of the shim as well. It makes
                   the rest of the namespaces and what is seen in them, and collects orphans from then on. All
                   in the namespace dies with it.
    user_namespace whether they are in a user namespace, as they must be of who is not root
    network_of     the init whose network namespace it shares, pid and ticks; null: none
    home, work, tmp, hide, root, read_only, proc, shm_bytes    see ``view``
    landlock       rights, scope, size of the description, and where it may write; null: none
    filter         of its system calls, in hexadecimal digits; "": none

Who has no namespaces and is not root has at least the last two. What could not be set up is a Trouble whose
stage is ``confine.`` and the measure, so that the runtime can find out at its start what holds here.
"""

import contextlib
import json
import os
import select
import signal
import stat
from typing import Any

from borgish.borglet.runtimes.process.shim.basics import (
    CHUNK_BYTES,
    PR_SET_NAME,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    Request,
    Trouble,
    stage,
    start_ticks,
    write_file,
)
from borgish.borglet.runtimes.process.shim.kernel import (
    CLONE_NEWNET,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    bound_capabilities,
    control,
    drop_capabilities,
    filter_syscalls,
    landlock,
    setns,
    unshare,
)
from borgish.borglet.runtimes.process.shim.view import make_view, raise_loopback

READY, KEEP = b"r", b"k"
FDS_MAX = 1024
END_SECONDS_MAX = 5.0


class Init:
    """The first process of a run's pid namespace, as its shim sees it."""

    def __init__(self, inside: Request, *, dies_with_shim: bool) -> None:
        """Start one. From here on what this process forks is in the namespace. Raises Trouble."""
        with stage("confine.network"):  # now: from inside, the other one has no number
            other = _open(inside["network_of"]) if inside["network_of"] else -1
        with stage("confine.namespaces"):
            _enter_user_namespace(inside, other)
            unshare(CLONE_NEWPID)
        bound_capabilities()  # here, once for all that this process forks
        ready_read, ready_write = os.pipe()
        keep_read, keep_write = os.pipe()
        with stage("fork"):
            self.pid = os.fork()
        if self.pid == 0:
            os.close(keep_write)
            _be_init(inside, other, ready_write, keep_read, dies_with_shim=dies_with_shim)
        for fd in (ready_write, keep_read, *([other] if other >= 0 else [])):
            os.close(fd)
        self.ticks = start_ticks(self.pid)
        self.fd = os.pidfd_open(self.pid)
        self._ready, self._keep = ready_read, keep_write

    def wait(self) -> None:
        """Wait, in the process that is to enter, until the namespaces are made. Raises Trouble."""
        os.close(self._keep)
        found = os.read(self._ready, CHUNK_BYTES)
        if found != READY:
            raise Trouble(*(json.loads(found) if found else ("confine.namespaces", 0, "its init was killed")))

    def keep(self) -> None:
        """Let it live on when the shim is gone; until then it ends with it."""
        with contextlib.suppress(BrokenPipeError):  # it could not be, which is for the program to tell
            os.write(self._keep, KEEP)
        for fd in (self._keep, self._ready):
            os.close(fd)

    @property
    def name(self) -> list[int]:
        """Its pid and start time, as records have it."""
        return [self.pid, self.ticks]


def _be_init(inside: Request, other: int, ready: int, keep: int, *, dies_with_shim: bool) -> None:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects orphans by itself
        control(PR_SET_NAME, b"task-init")
        os.chdir("/")
        os.dup2(0, 2)  # what it is confined with must not find the shims' own file here
        _make_namespaces(inside, other)
        os.write(ready, READY)
        restrict(inside, ())  # while the program does the same: until then it has nothing of us to get at
        if dies_with_shim:
            control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.read(keep, 1) == KEEP:
            os.closerange(3, FDS_MAX)
            while True:
                signal.pause()
    except Trouble as trouble:
        os.write(ready, json.dumps(trouble.args).encode())
    finally:
        os._exit(0)


def _make_namespaces(inside: Request, other: int) -> None:
    flags = inside["namespaces"] & ~CLONE_NEWPID
    with stage("confine.network"):
        if other >= 0:
            setns(other, CLONE_NEWNET)
            flags &= ~CLONE_NEWNET
    with stage("confine.namespaces"):
        unshare(flags)
    with stage("confine.network"):
        if flags & CLONE_NEWNET:
            raise_loopback()
    make_view(inside)


def _enter_user_namespace(inside: Request, other: int) -> None:
    """Be in a user namespace in which one may do what follows, under the same number."""
    if not inside["user_namespace"]:
        return
    if other >= 0:  # its network belongs to the user namespace of the other program
        setns(other, CLONE_NEWUSER)
        return
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    write_file("/proc/self/setgroups", "deny")
    write_file("/proc/self/uid_map", f"{uid} {uid} 1")
    write_file("/proc/self/gid_map", f"{gid} {gid} 1")


def _open(init: list[int]) -> int:
    """Return a descriptor of that very process. Raises OSError."""
    fd = os.pidfd_open(init[0])
    if start_ticks(init[0]) != init[1]:
        os.close(fd)
        raise ProcessLookupError
    return fd


# -- Who enters ---------------------------------------------------------------------------------------------


def enter(inside: Request, init: int, outputs: tuple[int, ...]) -> None:
    """Be in the namespaces of the init of this descriptor, and restricted. ``outputs`` may be opened anew for
    writing, as ``/dev/stdout`` is. Raises Trouble."""
    if inside["namespaces"]:
        with stage("confine.namespaces"):
            setns(init, inside["namespaces"] & ~CLONE_NEWPID)
    restrict(inside, outputs)


def enter_processes(inside: Request, init: list[int]) -> tuple[Request, int]:
    """Let what this process forks from now on be among the processes of a run, in a UTS namespace of its own:
    what is confined cannot leave that, and is known by it. Return what is left to ``enter``: a confinement,
    and the descriptor of the run's init. Raises Trouble."""
    with stage("confine.namespaces"):
        fd = _open(init)
        if inside["user_namespace"]:
            setns(fd, CLONE_NEWUSER)
        setns(fd, CLONE_NEWPID | CLONE_NEWUTS)
        unshare(CLONE_NEWUTS)
    return inside | {"namespaces": inside["namespaces"] & ~CLONE_NEWUTS}, fd


def restrict(inside: Request, outputs: tuple[int, ...]) -> None:
    """Give up what the program is not to have, for good. Raises Trouble."""
    uid, gid = inside["uid"], inside["gid"]
    bound_capabilities()
    with stage("confine.uid"):
        if uid >= 0:
            for fd in outputs:
                # And no device of the machine, as a probe has; the terminal of a command is its own.
                if stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd):
                    os.fchown(fd, uid, gid)
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
    with stage("confine.capabilities"):
        drop_capabilities()
        control(PR_SET_NO_NEW_PRIVS, 1)
    _restrict_files(inside["landlock"], outputs)
    with stage("confine.syscalls"):
        if inside["filter"]:
            filter_syscalls(bytes.fromhex(inside["filter"]))


def _restrict_files(rules: Request | None, outputs: tuple[int, ...]) -> None:
    if rules is None:
        return
    everything, of_files = rules["handled"], rules["of_files"]
    beneath: list[Any] = [(path, everything) for path in rules["writable"]]
    with stage("confine.landlock"):
        landlock(everything, rules["scoped"], rules["size"], beneath + [(fd, of_files) for fd in outputs])


def leave_processes(inside: Request | None) -> bool:
    """Let what this process forks be among its own processes again; return whether that could be: a user
    namespace is never left."""
    if not (inside and inside["namespaces"]):
        return True
    if inside["user_namespace"]:
        return False
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        setns(own, CLONE_NEWPID)
    except OSError:
        return False
    finally:
        os.close(own)
    return True


# -- The end ------------------------------------------------------------------------------------------------


def end_init(init: list[int] | None) -> None:
    """Kill a run's init, and with it all that is in its namespace; wait a moment until that is gone."""
    if not init:
        return
    try:
        fd = _open(init)
    except OSError:
        return
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(END_SECONDS_MAX * 1000)
    except OSError:
        pass
    finally:
        os.close(fd)
