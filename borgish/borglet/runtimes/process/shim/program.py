"""A program from the fork to its first instruction, and to the end of all that it left behind."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

from borgish.borglet.runtimes.process.shim.basics import (
    CHUNK_BYTES,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    Request,
    Trouble,
    default_signal,
    prctl,
    read_file,
    send,
    stage,
    start_ticks,
    stray_processes,
    write_file,
)
from borgish.borglet.runtimes.process.shim.groups import enter_group, group_pids, kill_groups
from borgish.borglet.runtimes.process.shim.inside import Init, end_init, enter

SWEEP_SECONDS_MAX = 5.0
SWEEP_PAUSE_SECONDS = 0.005
SWEEP_PAUSE_SECONDS_MAX = 1.0
# By us, by the interpreter, or by a shell that started the borglet; what is only caught ends with exec.
IGNORED_HERE = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
)


def be_limited(request: Request) -> None:
    """Have the limits of the run. Raises Trouble."""
    with stage("group"):
        for folder, _ in request["groups"]:
            enter_group(folder)
    for number, most in request["rlimits"]:
        set_limit(number, most)
    with contextlib.suppress(OSError):
        write_file("/proc/self/oom_score_adj", str(request["oom_score_adj"]))


def prepare(request: Request, output: int, stdin: int, init: Init | None, beside: int) -> None:
    """Be all that the program is to be, up to its first instruction. Raises Trouble."""
    os.setsid()
    be_limited(request)
    if stdin >= 0:
        os.dup2(stdin, 0)
    for fd in (1, 2):
        os.dup2(output, fd)
    if request.get("terminal"):
        with stage("terminal"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in IGNORED_HERE:
        default_signal(number)
    if init:
        init.wait()
    if request["inside"]:
        enter(request["inside"], init.fd if init else beside, (1,))
    else:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    with stage("workdir"):
        os.chdir(request["workdir"])
    if request.get("lease"):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of the user before would undo it


def set_limit(number: int, most: int) -> None:
    """Set a limit, or come as near to it as is allowed."""
    try:
        resource.setrlimit(number, (most, most))
    except (OSError, ValueError):
        hard = resource.getrlimit(number)[1]
        resource.setrlimit(number, (min(most, hard), hard))


def launch(
    request: Request,
    output: int,
    before: Callable[[int, Init | None], None],
    stdin: int = -1,
    beside: int = -1,
) -> tuple[int, Init | None]:
    """Start the program and return its pid, and the init that is beside it if it has one.

    ``before`` is called with both before the program may act: a program whose record could not be written
    never begins. Without ``stdin`` it reads nothing. ``beside``: the descriptor of the init of the run among
    whose processes it is to be, from ``enter_processes``. Raises Trouble.
    """
    inside = request["inside"]
    init = None
    if inside and inside["namespaces"] and beside < 0:
        init = Init(inside, dies_with_shim=bool(request.get("lease")))
    go_read, go_write = os.pipe()
    error_read, error_write = os.pipe()
    with stage("fork"):
        pid = os.fork()
    if pid == 0:
        os.close(go_write)
        wait_and_become(request, output, stdin, init, beside, go_read, error_write)
    os.close(error_write)
    try:
        with stage("folder"):
            before(pid, init)
        if init:
            init.keep()
        os.write(go_write, b"g")
    finally:
        os.close(go_write)
    failure = os.read(error_read, CHUNK_BYTES)  # ends empty when exec closes the other side
    for fd in (go_read, error_read):
        os.close(fd)
    if failure:
        with contextlib.suppress(ChildProcessError):  # where children are ignored
            os.waitpid(pid, 0)  # no init ends before those in its namespace have been waited for
        if init:
            end_init(init.name)
        raise Trouble(*json.loads(failure))
    return pid, init


def wait_and_become(
    request: Request, output: int, stdin: int, init: Init | None, beside: int, go: int, failure: int
) -> None:
    """Live as the program's process up to its first instruction."""
    try:
        request = with_secret_env(request)
        prepare(request, output, stdin, init, beside)
        if not os.read(go, 1) or request.get("probe"):
            return  # its shim is gone; or this was only to see whether it can be prepared
        with stage("command"):
            os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - no shell, on purpose
    except Trouble as trouble:
        os.write(failure, json.dumps(trouble.args).encode())
    finally:
        os._exit(127)


def with_secret_env(request: Request) -> Request:
    """Return a request with the variables whose values are the files of its folder ``secret_env``, where it
    has one; to be done where that is seen yet. Raises Trouble."""
    folder = request.get("secret_env", "")
    if not folder:
        return request
    with stage("secrets"):
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
        secret = {name: os.fsdecode(read_file(f"{folder}/{name}")) for name in names}
    return request | {"env": request["env"] | secret, "secret_env": ""}


def reap(pid: int) -> tuple[int | None, bool]:
    """Collect the dead; return the wait status of ``pid`` if among them, and whether a child is left."""
    status = None
    while True:
        try:
            found, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if found == 0:
            return status, True
        if found == pid:
            status = code


def rounds(seconds_max: float) -> Iterator[None]:
    """Yield for each round of killing: what resists may do so for long, and is tried ever less often."""
    until = time.clock_gettime(time.CLOCK_MONOTONIC) + seconds_max
    pause = SWEEP_PAUSE_SECONDS
    while time.clock_gettime(time.CLOCK_MONOTONIC) < until:
        yield
        time.sleep(pause)
        pause = min(1.1 * pause, SWEEP_PAUSE_SECONDS_MAX)


def sweep_children(
    groups: list[Any], init: list[int] | None = None, seconds_max: float = SWEEP_SECONDS_MAX
) -> bool:
    """Kill what the program left behind; return whether nothing is left. Its orphans become our children, or
    those of its init, with which they end: no child left, nothing left."""
    end_init(init)
    me = str(os.getpid())
    for _ in rounds(seconds_max):
        if not reap(0)[1]:
            return True
        kill_groups(groups)
        send(stray_processes(lambda fields: fields[1] == me), signal.SIGKILL)
    return False


def sweep_namespace() -> None:
    """Kill what is in our UTS namespace: a command beside a task, and what it started, whose orphans become
    children of the task's init as those of the task do."""
    me, ours = str(os.getpid()), os.readlink("/proc/self/ns/uts")
    looks = 1  # how many rounds have to find nothing yet
    for _ in rounds(SWEEP_SECONDS_MAX):
        looks -= 1
        # Each at once: what it forks before that has a higher number, and comes later in the same round.
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and entry.name != me and is_in(ours, entry.path):
                send([int(entry.name)], signal.SIGKILL)
                looks = 2  # its next one may have got a low number, behind this round, after the highest
        if not looks:
            return


def is_in(namespace: str, process: str) -> bool:
    """Tell whether a process, by its folder in /proc, is in a UTS namespace."""
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"{process}/task"):
            with contextlib.suppress(OSError):  # this one has ended, and others may have outlived it
                return os.readlink(f"{thread.path}/ns/uts") == namespace
    return False


def sweep_session(record: Request, seconds_max: float = SWEEP_SECONDS_MAX) -> None:
    """Kill what a program left that was not our child: its init, its groups and its session."""
    groups, leader = record["groups"], record["pid"]
    end_init(record.get("init"))
    for _ in rounds(seconds_max):
        kill_groups(groups)
        reused = start_ticks(leader) not in (
            0,
            record["ticks"],
        )  # somebody else has the number, so the session may be theirs
        left = [] if reused else stray_processes(lambda fields: fields[3] == str(leader))
        send(left, signal.SIGKILL)
        if not left and not group_pids(groups):
            return
