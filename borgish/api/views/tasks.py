"""One task as the API shows it."""

from collections.abc import Sequence

from borgish.api.views.confined import not_held
from borgish.cell.commands import (
    SeenAttempt,
    SeenProgram,
)
from borgish.cell.machines.suitability import why_unsuitable
from borgish.cell.model import Cell, Handover, Job, Machine, Task
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import handover_cause, handover_words
from borgish.text import has_index, instant, instant_or_none
from borgish.vocabulary import FAILURES, HELD_UP, OUTCOMES, JobKind, Phase, State, task_name
from borgish.wire.api import IncomingView, ProgramView, RefusalView, TaskView, UsageView


def task_view(
    observed: Observed,
    job: Job,
    index: int,
    refusals: Sequence[RefusalView] = (),
    machine: Machine | None = None,
    handover: Handover | None = None,
    *,
    waiting: bool = False,
) -> TaskView:
    """Return one task, complete. ``refusals`` are those of its job, for the reason of a pending one.

    ``machine`` is the one that it is on, for whether it should stay there; ``handover`` what is to take over
    from it. ``waiting``: for other jobs.
    """
    task = job.tasks[index]
    name = task_name(job.key, index)
    seen = seen_attempt(observed, name, task)
    code, signal = last_exit(task, seen)
    return TaskView(
        name=name,
        job=job.key,
        user=job.spec.user,
        index=index,
        state=task.state,
        phase=phase_of(job, task, seen) if observed.known else None,
        machine=task.machine or None,
        attempt=task.attempt,
        pid=seen.pid or None if seen else None,
        ports=_ports(job, task),
        address=_address(job, task, machine),
        started_at=instant_or_none(seen.started_at if seen else task.started_at),
        restarts=max(task.restarts, seen.restarts) if seen else task.restarts,
        reason=_reason(job, task, seen, refusals, machine),
        exit_code=code,
        signal=signal,
        since=instant(task.since),
        priority=job.spec_of(task).priority,
        resources=job.spec_of(task).needs(index),
        usage=_usage(observed, name, task),
        devices=task.devices if task.state is State.RUNNING else (),
        programs=tuple(map(_program, seen.programs)) if seen else (),
        alloc=task_name(job.spec_of_last(task).inside, task.alloc) if task.alloc >= 0 else "",
        outcome=OUTCOMES.get(task.ending) if task.ending else None,
        version=task.version,
        incoming=_incoming(observed, job, index, handover) if handover is not None else None,
        not_held=not_held(observed, job.spec, task.machine) if task.state is State.RUNNING else (),
        waiting=waiting,
        probed=task.state is State.RUNNING and job.spec.health is not None,
    )


def task_view_of(
    cell: Cell, observed: Observed, job: Job, index: int, refusals: Sequence[RefusalView] = ()
) -> TaskView:
    """Return one task as it is in a cell."""
    machine = cell.machines.get(job.tasks[index].machine)
    waiting = index in cell.deferred.get(job.key, ())
    return task_view(observed, job, index, refusals, machine, cell.handover(job.key, index), waiting=waiting)


def _incoming(observed: Observed, job: Job, index: int, handover: Handover) -> IncomingView:
    task = handover.task(index)
    seen = seen_attempt(observed, task_name(job.key, index), task) if handover.attempt else None
    is_known = observed.known and handover.attempt
    return IncomingView(
        why=handover_cause(handover),
        text=handover_words(observed, job, index, handover),
        since=instant(handover.since),
        attempt=handover.attempt,
        machine=handover.machine or None,
        phase=phase_of(job, task, seen) if is_known else None,
        ports=_ports(job, task) if handover.attempt else {},
        restarts=seen.restarts if seen else 0,
        reason=seen.reason if seen else "",
        exit_code=seen.exit_code if seen else None,
        signal=seen.signal if seen else None,
        version=handover.version,
    )


