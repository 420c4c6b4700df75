"""The zygote: forks a shim for each request, until whoever asks is gone."""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from borgish.borglet.runtimes.process.shim.basics import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NAME,
    Request,
    Trouble,
    prctl,
    read_all,
    reply,
    write_file,
)
from borgish.borglet.runtimes.process.shim.runs import carry, execute, probe, watch

FDS_MAX = 4  # request, answer, output, input


def work(fds: list[int]) -> None:
    """Do one request, in a process of its own."""
    os.setsid()
    prctl(PR_SET_NAME, b"task-shim", 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    request: Request = json.loads(read_all(fds[0]))
    roles: dict[str, Callable[..., None]] = {
        "start": carry,
        "watch": watch,
        "exec": execute,
        "probe": probe,
    }
    try:
        roles[request["role"]](request, *fds[1:])
    except Trouble as trouble:
        reply(fds[1], trouble.answer)
    except OSError as error:
        reply(fds[1], {"error": "folder", "errno": error.errno, "text": str(error)})


def serve(requests: socket.socket) -> None:
    """Fork a shim for each request, until whoever asks is gone."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 16, FDS_MAX)
        if not message:
            return
        for fd in fds:
            os.set_inheritable(fd, False)  # recv_fds of Python 3.11 does not pass on MSG_CMSG_CLOEXEC
        try:
            pid = os.fork()
        except OSError as error:
            reply(fds[1], {"error": "fork", "errno": error.errno, "text": error.strerror})
        else:
            if pid == 0:
                requests.close()
                try:
                    work(fds)
                except BaseException:  # the last frame of a process: say what broke, then end it
                    sys.excepthook(*sys.exc_info())
                finally:
                    os._exit(0)
        for fd in fds:
            os.close(fd)


def main() -> None:
    """Be the zygote; the argument is the number of its socket."""
    prctl(PR_SET_NAME, b"task-starter", 0, 0, 0)
    os.umask(0o077)
    os.chdir("/")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # what programs get; it was this text
    with contextlib.suppress(OSError):  # only root may: the kernel should end tasks before their shims
        write_file("/proc/self/oom_score_adj", "-900")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what programs get; it was that of whoever asks
    gc.disable()
    gc.freeze()  # a collection would touch, and so copy, every page shared with the zygote
    serve(socket.socket(fileno=int(sys.argv[1])))
