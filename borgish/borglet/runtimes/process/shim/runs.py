"""What is asked of a shim: start a run, watch one whose shim was killed, run a command beside one."""

import contextlib
import errno
import fcntl
import json
import math
import os
import select
import signal
import socket

from borgish.borglet.runtimes.process.shim.basics import (
    CHUNK_BYTES,
    PRIVATE,
    Request,
    Trouble,
    keep_room,
    make_folder,
    read_all,
    read_json,
    replace_json,
    reply,
    stage,
    start_ticks,
    wall_seconds,
    write_padded,
)
from borgish.borglet.runtimes.process.shim.groups import make_groups, oom_kills, remove_groups
from borgish.borglet.runtimes.process.shim.inside import Init, enter_processes, leave_processes
from borgish.borglet.runtimes.process.shim.lease import LOOK_SECONDS, Lease, boot_seconds, read_lease
from borgish.borglet.runtimes.process.shim.output import Log, begin_files
from borgish.borglet.runtimes.process.shim.program import (
    SWEEP_SECONDS_MAX,
    launch,
    reap,
    sweep_children,
    sweep_namespace,
    sweep_session,
)

FOLDERS = ("work", "tmp")
"""Those of the attempt's folder that are the run's user's."""

RECORDED = ("run", "boot", "groups", "oom", "within", "lease", "inside")
"""What the record of a run has of its request."""

ANSWERED = ("at", "pid", "ticks", "init", "shim", "shim_ticks")
"""What it has besides, which is what whoever asked is told of it."""

RUNS_MAX = 200
"""So many one shim carries: what it leaks goes with it, for no garbage is collected in a shim."""

LAPSED = {"lapsed": True, "reason": "its lease was over: its machine had no contact with a borgmaster"}


def carry(request: Request, connection: int) -> None:
    """Carry the run that is asked for, then those asked for over the same connection, one at a time.

    A shim that is there costs a third of one that is forked: the pages that it writes to are its own by now.
    """
    wake, requests = wake_on_child(), socket.socket(fileno=os.dup(connection))
    me = {"shim": os.getpid(), "shim_ticks": start_ticks(os.getpid())}
    for left in reversed(range(RUNS_MAX)):
        if not start(request, connection, wake, me):
            return
        reply(connection, {"ended": True, "free": left > 0})
        asked = next_request(requests) if left else None
        if asked is None:
            return
        request = asked


def next_request(requests: socket.socket) -> Request | None:
    """Wait for the next request; None when there will be none."""
    message, fds, _, _ = socket.recv_fds(requests, 1, 1)
    request: Request | None = json.loads(read_all(fds[0])) if message else None
    return request


def start(request: Request, answer: int, wake: int, me: Request) -> bool:
    """Start a run and stay with it to its end; return whether this process can carry another one."""
    with stage("folder"):
        is_new = make_folder(request["folder"])  # by us: nothing of a former run is in it
        os.chdir(request["folder"])
        for name in FOLDERS if request["inside"] else FOLDERS[:1]:
            make_folder(name)
        held = hold_folder()
    record = None if is_new else read_json("run.json")
    if not held or (record and record["run"] >= request["run"]):
        reply(answer, {"held": True})
        return False
    try:
        if request["lease"] and boot_seconds() >= read_lease(request["boot"]):
            raise Trouble("lease", 0, "it is over")  # what asks for this start may have been held up for long
        with stage("group"):
            make_groups([*request["within"], *request["groups"]])
        with stage("folder"):
            give_folders(request["inside"], are_new=is_new)
        record, output, log = launch_recorded(request, me, is_new=is_new)
    except Trouble:
        remove_groups([*request["groups"], *request["within"]])
        with contextlib.suppress(FileNotFoundError):
            os.unlink("starting.json")
        raise
    ending = keep_room("exit.new")
    reply(answer, {name: record[name] for name in ANSWERED})
    lease = Lease(record) if record["lease"] else None
    init = record["init"]
    status = attend(record["pid"], output, log, wake, lease)
    ended = exit_of(status, request["oom"])
    # With a lease, what cannot be killed may run as long as the program itself: then it has not ended.
    is_swept = sweep_children(request["groups"], init, math.inf if lease else SWEEP_SECONDS_MAX)
    finish(record, log, output, ending, ended | (LAPSED if lease and lease.is_over else {}))
    for fd in (held, output, ending):
        os.close(fd)
    os.chdir("/")  # the folder may be removed from now on, and what it is mounted on unmounted
    return is_swept and leave_processes(request["inside"])


def give_folders(inside: Request | None, *, are_new: bool = False) -> None:
    """Let the run's user have the folders that are its own, with what a former run left in them."""
    if inside is None or inside["uid"] < 0:
        return
    uid, gid = inside["uid"], inside["gid"]
    for top in FOLDERS:
        if os.stat(top).st_uid == uid:
            continue
        for _, folders, files, fd in () if are_new else os.fwalk(top):
            for name in folders + files:
                os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)
        os.chown(top, uid, gid)  # last: what was interrupted begins again


