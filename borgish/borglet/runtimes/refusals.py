"""What is said when a program cannot be started: the thing, the reason, the way out."""

import errno
import os
import socket
from typing import Any

from borgish.borglet.runtimes.base import StartFailed
from borgish.wire.link import AttemptSpec

# What may be otherwise the next time; any other error of a command is the same at each try.
PASSING = {errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY, errno.EMFILE, errno.ENFILE, errno.EIO}


def check_ports(spec: AttemptSpec) -> None:
    """Raise StartFailed when another program holds a port of the attempt."""
    for name, port in spec.ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - a probe that never listens
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise StartFailed(
                        f"port {port} ('{name}') is in use by another program",
                        "it will be placed elsewhere; keep foreign programs off the ports that tasks get",
                        port=port,
                    ) from None


def start_failed(name: str, workdir: str, answer: dict[str, Any]) -> StartFailed:
    """Return the error for a shim's answer: the stage that failed, the error number, the system's text.

    ``name`` and ``workdir`` are those asked for.
    """
    code, text = int(answer["errno"] or 0), str(answer["text"])
    match answer["error"]:
        case "command":
            return _no_command(name, code, text)
        case "workdir":
            return StartFailed(
                f"cannot work in '{workdir}': {text}", "correct 'workdir' of the job", permanent=True
            )
        case "group":
            return StartFailed(f"cannot set its limits: {text}", "see whether the borglet may make cgroups")
        case "fork":
            return StartFailed(f"cannot make a process: {text}", "see what uses up the machine's processes")
        case _:
            return StartFailed(
                f"cannot write in its folder: {text}", "see whether the borglet's disk is full"
            )


def _no_command(name: str, code: int, text: str) -> StartFailed:
    if code in PASSING:
        return StartFailed(f"cannot start '{name}': {text}")
    if code == errno.ENOENT and os.sep not in name:
        message, hint = f"no command '{name}' in PATH", "install it on the machine or give its whole path"
    elif code == errno.ENOENT:
        message, hint = (
            f"no program '{name}'",
            "see whether it is on this machine, and what its #! line names",
        )
    elif code == errno.EACCES:
        message, hint = f"'{name}' may not be executed", "see its mode and that of its folders"
    elif code == errno.ENOEXEC:
        message, hint = f"'{name}' is no program for this machine", "see its architecture; a script needs #!"
    else:
        message, hint = f"cannot start '{name}': {text}", "correct 'run' of the job"
    return StartFailed(message, hint, permanent=True)
