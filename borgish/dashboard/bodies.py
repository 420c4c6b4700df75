"""What each place shows below the head: lines above a list, the list, lines below it or beside it. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TypeVar, cast

import msgspec

from borgish.dashboard import actions, lists, past
from borgish.dashboard.asks import Answer
from borgish.dashboard.charts import MAP_LEGEND, rack_map, usage_lines
from borgish.dashboard.columns import Line, Role, line, marked, name, piece, wrapped
from borgish.dashboard.frame import shares
from borgish.dashboard.help import help_lines
from borgish.dashboard.lists import Listing, text_list
from borgish.dashboard.place import Action, Place, View
from borgish.dashboard.trails import Trails
from borgish.resources import show_amounts
from borgish.text import age, clock_time, local_times, plural
from borgish.wire.api import (
    AsOf,
    EventList,
    JobDetail,
    JobList,
    MachineList,
    MachineView,
    QuotaList,
    RefusalView,
    SummaryView,
    TaskList,
    TaskView,
    WhyView,
)
from borgish.wire.api_figures import RackList, UsageSeries
from borgish.wire.api_past import DiffView, PastWindow

WIDE_COLUMNS_MIN = 140
GUTTER_COLUMNS = 3
_TALL_MIN = 14  # so many lines are worth sharing among several parts

T = TypeVar("T")


class Output(msgspec.Struct):
    """A command that was run, what it wrote, and how it ended."""

    command: str
    lines: list[str] = []
    code: int | None = None


class Known(msgspec.Struct, frozen=True):
    """All that is known to show."""

    summary: SummaryView  # of the present
    answer: Answer = Answer(())
    elapsed_seconds: float = 0.0  # since the summary was true
    banner: str = ""  # what is wrong with it
    log: tuple[str, ...] = ()  # of the task that the place is of
    log_ended: str = ""
    outputs: tuple[Output, ...] = ()
    trails: Trails = Trails()  # of the machines in the summary
    role: str = ""  # of the token; "": whoever started the dashboard wants to look only

    @property
    def now(self) -> float:
        """Seconds since 1970, by the master's clock."""
        return datetime.fromisoformat(self.summary.status.now).timestamp() + self.elapsed_seconds


class Body(msgspec.Struct, frozen=True):
    """What a place shows. ``side`` stands beside the rest, where it is not empty."""

    listing: Listing
    above: Sequence[Line] = ()
    below: Sequence[Line] = ()
    side: Sequence[Line] = ()
    next_page: str = ""
    actions: tuple[Action, ...] = ()
    matches: tuple[tuple[int, int], ...] = ()  # see ``Screen``
    window: PastWindow | None = None
    is_whole: bool = True  # not only what stands there until the place is answered


class _Room(msgspec.Struct, frozen=True):
    """Columns and lines that a body has; the list has ``width`` of them, and ``side`` what is left."""

    full: int
    height: int

    @property
    def is_wide(self) -> bool:
        return self.full >= WIDE_COLUMNS_MIN

    @property
    def width(self) -> int:
        return (self.full - GUTTER_COLUMNS) * 3 // 5 if self.is_wide else self.full

    @property
    def side(self) -> int:
        return self.full - GUTTER_COLUMNS - self.width if self.is_wide else self.full


class _Seen(msgspec.Struct, frozen=True):
    """What a body is made of; ``views`` are answers to what its place asks."""

    known: Known
    place: Place
    room: _Room
    views: tuple[object, ...] = ()

    @property
    def now(self) -> float:
        """Seconds since 1970 at the moment that is shown."""
        then = as_of(self.views) if self.place.moment is not None else None  # and not a standby
        return datetime.fromisoformat(then.at).timestamp() if then and then.at else self.known.now

    def total(self, items: Sequence[object], present: int) -> int:
        """Return how many there are, listed or not: ``present``, in the past those that are listed."""
        return present if self.place.moment is None else len(items)


def body(known: Known, place: Place, width: int, height: int) -> Body:
    """Return what a place shows in so many columns and lines."""
    room = _Room(width, height)
    if place.view in _OWN:
        return _OWN[place.view](_Seen(known, place, room))
    answer = known.answer
    if place.view in (View.OVERVIEW, View.PENDING) and place.moment is None:
        views: tuple[object, ...] = (known.summary,)
    elif answer.error is not None and not answer.views:
        return Body(text_list(place.subject or place.view, _error(answer, width)), is_whole=False)
    elif not answer.views:
        waiting = [("Asking the master ...", Role.DIM)]
        return Body(text_list(place.subject or place.view, waiting), is_whole=False)
    else:
        views = answer.views
    return _ANSWERED[place.view](_Seen(known, place, room, views))


