"""Looks at what really happened: what is in the cell, one entry after the other, and what differs."""

from argparse import ArgumentParser, Namespace
from difflib import get_close_matches
from itertools import islice
from typing import get_args

import msgspec

from borgish.api.views.history import COMMAND_WORDS, HistoryFilter, history_view
from borgish.api.views.machines import machine_state
from borgish.cell.diff import Kind, difference
from borgish.cell.events import AnyEvent, Entry
from borgish.cell.machines.drains import drain_words
from borgish.cell.model import Cell
from borgish.errors import Invalid, NotFound
from borgish.resources import show_bytes, show_cpu
from borgish.sim.faux.names import find_job, find_machine, known
from borgish.sim.faux.output import Answer, at_data, cut, happened, viewed, when
from borgish.sim.faux.session import Session
from borgish.text import plural, show_indexes

STEPS_MAX = 10_000
EVENTS = tuple(sorted(kind.__name__ for kind in get_args(AnyEvent)))
_SIGNS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~"}


def show_arguments(parser: ArgumentParser) -> None:
    """One job or machine, or the whole cell."""
    parser.add_argument("name", nargs="?", default="", metavar="[JOB|MACHINE]")


def show(session: Session, args: Namespace) -> Answer:
    """Say what is in the cell, or in one job, or on one machine."""
    cell = session.here
    if args.name:
        return _show_job(cell, args.name) if _is_job(cell, args.name) else _show_machine(cell, args.name)
    machines = [_machine_line(cell, name) for name in sorted(cell.machines)]
    jobs = [_job_line(cell, key) for key in sorted(cell.jobs)]
    lines = [where(session), *cut(machines), *cut(jobs)]
    counts = {"machines": len(cell.machines), "jobs": len(cell.jobs), **_task_counts(cell)}
    data = at_data(cell.position, session.now, cell.timeline) | {"cell": cell.name} | counts
    return Answer(tuple(lines), data)


def where(session: Session) -> str:
    """Return in a line where this session is."""
    cell = session.here
    moment = f"timeline {cell.timeline}, {when(session.now)}"
    line = f"cell {cell.name} at journal position {cell.position} ({moment})"
    if session.changed_copy is not None:
        return f"{line}, on a copy that was changed after {session.cell.position}"
    return f"{line}; its history is known from {session.opened.first} to {session.opened.head}"


def _task_counts(cell: Cell) -> dict[str, int]:
    jobs = cell.jobs.values()
    return {state: sum(getattr(job, state) for job in jobs) for state in ("pending", "running", "dead")}


def _is_job(cell: Cell, name: str) -> bool:
    return "/" in name or (name not in cell.machines and any(k.endswith(f"/{name}") for k in cell.jobs))


def _machine_line(cell: Cell, name: str) -> str:
    machine = cell.machines[name]
    has = f"{show_cpu(machine.capacity.cpu_millis)} cpu, {show_bytes(machine.capacity.ram_bytes)} ram"
    state = machine_state(machine)
    return f"machine {name}: {state}, {has}, tasks placed there: {len(cell.placed[name])}"


def _job_line(cell: Cell, key: str) -> str:
    job = cell.jobs[key]
    return f"job {key}: {job.pending} pending, {job.running} running, {job.dead} dead"


def _show_job(cell: Cell, name: str) -> Answer:
    key = find_job(cell, name)
    tasks = cell.jobs[key].tasks
    lines = [f"  {key}/{t.index}: {t.state}{_on(t.machine)}{_why(t.reason)}" for t in tasks]
    rows = [{"task": t.index, "state": t.state, "machine": t.machine, "reason": t.reason} for t in tasks]
    return Answer((_job_line(cell, key), *cut(lines)), {"job": key, "tasks": rows})


def _show_machine(cell: Cell, name: str) -> Answer:
    found = find_machine(cell, name)
    machine = cell.machines[found]
    tasks = [f"{key}/{index}" for key, index in sorted(cell.placed[found])]
    about = [f"  {key}={value}" for key, value in sorted(machine.attributes.items())]
    marks = [f"  tainted {taint}" for taint in machine.taints]
    marks += [f"  {drain_words(drain)}" for drain in machine.drains]
    lines = (_machine_line(cell, found), *about, *marks, *cut([f"  runs {task}" for task in tasks]))
    return Answer(lines, {"machine": found, "attributes": machine.attributes, "tasks": tasks})


def _on(machine: str) -> str:
    return f" on {machine}" if machine else ""


def _why(reason: str) -> str:
    return f" ({reason})" if reason else ""


# Step by step


def step_arguments(parser: ArgumentParser) -> None:
    """How many."""
    parser.add_argument(
        "count", nargs="?", type=int, default=1, metavar="[N]", help="entries; one if not given"
    )


def step(session: Session, args: Namespace) -> Answer:
    """Go through the next entries of the journal."""
    if not 1 <= args.count <= STEPS_MAX:
        raise Invalid(f"{args.count} is outside 1 to {STEPS_MAX} entries", "Or go there: at POSITION")
    return _passed(session.steps(args.count))


def _passed(entries: list[Entry], skipped: int = 0) -> Answer:
    lines = [f"({plural(skipped, 'entry').replace('entrys', 'entries')} passed)"] if skipped else []
    views = [viewed(entry) for entry in entries]
    return Answer((*lines, *happened(entries)), {"passed": skipped, "entries": views})


