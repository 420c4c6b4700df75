"""What the journal keeps of a machine's report: the facts by which it was decided, never the report.

A report has all that is seen of attempts; most of it merely goes on, and is absorbed into ``observed``. Kept
are the attempts of tasks to which something happened, and of them what their events lack: which attempt it
was, mostly, for that a program ended, how and when is in TasksEnded.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from borgish.cell.commands import (
    Observe,
    SeenAttempt,
)
from borgish.cell.events import (
    AnyEvent,
    Entry,
    Facts,
    IncomingEnded,
    LeasesEnded,
    LeasesFound,
    MachineFacts,
    TasksEnded,
    TasksEvicted,
    TasksRestarted,
)
from borgish.cell.model import Cell
from borgish.vocabulary import RESULTS, Eviction, Phase, task_name

_DECIDED_BY: dict[str, Any] = {
    "phase": Phase.STOPPING,
    "started_at": 0.0,
    "restarts": 0,
    "ended": None,
    "exit_code": None,
    "signal": None,
    "exit_reason": "",
    "reason": "",
    "port_in_use": 0,
    "early_ends": 0,
    "gave_up": False,
    "failures": 0,
}
"""The fields of an attempt by which ``decide_machines.observe`` decides, each with what it is where nothing
is kept."""


_AS_IT_IS = ""
"""In place of a phase: all that is decided by was looked at, and is kept as it was reported."""


def report_facts(report: Observe, events: Sequence[AnyEvent]) -> Facts:
    """Return what of a report led to these events."""
    by_task = _events_by_task(events)
    rebooted = any(isinstance(event, MachineFacts) for event in events)  # or has other facts
    seen = (each for each in report.changed if each.task in by_task)
    return Facts(
        attempts=tuple(_not_in_events(each, by_task[each.task], rebooted=rebooted) for each in seen),
        gone=tuple(gone for gone in report.gone if gone[0] in by_task),
    )


def report_of(cell: Cell, entry: Entry, facts: Facts) -> Observe:
    """Return a report that leads to what that of an entry led to; ``cell`` is as it was before.

    Raises msgspec.ValidationError for facts that this version cannot read.
    """
    by_task = _events_by_task(entry.events)
    machine = cell.machines.get(entry.subject)
    boot_id = machine.boot_id if machine else ""
    changed = tuple(_attempt(kept, by_task) for kept in facts.attempts)
    report = Observe(entry.subject, boot_id, "", changed, facts.gone)
    for event in entry.events:
        if isinstance(event, MachineFacts):
            return msgspec.structs.replace(
                report,
                boot_id=event.boot_id,
                capacity=event.capacity,
                attributes=event.attributes,
                runtimes=event.runtimes,
            )
    return report


def _events_by_task(events: Iterable[AnyEvent]) -> dict[str, dict[str, Any]]:
    """Return what events have of the attempts of tasks, by task."""
    by_task: dict[str, dict[str, Any]] = {}
    names: tuple[str, ...]
    rows: Iterable[tuple[Any, ...]]
    for event in events:
        match event:
            case TasksRestarted(job, indexes):
                names = ("restarts", "exit_code", "signal", "exit_reason", "failures")
                failures = event.failures or (0,) * len(indexes)
                said = (event.restarts, event.exit_codes, event.signals, event.reasons, failures)
                rows = zip(*said, strict=True)
            case TasksEnded(job, indexes):
                names = ("reason", "exit_code", "signal", "started_at")
                rows = zip(event.reasons, event.exit_codes, event.signals, event.started_at, strict=True)
            case TasksEvicted(job, indexes) | LeasesFound(job, indexes) | LeasesEnded(job, indexes):
                names, rows = (), ((),) * len(indexes)
            case IncomingEnded(job, indexes):
                names, rows = (), ((),) * len(indexes)
            case _:
                continue
        for index, row in zip(indexes, rows, strict=True):
            of_task = by_task.setdefault(task_name(job, index), dict(_DECIDED_BY))
            of_task.update(zip(names, row, strict=True))
            if isinstance(event, TasksEnded):
                of_task["ended"] = event.ending
            elif isinstance(event, IncomingEnded) or (
                isinstance(event, TasksEvicted) and event.cause is Eviction.FAILED
            ):
                of_task["phase"] = _AS_IT_IS
    return by_task


def _not_in_events(seen: SeenAttempt, by_task: dict[str, Any], *, rebooted: bool) -> dict[str, Any]:
    if by_task["phase"] == _AS_IT_IS:
        rebooted = True
    elif seen.ended in RESULTS:  # no matter then which of two reasons it is
        seen = msgspec.structs.replace(seen, reason=seen.reason or seen.exit_reason, exit_reason="")
    else:
        seen = msgspec.structs.replace(seen, started_at=0.0)
    if not rebooted and seen.phase is not Phase.UNKILLABLE:
        seen = msgspec.structs.replace(seen, phase=Phase.STOPPING)
        if seen.ended is None:
            seen = msgspec.structs.replace(seen, exit_reason=seen.exit_reason or seen.reason, reason="")
    differ = {name: value for name in by_task if (value := getattr(seen, name)) != by_task[name]}
    return {"task": seen.task, "attempt": seen.attempt, **differ}


def _attempt(kept: dict[str, Any], by_task: dict[str, dict[str, Any]]) -> SeenAttempt:
    merged = by_task.get(kept.get("task", ""), {}) | kept
    return msgspec.json.decode(msgspec.json.encode(merged), type=SeenAttempt)