def as_of(views: Sequence[object]) -> AsOf | None:
    """Return the moment of the past that answers are of; None of the present."""
    found = (getattr(view, "as_of", None) for view in views)
    return next((each for each in found if isinstance(each, AsOf)), None)


def columns(width: int, *, beside: bool) -> tuple[int, int]:
    """Return the columns of a body's list, and those of what stands beside it."""
    room = _Room(width, 0)
    return (room.width, room.side) if beside else (width, 0)


def _error(answer: Answer, width: int) -> list[tuple[str, Role]]:
    error = answer.error
    if error is None:
        return []
    hint = wrapped(f"hint: {error.hint}", width) if error.hint else ()
    said = [(part, Role.BAD) for part in wrapped(error.message, width)]
    return [*said, *((part, Role.PLAIN) for part in hint)]


# The cell


def _overview(seen: _Seen) -> Body:
    (view,) = cast("tuple[SummaryView]", seen.views)
    listing = lists.overview(view)
    if seen.room.is_wide:
        return Body(listing, side=_beside_overview(seen, view))
    pending, events = lists.pending(view), lists.events(view)
    if seen.room.height < _TALL_MIN:
        return Body(listing)
    spare = (seen.room.height - 1) // 4
    below = pending.draw(seen.room.full, min(pending.rows, spare)) if view.status.pending else []
    return Body(listing, below=[*below, *events.draw(seen.room.full, spare - (1 if below else 0))])


def _beside_overview(seen: _Seen, view: SummaryView) -> list[Line]:
    """Return what stands beside the jobs of the cell: each block has the lines that it needs, as far as the
    others leave them."""
    side, height = seen.room.side, seen.room.height
    machines = lists.machines(view)
    trails = {} if view.as_of is not None else seen.known.trails.used  # those are of the present
    if lists.MACHINE_LINES * machines.rows <= height // 2:
        machines = lists.machines_with_usage(view, trails)
    blocks = [machines, lists.upkeep(view.status, seen.now), lists.events(view)]
    if view.status.pending:
        blocks.insert(0, lists.pending(view, side))
    rows = shares([max(1, each.rows) for each in blocks], [1] * len(blocks), height - len(blocks))
    drawn = [row for each, count in zip(blocks, rows, strict=True) for row in each.draw(side, count)]
    return drawn[:height]


def _jobs(seen: _Seen) -> Body:
    (found,) = cast("tuple[JobList]", seen.views)
    return Body(
        lists.job_list(found.items, seen.total(found.items, seen.known.summary.status.jobs)),
        next_page=found.page.next,
    )


def _tasks(seen: _Seen) -> Body:
    (found,) = cast("tuple[TaskList]", seen.views)
    return Body(lists.task_list(found.items, seen.now), next_page=found.page.next)