def next_event_arguments(parser: ArgumentParser) -> None:
    """Of which kind, and about what."""
    parser.add_argument(
        "event", metavar="EVENT", help=f"{', '.join(EVENTS)}; or what was asked: kill, submit"
    )
    parser.add_argument("name", nargs="?", default="", metavar="[JOB|TASK|MACHINE]", help="only about this")


def next_event(session: Session, args: Namespace) -> Answer:
    """Go on to the next entry with an event of a kind, or that somebody asked for by a word."""
    event, asked = _kind(args.event)
    wanted = _wanted(session.cell, args.name)
    for skipped, entry in enumerate(session.following()):
        is_one = (
            any(type(each).__name__ == event for each in entry.events) if event else _asked(entry) == asked
        )
        if is_one and history_view(_only(entry, event), wanted) is not None:
            session.go_on_to(entry)
            return _passed([entry], skipped)
    about = f" about {args.name}" if args.name else ""
    here = session.opened
    raise NotFound(
        f"no {event or asked}{about} follows position {session.cell.position}",
        f"{here.what} ends at {here.head}; `at POSITION` goes back",
    )


def _asked(entry: Entry) -> str:
    return COMMAND_WORDS.get(entry.cause, entry.cause)


def _only(entry: Entry, event: str) -> Entry:
    """Return the entry with its events of one kind: another one of them may be about something else."""
    events = tuple(each for each in entry.events if not event or type(each).__name__ == event)
    return msgspec.structs.replace(entry, events=events)


def _kind(name: str) -> tuple[str, str]:
    """Return the event that is meant, or else what was asked for. Raises NotFound."""
    plain = name.replace("-", "").replace("_", "").lower()
    for event in EVENTS:
        if event.lower() == plain:
            return event, ""
    words = sorted({*COMMAND_WORDS.values(), "preempt"})
    if name in words:
        return "", name
    close = get_close_matches(plain, [event.lower() for event in EVENTS] + words, n=3, cutoff=0.5)
    named = [next((event for event in EVENTS if event.lower() == one), one) for one in close]
    hint = f"Did you mean {' or '.join(named)}?" if named else f"There are {', '.join(EVENTS)}"
    raise NotFound(f"unknown event '{name}'", hint)


def _wanted(cell: Cell, name: str) -> HistoryFilter:
    """Return what is asked about. It need not be there yet, so that any name will do."""
    user, _, rest = name.partition("/")
    job, _, index = rest.partition("/")
    if not name or not rest:
        machine = name and (
            find_machine(cell, name) if name in cell.machines else _job_or_machine(cell, name)
        )
        return HistoryFilter(job=machine) if "/" in machine else HistoryFilter(machine=machine)
    return HistoryFilter(job=f"{user}/{job}", index=int(index) if index.isdecimal() else None)


def _job_or_machine(cell: Cell, name: str) -> str:
    found = [key for key in cell.jobs if key.endswith(f"/{name}")]
    if len(found) > 1:
        raise NotFound(f"several users have a job '{name}'", f"Name it in full: {known(found)}")
    return found[0] if found else name


def at_arguments(parser: ArgumentParser) -> None:
    """Which moment."""
    parser.add_argument("moment", nargs="+", metavar="TIME|POSITION|CHECKPOINT")


def at(session: Session, args: Namespace) -> Answer:
    """Go to another moment of what was opened."""
    session.go_to(" ".join(args.moment))
    cell = session.cell
    return Answer((where(session),), at_data(cell.position, session.at, cell.timeline))


# Differences


def diff_arguments(parser: ArgumentParser) -> None:
    """From when to when."""
    parser.add_argument(
        "old", nargs="?", default="", metavar="[A]", help="a moment; where it was opened if not given"
    )
    parser.add_argument(
        "new", nargs="?", default="here", metavar="[B]", help="another; where this session is"
    )


def diff(session: Session, args: Namespace) -> Answer:
    """Say what differs between two moments; by default, what came since the cell was opened."""
    old = session.cell_of(args.old or str(_from(session)))
    new = session.cell_of(args.new)
    found = difference(old, new)
    lines = [f"From position {old.position} to position {new.position}:"]
    for section, changes in found.items():
        texts = [f"  {_SIGNS[change.kind]} {change.subject}: {'; '.join(change.lines)}" for change in changes]
        lines += ["", section, *cut(texts)] if texts else []
    data = {
        section: [
            {"kind": c.kind, "name": c.name, "indexes": show_indexes(c.indexes), "lines": c.lines}
            for c in changes
        ]
        for section, changes in found.items()
    }
    nothing = [] if any(found.values()) else ["nothing differs"]
    return Answer((*lines, *nothing), {"old": old.position, "new": new.position, "changes": data})


def _from(session: Session) -> int:
    """Return where a difference begins: where the copy left, or else where the cell was opened."""
    return session.cell.position if session.changed_copy is not None else session.began_at


def following(session: Session, count: int) -> list[Entry]:
    """Return some entries that come next, without going there."""
    return list(islice(session.following(), count))


COMMANDS = {
    "show": (show_arguments, show),
    "step": (step_arguments, step),
    "next": (next_event_arguments, next_event),
    "at": (at_arguments, at),
    "diff": (diff_arguments, diff),
}
