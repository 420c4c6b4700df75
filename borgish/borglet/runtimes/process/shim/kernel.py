"""The calls to the kernel by which a program is confined, for which Python has no words."""

import contextlib
import ctypes
import functools
import os
import struct

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 1, 2, 4, 8, 0x4000, 0x80000
READ_ONLY, NO_SET_UID, NO_DEVICES = 1, 2, 4  # of a mount, as mount_setattr has them
MNT_DETACH = 2
PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on all architectures, as all so new are
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_LANDLOCK_PATH_BENEATH = 1
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library. Raises OSError."""
    as_c = [ctypes.c_long(it) if isinstance(it, int) else ctypes.c_char_p(it) for it in arguments]
    result = int(getattr(_libc, name)(*as_c))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def unshare(flags: int) -> None:
    """Leave namespaces for new ones. Raises OSError."""
    _call("unshare", flags)


def setns(fd: int, flags: int) -> None:
    """Enter the namespaces of the process that a descriptor is of. Raises OSError."""
    _call("setns", fd, flags)


def control(option: int, *arguments: int | bytes) -> None:
    """Call prctl. Raises OSError."""
    _call("prctl", option, *arguments, *(0,) * (4 - len(arguments)))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system, or change how what is mounted is shared. Raises OSError."""
    _call("mount", source.encode(), os.fsencode(target), kind.encode() or None, flags, options.encode())


def detach(target: str) -> None:
    """Take a mount, and what is mounted in it, out of sight. Raises OSError."""
    _call("umount2", os.fsencode(target), MNT_DETACH)


def open_tree(path: str) -> int:
    """Return a descriptor of a copy of what is at a path, mounts in it included. Raises OSError."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return _call("syscall", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)


def attach(tree: int, target: str) -> None:
    """Put such a copy where it is to be seen, and close it. Raises OSError."""
    try:
        _call("syscall", _MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def set_mount(path: str, attributes: int, *, all_below: bool = False) -> None:
    """Give attributes to a mount. Raises OSError."""
    attr = struct.pack("=QQQQ", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if all_below else 0
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attr, len(attr))


def pivot_to(folder: str) -> None:
    """Make a mount the root, and take the former one out of sight. Raises OSError."""
    os.chdir(folder)
    _call("syscall", _PIVOT_ROOT[os.uname().machine], b".", b".")
    detach(".")
    os.chdir("/")


@functools.cache  # what it did holds for whoever is forked from here on, too, and is forty calls
def bound_capabilities() -> None:
    """Have no way to get capabilities that one does not have. Not before a user namespace is entered, which
    gives it back."""
    with contextlib.suppress(OSError):  # beyond the last one; or without the right to, and so without any
        for number in range(64):
            control(PR_CAPBSET_DROP, number)


def drop_capabilities() -> None:
    """Have no capability. Raises OSError."""
    control(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _call("capset", struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24))


def filter_syscalls(program: bytes) -> None:
    """Have each system call judged by a filter from now on. Raises OSError."""
    text = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
    control(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head)


def landlock_version() -> int:
    """Return which Landlock the kernel has. Raises OSError where it has none."""
    return _call("syscall", _LANDLOCK_CREATE, None, 0, 1)


def landlock(handled: int, scoped: int, size: int, rules: list[tuple[str | int, int]]) -> None:
    """Be denied the rights that are handled but below the paths, or of the descriptors, of the rules.

    ``size`` is that of the description that this kernel knows. What is not there needs no rule, nor does a
    pipe without a name. Raises OSError.
    """
    ruleset = _call("syscall", _LANDLOCK_CREATE, struct.pack("=QQQ", handled, 0, scoped), size, 0)
    try:
        for place, rights in rules:
            try:
                fd = os.open(place, os.O_PATH | os.O_CLOEXEC) if isinstance(place, str) else place
            except OSError:
                continue
            rule = struct.pack("=Qi", rights, fd)
            with contextlib.suppress(OSError):
                _call("syscall", _LANDLOCK_ADD, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)
            if isinstance(place, str):
                os.close(fd)
        _call("syscall", _LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