def _machines(seen: _Seen) -> Body:
    found, racks = cast("tuple[MachineList, RackList]", seen.views)
    listing = lists.machine_list(found.items, seen.total(found.items, seen.known.summary.status.machines))
    legend = line([], seen.room.side, MAP_LEGEND, Role.DIM)
    if seen.room.is_wide:
        return Body(
            listing,
            side=[*rack_map(racks.items, seen.room.side, seen.room.height - 1), legend],
            next_page=found.page.next,
        )
    drawn = rack_map(racks.items, seen.room.full, max(1, seen.room.height // 3))
    return Body(listing, above=[*drawn, legend], next_page=found.page.next)


def _pending(seen: _Seen) -> Body:
    (view,) = cast("tuple[SummaryView]", seen.views)
    kept = tuple(_with(seen.place.filter, view.pending, lambda each: f"{each.job} {each.text} {each.hint}"))
    return Body(lists.pending(msgspec.structs.replace(view, pending=kept)))


def _events(seen: _Seen) -> Body:
    (found,) = cast("tuple[EventList]", seen.views)
    latest = tuple(reversed(found.items))
    kept = tuple(
        _with(seen.place.filter, latest, lambda each: f"{each.kind} {each.text} {each.job} {each.machine}")
    )
    return Body(lists.event_list(kept))


def _users(seen: _Seen) -> Body:
    (found,) = cast("tuple[QuotaList]", seen.views)
    return Body(
        lists.quota_list(
            tuple(_with(seen.place.filter, found.items, lambda each: f"{each.user} {each.band}"))
        )
    )


def _usage(seen: _Seen) -> Body:
    series, busiest = cast("tuple[UsageSeries, TaskList]", seen.views)
    until = "" if seen.place.moment is None else " UNTIL NOW"  # samples are of no moment of the journal
    title = line([piece(f"USAGE OF ALL TASKS{until}", seen.room.full - 1, Role.TITLE)], seen.room.full)
    drawn = usage_lines(series, seen.known.summary.status.capacity, seen.room.full)
    return Body(
        lists.task_list(busiest.items, seen.now, title=f"MOST {seen.place.sort_key.upper()}", usage=True),
        above=[title, *drawn],
    )


def _with(text: str, items: Iterable[T], said: Callable[[T], str]) -> Iterator[T]:
    return (each for each in items if text.lower() in said(each).lower())


# One thing


def _job(seen: _Seen) -> Body:
    found, tasks, events = cast("tuple[JobDetail, TaskList, EventList]", seen.views)
    listing = lists.task_list(tasks.items, seen.now, title=f"TASKS OF {seen.place.subject}")
    latest = lists.event_list(events.items, from_end=True)
    above = _told(_of_job(found, seen.now), seen.room.width)
    above = above[: max(1, seen.room.height // 3)]
    if seen.room.is_wide:
        return Body(
            listing, above, side=latest.draw(seen.room.side, seen.room.height - 1), next_page=tasks.page.next
        )
    spare = min(latest.rows, seen.room.height // 4) if seen.room.height >= _TALL_MIN else 0
    return Body(
        listing, above, latest.draw(seen.room.full, spare) if spare else [], next_page=tasks.page.next
    )


def _told(texts: Iterable[tuple[str, Role]], width: int) -> list[Line]:
    """Return texts as lines: what is in the way of something, and the way out, to their last word."""
    return [
        line([], width, part, role)
        for text, role in texts
        for part in ([text] if role is Role.DIM else wrapped(text, width))
    ]


def _of_job(found: JobDetail, now: float) -> Iterator[tuple[str, Role]]:
    """Yield what there is to say about a job, the most important first."""
    job, spec = found.job, found.spec
    counts = (
        (job.up, "up"),
        (job.running if job.up is None else 0, "running"),
        (job.pending, "pending"),
        (job.finished, "finished"),
        (job.failed, "failed"),
    )
    shown = ", ".join(f"{count} {word}" for count, word in counts if count) or "none up"
    since = f"submitted {age(job.submitted_at, now)} ago by {job.submitted_by}"
    yield f"{job.name}  {job.outcome or job.state}: {plural(job.tasks, 'task')}, {shown}", lists.job_role(job)
    for refusal in found.refusals:
        yield local_times(refusal.text), Role.WARN
        if refusal.hint:
            yield f"hint: {refusal.hint}", Role.PLAIN
    if job.reason and not found.refusals:
        yield local_times(job.reason), Role.WARN
    if found.rollout is not None:
        rollout = found.rollout
        waits = f"; {rollout.waits}" if rollout.waits else ""
        yield (
            f"{rollout.kind}: {plural(rollout.left, 'task')} left, {rollout.changed} changed{waits}",
            Role.WARN,
        )
        yield from ((f"  {way_out}", Role.PLAIN) for way_out in rollout.ways_out)
    what = spec.image or " ".join(spec.run)
    yield f"{job.band} {job.priority}, version {job.version}, {since}", Role.PLAIN
    yield f"{show_amounts(spec.resources)} each: {what}", Role.DIM


def _task(seen: _Seen) -> Body:
    task = cast("TaskView", seen.views[0])
    above = _told(_of_task(task, seen.now), seen.room.full)
    if len(seen.views) > 1:
        above += usage_lines(cast("UsageSeries", seen.views[1]), task.resources, seen.room.full)
    return _log_body(seen, above[: max(1, seen.room.height - 4)])


def _of_task(task: TaskView, now: float) -> Iterator[tuple[str, Role]]:
    where = f" on {task.machine}" if task.machine else ""
    starts = f", {_starts(task.restarts)}" if task.machine else ""
    ended = "" if task.exit_code is None else f", last exit code {task.exit_code}"
    role = lists.task_role(task)
    yield f"{task.name}  {lists.state_of(task)}{where}, for {age(task.since, now)}{starts}{ended}", role
    if task.reason:
        yield local_times(task.reason), Role.WARN
    if task.incoming is not None:
        yield f"is being replaced: {task.incoming.text}", Role.WARN
    for program in task.programs:
        yield f"  {program.name}: {program.phase}, {_starts(program.restarts)} {program.reason}", Role.PLAIN
    ports = ", ".join(f"{port} {number}" for port, number in task.ports.items())
    parts = (
        f"attempt {task.attempt}",
        f"version {task.version}",
        ports and f"ports {ports}",
        ", ".join(task.devices),
    )
    yield "  ".join(filter(None, (show_amounts(task.resources), *parts))), Role.DIM


def _starts(restarts: int) -> str:
    return f"{restarts + 1} start{'s' * (restarts > 0)}"


def _machine(seen: _Seen) -> Body:
    machine, tasks = cast("tuple[MachineView, TaskList]", seen.views)
    head = lists.machine_list([machine], 1).draw(seen.room.full, 1)
    told = [*machine.conditions, *(f"stays: {each}" for each in machine.staying)]
    told += [f"orphan: {each}" for each in machine.orphans]
    told += [f"taint {each.key}={each.value}: {each.effect}" for each in machine.taints]
    attributes = "  ".join(f"{key}={value}" for key, value in sorted(machine.attributes.items()))
    above = [*head, *(line([], seen.room.full, each, Role.WARN) for each in told)]
    above = above[: max(2, seen.room.height // 3)]
    above.append(line([], seen.room.full, f"{machine.address}  {attributes}", Role.DIM))
    listing = lists.task_list(tasks.items, seen.now, title=f"TASKS ON {seen.place.subject}")
    return Body(listing, above, next_page=tasks.page.next)


# Texts


def _log_body(seen: _Seen, above: Sequence[Line] = ()) -> Body:
    known, place = seen.known, seen.place
    if place.moment is not None:
        then = "No output is kept for moments of the past; the present has what is left."
        return Body(text_list(f"LOG OF {place.subject}", [(then, Role.DIM)]), above)
    kept = known.log if not place.filter else tuple(_with(place.filter, known.log, str))
    ended = [(known.log_ended, Role.DIM)] if known.log_ended else []
    run = ", THE RUN BEFORE" if place.previous else ""
    still = "" if place.follows else ": stands still, G goes on"
    return _lines(f"LOG OF {place.subject}{run}{still}", kept, ended, place, above)


def _lines(
    title: str,
    kept: tuple[str, ...],
    last: Sequence[tuple[str, Role]],
    place: Place,
    above: Sequence[Line] = (),
) -> Body:
    """Return lines of plain text, which are many, as the place shows them, and some words after them."""
    count, left = len(kept), place.left
    aside = f" (from character {left + 1}, < leads back)" if left else ""

    def row(i: int, width: int) -> Line:
        if i >= count:
            return line([], width, *last[i - count])
        shown = line([], width, kept[i][left:])
        return marked(shown, place.search) if place.search else shown

    listing = Listing(count + len(last), lists.plain_title(f"{title}{aside}"), row, empty="Nothing yet.")
    return Body(listing, above, matches=_matches(place.search, kept) if place.search else ())


@lru_cache(2)  # lines that stand still are searched once
def _matches(text: str, lines: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    wanted = text.lower()
    return tuple((i, at) for i, each in enumerate(lines) if (at := each.lower().find(wanted)) >= 0)


def _log(seen: _Seen) -> Body:
    return _log_body(seen)


def _why(seen: _Seen) -> Body:
    (found,) = cast("tuple[WhyView]", seen.views)
    lines = [(part, Role.PLAIN) for part in wrapped(local_times(found.text), seen.room.full)]
    for refusal in found.refusals:
        lines += [("", Role.PLAIN), *_refusal(refusal, seen.room.full)]
    if found.events:
        lines += [("", Role.PLAIN), ("EVENTS", Role.TITLE)]
    for event in reversed(found.events):
        role = Role.BAD if event.bad else Role.PLAIN
        text = f"{clock_time(event.at)}  {event.kind:9}  {local_times(event.text)}"
        lines += [(part, role) for part in wrapped(text, seen.room.full)]
    kept = [each for each in lines if seen.place.filter.lower() in each[0].lower()]
    return Body(text_list(f"WHY {seen.place.subject} IS {found.outcome or found.state}", kept))


def _refusal(refusal: RefusalView, width: int) -> Iterator[tuple[str, Role]]:
    yield from (
        (part, Role.WARN) for part in wrapped(f"{refusal.indexes}: {local_times(refusal.text)}", width)
    )
    if refusal.hint:
        yield from ((part, Role.PLAIN) for part in wrapped(f"hint: {refusal.hint}", width))
    if refusal.waits_for:
        yield from ((part, Role.DIM) for part in wrapped(f"waits for {refusal.waits_for}", width))


_SIGNS = {"added": ("+", Role.GOOD), "removed": ("-", Role.BAD), "changed": ("~", Role.WARN)}


def _diff(seen: _Seen) -> Body:
    (found,) = cast("tuple[DiffView]", seen.views)
    lines: list[tuple[str, Role]] = []
    for section, changes in found.changes.items():
        if changes:
            lines.append((section.upper(), Role.TITLE))
        for change in changes:
            sign, role = _SIGNS[change.kind]
            indexes = f"/{change.indexes}" if change.indexes else ""
            text = f"  {sign} {change.name}{indexes}: {'; '.join(change.lines)}"
            lines += [(part, role) for part in wrapped(text, seen.room.full)]
    kept = [each for each in lines if seen.place.filter.lower() in each[0].lower()]
    title = f"FROM POSITION {found.old.position} TO {found.new.position}"
    return Body(text_list(title, kept or [("Nothing differs.", Role.DIM)]))


def _help(seen: _Seen) -> Body:
    return Body(text_list("KEYS", tuple(help_lines(seen.room.full))))


def _output(seen: _Seen) -> Body:
    number = int(seen.place.subject)
    if number >= len(seen.known.outputs):
        return Body(text_list("OUTPUT", [("Starting ...", Role.DIM)]))
    output = seen.known.outputs[number]
    ends = {None: ("running ...", Role.DIM), 0: ("done", Role.GOOD)}
    lines = tuple(part for text in tuple(output.lines) for part in wrapped(text, seen.room.full))
    end = ends.get(output.code, (f"exit code {output.code}", Role.BAD))
    return _lines(output.command, lines, [end], seen.place)


def _actions(seen: _Seen) -> Body:
    if seen.known.role in ("", "reader"):
        return Body(
            text_list("ACTIONS", [("This dashboard only looks: no commands are run from it.", Role.DIM)])
        )
    found = actions.actions(
        View(seen.place.filter) if seen.place.filter else None, seen.place.subject, seen.known.role
    )

    def row(i: int, width: int) -> Line:
        command = actions.shown(found[i])
        return line([name(command, min(60, width * 3 // 5), Role.KEY)], width, found[i].words)

    about = f" ON {seen.place.subject}" if seen.place.subject else ""
    title = lists.plain_title(f"ACTIONS{about}: enter asks before it runs one")
    return Body(
        Listing(len(found), title, row, empty="There is nothing that this token may do here."), actions=found
    )


# Time


def _time(seen: _Seen) -> Body:
    (window,) = cast("tuple[PastWindow]", seen.views)
    steps = window.steps
    at = min(seen.place.at, len(steps) - 1) if steps else -1
    listing = past.entry_list(window)
    then = past.cell_then(window, at)
    slider = past.slider(window, steps[at].entry if steps else None, seen.room.width)
    shown = past.lines_of(
        window, at, then, seen.room.side, seen.room.height - 1 if seen.room.is_wide else seen.room.height // 2
    )
    if seen.room.is_wide:
        return Body(listing, [slider], side=shown, window=window)
    return Body(listing, [slider], shown, window=window)


_OWN: dict[View, Callable[[_Seen], Body]] = {
    View.LOG: _log,
    View.HELP: _help,
    View.OUTPUT: _output,
    View.ACTIONS: _actions,
}
_ANSWERED: dict[View, Callable[[_Seen], Body]] = {
    View.OVERVIEW: _overview,
    View.JOBS: _jobs,
    View.TASKS: _tasks,
    View.MACHINES: _machines,
    View.PENDING: _pending,
    View.EVENTS: _events,
    View.USERS: _users,
    View.USAGE: _usage,
    View.JOB: _job,
    View.TASK: _task,
    View.MACHINE: _machine,
    View.WHY: _why,
    View.DIFF: _diff,
    View.TIME: _time,
}
