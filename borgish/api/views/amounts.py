"""Adds up amounts of resources, many at a time."""

from collections.abc import Iterable

from borgish.resources import Resources


def total(amounts: Iterable[tuple[Resources, int]]) -> Resources:
    """Return the sum of amounts, each taken so many times."""
    cpu_millis = ram_bytes = disk_bytes = 0
    named: dict[str, int] = {}
    devices: dict[str, int] = {}
    for amount, times in amounts:
        cpu_millis += amount.cpu_millis * times
        ram_bytes += amount.ram_bytes * times
        disk_bytes += amount.disk_bytes * times
        for name, count in amount.named.items():
            named[name] = named.get(name, 0) + count * times
        for kind, millis in amount.devices.items():
            devices[kind] = devices.get(kind, 0) + millis * times
    return Resources(cpu_millis, ram_bytes, disk_bytes, named, devices)


def fullness(used: Resources, capacity: Resources) -> float:
    """Return the share (0 to 1) that is taken of cpu or ram, whichever is taken more."""
    return max(used.cpu_millis / (capacity.cpu_millis or 1), used.ram_bytes / (capacity.ram_bytes or 1))