def _program(seen: SeenProgram) -> ProgramView:
    return ProgramView(seen.name, seen.phase, seen.pid or None, seen.restarts, seen.reason)


def seen_attempt(observed: Observed, name: str, task: Task) -> SeenAttempt | None:
    """Return what was last seen of a running task."""
    return observed.attempt(task.machine, name, task.attempt) if task.state is State.RUNNING else None


def phase_of(job: Job, task: Task, seen: SeenAttempt | None) -> Phase | None:
    """Return the phase of a running task, None for any other. An alloc is up once it is reserved."""
    if task.state is not State.RUNNING:
        return None
    if job.spec.kind is JobKind.ALLOC_SET:
        return Phase.UP
    if seen is None:
        return Phase.ASSIGNED
    return Phase.STOPPING if seen.ended is not None else seen.phase


def last_exit(task: Task, seen: SeenAttempt | None) -> tuple[int | None, int | None]:
    """Return the exit code and signal of the last program that ended; both None when none did."""
    if seen and (seen.exit_code is not None or seen.signal is not None):
        return seen.exit_code, seen.signal
    return task.exit_code, task.signal


def task_reason(
    cell: Cell, observed: Observed, job: Job, index: int, refusals: Sequence[RefusalView] = ()
) -> str:
    """Return why a task is as it is, as its view tells it."""
    task = job.tasks[index]
    seen = seen_attempt(observed, task_name(job.key, index), task)
    return _reason(job, task, seen, refusals, cell.machines.get(task.machine))


def task_trouble(observed: Observed, job: Job, task: Task) -> int:
    """Return how much a task that is not up needs somebody, 0 the most: it is unhealthy or held back, waits
    for a place, failed or was lost, is not up yet, or it is over."""
    if task.state is State.PENDING:
        return 1
    if task.state is State.DEAD:
        return 2 if task.ending in FAILURES else 4
    phase = phase_of(job, task, seen_attempt(observed, task_name(job.key, task.index), task))
    return 0 if phase in HELD_UP else 3


def is_up(job: Job, phase: Phase | None) -> bool:
    """Return whether who runs in this phase does its work: it is healthy, or up where nothing probes it."""
    return phase is Phase.HEALTHY or (phase is Phase.UP and job.spec.health is None)


def _reason(
    job: Job, task: Task, seen: SeenAttempt | None, refusals: Sequence[RefusalView], machine: Machine | None
) -> str:
    if seen and seen.reason:
        return seen.reason
    if task.promised:
        return f"place kept on {task.promised} while others leave it"
    if task.state is State.PENDING:
        refused = (refusal.text for refusal in refusals if has_index(refusal.indexes, task.index))
        return next(refused, task.reason)
    return task.reason or _unsuited(job, task, machine)


def _unsuited(job: Job, task: Task, machine: Machine | None) -> str:
    if machine is None or task.state is not State.RUNNING:
        return ""
    why = why_unsuitable(job.spec, machine)
    return f"should not stay: {why}" if why else ""


def _ports(job: Job, task: Task) -> dict[str, int]:
    running = task.state is State.RUNNING
    return dict(zip(job.spec_of(task).ports, task.ports, strict=False)) if running else {}


def _address(job: Job, task: Task, machine: Machine | None) -> dict[str, str]:
    if machine is None or not task.ports:
        return {}
    host = f"[{machine.host}]" if ":" in machine.host else machine.host
    return {name: f"{host}:{port}" for name, port in _ports(job, task).items()}


def _usage(observed: Observed, name: str, task: Task) -> UsageView | None:
    used = task_usage(observed, name, task)
    return UsageView(*used) if used else None


def task_usage(observed: Observed, name: str, task: Task) -> tuple[int, int] | None:
    """Return thousandths of a cpu and bytes of ram that a task uses; None where nobody knows."""
    machine = observed.machines.get(task.machine) if task.state is State.RUNNING else None
    return machine.usage.get((name, task.attempt)) if machine else None
