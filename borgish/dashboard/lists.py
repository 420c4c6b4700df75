"""Lists of what a cell has: jobs, tasks, machines, what is pending and why, what happened, quotas. Pure.

Each draws as many rows as it is asked for and no more, so a frame costs what it shows, not what is known.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from borgish.dashboard.columns import (
    Line,
    Piece,
    Role,
    chosen,
    line,
    machine_bar,
    name,
    percent,
    piece,
    sparkline,
    wrapped,
)
from borgish.dashboard.place import Target, View
from borgish.resources import show_bytes, show_cpu
from borgish.text import age, clock_time, day_and_time, local_times, plural
from borgish.vocabulary import State, task_name
from borgish.wire.api import (
    AppSummary,
    EventView,
    JobView,
    MachineView,
    QuotaView,
    RefusalView,
    StatusView,
    SummaryView,
    TaskView,
    UsageView,
)

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
    """One list. Its rows are made when they are drawn."""

    rows: int  # that it has; an empty one says so in a row
    title: Callable[[int, range], Line]  # of a width, and of the rows that are shown
    row: Callable[[int, int], Line]  # which, of a width
    target: Callable[[int], Target | None] = lambda _row: None  # where Enter leads
    empty: str = ""
    from_end: bool = False  # where not all have room, the last are shown

    def draw(self, width: int, height: int, top: int = 0, at: int = -1) -> list[Line]:
        """Return the title and at most ``height`` rows below it, from ``top`` on; the cursor is on ``at``."""
        if self.from_end:
            top = max(0, self.rows - height)
        shown = range(top, min(self.rows, top + max(0, height)))
        body = [self.row(i, width) for i in shown]
        if shown and at in shown:
            body[at - top] = chosen(body[at - top])
        if not body and height > 0:
            body = [line([], width, self.empty, Role.DIM)]
        return [self.title(width, shown), *body]


def plain_title(word: str) -> Callable[[int, range], Line]:
    """Return the title of a list without columns."""
    return lambda width, _shown: line([piece(word, len(word), Role.TITLE)], width)


def machines(view: SummaryView) -> Listing:
    """Return the machines of a summary, those with trouble first."""
    return machine_list(view.machines, view.status.machines)


MACHINE_LINES = 2
"""That a machine has together with what it used lately."""


def machines_with_usage(view: SummaryView, used: Mapping[str, Sequence[UsageView]]) -> Listing:
    """Return the machines of a summary, and below each what it used lately, as shares of what it has."""
    known = view.machines
    plain = machines(view)

    def row(i: int, width: int) -> Line:
        at, part = divmod(i, MACHINE_LINES)
        return _used_lately(known[at], used.get(known[at].name, ()), width) if part else plain.row(at, width)

    def title(width: int, shown: range) -> Line:
        return plain.title(width, shown[::MACHINE_LINES])

    return Listing(MACHINE_LINES * len(known), title, row, empty=plain.empty)


def _used_lately(machine: MachineView, used: Sequence[UsageView], width: int) -> Line:
    now, has = machine.usage, machine.capacity
    if now is None:
        return line([], width)
    spark = max(4, width // 2 - _OF_MACHINE_COLUMNS - 8)
    cpu, ram = [each.cpu_millis for each in used], [each.ram_bytes for each in used]
    of_cpu = f"{show_cpu(now.cpu_millis)} of {show_cpu(has.cpu_millis)}"
    of_ram = f"{show_bytes(now.ram_bytes)} of {show_bytes(has.ram_bytes)}"
    pieces = [
        piece("  cpu", 5, Role.DIM),
        Piece(sparkline(cpu, has.cpu_millis, spark), Role.USED),
        piece(f" {of_cpu}", _OF_MACHINE_COLUMNS, Role.DIM),
        piece(" ram", 4, Role.DIM),
        Piece(sparkline(ram, has.ram_bytes, spark), Role.USED),
    ]
    return line(pieces, width, f" {of_ram}", Role.DIM)


_OF_MACHINE_COLUMNS = 20  # 1023.9MiB of 7.85GiB


def upkeep(status: StatusView, now: float) -> Listing:
    """Return what somebody who looks after the cell should know: what needs them, then how it is kept."""
    lines = [(text, Role.WARN) for text in (*status.rollbacks_paused, *status.draining)]
    for each in status.certificates:
        if each.near:
            whose = f"{each.role} {each.machine}".rstrip()
            words = f"certificate of {whose} ends {day_and_time(each.ends_at)} and was not renewed"
            lines.append((words, Role.BAD))
    if status.machines_uncertified:
        without = plural(status.machines_uncertified, "machine")
        words = f"{without} without a certificate of the cell's authority"
        lines.append((words, Role.WARN))
    if status.to_change:
        lines.append((f"{plural(status.to_change, 'running task')} yet to be changed", Role.PLAIN))
    free = status.store_free_bytes
    on_disk = "" if free is None else f", {show_bytes(free)} free on its disk"
    lines.append((f"store {status.store}{on_disk}", Role.DIM))
    if (last := status.last_checkpoint) is not None:
        words = f"checkpoint at position {last.position}, {age(last.at, now)} ago, {show_bytes(last.bytes)}"
        lines.append((words, Role.DIM))
    return text_list("UPKEEP", lines)


def machine_list(known: Sequence[MachineView], total: int) -> Listing:
    """Return machines, with what is used and committed there; ``total`` there are."""

    def title(width: int, shown: range) -> Line:
        resource = _bar_columns(width) + _PERCENT_COLUMNS + 1
        pieces = [
            piece(_title("MACHINES", len(shown), total), _name_columns(width), Role.TITLE),
            piece("STATE", _STATE_COLUMNS, Role.HEADING),
            piece("CPU", resource, Role.HEADING),
            piece("RAM", resource, Role.HEADING),
            piece("TASKS", _COUNT_COLUMNS, Role.HEADING),
        ]
        return line(pieces, width, "REASON", Role.HEADING)

    return Listing(
        len(known),
        title,
        lambda i, width: _machine(known[i], width),
        lambda i: Target(View.MACHINE, known[i].name),
        "None has joined yet." if not total else "None of these.",
    )


def jobs(view: SummaryView) -> Listing:
    """Return the jobs of a summary, those with trouble first. Those of an application are together, and of
    one that is well there is one line for all of them."""
    return _job_rows(list(_grouped(view)), view.status.jobs)


def overview(view: SummaryView) -> Listing:
    """Return what needs somebody, then what runs: machines in trouble, jobs, and one line for all that
    ended as it should."""
    troubled = [each for each in view.machines if _has_trouble(each)]
    rows = list(_grouped(view))
    going_on = [each for each in rows if not _is_over(each)]
    over = len(rows) - len(going_on)
    folded = [_Folded(over)] if over else []
    return _job_rows([*troubled, *going_on, *folded], view.status.jobs)


def job_list(known: Sequence[JobView], total: int, changed: Collection[str] = ()) -> Listing:
    """Return jobs by themselves; ``total`` there are, and those ``changed`` stand out."""
    return _job_rows(known, total, changed)


class _Folded(msgspec.Struct, frozen=True):
    """So many jobs that ended, in one line."""

    jobs: int


_Row = JobView | AppSummary | MachineView | _Folded


def _job_rows(rows: Sequence[_Row], total: int, changed: Collection[str] = ()) -> Listing:
    apps = {each.name for each in rows if isinstance(each, AppSummary)}

    def jobs_in(row: _Row) -> int:
        if isinstance(row, JobView):  # those of an application stand below it, and are counted with it
            return 0 if row.app in apps else 1
        return 0 if isinstance(row, MachineView) else row.jobs

    def title(width: int, shown: range) -> Line:
        jobs = sum(jobs_in(rows[i]) for i in shown)
        pieces = [
            piece(_title("JOBS", jobs, total), _name_columns(width) + 4, Role.TITLE),
            piece("STATE", _STATE_COLUMNS, Role.HEADING),
            piece("BAND", _BAND_COLUMNS, Role.HEADING),
            piece("UP/TASKS", _UP_COLUMNS, Role.HEADING, right=True),
        ]
        return line(pieces, width, "REASON", Role.HEADING)

    def row(i: int, width: int) -> Line:
        each, named = rows[i], _name_columns(width) + 4
        if isinstance(each, JobView):
            return _job(each, width, named, is_new=each.name in changed)
        if isinstance(each, AppSummary):
            return _app(each, width, named)
        if isinstance(each, MachineView):
            return _machine_in_trouble(each, width, named)
        words = f"{each.jobs} more that ended: 1 lists all"
        return line([], width, words, Role.DIM)

    return Listing(
        len(rows), title, row, lambda i: _target(rows[i]), _NO_JOBS if not total else "None of these."
    )


_NO_JOBS = "None. `borgctl job submit FILE` brings one."


def _target(row: _Row) -> Target:
    if isinstance(row, JobView):
        return Target(View.JOB, row.name)
    if isinstance(row, MachineView):
        return Target(View.MACHINE, row.name)
    if isinstance(row, AppSummary):
        return Target(View.JOBS, row.name.partition("/")[0], row.name.partition("/")[2])
    return Target(View.JOBS)


def _is_over(row: JobView | AppSummary) -> bool:
    return isinstance(row, JobView) and row.state is State.DEAD and not row.failed


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
            yield from (each for each in jobs if app.up < app.tasks and job_role(each) in _TROUBLE)
    yield from (app for app in view.apps if not app.jobs)


def pending(view: SummaryView, wrapped_in: int = 0) -> Listing:
    """Return what is not placed, why, and the way out: in a line each, or to their last words in so many
    columns."""
    lines = [(refusal, *part) for refusal in view.pending for part in _refusal_lines(refusal, wrapped_in)]
    count = view.status.pending
    unexplained = (
        "The scheduler has not evaluated them yet."
        if view.as_of is None
        else "What the scheduler said of them then was not journalled."
    )

    def title(width: int, _shown: range) -> Line:
        pieces = [
            piece(f"PENDING {count}", _name_columns(width), Role.TITLE),
            piece("TASKS", _COUNT_COLUMNS, Role.HEADING, right=True),
        ]
        return line(pieces, width, "WHY, AND THE WAY OUT", Role.HEADING)

    return Listing(
        len(lines),
        title,
        lambda i, width: _refusal(*lines[i], width),
        lambda i: Target(View.WHY, lines[i][0].job),
        unexplained if count else "Nothing: every task is placed.",
    )


def events(view: SummaryView) -> Listing:
    """Return what happened last, the latest at the bottom."""
    return event_list(view.events, from_end=True)


def event_list(known: Sequence[EventView], *, from_end: bool = False) -> Listing:
    """Return events in order."""

    def target(i: int) -> Target | None:
        event = known[i]
        if event.job and len(event.indexes) == 1:
            return Target(View.TASK, task_name(event.job, event.indexes[0]))
        if event.job:
            return Target(View.JOB, event.job)
        return Target(View.MACHINE, event.machine) if event.machine else None

    return Listing(
        len(known),
        lambda width, _shown: line([piece("EVENTS", _TIME_COLUMNS + 1 + _KIND_COLUMNS, Role.TITLE)], width),
        lambda i, width: _event(known[i], width),
        target,
        "None yet.",
        from_end,
    )


def task_list(known: Sequence[TaskView], now: float, *, title: str = "TASKS", usage: bool = False) -> Listing:
    """Return tasks; ``now`` is in seconds since 1970. ``usage``: what they use counts most of all."""

    def heading(width: int, _shown: range) -> Line:
        columns = [
            piece(title, _task_columns(width), Role.TITLE),
            piece("STATE", _PHASE_COLUMNS, Role.HEADING),
            piece("MACHINE", _machine_columns(width), Role.HEADING),
        ]
        if usage or width >= _USAGE_WIDTH_MIN:
            columns += [piece(each, _AMOUNT_COLUMNS, Role.HEADING, right=True) for each in ("CPU", "RAM")]
        columns.append(piece("STARTS", _STARTS_COLUMNS, Role.HEADING, right=True))
        columns.append(piece("SINCE", _AGE_COLUMNS, Role.HEADING, right=True))
        return line(columns, width, "REASON", Role.HEADING)

    def row(i: int, width: int) -> Line:
        task = known[i]
        used = task.usage
        columns = [
            name(task.name, _task_columns(width)),
            piece(state_of(task), _PHASE_COLUMNS, task_role(task)),
            name(task.machine or "-", _machine_columns(width)),
        ]
        if usage or width >= _USAGE_WIDTH_MIN:
            amounts = (show_cpu(used.cpu_millis), show_bytes(used.ram_bytes)) if used else ("-", "-")
            columns += [piece(each, _AMOUNT_COLUMNS, right=True) for each in amounts]
        columns.append(piece(str(task.restarts + 1) if task.machine else "-", _STARTS_COLUMNS, right=True))
        columns.append(piece(age(task.since, now), _AGE_COLUMNS, right=True))
        return line(columns, width, local_times(task.reason))

    return Listing(len(known), heading, row, lambda i: Target(View.TASK, known[i].name), "None.")


_PHASE_COLUMNS = 13  # crash-looping
_AMOUNT_COLUMNS = 7
_STARTS_COLUMNS = 6
_AGE_COLUMNS = 5
_TASK_COLUMNS_MIN = 16
_USAGE_WIDTH_MIN = 100  # below that, why a task is as it is counts more


def _task_columns(width: int) -> int:
    return min(40, max(_TASK_COLUMNS_MIN, width // 4))


def _machine_columns(width: int) -> int:
    return min(20, max(6, width // 10))


def state_of(task: TaskView) -> str:
    """Return how a task is, in one word: its phase, or how it ended."""
    return task.phase or task.outcome or task.state


_PHASE_ROLES = {
    **dict.fromkeys(("up", "healthy"), Role.GOOD),
    **dict.fromkeys(("unhealthy", "crash-looping", "unkillable", "failed", "lost"), Role.BAD),
    **dict.fromkeys(("finished", "killed"), Role.DIM),
}


def task_role(task: TaskView) -> Role:
    """Return how well a task is."""
    return _PHASE_ROLES.get(state_of(task), Role.WARN)


def quota_list(known: Sequence[QuotaView]) -> Listing:
    """Return who may ask for what, by band, and how much of it they do."""

    def title(width: int, _shown: range) -> Line:
        bar = _bar_columns(width)
        pieces = [
            piece("USERS AND QUOTAS", _name_columns(width), Role.TITLE),
            piece("BAND", _BAND_COLUMNS, Role.HEADING),
            piece("CPU", bar + _OF_COLUMNS, Role.HEADING),
            piece("RAM", bar + _OF_COLUMNS, Role.HEADING),
        ]
        return line(pieces, width, "UNTIL", Role.HEADING)

    def row(i: int, width: int) -> Line:
        quota, bar = known[i], _bar_columns(width)
        has = quota.limits
        pieces = [
            name(quota.user, _name_columns(width)),
            piece(quota.band, _BAND_COLUMNS, Role(quota.band)),
            *_of_quota(quota.used.cpu_millis, has.cpu_millis if has else None, show_cpu, bar),
            *_of_quota(quota.used.ram_bytes, has.ram_bytes if has else None, show_bytes, bar),
        ]
        return line(pieces, width, quota.until or ("" if quota.set else "no quota"), Role.DIM)

    none = "Nobody asks for anything that a quota could limit."
    return Listing(len(known), title, row, lambda i: Target(View.JOBS, known[i].user), none)


_OF_COLUMNS = 18  # 1023.9MiB/unlimited


def _of_quota(used: int, limit: int | None, show: Callable[[int], str], bar: int) -> list[Piece]:
    of = "unlimited" if limit is None else show(limit)
    full = limit is not None and used >= limit and used > 0
    shown = machine_bar(0, used, limit or 0, bar)
    return [*shown, piece(f" {show(used)}/{of}", _OF_COLUMNS, Role.WARN if full else Role.PLAIN)]


def text_list(title: str, lines: Sequence[tuple[str, Role]]) -> Listing:
    """Return lines of text, to scroll through."""
    return Listing(
        len(lines), plain_title(title), lambda i, width: line([], width, *lines[i]), empty="Nothing."
    )


def _title(word: str, shown: int, total: int) -> str:
    return f"{word} {total}" if shown >= total else f"{word} {shown}/{total}"


def _name_columns(width: int) -> int:
    return min(30, max(8, width // 5))


def _bar_columns(width: int) -> int:
    return min(16, max(4, width // 10))


def _machine(machine: MachineView, width: int) -> Line:
    named, bar = _name_columns(width), _bar_columns(width)
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
    orphans = plural(count, "orphan") if count else ""
    return "; ".join(part for part in (local_times(machine.reason), *machine.conditions, orphans) if part)


_TROUBLE = (Role.BAD, Role.WARN)


def _has_trouble(machine: MachineView) -> bool:
    return machine.state == "down" or not machine.answering or bool(machine.conditions or machine.orphans)


def _machine_in_trouble(machine: MachineView, width: int, named: int) -> Line:
    pieces = [
        name(machine.name, named),
        piece(machine.state, _STATE_COLUMNS, _state_role(machine)),
        piece("machine", _BAND_COLUMNS, Role.DIM),
        piece(plural(machine.tasks, "task"), _UP_COLUMNS, right=True),
    ]
    silent = "" if machine.answering else "it does not answer"
    return line(pieces, width, "; ".join(filter(None, (_trouble(machine), silent))), Role.WARN)


def _app(app: AppSummary, width: int, named: int) -> Line:
    role = Role.BAD if app.failed else Role.GOOD if app.up >= app.tasks else Role.WARN
    pieces = [
        name(app.name, named),
        piece("app", _STATE_COLUMNS, role),
        piece(f"v{app.version}", _BAND_COLUMNS),
        piece(f"{app.up}/{app.tasks}", _UP_COLUMNS, right=True),
    ]
    counts = (
        (app.jobs, plural(app.jobs, "job")),
        (app.crons, plural(app.crons, "cron")),
        (app.pending, f"{app.pending} pending"),
        (app.failed, f"{app.failed} failed"),
    )
    return line(pieces, width, ", ".join(text for count, text in counts if count))


def _job(job: JobView, width: int, named: int, *, is_new: bool = False) -> Line:
    role = job_role(job)
    shown = f"  {job.name.partition('/')[2]}" if job.app else job.name
    pieces = [
        name(shown, named, Role.NEW if is_new else Role.PLAIN),
        piece(job.outcome or job.state, _STATE_COLUMNS, role),
        piece(job.band, _BAND_COLUMNS, Role(job.band)),
        piece(f"{job.running if job.up is None else job.up}/{job.tasks}", _UP_COLUMNS, right=True),
    ]
    return line(pieces, width, _what_of_it(job), Role.DIM if role is Role.DIM else Role.PLAIN)


def job_role(job: JobView) -> Role:
    """Return how well a job is."""
    if job.failed:
        return Role.BAD
    if job.state is State.DEAD:
        return Role.DIM
    up = job.running if job.up is None else job.up  # of the past it is not known
    return Role.GOOD if up + job.dead >= job.tasks else Role.WARN


def _what_of_it(job: JobView) -> str:
    """Return how its dead tasks came out, and what is in its way."""
    counts = ((job.finished, "finished"), (job.failed, "failed"), (job.killed, "killed"))
    ended = ", ".join(f"{count} {word}" for count, word in counts if count)
    return "; ".join(part for part in (ended, local_times(job.reason)) if part)


def _refusal_lines(refusal: RefusalView, wrapped_in: int) -> Iterator[tuple[str, str, Role]]:
    """Yield the text of each line, with what stands before it; "": the name of the job."""
    role = Role.PLAIN if refusal.in_order else Role.WARN
    indent = _name_columns(wrapped_in) + _COUNT_COLUMNS + 2
    text = local_times(refusal.text)
    first, *more = wrapped(text, wrapped_in - indent) if wrapped_in else (text,)
    yield "", first, role
    yield from ((" " * indent, each, role) for each in more)
    if refusal.hint:
        first, *more = wrapped(refusal.hint, wrapped_in - len(_HINT)) if wrapped_in else (refusal.hint,)
        yield _HINT, first, Role.PLAIN
        yield from ((" " * len(_HINT), each, Role.PLAIN) for each in more)


_HINT = "    hint: "


def _refusal(refusal: RefusalView, before: str, text: str, role: Role, width: int) -> Line:
    if before:
        return line([Piece(before, Role.DIM)], width, text, role)
    pieces = [
        name(refusal.job, _name_columns(width)),
        piece(str(refusal.tasks), _COUNT_COLUMNS, right=True),
    ]
    return line(pieces, width, text, role)


def _event(event: EventView, width: int) -> Line:
    role = Role.BAD if event.bad else Role.PLAIN
    pieces = [
        piece(clock_time(event.at), _TIME_COLUMNS, Role.DIM),
        piece(event.kind, _KIND_COLUMNS, role),
    ]
    return line(pieces, width, local_times(event.text), role)
