"""The four lists: machines, jobs, what is pending and why, what happened. Pure.

Each draws as many rows as it is asked for and no more, so a frame costs what it shows, not what is known.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from borgish.dashboard.columns import Line, Piece, Role, line, machine_bar, name, percent, piece
from borgish.text import clock_time
from borgish.vocabulary import State
from borgish.wire.api import AppSummary, EventView, JobView, MachineView, RefusalView, SummaryView, UsageView

_STATE_COLUMNS = 8  # cordoned, finished
_PERCENT_COLUMNS = 4
_COUNT_COLUMNS = 5
_BAND_COLUMNS = 10  # production
_UP_COLUMNS = 11  # 10000/10000
_KIND_COLUMNS = 9  # submitted
_TIME_COLUMNS = 8

_MACHINE_ROLES = {
    "up": Role.GOOD,
    "cordoned": Role.WARN,
    "quarantined": Role.WARN,
    "down": Role.BAD,
}


class Listing(msgspec.Struct, frozen=True):
    """One list: ``draw(width, rows)`` gives its title and at most so many rows below it."""

    rows: int  # that it has, at least 1: an empty list says so
    draw: Callable[[int, int], list[Line]]


def machines(view: SummaryView) -> Listing:
    """Return the machines, those with trouble first, with what is used and committed there."""
    known, total = view.machines, view.status.machines

    def draw(width: int, rows: int) -> list[Line]:
        named, bar = _name_columns(width), _bar_columns(width)
        resource = bar + _PERCENT_COLUMNS + 1
        title = [
            piece(_title("MACHINES", min(rows, len(known)), total), named, Role.TITLE),
            piece("STATE", _STATE_COLUMNS, Role.HEADING),
            piece("CPU", resource, Role.HEADING),
            piece("RAM", resource, Role.HEADING),
            piece("TASKS", _COUNT_COLUMNS, Role.HEADING),
        ]
        body = (_machine(machine, width, named, bar) for machine in known)
        return _table(title, "REASON", body, "None has joined yet.", width, rows)

    return Listing(max(1, len(known)), draw)


def jobs(view: SummaryView) -> Listing:
    """Return the jobs, those with trouble first. Those of an application are together, and of one that is
    well there is one line for all of them."""
    known, total = view.jobs, view.status.jobs
    shown = list(_grouped(view))

    def draw(width: int, rows: int) -> list[Line]:
        named = _name_columns(width) + 4
        title = [
            piece(_title("JOBS", min(rows, len(known)), total), named, Role.TITLE),
            piece("STATE", _STATE_COLUMNS, Role.HEADING),
            piece("BAND", _BAND_COLUMNS, Role.HEADING),
            piece("UP/TASKS", _UP_COLUMNS, Role.HEADING, right=True),
        ]
        body = (_job_or_app(each, width, named) for each in shown)
        return _table(title, "REASON", body, "None. `borgctl job submit FILE` brings one.", width, rows)

    return Listing(max(1, len(shown)), draw)


def _grouped(view: SummaryView) -> Iterator[JobView | AppSummary]:
    """Yield applications, each with its jobs that are not well after it, and jobs of none; then those of
    crons alone."""
    apps = {app.name: app for app in view.apps}
    members: dict[str, list[JobView]] = {}
    for job in view.jobs:
        members.setdefault(job.app, []).append(job)
    for job in view.jobs:
        if (app := apps.get(job.app)) is None:
            yield job
        elif job.app in members:
            yield app
            jobs = members.pop(job.app)
            yield from (each for each in jobs if app.up < app.tasks and _job_role(each) in _TROUBLE)
    yield from (app for app in view.apps if not app.jobs)


def pending(view: SummaryView) -> Listing:
    """Return what is not placed, why, and the way out."""
    known, count = view.pending, view.status.pending
    rows_known = sum(2 if refusal.hint else 1 for refusal in known)

    def draw(width: int, rows: int) -> list[Line]:
        named = _name_columns(width)
        title = [
            piece(f"PENDING {count}", named, Role.TITLE),
            piece("TASKS", _COUNT_COLUMNS, Role.HEADING, right=True),
        ]
        body = (row for refusal in known for row in _refusal(refusal, width, named))
        empty = "The scheduler has not evaluated them yet." if count else "Nothing: every task is placed."
        return _table(title, "WHY, AND THE WAY OUT", body, empty, width, rows)

    return Listing(max(1, rows_known), draw)


def events(view: SummaryView) -> Listing:
    """Return what happened last, the latest at the bottom."""
    known = view.events

    def draw(width: int, rows: int) -> list[Line]:
        title = [piece("EVENTS", _TIME_COLUMNS + 1 + _KIND_COLUMNS, Role.TITLE)]
        latest = known[-rows:] if rows else ()
        return _table(title, "", (_event(event, width) for event in latest), "None yet.", width, rows)

    return Listing(max(1, len(known)), draw)


def _table(
    title: list[Piece], heading: str, body: Iterator[Line], empty: str, width: int, rows: int
) -> list[Line]:
    """Return the title and the first ``rows`` lines of the body, or what to say when it has none."""
    shown = list(islice(body, rows))
    if not shown and rows:
        shown = [line([], width, empty, Role.DIM)]
    return [line(title, width, heading, Role.HEADING), *shown]


def _title(word: str, shown: int, total: int) -> str:
    return f"{word} {total}" if shown >= total else f"{word} {shown}/{total}"


def _name_columns(width: int) -> int:
    return min(30, max(8, width // 5))


def _bar_columns(width: int) -> int:
    return min(16, max(4, width // 10))


def _machine(machine: MachineView, width: int, named: int, bar: int) -> Line:
    use, held, has = machine.usage or UsageView(0, 0), machine.committed, machine.capacity
    pieces = [
        name(machine.name, named),
        piece(machine.state, _STATE_COLUMNS, _state_role(machine)),
        *_resource(use.cpu_millis, held.cpu_millis, has.cpu_millis, bar),
        *_resource(use.ram_bytes, held.ram_bytes, has.ram_bytes, bar),
        piece(str(machine.tasks), _COUNT_COLUMNS, right=True),
    ]
    return line(pieces, width, _trouble(machine), Role.WARN)


def _state_role(machine: MachineView) -> Role:
    if machine.state == "up" and not machine.answering:
        return Role.WARN
    return _MACHINE_ROLES.get(machine.state, Role.WARN)


def _resource(used: int, held: int, whole: int, bar: int) -> list[Piece]:
    shown = f" {percent(held, whole):>{_PERCENT_COLUMNS}} "
    return [*machine_bar(used, held, whole, bar), Piece(shown)]


def _trouble(machine: MachineView) -> str:
    """Return all that a person should know of a machine, the reason of its state first."""
    count = len(machine.orphans)
    orphans = f"{count} orphan{'s' * (count != 1)}" if count else ""
    return "; ".join(part for part in (machine.reason, *machine.conditions, orphans) if part)


_TROUBLE = (Role.BAD, Role.WARN)


def _job_or_app(each: JobView | AppSummary, width: int, named: int) -> Line:
    return _job(each, width, named) if isinstance(each, JobView) else _app(each, width, named)


def _app(app: AppSummary, width: int, named: int) -> Line:
    role = Role.BAD if app.failed else Role.GOOD if app.up >= app.tasks else Role.WARN
    pieces = [
        name(app.name, named),
        piece("app", _STATE_COLUMNS, role),
        piece(f"v{app.version}", _BAND_COLUMNS),
        piece(f"{app.up}/{app.tasks}", _UP_COLUMNS, right=True),
    ]
    counts = (
        (app.jobs, "job" if app.jobs == 1 else "jobs"),
        (app.crons, "cron" if app.crons == 1 else "crons"),
        (app.pending, "pending"),
        (app.failed, "failed"),
    )
    return line(pieces, width, ", ".join(f"{count} {word}" for count, word in counts if count))


def _job(job: JobView, width: int, named: int) -> Line:
    role = _job_role(job)
    pieces = [
        name(f"  {job.name.partition('/')[2]}" if job.app else job.name, named),
        piece(job.outcome or job.state, _STATE_COLUMNS, role),
        piece(job.band, _BAND_COLUMNS, Role(job.band)),
        piece(f"{job.up}/{job.tasks}", _UP_COLUMNS, right=True),
    ]
    return line(pieces, width, _what_of_it(job), Role.DIM if role is Role.DIM else Role.PLAIN)


def _job_role(job: JobView) -> Role:
    if job.failed:
        return Role.BAD
    if job.state is State.DEAD:
        return Role.DIM
    return Role.GOOD if (job.up or 0) + job.dead >= job.tasks else Role.WARN


def _what_of_it(job: JobView) -> str:
    """Return how its dead tasks came out, and what is in its way."""
    counts = ((job.finished, "finished"), (job.failed, "failed"), (job.killed, "killed"))
    ended = ", ".join(f"{count} {word}" for count, word in counts if count)
    return "; ".join(part for part in (ended, job.reason) if part)


def _refusal(refusal: RefusalView, width: int, named: int) -> Iterator[Line]:
    pieces = [name(refusal.job, named), piece(str(refusal.tasks), _COUNT_COLUMNS, right=True)]
    yield line(pieces, width, refusal.text, Role.PLAIN if refusal.in_order else Role.WARN)
    if refusal.hint:
        yield line([Piece("    hint: ", Role.DIM)], width, refusal.hint)


def _event(event: EventView, width: int) -> Line:
    role = Role.BAD if event.bad else Role.PLAIN
    pieces = [
        piece(clock_time(event.at), _TIME_COLUMNS, Role.DIM),
        piece(event.kind, _KIND_COLUMNS, role),
    ]
    return line(pieces, width, event.text, role)
