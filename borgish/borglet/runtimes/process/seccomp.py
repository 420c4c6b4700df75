"""The system calls that a confined program may not make, as a filter for the kernel (seccomp, classic BPF).

What Docker's default profile refuses to a container without capabilities is refused, and io_uring, which its
newer ones refuse too. It is a list of what is refused, not of what is allowed: each call that is not in it is
old enough to be judged. A call that is newer than the list does not exist for a program (ENOSYS), as on an
older kernel, so that what Linux adds is refused until somebody has looked at it.
"""

import errno
import struct

# By name: its number on x86_64 and on aarch64; None where there is no such call.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "afs_syscall": (183, None),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "get_mempolicy": (239, 236),
    "getpmsg": (181, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "putpmsg": (182, None),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "security": (185, None),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "tuxcall": (184, None),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
    "vserver": (236, None),
}
NEWEST = 462  # mseal, Linux 6.10; the numbers of newer calls are the same on all architectures
CLONE3 = 435
CLONE_NEW = 0x7E020000  # each kind of namespace; the flags of clone3 are behind a pointer, out of reach here
AF_VSOCK = 40  # a virtual machine's own line to its host
PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)  # plain, with 3 GiB, as an old kernel, both, asked for
X32_BIT = 0x40000000  # the other calls of x86_64, with numbers of their own

# By machine: what the kernel calls its architecture; clone, personality and socket, whose arguments count.
_MACHINES = {
    "x86_64": (0, 0xC000003E, 56, 135, 41),
    "aarch64": (1, 0xC00000B7, 220, 92, 198),
}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def syscall_filter(machine: str) -> bytes:
    """Return the filter for a machine as ``platform.machine()`` names it; b"" where there is none for it."""
    if machine not in _MACHINES:
        return b""
    column, architecture, clone, personality, socket = _MACHINES[machine]
    numbers = sorted(number for pair in REFUSED.values() if (number := pair[column]) is not None)
    program = _Program()
    program.load(_ARCHITECTURE)
    program.jump(_EQUAL, architecture, otherwise="refuse")  # of another: a program that names calls otherwise
    program.load(_NUMBER)
    if machine == "x86_64":
        program.jump(_AT_LEAST, X32_BIT, "refuse")
    program.jump(_AT_LEAST, NEWEST + 1, "unknown")
    program.jump(_EQUAL, CLONE3, "unknown")  # the C library falls back on clone
    for number in numbers:
        program.jump(_EQUAL, number, "refuse")
    for number, label in ((clone, "clone"), (personality, "personality"), (socket, "socket")):
        program.jump(_EQUAL, number, label)
    program.jump(_AT_LEAST, 0, "allow")
    program.label("clone")
    program.load(_FIRST_ARGUMENT)
    program.jump(_ANY_BIT, CLONE_NEW, "refuse", "allow")
    program.label("personality")
    program.load(_FIRST_ARGUMENT)
    for kind in PERSONALITIES:
        program.jump(_EQUAL, kind, "allow")
    program.jump(_AT_LEAST, 0, "refuse")
    program.label("socket")
    program.load(_FIRST_ARGUMENT)
    program.jump(_EQUAL, AF_VSOCK, "refuse")
    program.end("allow", _ALLOW)
    program.end("refuse", _ERRNO | errno.EPERM)
    program.end("unknown", _ERRNO | errno.ENOSYS)
    return program.assembled()


class _Program:
    """Instructions whose jumps name labels. All jumps go forward, as the kernel wants it."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, str, str]] = []  # code, operand, label if so, label if not
        self._labels: dict[str, int] = {}

    def load(self, offset: int) -> None:
        self._lines.append((_LOAD, offset, "", ""))

    def jump(self, code: int, operand: int, then: str = "", otherwise: str = "") -> None:
        """Compare; a side without a label goes on with the next instruction."""
        self._lines.append((code, operand, then, otherwise))

    def label(self, name: str) -> None:
        self._labels[name] = len(self._lines)

    def end(self, label: str, value: int) -> None:
        """Return a verdict, here and wherever a jump names the label."""
        self.label(label)
        self._lines.append((_RETURN, value, "", ""))

    def assembled(self) -> bytes:
        return b"".join(
            struct.pack("=HBBI", code, self._ahead(at, then), self._ahead(at, otherwise), operand)
            for at, (code, operand, then, otherwise) in enumerate(self._lines)
        )

    def _ahead(self, at: int, label: str) -> int:
        """Return how many instructions to skip to a label."""
        return self._labels[label] - at - 1 if label else 0
