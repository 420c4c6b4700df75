"""Sums of resources."""

from collections.abc import Iterable

from borgish.cell.model import Job
from borgish.resources import Resources
from borgish.vocabulary import State


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
    named = {name: count for name, count in named.items() if count}  # of what went there may be nothing left
    devices = {kind: millis for kind, millis in devices.items() if millis}
    return Resources(cpu_millis, ram_bytes, disk_bytes, named, devices)


def running_needs(job: Job) -> Resources:
    """Return the limits of all running tasks of a job; looks only at those with limits of their own.

    Nothing for a job that runs in allocs: its limits are in theirs.
    """
    if job.spec.inside:
        return Resources()
    if job.is_mixed:
        running = (task for task in job.tasks if task.state is State.RUNNING)
        return total((job.spec_of(task).needs(task.index), 1) for task in running)
    own = [
        override.resources
        for index, override in job.spec.overrides.items()
        if override.resources and index < len(job.tasks) and job.tasks[index].state is State.RUNNING
    ]
    return total([(job.spec.resources, job.running - len(own)), *((needs, 1) for needs in own)])
