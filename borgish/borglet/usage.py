"""What the tasks use, and what is wrong with the machine: looked at every two seconds."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from borgish.borglet.runtimes.base import TaskRuntime
from borgish.borglet.runtimes.leftovers import DISK_RESERVE_BYTES
from borgish.resources import show_bytes
from borgish.wire.link import Condition, ConditionKind, Usage

SAMPLE_SECONDS = 2.0
DISK_FREE_BYTES_MIN = 512 * 1024**2
DISK_FREE_BYTES_EASED = DISK_RESERVE_BYTES
"""Pressure ends only here, so that it does not come and go with every log line."""


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
    found = [_runtime_condition(runtime) for runtime in runtimes]
    found.append(
        _disk_condition(state, any(c.kind is ConditionKind.DISK_PRESSURE for c in before), free_bytes)
    )
    return tuple(condition for condition in found if condition)


def _runtime_condition(runtime: TaskRuntime) -> Condition | None:
    text = runtime.trouble()
    return Condition(ConditionKind.RUNTIME_UNHEALTHY, str(runtime.kind), text) if text else None


def free_bytes(folder: Path) -> int:
    """Return how much is free of the disk that a folder is on. Raises OSError."""
    return shutil.disk_usage(folder).free


def _disk_condition(
    state: Path,
    pressed: bool,  # noqa: FBT001 - the state before
    free_bytes: Callable[[Path], int],
) -> Condition | None:
    try:
        free = free_bytes(state)
    except OSError as error:
        text = f"the disk of the tasks' output and state cannot be looked at: {error.strerror}"
        return Condition(ConditionKind.DISK_PRESSURE, str(state), text)
    if free >= (DISK_FREE_BYTES_EASED if pressed else DISK_FREE_BYTES_MIN):
        return None
    text = f"less than {show_bytes(DISK_FREE_BYTES_MIN)} free for the tasks' output and state"
    return Condition(ConditionKind.DISK_PRESSURE, str(state), text)