def hold_folder() -> int:
    """Be the only shim of this folder for as long as we live; return 0 when another one is."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    return fd


def wake_on_child() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def launch_recorded(request: Request, me: Request, *, is_new: bool) -> tuple[Request, int, Log]:
    """Start the program with its record on disk before its first instruction.

    Return the record, where its output is read, and where that goes. ``me`` is what the record has of this
    process. A folder that is new has nothing to make way.
    """
    with stage("folder"):
        if not is_new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink("output")
        # The program holds both ends of this pipe, so it gets no SIGPIPE should its shim be killed.
        os.mkfifo("output", PRIVATE)
        output = os.open("output", os.O_RDWR | os.O_NONBLOCK)
        theirs = os.open("output", os.O_RDWR)
    program = {name: request[name] for name in ("env", "secret_env", "workdir", "ram_bytes", "disk_bytes")}
    record = {name: request[name] for name in RECORDED} | me | {"at": wall_seconds()}

    def before(pid: int, init: Init | None) -> None:
        record.update(pid=pid, ticks=start_ticks(pid), init=init.name if init else None)
        replace_json("starting.json", record | {"program": program})

    _, init = launch(request, theirs, before)
    if init:
        os.close(init.fd)
    os.close(theirs)
    if not is_new:
        begin_files()
    log = Log(keep_room("note"))
    os.rename("starting.json", "run.json")
    return record, output, log


def attend(pid: int, output: int, log: Log, wake: int, lease: Lease | None) -> int:
    """Carry output until the program has ended, which it does when its lease is over; return its wait
    status."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for fd, _ in poll.poll(LOOK_SECONDS * 1000 if lease else None):
            if fd == output:
                log.pump(output)
            else:
                os.read(wake, CHUNK_BYTES)
                status, _ = reap(pid)
                if status is not None:
                    return status
        if lease:
            lease.look()


def exit_of(status: int, oom_path: str) -> Request:
    """Say how the program ended: a code or a signal, and whether for its memory limit."""
    code = os.waitstatus_to_exitcode(status)
    is_killed = code == -signal.SIGKILL and os.path.exists("over_memory")
    ending: Request = {"oom": (code != 0 and oom_kills(oom_path) > 0) or is_killed}
    return ending | ({"code": code} if code >= 0 else {"signal": -code})


def finish(record: Request, log: Log, output: int, room: int, ending: Request) -> None:
    """Keep the last output and write how the run ended; the record appears whole or not at all."""
    while log.pump(output):
        pass
    log.close()
    write_padded(room, json.dumps({"run": record["run"], "at": wall_seconds()} | ending).encode())
    os.fsync(room)
    os.rename("exit.new", "exit.json")
    remove_groups([*record["groups"], *record.get("within", ())])  # the last program of a task removes both


def watch(request: Request, answer: int) -> None:
    """Stay with a program whose shim was killed: carry its output, see that it ended."""
    os.chdir(request["folder"])
    record = read_json("starting.json") or read_json("run.json")
    if not hold_folder() or record is None or record["run"] != request["run"]:
        reply(answer, {"held": True})
        return
    ended = os.pidfd_open(record["pid"])  # gone: an error, and the runtime looks again
    if start_ticks(record["pid"]) != record["ticks"]:
        raise Trouble("fork", errno.ESRCH, "the program is gone")
    # Before anybody hears of us: what a pipe holds is gone with the last process that has it open.
    output = os.open("output", os.O_RDWR | os.O_NONBLOCK)
    if os.path.exists("starting.json"):
        begin_files()
        os.rename("starting.json", "run.json")
    me = os.getpid()
    record.update(shim=me, shim_ticks=start_ticks(me))
    replace_json("run.json", record)
    log, room = Log(), keep_room("exit.new")
    reply(answer, record)
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(ended, select.POLLIN)
    lease = Lease(record) if record.get("lease") else None
    while all(fd != ended for fd, _ in poll.poll(LOOK_SECONDS * 1000 if lease else None)):
        log.pump(output)
        if lease:
            lease.look()
    killed_for_memory = oom_kills(record["oom"]) > 0
    sweep_session(record, math.inf if lease else SWEEP_SECONDS_MAX)
    reason = "exit unknown: what watched it was killed before it ended"
    ending: Request = {"reason": reason, "oom": killed_for_memory}
    finish(record, log, output, room, ending | (LAPSED if lease and lease.is_over else {}))


def execute(request: Request, answer: int, output: int, stdin: int = -1) -> None:
    """Run a command beside a task: its pid first, then how it ended, each a line of the answer."""
    os.chdir("/")
    inside = request["inside"]
    beside = -1
    if inside and inside["namespaces"]:
        inside, beside = enter_processes(inside, request["init"])
    wake = wake_on_child()

    def before(pid: int, _init: Init | None) -> None:
        reply(answer, {"pid": pid, "ticks": start_ticks(pid)})

    pid, _ = launch(request | {"inside": inside}, output, before, stdin, beside)
    os.close(output)
    if stdin >= 0:
        os.close(stdin)  # or whoever writes would not notice that the command has closed it
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(answer, 0)  # an error of it comes anyway: whoever asked is gone, so the command is to end
    status = None
    while status is None and all(fd == wake for fd, _ in poll.poll()):
        os.read(wake, CHUNK_BYTES)
        status, _ = reap(pid)
    if beside < 0:
        sweep_children([])
    else:
        sweep_namespace()
    if status is not None:
        reply(answer, {"code": os.waitstatus_to_exitcode(status)})


def probe(request: Request, answer: int) -> None:
    """Try whether a program can be confined so, without starting one."""
    with stage("folder"):
        for name in (request["folder"], *(f"{request['folder']}/{name}" for name in FOLDERS)):
            make_folder(name)
        os.chdir(request["folder"])
        give_folders(request["inside"])
    output = os.open(os.devnull, os.O_WRONLY)
    _, init = launch(request, output, lambda _pid, _init: None)
    sweep_children([], init.name if init else None)
    reply(answer, {"done": True})
