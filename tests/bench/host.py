"""The machine that a bench ran on, in words."""

import os
import platform
from pathlib import Path


def described() -> str:
    """Return cores, cpu, memory and Python on one line."""
    cores = len(os.sched_getaffinity(0))
    ram_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    load = os.getloadavg()[0]
    return (
        f"{cores} cores, {_cpu()}, {ram_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {load:.1f} at the start"
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
