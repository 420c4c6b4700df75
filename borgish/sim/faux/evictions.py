"""``evicts``: whom a change would evict, found by making it on a copy, and where those are then."""

from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Iterable, Mapping

import msgspec

from borgish.cell.command import Command
from borgish.cell.events import Entry, TasksEvicted
from borgish.cell.model import Cell
from borgish.errors import Invalid
from borgish.scheduler.plan import Refusal
from borgish.sim.faux.changes import CHANGES
from borgish.sim.faux.copied import Copy
from borgish.sim.faux.names import nearest
from borgish.sim.faux.output import Answer, cut, refusal_data, refused
from borgish.sim.faux.session import Session
from borgish.sim.faux.verbs import VERBS, parser_of
from borgish.text import plural, show_indexes
from borgish.vocabulary import State

EXIT_TASKS_AFFECTED = 3
"""The exit code when somebody is evicted, or left waiting."""


def evicts_arguments(parser: ArgumentParser) -> None:
    """Which change."""
    help_ = f"a change, as on the copy: {', '.join(CHANGES)}; or a job file to submit"
    parser.add_argument("change", nargs=REMAINDER, metavar="CHANGE...", help=help_)


def evicts(session: Session, args: Namespace) -> Answer:
    """Say whom a change would evict, and what would become of them."""
    command = change_in(session, args.change)
    found = try_change(session.trial(), command)
    lines = [*found.answer, *_evicted_lines(found)]
    lines += [f"  {line}" for line in cut(refused(found.waiting))]
    data = {
        "answer": found.answer,
        "evicted": [
            {"job": e.job, "indexes": show_indexes(e.indexes), "cause": e.cause, "why": e.why, "now": e.now}
            for e in found.evicted
        ],
        "waiting": refusal_data(found.waiting),
    }
    return Answer(tuple(lines), data, EXIT_TASKS_AFFECTED if found.evicted or found.waiting else 0)


def _evicted_lines(found: "Evicted") -> list[str]:
    if not found.evicted:
        return ["nobody is evicted"]
    count = sum(len(each.indexes) for each in found.evicted)
    lines = [f"{plural(count, 'task')} evicted:"]
    evicted = [f"  {e.job}/{show_indexes(e.indexes)}: {e.why}; then {e.now}" for e in found.evicted]
    return [*lines, *cut(evicted)]


def change_in(session: Session, words: list[str]) -> Command:
    """Return the command that a change in words is. Raises Invalid and NotFound."""
    if not words:
        raise Invalid("evicts: which change?", f"Name one of {', '.join(CHANGES)}, or a job file")
    name = words[0]
    if name not in CHANGES and ("." in name or "/" in name):
        name, words = "submit", ["submit", *words]
    if name not in CHANGES:
        raise Invalid(f"there is no change '{name}'", nearest(name, CHANGES, "changes"))
    return CHANGES[name].command(parser_of(VERBS[name]).parse_args(words[1:]), session.here)


COMMANDS = {"evicts": (evicts_arguments, evicts)}


class Leaving(msgspec.Struct, frozen=True):
    """Tasks of one job that were sent away alike."""

    job: str
    indexes: tuple[int, ...]
    cause: str
    why: str
    now: str  # what became of them


class Evicted(msgspec.Struct, frozen=True):
    """What came of a change. ``waiting`` are refusals that were not there before."""

    answer: tuple[str, ...]
    evicted: tuple[Leaving, ...]
    waiting: dict[str, tuple[Refusal, ...]]


def try_change(copy: Copy, command: Command) -> Evicted:
    """Make a change and let all that follows come about. Raises what it would be refused with."""
    copy.settle()
    before, waited = len(copy.entries), dict(copy.core.refusals)
    accepted = copy.ask(command)
    copy.settle()
    evicted = leaving(copy.cell, copy.entries[before:])
    return Evicted((accepted.text, *accepted.notes), evicted, newly_waiting(waited, copy.core.refusals))


def leaving(cell: Cell, entries: Iterable[Entry]) -> tuple[Leaving, ...]:
    """Return whom these entries evict. Those evicted again are listed once, for the first reason."""
    seen: set[tuple[str, int]] = set()
    found = []
    for event in (event for entry in entries for event in entry.events):
        if not isinstance(event, TasksEvicted):
            continue
        indexes = tuple(index for index in event.indexes if (event.job, index) not in seen)
        seen |= {(event.job, index) for index in indexes}
        if indexes:
            why = event.reason or (f"for {event.preemptor}" if event.preemptor else event.cause)
            found.append(Leaving(event.job, indexes, event.cause, why, _now(cell, event.job, indexes)))
    return tuple(found)


def _now(cell: Cell, key: str, indexes: tuple[int, ...]) -> str:
    """Return where tasks are, in words."""
    job = cell.jobs.get(key)
    if job is None:
        return "gone"
    tasks = [job.tasks[index] for index in indexes if index < len(job.tasks)]
    machines = sorted({task.machine for task in tasks if task.state is State.RUNNING})
    parts = [f"placed on {', '.join(cut(machines, 5))}"] if machines else []
    for state, word in ((State.PENDING, "waiting"), (State.DEAD, "dead")):
        count = sum(task.state is state for task in tasks)
        parts += [word if count == len(tasks) else f"{count} of them {word}"] if count else []
    return ", ".join(parts) or "gone"


def newly_waiting(
    before: Mapping[str, tuple[Refusal, ...]], after: Mapping[str, tuple[Refusal, ...]]
) -> dict[str, tuple[Refusal, ...]]:
    """Return the refusals of tasks that did not wait before."""
    waited = {(job, index) for job, those in before.items() for each in those for index in each.indexes}
    found: dict[str, tuple[Refusal, ...]] = {}
    for job, those in after.items():
        new = [
            msgspec.structs.replace(each, indexes=indexes)
            for each in those
            if (indexes := tuple(index for index in each.indexes if (job, index) not in waited))
        ]
        if new:
            found[job] = tuple(new)
    return found
