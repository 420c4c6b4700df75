"""Entries of the journal one by one, and the cell after each: a window of the past, walked through without
asking again. Pure."""

import msgspec

from borgish.dashboard.columns import Line, Piece, Role, line, name, piece
from borgish.dashboard.lists import Listing, job_list, machine_list
from borgish.dashboard.place import Target, View
from borgish.text import clock_time, day_and_time, plural
from borgish.wire.api import JobView, MachineView
from borgish.wire.api_past import HistoryView, PastStep, PastWindow

_POSITION_COLUMNS = 8
_TIME_COLUMNS = 8
_ASKED_COLUMNS = 10
_JOBS_SHOWN = 100


class Then(msgspec.Struct, frozen=True):
    """The cell after one entry, as far as a screen shows it: jobs and machines that were named in the window,
    what this entry changed first."""

    jobs: tuple[JobView, ...]
    machines: tuple[MachineView, ...]
    changed: frozenset[str]  # names of jobs and machines


def cell_then(window: PastWindow, at: int) -> Then:
    """Return the cell after entry ``at`` of a window; before the first for -1."""
    jobs = {each.name: each for each in window.first.jobs}
    machines = {each.name: each for each in window.first.machines}
    for step in window.steps[: at + 1]:
        jobs.update((each.name, each) for each in step.jobs)
        machines.update((each.name, each) for each in step.machines)
        for gone in step.jobs_gone:
            jobs.pop(gone, None)
        for gone in step.machines_gone:
            machines.pop(gone, None)
    changed = _changed(window.steps[at]) if at >= 0 else frozenset()
    return Then(
        tuple(sorted(jobs.values(), key=lambda each: (each.name not in changed, each.dead >= each.tasks)))[
            :_JOBS_SHOWN
        ],
        tuple(each for each in machines.values() if each.name in changed or each.state != "up"),
        changed,
    )


def _changed(step: PastStep) -> frozenset[str]:
    return frozenset([*(each.name for each in step.jobs), *(each.name for each in step.machines)])


def entry_list(window: PastWindow) -> Listing:
    """Return the entries of a window, in order."""
    steps = window.steps

    def title(width: int, _shown: range) -> Line:
        pieces = [
            piece("POSITION", _POSITION_COLUMNS, Role.TITLE, right=True),
            piece("AT", _TIME_COLUMNS, Role.HEADING),
            piece("WHO", _who_columns(width), Role.HEADING),
            piece("ASKED", _ASKED_COLUMNS, Role.HEADING),
        ]
        return line(pieces, width, "WHAT", Role.HEADING)

    def row(i: int, width: int) -> Line:
        entry = steps[i].entry
        is_bad = any(event.bad for event in entry.events)
        pieces = [
            piece(str(entry.position), _POSITION_COLUMNS, right=True),
            piece(clock_time(entry.at), _TIME_COLUMNS, Role.DIM),
            name(entry.actor, _who_columns(width)),
            piece(entry.asked, _ASKED_COLUMNS, Role.BAD if is_bad else Role.PLAIN),
        ]
        more = f" (and {len(entry.events) - 1} more)" if len(entry.events) > 1 else ""
        happened = f"{entry.events[0].text}{more}" if entry.events else entry.text or entry.subject
        return line(pieces, width, happened)

    def target(i: int) -> Target:
        return Target(View.OVERVIEW, str(steps[i].entry.position))

    return Listing(len(steps), title, row, target, "The journal has no entries here.")


def _who_columns(width: int) -> int:
    return min(16, max(6, width // 10))


def slider(window: PastWindow, entry: HistoryView | None, width: int) -> Line:
    """Return where in the whole journal somebody is, in one line of exactly ``width`` columns."""
    first, last, _column, columns = slider_columns(window, width)
    position = entry.position if entry else window.head
    span = max(1, window.head - window.earliest)
    at = round((position - window.earliest) / span * (columns - 1))
    bar = [
        Piece(first),
        Piece("─" * at, Role.DIM),
        Piece("●", Role.KEY),
        Piece("─" * (columns - 1 - at), Role.DIM),
        Piece(last),
    ]
    when = f" {day_and_time(entry.at)}" if entry else ""
    return line(bar if columns > 1 else [], width, when, Role.TITLE)


_WHEN_COLUMNS = 21


def slider_columns(window: PastWindow, width: int) -> tuple[str, str, int, int]:
    """Return what stands before and after the slider, its first column and how many it has."""
    first, last = f"{window.earliest} ", f" {window.head}"
    return first, last, len(first), max(0, width - len(first) - len(last) - _WHEN_COLUMNS)


def lines_of(window: PastWindow, at: int, then: Then, width: int, height: int) -> list[Line]:
    """Return what an entry did, and the cell after it, in at most ``height`` lines."""
    if at < 0 or height <= 0:
        return []
    step = window.steps[at]
    tasks = f"{step.running} running, {step.pending} pending, {step.dead} dead"
    counts = f"{plural(step.machines_up, 'machine')} up; tasks: {tasks}"
    made = [line([], width, f"AFTER {step.entry.position}: {counts}", Role.TITLE)]
    made += [
        line([], width, f"  {each.text}", Role.BAD if each.bad else Role.PLAIN)
        for each in step.entry.events[:4]
    ]
    machines = machine_list(then.machines, len(then.machines))
    if then.machines:
        made += machines.draw(width, min(machines.rows, max(1, height // 5)))
    made += job_list(then.jobs, len(then.jobs), then.changed).draw(width, height)
    return made[:height]
