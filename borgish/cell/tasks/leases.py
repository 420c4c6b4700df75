"""Leases of exclusive tasks: which of their attempts may still run, and until when. Pure.

A job with ``exclusive: true`` never has two processes of one index, rather than always one. So no attempt is
placed while another may run. One may run from its placement until its machine reports its end, or until its
lease has lapsed (at-most-one, as by Gray and Cheriton's leases; a StatefulSet of Kubernetes has the same
promise, and waits for people).

The lease is held on the machine, by the shim of the run itself (``runtimes/process/shim``): it ends the
program ``LEASE_SECONDS`` after the machine's last contact with a master whose assignment names the attempt,
whether or not a borglet lives. A contact is as old as the borglet's answer to which the master's poll refers
(``PollRequest.echo``): a poll that was held up on its way, or that a stopped borglet reads late, renews
nothing. Nothing is renewed either after the assignment was made that no longer names the attempt. So the
master waits from then, or from the last answer of a machine that has been silent since before; by its own
steady clock, and longer than a lease lasts on a clock that is slower by a tenth. A new master waits from its
own beginning, for the one before may have renewed until then.

Where no lease is held, as for containers, only its machine's word of the end counts, or that the machine was
removed from the cell.
"""

from collections.abc import Iterable, Iterator

from borgish.cell.model import Cell, Job, Machine, TaskLease
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.spec.job import Constraint, JobSpec
from borgish.text import instant
from borgish.vocabulary import LEASE_END_SECONDS, LEASES_ATTRIBUTE, Runtime, State, task_name

LEASE_SECONDS = 30.0
CLOCK_RATES_MAX = 1.1
"""The clock of the master may be so much faster than that of a machine."""
LAPSING = frozenset({Runtime.PROCESS, Runtime.FAKE})


def lease_seconds(spec: JobSpec) -> float:
    """Return how long a lease of a job's attempts lasts on their machine; 0 where none is held."""
    return LEASE_SECONDS if spec.exclusive and spec.runtime in LAPSING else 0.0


def constraints(spec: JobSpec) -> tuple[Constraint, ...]:
    """Return a job's constraints, and that a machine can hold the leases that it needs.

    A borglet of an older release cannot, and would start the program all the same.
    """
    if not lease_seconds(spec):
        return spec.constraints
    return (*spec.constraints, Constraint(LEASES_ATTRIBUTE, "==", (str(spec.runtime),)))


def lease_of(spec: JobSpec, machine: Machine, attempt: int) -> TaskLease:
    """Return the lease of an attempt that is placed on a machine."""
    lapses = bool(lease_seconds(spec)) and machine.attributes.get(LEASES_ATTRIBUTE) == spec.runtime
    return TaskLease(attempt, machine.name, spec.stop.grace_seconds, lapses)


def unleased(cell: Cell, job: Job) -> Iterator[tuple[int, TaskLease]]:
    """Yield leases for what runs of a job since before it was exclusive. Nothing there ends it by itself."""
    there = cell.leases.get(job.key, {})
    for task in job.tasks:
        leased = any(lease.attempt == task.attempt for lease in there.get(task.index, ()))
        if task.state is State.RUNNING and not leased:
            yield task.index, TaskLease(task.attempt, task.machine, lapses=False)


def on_machine(cell: Cell, machine: str) -> dict[str, list[tuple[int, TaskLease]]]:
    """Return the leases, by job, that only word of a machine could end."""
    found: dict[str, list[tuple[int, TaskLease]]] = {}
    for key, by_index in sorted(cell.leases.items()):
        for index, there in sorted(by_index.items()):
            mine = [(index, each) for each in there if each.machine == machine and not each.lapses]
            if mine:
                found.setdefault(key, []).extend(mine)
    return found


def leased_machines(cell: Cell) -> set[str]:
    """Return the machines on which attempts have leases."""
    tasks = (there for by_index in cell.leases.values() for there in by_index.values())
    return {lease.machine for there in tasks for lease in there}


def over(cell: Cell, job: str) -> Iterator[tuple[int, TaskLease]]:
    """Yield a job's leases of attempts that should not run any more."""
    there = cell.jobs.get(job)
    tasks = there.tasks if there is not None else []
    for index, leases in sorted(cell.leases.get(job, {}).items()):
        task = tasks[index] if index < len(tasks) else None
        # The attempt that runs, as ``Cell.is_current`` has it; written out, since a job may have thousands.
        attempt = task.attempt if task is not None and task.state is State.RUNNING else -1
        for lease in leases:
            if task is None or lease.attempt != attempt or lease.machine != task.machine:
                yield index, lease


def record_over(cell: Cell, observed: Observed, jobs: Iterable[str], now: Now) -> None:
    """Note from when on the attempts of these jobs that should not run any more are named no more.

    Called by the master's step, when what its step before decided has been sent to the machines.
    """
    for key in jobs:
        known = observed.leases.get(key, {})
        found = {
            (index, lease.attempt): known.get((index, lease.attempt), now) for index, lease in over(cell, key)
        }
        if found:
            observed.leases[key] = found
        else:
            observed.leases.pop(key, None)


def lapses_at(observed: Observed, job: str, index: int, lease: TaskLease) -> Now | None:
    """Return when a lease has surely lapsed; None when that is not known."""
    since = observed.leases.get(job, {}).get((index, lease.attempt))
    if since is None or not lease.lapses:
        return None
    seen = observed.machines.get(lease.machine)
    if seen is not None and 0 < seen.heard < since.mono:
        since = since.later(seen.heard - since.mono)
    return since.later(LEASE_SECONDS * CLOCK_RATES_MAX + lease.grace_seconds + LEASE_END_SECONDS)


def has_lapsed(observed: Observed, job: str, index: int, lease: TaskLease, now: Now) -> bool:
    """Return whether an attempt does not run any more, by its lease. What its machine says counts more."""
    at = lapses_at(observed, job, index, lease)
    if at is None or now.mono < at.mono:
        return False
    seen = observed.machines.get(lease.machine)
    is_heard = seen is not None and seen.heard >= at.mono
    attempt = observed.attempt(lease.machine, task_name(job, index), lease.attempt)
    return not (is_heard and attempt is not None and attempt.ended is None)


def why_waiting(cell: Cell, observed: Observed, job: str, index: int) -> tuple[str, str]:
    """Return why a pending task is not placed, and the way out, in words; "" where no lease is in its way."""
    there = cell.leases.get(job, {}).get(index, ())
    if not there:
        return "", ""
    until = [(lapses_at(observed, job, index, lease), lease) for lease in there]
    for at, lease in until:
        if not lease.lapses:
            hint = f"if {lease.machine} is off for good, `borgctl machine remove {lease.machine}` says so"
            why = "may still run, and only that machine can tell"
            return f"its former attempt {lease.attempt} on {lease.machine} {why}", hint
        if at is None:
            return f"its former attempt {lease.attempt} on {lease.machine} may still run", ""
    at, lease = max(((at, lease) for at, lease in until if at is not None), key=lambda each: each[0].mono)
    where = f" on {lease.machine}" if lease.machine else ", of which the journal was lost,"
    return f"its former attempt{where} may still run until {instant(at.wall)}", "it is exclusive, so it waits"
