"""The filter of system calls, run here as the kernel runs it."""

import struct

import pytest

from borgish.borglet.runtimes.process.seccomp import NEWEST, REFUSED, syscall_filter

X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOWED, REFUSES, UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026
CALLS = {  # as the headers of the kernel have them: x86_64, aarch64
    "read": (0, 63),
    "openat": (257, 56),
    "execve": (59, 221),
    "ptrace": (101, 117),
    "futex": (202, 98),
    "landlock_restrict_self": (446, 446),
}
# "Significant syscalls blocked by the default profile", docs.docker.com/engine/security/seccomp, as far as
# these machines have them; what it refuses by arguments has tests of its own.
DOCKER = [
    "acct",
    "add_key",
    "bpf",
    "clock_settime",
    "create_module",
    "delete_module",
    "finit_module",
    "get_kernel_syms",
    "get_mempolicy",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mbind",
    "mount",
    "move_pages",
    "nfsservctl",
    "open_by_handle_at",
    "perf_event_open",
    "pivot_root",
    "query_module",
    "quotactl",
    "reboot",
    "request_key",
    "set_mempolicy",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "sysfs",
    "_sysctl",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "ustat",
]


def verdict(machine: str, number: int, argument: int = 0, architecture: int = 0) -> int:
    """Return what the filter says of a call."""
    architecture = architecture or {"x86_64": X86, "aarch64": ARM}[machine]
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    program = [
        struct.unpack_from("=HBBI", syscall_filter(machine), at)
        for at in range(0, len(syscall_filter(machine)), 8)
    ]
    at = value = 0
    while True:
        code, then, otherwise, operand = program[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x06:
                return int(operand)
            case _:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
                at += then if holds else otherwise


@pytest.mark.parametrize(("column", "machine"), [(0, "x86_64"), (1, "aarch64")])
def test_what_dockers_profile_refuses_is_refused(column: int, machine: str) -> None:
    assert set(DOCKER) <= REFUSED.keys()
    for name, pair in REFUSED.items():
        if (number := pair[column]) is not None:
            assert verdict(machine, number) == REFUSES, name


@pytest.mark.parametrize(("column", "machine"), [(0, "x86_64"), (1, "aarch64")])
def test_all_else_is_let_through(column: int, machine: str) -> None:
    refused = {pair[column] for pair in REFUSED.values()}
    allowed = {number for number in range(NEWEST + 1) if number not in refused | {435}}
    assert {pair[column] for pair in CALLS.values()} <= allowed
    assert {number: verdict(machine, number) for number in allowed} == dict.fromkeys(allowed, ALLOWED)


def test_what_is_newer_does_not_exist() -> None:
    for number in (NEWEST + 1, 600, 0x3FFFFFFF):
        assert verdict("x86_64", number) == UNKNOWN
    assert verdict("aarch64", 435) == UNKNOWN  # clone3, whose flags cannot be read here


@pytest.mark.parametrize(
    ("number", "argument", "expected"),
    [
        (56, 0x11, ALLOWED),  # clone: fork, and a thread
        (56, 0x3D0F00, ALLOWED),
        (56, 0x10000000, REFUSES),  # a user namespace
        (56, 0x00020000, REFUSES),  # one of mounts
        (135, 0xFFFFFFFF, ALLOWED),  # personality: what is it?
        (135, 0x0008, ALLOWED),
        (135, 0x40000, REFUSES),  # addresses that are not random
        (41, 2, ALLOWED),  # socket: of the internet
        (41, 40, REFUSES),  # to the host of a virtual machine
    ],
)
def test_what_counts_is_the_argument(number: int, argument: int, expected: int) -> None:
    assert verdict("x86_64", number, argument) == expected


def test_calls_of_another_architecture_are_refused() -> None:
    assert verdict("x86_64", 0, architecture=I386) == REFUSES
    assert verdict("x86_64", 0x40000000) == REFUSES  # x32
    assert verdict("aarch64", 63, architecture=X86) == REFUSES


def test_for_other_machines_there_is_none() -> None:
    assert syscall_filter("riscv64") == b""
