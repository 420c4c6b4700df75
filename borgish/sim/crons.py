"""Whether crons began what was due, each instant once or as ``missed`` and ``overlap`` say, by the journal.

What should be is counted anew from the schedules: from when a cron was set, resumed or last dealt with, on.
"""

from collections.abc import Iterable, Iterator

from borgish.cell.apply import apply_entry
from borgish.cell.crons import Cron
from borgish.cell.events import CronFired, CronResumed, CronSet, Entry, JobSubmitted, RolledBack
from borgish.cell.model import Cell, Snapshot
from borgish.spec.cron import same_times
from borgish.vocabulary import Missed, Overlap, State

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
    return [event.due for event in entry.events if isinstance(event, JobSubmitted) and event.cron]


def _wrong(
    cell: Cell, cron: Cron, fired: CronFired, entry: Entry, anchor: float, begun: set[float]
) -> Iterator[str]:
    """Yield what is wrong with one firing."""
    times, until, key = cron.spec.times, fired.last + fired.late_seconds, cron.key
    due = times.latest(
        anchor, until + 0.001, _MISSED_MAX
    )  # after a clock has leapt there may be years between
    if not due or fired.last != due[-1]:
        yield f"{key} dealt with {fired.last} at {until}, and of it {due[-3:]} was due"
        return
    if fired.next != times.after(until):
        yield f"{key} is due next at {fired.next}, and {times.after(until)} comes first"
    found, wanted = _dues(entry), _wanted(cell, cron, due, until)
    if found != wanted:
        yield f"{key} began runs for {found}, not {wanted}"
    if again := begun & set(found):
        yield f"{key} began runs for {sorted(again)} twice"


def _wanted(cell: Cell, cron: Cron, due: list[float], until: float) -> list[float]:
    """Return the instants for which a run is to begin."""
    spec = cron.spec
    at_once = _MISSED_MAX if spec.overlap is Overlap.ALLOW else 1
    recent = [at for at in due if at > until - _MINUTE_SECONDS]
    chosen = {Missed.SKIP: recent, Missed.ONCE: due[-1:], Missed.ALL: due}[spec.missed][-at_once:]
    live = [job for job in cell.jobs.values() if job.cron == cron.key and job.state is not State.DEAD]
    if live and spec.overlap is Overlap.FORBID:
        return []
    return [at for at in chosen if spec.run_at(at).key not in cell.jobs]
