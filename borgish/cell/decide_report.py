"""What follows from what a machine reports: ends, restarts, and tasks it no longer has.

Only news about *current* attempts has consequences, and the results of attempts that were lost with the
machine. The rest (attempts that were superseded, or that nobody knows) is absorbed into ``observed`` and
answered by the machine's next assignment.
"""

from collections.abc import Iterator

from borgish.cell.commands import Observe
from borgish.cell.decision import Decision
from borgish.cell.events import (
    AnyEvent,
    MachineFacts,
    MachineUp,
    TasksEnded,
    TasksEvicted,
    TasksRestarted,
)
from borgish.cell.model import Machine
from borgish.cell.observed import SeenAttempt
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.vocabulary import Ending, Eviction, Phase, split_task_name

RESULTS = frozenset({Ending.FINISH, Ending.FAIL})
"""What a program comes to by itself."""


def decide_report(cell: Cell, report: Observe, _now: Now) -> Decision:
    """Return the events that a machine's report brings about. A machine not in the cell brings none."""
    machine = cell.machines.get(report.machine)
    if machine is None:
        return Decision((), report.machine, "not in this cell")
    events: list[AnyEvent] = [*_machine_events(machine, report)]
    news = [a for a in report.changed if cell.is_current(machine.name, a.task, a.attempt)]
    if report.boot_id != machine.boot_id:
        gone = [a for a in news if _is_gone_with_boot(a)]
        news = [a for a in news if a not in gone]
        events.extend(_rebooted(machine, gone))
    events.extend(_restarts(cell, news))  # first: of a task that has ended since, the count is history too
    ended = [a for a in news if a.ended in RESULTS]
    events.extend(_endings(ended))
    events.extend(_evictions(cell, machine, report, news))
    events.extend(_late_endings(cell, machine, report, {a.task for a in ended}))
    return Decision(tuple(events), machine.name, f"report of {machine.name}")


_NOT_STARTED = (Phase.STARTING, Phase.BACKING_OFF, Phase.CRASH_LOOPING)


def _is_gone_with_boot(attempt: SeenAttempt) -> bool:
    """Return whether an attempt of before its machine booted has not been started again there since.

    How it ended is known only if that was before.
    """
    if attempt.ended in RESULTS:
        return not _is_exit_known(attempt)
    was_running = _is_exit_known(attempt) or bool(attempt.exit_reason)
    return attempt.ended is None and was_running and attempt.phase in _NOT_STARTED


def _is_exit_known(attempt: SeenAttempt) -> bool:
    return attempt.exit_code is not None or attempt.signal is not None


def _rebooted(machine: Machine, gone: list[SeenAttempt]) -> Iterator[AnyEvent]:
    jobs: dict[str, list[int]] = {}
    for attempt in gone:
        job, index = split_task_name(attempt.task)
        jobs.setdefault(job, []).append(index)
    for job, indexes in sorted(jobs.items()):
        yield TasksEvicted(job, tuple(sorted(indexes)), Eviction.VANISHED, f"{machine.name} was rebooted")


def _machine_events(machine: Machine, report: Observe) -> Iterator[AnyEvent]:
    if not machine.up:
        yield MachineUp(machine.name)
    facts = (
        report.capacity if report.capacity is not None else machine.capacity,
        report.attributes if report.attributes is not None else machine.attributes,
        report.runtimes if report.runtimes is not None else machine.runtimes,
        report.boot_id,
    )
    if facts != (machine.capacity, machine.attributes, machine.runtimes, machine.boot_id):
        yield MachineFacts(machine.name, *facts)


def _endings(ended: list[SeenAttempt], *, late: bool = False) -> Iterator[AnyEvent]:
    groups: dict[tuple[str, Ending], list[tuple[int, SeenAttempt]]] = {}
    for attempt in ended:
        if attempt.ended is not None:
            job, index = split_task_name(attempt.task)
            groups.setdefault((job, attempt.ended), []).append((index, attempt))
    for (job, ending), rows in sorted(groups.items()):
        rows.sort(key=lambda row: row[0])
        yield TasksEnded(
            job,
            tuple(index for index, _ in rows),
            ending,
            tuple(a.reason or a.exit_reason for _, a in rows),
            tuple(a.exit_code for _, a in rows),
            tuple(a.signal for _, a in rows),
            tuple(a.started_at for _, a in rows),
            tuple(a.attempt for _, a in rows) if late else (),
        )


def _late_endings(cell: Cell, machine: Machine, report: Observe, ended: set[str]) -> Iterator[AnyEvent]:
    """Yield the ends of attempts that were lost with the machine, of tasks that have none otherwise.

    Whoever was told to stop ends with KILL, so these ended by themselves. The work is done: a later attempt
    would do it again, and is stopped, as whatever runs of a task that is dead.
    """
    late: dict[str, SeenAttempt] = {}
    for attempt in sorted(report.changed, key=lambda a: a.attempt):
        is_result = attempt.ended in RESULTS and _is_exit_known(attempt) and attempt.task not in ended
        if is_result and cell.is_awaited(machine.name, attempt.task, attempt.attempt):
            late.setdefault(attempt.task, attempt)
    yield from _endings(list(late.values()), late=True)


def _restarts(cell: Cell, news: list[SeenAttempt]) -> Iterator[AnyEvent]:
    groups: dict[str, list[tuple[int, SeenAttempt]]] = {}
    for attempt in news:
        task = cell.task(attempt.task)
        told = attempt.ended in (None, Ending.FINISH, Ending.FAIL)
        if told and task is not None and attempt.restarts > task.restarts:
            job, index = split_task_name(attempt.task)
            groups.setdefault(job, []).append((index, attempt))
    for job, rows in sorted(groups.items()):
        rows.sort(key=lambda row: row[0])
        yield TasksRestarted(
            job,
            tuple(index for index, _ in rows),
            tuple(a.restarts for _, a in rows),
            # The last exit of an attempt that has ended is its end, which has an event of its own.
            tuple(None if a.ended else a.exit_code for _, a in rows),
            tuple(None if a.ended else a.signal for _, a in rows),
            tuple("" if a.ended else a.exit_reason or a.reason for _, a in rows),
        )


def _evictions(cell: Cell, machine: Machine, report: Observe, news: list[SeenAttempt]) -> Iterator[AnyEvent]:
    for attempt in sorted(news, key=lambda a: a.task):
        job, index = split_task_name(attempt.task)
        if attempt.ended in (Ending.KILL, Ending.LOST):
            reason = f"ended on {machine.name}: {attempt.reason or attempt.ended}"
            yield TasksEvicted(job, (index,), Eviction.VANISHED, reason)
        elif attempt.ended is None and attempt.port_in_use:
            reason = f"port {attempt.port_in_use} on {machine.name} is held by another program"
            yield TasksEvicted(job, (index,), Eviction.PORT_IN_USE, reason)
    for name, attempt_id in report.gone:
        if cell.is_current(machine.name, name, attempt_id):
            job, index = split_task_name(name)
            yield TasksEvicted(job, (index,), Eviction.VANISHED, f"{machine.name} no longer has it")
