"""Whether crons began what was due, each instant once or as ``missed`` and ``overlap`` say, by the journal.

What should be is counted anew from the schedules: from when a cron was set, resumed or last dealt with, on.
Of a run of an application all stages begin, or none.
"""

from collections.abc import Iterable, Iterator

from borgish.cell.apply import apply_entry
from borgish.cell.crons.model import Cron
from borgish.cell.crons.runs import is_stuck, runs
from borgish.cell.events import CronFired, CronResumed, CronSet, Entry, JobSubmitted, RolledBack
from borgish.cell.model import Cell, Snapshot
from borgish.spec.cron import same_times
from borgish.spec.job import JobSpec
from borgish.vocabulary import Missed, Overlap

_MISSED_MAX, _MINUTE_SECONDS = 10, 60.0


def cron_problems(entries: Iterable[Entry]) -> list[str]:
    """Return what began that was not due, or not at all, or twice; and what was due and never dealt with."""
    cell, problems = Cell(Snapshot("sim")), list[str]()
    anchors: dict[str, float] = {}  # by cron: what was due up to then is no matter any more
    begun: dict[str, set[float]] = {}  # by cron: the instants for which a run began
    for entry in entries:
        for event in entry.events:
            if isinstance(event, CronFired):
                cron = cell.crons[event.cron]
                problems += _wrong(cell, cron, event, entry, anchors[event.cron], begun[event.cron])
                anchors[event.cron] = event.last
                begun[event.cron].update(_dues(entry))
        before = dict(cell.crons) if _is_set(entry) else {}
        apply_entry(cell, entry)
        for key in _set_by(entry, cell):
            cron = cell.crons[key]
            if key not in before:
                begun[key], anchors[key] = set(), max(entry.at, cron.last)
            elif cron.next != before[key].next or not same_times(cron.spec, before[key].spec):
                anchors[key] = max(entry.at, cron.last)
            if not cron.paused and cron.next != cron.spec.times.after(anchors[key]):
                problems.append(f"{key} is due at {cron.next}, and not first after {anchors[key]}")
    return problems


def _is_set(entry: Entry) -> bool:
    return any(isinstance(event, CronSet | CronResumed | RolledBack) for event in entry.events)


def _set_by(entry: Entry, cell: Cell) -> Iterator[str]:
    """Yield the crons that somebody decided about by an entry."""
    for event in entry.events:
        match event:
            case CronSet(cron):
                yield cron.key
            case CronResumed(key):
                yield key
            case RolledBack():
                yield from (cron.key for cron in event.crons if cron.key in cell.crons)


def _dues(entry: Entry) -> list[float]:
    """Return for which instants runs begin, each once."""
    return list(dict.fromkeys(event.due for event in _submitted(entry)))


def _submitted(entry: Entry) -> Iterator[JobSubmitted]:
    return (event for event in entry.events if isinstance(event, JobSubmitted) and event.cron)


def _wrong(
    cell: Cell, cron: Cron, fired: CronFired, entry: Entry, anchor: float, begun: set[float]
) -> Iterator[str]:
    """Yield what is wrong with one firing."""
    times, until, key = cron.spec.times, fired.last + fired.late_seconds, cron.key
    due = times.latest(anchor, until + 0.001, _MISSED_MAX)  # after a leap of the clock years may be between
    if not due or fired.last != due[-1]:
        yield f"{key} dealt with {fired.last} at {until}, and of it {due[-3:]} was due"
        return
    if fired.next != times.after(until):
        yield f"{key} is due next at {fired.next}, and {times.after(until)} comes first"
    found, wanted = _dues(entry), _wanted(cell, cron, due, until)
    # A stage that ends with a job which is over, or runs in an alloc set that is, keeps a run from beginning.
    refused = not found and fired.note and any(each.parent or each.inside for each in _stages(cell, cron))
    if found != wanted and not refused:
        yield f"{key} began runs for {found}, not {wanted}"
    for at in found:
        names = sorted(event.spec.name for event in _submitted(entry) if event.due == at)
        if names != (stages := sorted(_names(cell, cron, at))):
            yield f"{key} began {names} for {at}, not {stages}"
    if again := begun & set(found):
        yield f"{key} began runs for {sorted(again)} twice"


def _wanted(cell: Cell, cron: Cron, due: list[float], until: float) -> list[float]:
    """Return the instants for which a run is to begin."""
    spec = cron.spec
    at_once = _MISSED_MAX if spec.overlap is Overlap.ALLOW else 1
    recent = [at for at in due if at > until - _MINUTE_SECONDS]
    chosen = {Missed.SKIP: recent, Missed.ONCE: due[-1:], Missed.ALL: due}[spec.missed][-at_once:]
    live = [run for run in runs(cell, cron.key) if not run.is_over and not is_stuck(cell, run)]
    if live and spec.overlap is Overlap.FORBID:
        return []
    names = {at: _names(cell, cron, at) for at in chosen}
    return [
        at for at in chosen if names[at] and not any(f"{spec.user}/{each}" in cell.jobs for each in names[at])
    ]


def _names(cell: Cell, cron: Cron, at: float) -> list[str]:
    """Return the names of the jobs of a run; none where there is nothing that it could be."""
    spec, run = cron.spec, cron.spec.run_at(at)
    if not spec.app:
        return [run]
    return [f"{run}-{stage.name}" for stage in _stages(cell, cron)]


def _stages(cell: Cell, cron: Cron) -> list[JobSpec]:
    app = cell.apps.get(cron.spec.app_key)
    specs = (each.spec for each in app.present.documents) if app is not None else ()
    return [spec for spec in specs if not spec.is_service and spec.run]
