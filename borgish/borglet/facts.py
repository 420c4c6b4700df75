"""What this machine is, what its tasks use (in Kubernetes cAdvisor), and what is wrong with it (Nomad's
fingerprint of a client).

What it is is measured once at start, so that the cell's view of it stands still; the rest is measured
every two seconds.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import psutil

from borgish import __version__
from borgish.borglet.runtimes.base import TaskRuntime
from borgish.borglet.runtimes.leftovers import DISK_RESERVE_BYTES
from borgish.borglet.settings import Settings
from borgish.resources import Resources, show_bytes
from borgish.vocabulary import LEASES_ATTRIBUTE, Runtime
from borgish.wire.bounds import VALUE_CHARACTERS_MAX
from borgish.wire.link import Condition, ConditionKind, Facts, Usage

ARCH_NAMES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "i386": "386",
}
"""The kernel's words for an architecture, in those that images have; the others are the same."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

SAMPLE_SECONDS = 2.0
DISK_FREE_BYTES_MIN = 512 * 1024**2
DISK_FREE_BYTES_EASED = DISK_RESERVE_BYTES
"""Pressure ends only here, so that it does not come and go with every log line."""


def measure(settings: Settings) -> Facts:
    """Return the facts, with what the configuration overrides; no runtime is known to work yet."""
    return Facts(
        capacity=_capacity(settings),
        attributes={**_attributes(), **settings.attributes},
        runtimes=(),
        ports_low=settings.ports_low,
        ports_high=settings.ports_high,
    )


def with_runtimes(facts: Facts, runtimes: Mapping[Runtime, TaskRuntime]) -> Facts:
    """Return the facts with the runtimes that work, the images they have, and what keeps their runs in."""
    images = {name: arch for kind in sorted(runtimes) for name, arch in runtimes[kind].images().items()}
    confinement = {
        name: _one_line(text) for kind in sorted(runtimes) for name, text in runtimes[kind].measures().items()
    }
    return msgspec.structs.replace(
        facts, runtimes=tuple(sorted(runtimes)), images=images, confinement=confinement
    )


def _one_line(text: str) -> str:
    """Return a text as a fact may be: what an engine says of its troubles may be anything."""
    return "".join(c if c.isprintable() else " " for c in text)[:VALUE_CHARACTERS_MAX]


def task_disk_bytes(settings: Settings) -> int:
    """Return what a task writes whose job asks for no disk."""
    amount, share = settings.task_disk
    return amount or int(share * psutil.disk_usage(str(settings.state)).total)


def boot_id() -> str:
    """Return what distinguishes this boot of the machine from the one before."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return f"boot-{int(psutil.boot_time())}"


def _capacity(settings: Settings) -> Resources:
    configured = settings.capacity
    return Resources(
        configured.cpu_millis or 1000 * len(os.sched_getaffinity(0)),
        configured.ram_bytes or psutil.virtual_memory().total,
        configured.disk_bytes or psutil.disk_usage(str(settings.state)).free,
        configured.named,
        configured.devices,
    )


def _attributes() -> dict[str, str]:
    machine = platform.machine()
    return {
        "arch": ARCH_NAMES.get(machine, machine),
        "os": platform.system().lower(),
        "kernel": platform.release(),
        "hostname": platform.node(),
        "borglet": __version__,
        LEASES_ATTRIBUTE: str(Runtime.PROCESS),
    }


# -- What tasks use, and what is wrong with the machine -----------------------------------------------------


async def sample(runtimes: Iterable[TaskRuntime]) -> tuple[Usage, ...]:
    """Return what each running attempt uses, all of its programs together, over all runtimes."""
    found: dict[tuple[str, int], Usage] = {}
    for runtime in runtimes:
        for one in await runtime.sample():
            key = (one.task, one.attempt)
            found[key] = _sum(found[key], one) if key in found else one
    return tuple(found.values())


def _sum(one: Usage, other: Usage) -> Usage:
    cpu_millis, ram_bytes = one.cpu_millis + other.cpu_millis, one.ram_bytes + other.ram_bytes
    return Usage(one.task, one.attempt, cpu_millis, ram_bytes)


def conditions(
    runtimes: Iterable[TaskRuntime],
    state: Path,
    before: tuple[Condition, ...],
    free_bytes: Callable[[Path], int],
) -> tuple[Condition, ...]:
    """Return what is wrong now, given what was wrong ``before``. ``free_bytes`` tells how much is free of the
    disk that a folder is on, and raises OSError."""
    found = [
        Condition(ConditionKind.RUNTIME_UNHEALTHY, str(runtime.kind), text)
        for runtime in runtimes
        if (text := runtime.trouble())
    ]
    pressed = any(condition.kind is ConditionKind.DISK_PRESSURE for condition in before)
    if disk := _disk_condition(state, free_bytes, pressed=pressed):
        found.append(disk)
    return tuple(found)


def free_bytes(folder: Path) -> int:
    """Return how much is free of the disk that a folder is on. Raises OSError."""
    return shutil.disk_usage(folder).free


def _disk_condition(state: Path, free_bytes: Callable[[Path], int], *, pressed: bool) -> Condition | None:
    try:
        free = free_bytes(state)
    except OSError as error:
        text = f"the disk of the tasks' output and state cannot be looked at: {error.strerror}"
        return Condition(ConditionKind.DISK_PRESSURE, str(state), text)
    if free >= (DISK_FREE_BYTES_EASED if pressed else DISK_FREE_BYTES_MIN):
        return None
    text = f"less than {show_bytes(DISK_FREE_BYTES_MIN)} free for the tasks' output and state"
    return Condition(ConditionKind.DISK_PRESSURE, str(state), text)
