"""What events about crons do to a cell; see ``cell/apply.py``."""

from collections.abc import Callable
from typing import Any

import msgspec

from borgish.cell.crons.model import Cron
from borgish.cell.events import (
    AnyEvent,
    CronFired,
    CronPaused,
    CronRemoved,
    CronResumed,
    CronSet,
    Entry,
    JobSubmitted,
    RolledBack,
)
from borgish.cell.lifecycle import forget_run
from borgish.cell.model import Cell, Job
from borgish.spec.cron import run_key


def _cron_set(cell: Cell, event: CronSet, entry: Entry) -> None:
    _put(cell, msgspec.structs.replace(event.cron, generation=entry.position))


def _cron_removed(cell: Cell, event: CronRemoved, _entry: Entry) -> None:
    _remove(cell, event.cron)


def _cron_paused(cell: Cell, event: CronPaused, entry: Entry) -> None:
    cron = cell.crons[event.cron]
    _put(cell, msgspec.structs.replace(cron, paused=entry.actor, next=0.0))


def _cron_resumed(cell: Cell, event: CronResumed, _entry: Entry) -> None:
    cron = cell.crons[event.cron]
    _put(cell, msgspec.structs.replace(cron, paused="", next=event.next))


def _cron_fired(cell: Cell, event: CronFired, _entry: Entry) -> None:
    dealt = msgspec.structs.asdict(event)
    _put(cell, msgspec.structs.replace(cell.crons[dealt.pop("cron")], **dealt))


def _put(cell: Cell, cron: Cron) -> None:
    before = cell.crons.get(cron.key)
    cell.due.change(before, cron)
    cell.crons[cron.key] = cron
    if before is None or before.spec is not cron.spec:
        cell.footprint.note_cron(cron.key, cron)
    cell.touched.crons.add(cron.key)
    _note_crowd(cell, cron.key)


def _remove(cell: Cell, key: str) -> None:
    cell.due.change(cell.crons.pop(key), None)
    cell.footprint.note_cron(key, None)
    cell.touched.crons.add(key)
    _note_crowd(cell, key)


def _note_crowd(cell: Cell, cron: str) -> None:
    (cell.crowded.add if cell.is_crowded(cron) else cell.crowded.discard)(cron)


def note_run(cell: Cell, event: JobSubmitted, before: Job | None) -> None:
    """Let a job that was submitted be a run of its cron, or nobody's; ``before`` had its name."""
    if before is not None and before.cron:
        forget_run(cell, before)
    if event.cron:
        job = cell.jobs[event.spec.key]
        job.cron, job.due = event.cron, event.due
        runs = cell.runs.setdefault(job.cron, {})
        runs.setdefault(run_key(job.cron, job.key), set()).add(job.key)
        _note_crowd(cell, job.cron)


def restore(cell: Cell, event: RolledBack, entry: Entry) -> None:
    """Let crons be what a rollback makes of them."""
    for cron in event.crons:
        _put(cell, msgspec.structs.replace(cron, generation=entry.position))
    for key in event.crons_gone:
        _remove(cell, key)


APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {
    CronSet: _cron_set,
    CronRemoved: _cron_removed,
    CronPaused: _cron_paused,
    CronResumed: _cron_resumed,
    CronFired: _cron_fired,
}
