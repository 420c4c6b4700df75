"""What a confined program sees of the file system: made in a mount namespace of its own.

All is read-only but the task's folder, temporary files and devices. Temporary files are the task's own, on
disk beside its folder. What is hidden is an empty folder or file. The task's folder is where it always is,
also where what is around it is hidden.
"""

import contextlib
import fcntl
import os
import socket
import stat
import struct

from borgish.borglet.runtimes.process.shim.basics import Request, stage
from borgish.borglet.runtimes.process.shim.kernel import (
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_SLAVE,
    NO_DEVICES,
    NO_SET_UID,
    READ_ONLY,
    attach,
    detach,
    mount,
    open_tree,
    pivot_to,
    set_mount,
)

DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
OWN_OF_ROOT = frozenset({"dev", "proc", "sys", "tmp", "work"})  # not those of the folder that is its root
SECRETS_SEEN = "/dev/shm/secrets"  # noqa: S108 - in the memory of the task alone
_TEMPORARY = MS_NOSUID | MS_NODEV
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def make_view(inside: Request) -> None:
    """Make it, in a mount namespace that nobody else has yet. Raises Trouble."""
    os.umask(0o022)
    with stage("confine.files"):
        mount("none", "/", "", MS_REC | MS_SLAVE)
        work, *tmp = (open_tree(inside[it]) for it in ("work", "tmp", "tmp"))
        # Before it is covered: what is in memory may be beneath the very folder that becomes the task's own.
        secrets = open_tree(inside["secrets"]) if inside.get("secrets") else -1
    if inside["root"]:
        with stage("confine.root"):
            _make_root(inside, work, tmp[0], secrets)
        os.close(tmp[1])
        return
    with stage("confine.read_only"):
        if inside["read_only"]:
            set_mount("/", READ_ONLY, all_below=True)
    with stage("confine.files"):
        _narrow(inside, work, tmp, secrets)
    if inside["proc"]:
        with stage("confine.proc"):
            _mount_proc("/proc", inside)


def _narrow(inside: Request, work: int, tmp: list[int], secrets: int) -> None:
    """Narrow the machine's own file system, which is read-only by now."""
    own = [inside["home"]]
    for folder, tree in zip(("/tmp", "/var/tmp"), tmp, strict=True):  # noqa: S108 - they become private ones
        if os.path.isdir(folder):
            attach(tree, folder)
            own.append(folder)
    if os.path.isdir("/dev/shm"):  # noqa: S108 - as above
        _mount_shm("/dev/shm", inside, secrets)  # noqa: S108
    hidden = [path for path in _outermost(inside["hide"] + _closed(inside)) if _hide(path)]
    os.makedirs(inside["home"], exist_ok=True)
    attach(work, inside["home"])
    if inside["read_only"]:
        for place in own:
            set_mount(place, NO_SET_UID | NO_DEVICES, all_below=True)
        for path in hidden:
            set_mount(path, READ_ONLY)


def _mount_shm(folder: str, inside: Request, secrets: int) -> None:
    size = f",size={inside['shm_bytes']}" if inside["shm_bytes"] else ""
    mount("tmpfs", folder, "tmpfs", _TEMPORARY, f"mode=1777{size}")
    if secrets >= 0:
        seen = f"{folder}/{os.path.basename(SECRETS_SEEN)}"
        os.mkdir(seen)
        attach(secrets, seen)
        set_mount(seen, READ_ONLY)


def _mount_proc(folder: str, inside: Request) -> None:
    # To root belong the settings of the kernel, whatever its capabilities.
    mount("proc", folder, "proc", _TEMPORARY | MS_NOEXEC | (MS_RDONLY if inside["uid"] == 0 else 0))


def _closed(inside: Request) -> list[str]:
    """Return the outermost folder around the task's that its user may not pass: it stands in the way of its
    own folder, and what else is in there is out of its reach anyway."""
    uid, gid, path = inside["uid"], inside["gid"], ""
    for name in inside["home"].split("/")[1:-1] if uid > 0 else ():
        path += f"/{name}"
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(path)
            bit = (
                stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
            )
            if not found.st_mode & bit:
                return [path]
    return []


def _outermost(paths: list[str]) -> list[str]:
    """Return the paths that are there and not inside others of them."""
    found: list[str] = []
    # Most are not there, which the kernel tells at once: to follow a path name by name costs far more.
    for path in sorted({os.path.realpath(path) for path in paths if os.path.lexists(path)}):
        if not (found and path.startswith(found[-1] + "/")):
            found.append(path)
    return found


def _hide(path: str) -> bool:
    """Put something empty over a path; tell whether that is a folder, to which more may be added."""
    if os.path.isdir(path):
        mount("tmpfs", path, "tmpfs", _TEMPORARY, "mode=0755")
        return True
    if os.path.lexists(path):
        attach(open_tree("/dev/null"), path)
    return False


def _make_root(inside: Request, work: int, tmp: int, secrets: int) -> None:
    """Make the root of a folder that the job names, with what a program needs beside it."""
    base = inside["tmp"]
    tree = open_tree(inside["root"])
    mount("tmpfs", base, "tmpfs", _TEMPORARY, "mode=0755")
    origin = f"{base}/work"  # until the task's folder is put there
    os.mkdir(origin)
    attach(tree, origin)
    set_mount(origin, READ_ONLY, all_below=True)
    for entry in os.scandir(origin):
        if entry.name not in OWN_OF_ROOT:
            _take_over(entry, f"{base}/{entry.name}")
    detach(origin)
    for name in ("dev", "proc", "tmp"):
        os.mkdir(f"{base}/{name}")
    attach(work, origin)
    attach(tmp, os.path.join(base, "tmp"))
    for place in (origin, os.path.join(base, "tmp")):
        set_mount(place, NO_SET_UID | NO_DEVICES, all_below=True)
    for name in DEVICES:
        os.close(os.open(f"{base}/dev/{name}", os.O_CREAT | os.O_WRONLY))
        attach(open_tree(f"/dev/{name}"), f"{base}/dev/{name}")
    for name, target in LINKS.items():
        os.symlink(target, f"{base}/dev/{name}")
    shm = os.path.join(base, "dev", "shm")
    os.mkdir(shm)
    _mount_shm(shm, inside, secrets)
    if inside["proc"]:
        _mount_proc(f"{base}/proc", inside)
    set_mount(base, READ_ONLY)
    pivot_to(base)


def _take_over(entry: "os.DirEntry[str]", target: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), target)
        return
    if entry.is_dir():
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    attach(open_tree(entry.path), target)


def raise_loopback() -> None:
    """Bring up the one interface of a network namespace that is new. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
