"""What the parts of a shim share: troubles told to whoever asked, records on disk, facts of processes."""

import contextlib
import ctypes
import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

CHUNK_BYTES = 64 * 1024
ROOM_BYTES = 512
PRIVATE = 0o600
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 15, 36, 38

Request = dict[str, Any]
prctl = ctypes.CDLL(None).prctl
_signal = ctypes.CDLL(None).signal


class Trouble(Exception):
    """A step of a start that failed: folder, group, workdir, terminal, command, fork or lease."""

    def __init__(self, stage: str, code: int, text: str) -> None:
        super().__init__(stage, code, text)
        self.answer = {"error": stage, "errno": code, "text": text}


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Tell in which step an error came up."""
    try:
        yield
    except OSError as error:
        raise Trouble(name, error.errno or 0, error.strerror or str(error)) from error
    except ValueError as error:
        raise Trouble(name, errno.EINVAL, str(error)) from error


def default_signal(number: int) -> None:
    """Have a signal do what it does by default, for the program that this process becomes. ``signal.signal``
    looks up words for numbers, and so touches pages that a process which was just forked has to copy."""
    _signal(number, None)


def wall_seconds() -> float:
    """Return the seconds since 1970."""
    return time.time()  # noqa: TID251 - alone in its interpreter, borgish.clock is out of reach


def read_file(path: str) -> bytes:
    """Return what is in a file. Plain calls: buffered files cost several times as much, at each start."""
    return read_all(os.open(path, os.O_RDONLY))


def read_all(fd: int) -> bytes:
    """Return what is in an open file, and close it."""
    found = b""
    try:
        while data := os.read(fd, CHUNK_BYTES):
            found += data
    finally:
        os.close(fd)
    return found


def read_json(path: str) -> Request | None:
    """Read a record; None when there is none, or none that can be read."""
    try:
        found: Request = json.loads(read_file(path))
    except (OSError, ValueError):
        return None
    return found


def write_padded(fd: int, text: bytes) -> None:
    """Overwrite the room kept for a record: needs no space that a full disk could refuse."""
    os.pwrite(fd, text[:ROOM_BYTES].ljust(ROOM_BYTES), 0)


def replace_json(path: str, content: Request) -> None:
    """Write a record that appears whole or not at all."""
    fd = os.open(path + ".new", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, PRIVATE)
    try:
        rest = json.dumps(content).encode()
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def make_folder(path: str) -> bool:
    """Make a folder whose parent is there, unless it is there itself; return whether it was not."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    return True


def keep_room(path: str) -> int:
    """Make a file with room for a record, and return its descriptor."""
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR, PRIVATE)
    write_padded(fd, b"")
    return fd


def write_file(path: str, text: str) -> None:
    """Write to a file that is there already, as those of the kernel are."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (state) on; [] when there is none."""
    try:
        return read_file(f"/proc/{pid}/stat").decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 when it is gone."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def stray_processes(is_ours: Callable[[list[str]], bool]) -> list[int]:
    """Return the living processes whose stat fields are ours."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if (fields := stat_fields(pid)) and fields[0] not in "ZX" and is_ours(fields)]


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes that were just seen; gone is no error."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def reply(answer: int, content: Request) -> None:
    """Answer whoever asked, with one line."""
    with contextlib.suppress(OSError):  # whoever asked is gone; the folder tells the next one
        os.write(answer, json.dumps(content).encode() + b"\n")
