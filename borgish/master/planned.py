"""From what the scheduler planned to commands. Pure."""

from borgish.cell.commands import EvictTasks, PlaceTasks, PromisePlaces
from borgish.scheduler.plan import Placement, Preemption, Promise
from borgish.vocabulary import Eviction


def place_command(planned: Placement) -> PlaceTasks:
    """Return the command that puts tasks where they are planned."""
    return PlaceTasks(
        planned.job, planned.indexes, planned.machines, planned.ports, planned.devices, planned.allocs
    )


def evict_command(planned: Preemption) -> EvictTasks:
    """Return the command that sends victims back to pending."""
    return EvictTasks(
        planned.job,
        planned.indexes,
        Eviction.PREEMPTED,
        planned.reason,
        planned.notice_seconds,
        planned.preemptor,
    )


def promise_command(planned: Promise) -> PromisePlaces:
    """Return the command that keeps places."""
    return PromisePlaces(planned.job, planned.indexes, planned.machines)
