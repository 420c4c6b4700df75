"""Who has to leave a machine that is drained, and what holds the others back. Pure; for the reconciler that
moves them and for the views that say what is waited for.

What runs to completion may finish until the deadline. All else leaves within the budgets of its job
(``cell.disruption``), and only where some machine has room: a task that would only wait stays where it is. So
a cell that is full, or drained whole, serves on.
"""

from collections.abc import Iterator

import msgspec

from borgish.cell.limits.admission import show_moment
from borgish.cell.limits.availability import has_reported
from borgish.cell.machines.room import Room
from borgish.cell.model import Cell, Drain, Job, Machine
from borgish.cell.observed import Observed, leaving_attempts
from borgish.cell.tasks.allocs import inside, is_alloc_set
from borgish.cell.updates.handover import NOT_HEARD, Departure, Departures, Way
from borgish.clock import Now
from borgish.vocabulary import State

NO_ROOM = "no machine that takes new tasks has room for it"


def drain_words(drain: Drain) -> str:
    """Return why a machine is drained, or will be, by whom and until when: ``drained by ann: new disk``."""
    window = drain.window
    why = f": {drain.reason}" if drain.reason else ""
    if window is not None:
        return f"maintenance {show_moment(window.begins)} to {show_moment(window.ends)} by {drain.by}{why}"
    return f"drained by {drain.by}{' with force' * drain.force}{why}"


def turned(machine: Machine, now: Now) -> tuple[Drain, ...]:
    """Return the drains that a machine should have now."""
    return tuple(
        drain
        if drain.begun or drain.window is None or drain.window.drains_from > now.wall
        else msgspec.structs.replace(drain, begun=True)
        for drain in machine.drains
        if drain.window is None or drain.window.ends > now.wall
    )


class Leaving(msgspec.Struct, frozen=True):
    """A task that is to leave its machine, and why it stays for now; "": it may go."""

    job: str
    index: int
    why: str
    is_replaced: bool = False  # it may go as soon as an incoming attempt is up


class Drains:
    """Says who leaves drained machines now. What may go counts as gone for whoever is looked at later."""

    def __init__(self, cell: Cell, observed: Observed, now: Now, steady: Now | None = None) -> None:
        """``steady``: see ``Departures``."""
        self._cell, self._observed, self._now = cell, observed, now
        self._departures = Departures(cell, observed, now, steady)
        self._room = Room(cell, now)

    def leaving(self, machine: Machine) -> Iterator[Leaving]:
        """Yield the tasks of a machine that is drained, in order. What is in an alloc goes with it."""
        force = self._cell.freeze is None and _has_force(machine)
        deadline = min((drain.deadline for drain in machine.drains if drain.begun), default=0.0)
        # Written once: most of a machine may be what finishes until then.
        until = f"it may finish until {show_moment(deadline)}" if self._now.wall < deadline else ""
        for key, index in sorted(self._cell.placed[machine.name]):
            job = self._cell.jobs[key]
            if job.tasks[index].alloc < 0:
                way, why = (Way.TAKEN_DOWN, "") if force else self._of(machine, job, index, until)
                yield Leaving(key, index, why, is_replaced=way is Way.REPLACED)

    def _of(self, machine: Machine, job: Job, index: int, until: str) -> Departure:
        """Return how a task may go; one that may be taken down is taken. ``until`` says how long what runs to
        completion may go on, "" if no more."""
        if not has_reported(self._observed, machine.name):
            return Departure(Way.STAYS, NOT_HEARD)
        if until and self._completes(job, index):
            return Departure(Way.STAYS, until)
        departure = self._departures.of(job, index)
        if departure.way is Way.TAKEN_DOWN:
            if not self._room.take(job, index):
                return Departure(Way.STAYS, NO_ROOM)
            self._departures.gate.take(job.key, index)
        return departure

    def _completes(self, job: Job, index: int) -> bool:
        """Return whether a task, or anything that is in it, runs to completion."""
        if is_alloc_set(job):
            return any(not inner.spec.is_service for inner, _ in inside(self._cell, job, index))
        return not job.spec.is_service


def is_drained(cell: Cell, observed: Observed, machine: Machine) -> bool:
    """Return whether a machine is empty: nothing is to run there, and it has reported that nothing does."""
    is_heard = has_reported(observed, machine.name)
    is_held = cell.placed[machine.name] or machine.name in cell.arriving
    return is_heard and not is_held and not ending(cell, observed, machine)


def ending(cell: Cell, observed: Observed, machine: Machine) -> int:
    """Return how many attempts run on a machine that should not, as it last reported."""
    seen = observed.machines.get(machine.name)
    return len(leaving_attempts(cell, machine.name, seen)) if seen is not None else 0


def is_forced(cell: Cell, job: Job, index: int) -> bool:
    """Return whether a task is on a machine that somebody wants empty without asking budgets. A freeze holds
    that, too."""
    task = job.tasks[index]
    machine = cell.machines.get(task.machine) if task.state is State.RUNNING else None
    return machine is not None and cell.freeze is None and _has_force(machine)


def _has_force(machine: Machine) -> bool:
    return any(drain.begun and drain.force for drain in machine.drains)
