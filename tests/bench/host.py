"""The machine that a bench runs on: what it is, in words, and how fast it is at the moment.

Cores that are shared with others change their speed within minutes, and a figure says little without it. The
speed is how many times as long as on the host of reference a fixed piece of work takes, of each kind that a
borgmaster does.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import numpy

from tests.bench.figure import Figure

TIMES = 5


class _Work(NamedTuple):
    """A fixed piece of work, and how long it takes on the host of reference."""

    do: Callable[[], None]
    reference_ms: float


def described() -> str:
    """Return cores, cpu, memory and Python on one line."""
    cores = len(os.sched_getaffinity(0))
    ram_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{cores} cores, {_cpu()}, {ram_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def load() -> float:
    """Return how many processes ran or waited to, on average over the last minute."""
    return os.getloadavg()[0]


def figures(name: str) -> Iterator[Figure]:
    """Yield how long each kind of work takes now: 1 as on the host of reference, 2 twice as long."""
    for kind, work in _WORK.items():
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            work.do()
            taken.append(1000 * (time.perf_counter() - began) / work.reference_ms)
        yield Figure(f"{name}.host_{kind}", "x", taken)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _python() -> None:
    total = 0
    for number in range(500_000):
        total += number * number % 7


def _numpy() -> None:
    values = numpy.arange(500_000, dtype=float)
    for _ in range(20):
        values = numpy.sqrt(values * 1.5 + values[::-1])


def _append() -> None:
    with TemporaryFile() as file:
        for _ in range(20):
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())


_WORK = {"python": _Work(_python, 38.0), "numpy": _Work(_numpy, 33.0), "append": _Work(_append, 1.6)}
"""The fastest of fifteen runs on two cores of an Intel Xeon, Python 3.11, with files where its system is."""
