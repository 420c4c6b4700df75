"""What this machine is: measured once at start, so that the cell's view of it stands still."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from borgish.borglet.runtimes.base import TaskRuntime
from borgish.borglet.settings import Settings
from borgish.resources import Resources
from borgish.vocabulary import Runtime
from borgish.wire.link import Facts

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
    """Return the facts with the runtimes that work, and the images they have."""
    images = {name: arch for kind in sorted(runtimes) for name, arch in runtimes[kind].images().items()}
    return msgspec.structs.replace(facts, runtimes=tuple(sorted(runtimes)), images=images)


def boot_id() -> str:
    """Return what tells this boot of the machine from the one before."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return f"boot-{int(psutil.boot_time())}"


def _capacity(settings: Settings) -> Resources:
    told = settings.capacity
    return Resources(
        told.cpu_millis or 1000 * len(os.sched_getaffinity(0)),
        told.ram_bytes or psutil.virtual_memory().total,
        told.disk_bytes or psutil.disk_usage(str(settings.state)).free,
        told.named,
        told.devices,
    )


def _attributes() -> dict[str, str]:
    machine = platform.machine()
    return {
        "arch": ARCH_NAMES.get(machine, machine),
        "os": platform.system().lower(),
        "kernel": platform.release(),
        "hostname": platform.node(),
    }
